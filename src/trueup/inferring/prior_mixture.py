"""Integration of the posterior over uncertain hyperparameters of the prior, by importance sampling.

One file: points, their weights, and what makes these doubtful.
Points are spread evenly; Pareto's k of their weights (Vehtari et al. 2024) stands in the record.
At each point only the levels whose splits vary are solved again (`trueup.kernel.messages.resolve`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.inferring.hierarchical import Estimate
from trueup.inferring.method import Progress
from trueup.inferring.tree_parts import Weighted
from trueup.inferring.tree_work import in_turn
from trueup.kernel.messages.resolve import solve_above
from trueup.kernel.messages.solve import Solved, marginals
from trueup.layouts.splits import Splits
from trueup.run import Deadline

Reals = NDArray[np.float64]

MAX_TRUSTED_PARETO_K = 0.7
"""Pareto's k above which importance weights are not to be trusted (Vehtari et al. 2024)."""
POINTS, FEW_POINTS = 64, 32
"""Points to integrate over, and those where more than `POINTS_AT_ONCE` nodes are solved at each."""
POINTS_AT_ONCE = 1 << 8
MIN_POINT_WEIGHT = 1e-12
"""Weight below which a point is left out."""
MAX_MISSING_MASS = 0.5
"""Posterior mass that may be missing of a solution for its evidence to say anything."""
PROPOSAL_DEGREES_OF_FREEDOM = 5.0
"""Degrees of freedom of the t distribution that points are drawn from."""

SMALLER = 2.5
"""By how much the logit of how small parts are is lowered to see how far it may be."""
SOLUTIONS_DRAWN_IN = 8
"""Predicted time of drawing from solutions, in points."""


def count_points(nodes: int) -> int:
    """Return the number of integration points for a tree, given the number of nodes solved at each."""
    return POINTS if nodes <= POINTS_AT_ONCE else FEW_POINTS


def points(
    estimate: Estimate, free: NDArray[np.bool_], count: int, rng: np.random.Generator, left: float = 1.0
) -> tuple[Reals, Reals]:
    """Draw hyperparameters `(count, k)` evenly spread about the mode, at the mode outside `free`.

    Given the others, the last reaches `left` times as far below its mode as above.

    The points are a rank-1 sequence of the unit cube, shifted at random (Roberts' generalised golden ratio), as a normal
    vector and the chi-squared variable of its scale: they cover the distribution as several times as many independent ones do.

    Returns
    -------
    points, log_density
        And the log density that they were drawn with, up to a constant.
    """
    from scipy.special import gammaincinv, ndtri

    precision = np.linalg.inv(estimate.covariance)[np.ix_(free, free)]
    root = np.linalg.cholesky(np.linalg.inv(precision))
    k = int(free.sum())
    u = _even(count, k + 1, rng)
    z = ndtri(u[:, :k]) / np.sqrt(
        2 * gammaincinv(PROPOSAL_DEGREES_OF_FREEDOM / 2, u[:, k:]) / PROPOSAL_DEGREES_OF_FREEDOM
    )
    out = np.tile(estimate.theta, (count, 1))
    log_density = (
        -0.5 * (PROPOSAL_DEGREES_OF_FREEDOM + k) * np.log1p((z**2).sum(axis=1) / PROPOSAL_DEGREES_OF_FREEDOM)
    )
    reach = np.where(z[:, -1] < 0, left, 1.0)
    z[:, -1] *= reach
    out[:, free] += z @ root.T
    return out, log_density - np.log(reach)


def _even(count: int, dimensions: int, rng: np.random.Generator) -> Reals:
    """Return random points `(count, dimensions)` that are evenly spread over the unit cube."""
    ratio = 2.0
    for _ in range(60):  # the root above 1 of x^(d + 1) = x + 1
        ratio = (1 + ratio) ** (1 / (dimensions + 1))
    step = ratio ** -np.arange(1.0, dimensions + 1)
    u = (rng.random(dimensions) + np.arange(count)[:, None] * step) % 1.0
    return np.clip(u, 1e-12, 1 - 1e-12)


def uncertain(splits: Splits, estimate: Estimate, most: int) -> tuple[int, NDArray[np.bool_]]:
    """Return the last level that depends on uncertain hyperparameters, and a mask of these.

    Parameters
    ----------
    most
        The last level that may be solved again and again.
    """
    free = estimate.matters & (splits.depths <= most)
    return int(splits.depths[free].max(initial=0)), free


@dataclass(frozen=True, eq=False)
class PriorMixture:
    """Solutions of a tree at several points of the prior's hyperparameters, mixed into one posterior.

    Attributes
    ----------
    parts, log_weights
        The solutions with their weights and draws; the log importance weights of all points.
    beyond
        True if points could not be solved within the tolerance, so that only the mode is used.
    """

    parts: list[Weighted]
    log_weights: Reals
    beyond: bool = False

    @property
    def unsolved(self) -> int:
        """Return the number of integration points at which the tree could not be solved."""
        return int(np.isneginf(self.log_weights).sum())

    def record(self, splits: Splits, estimate: Estimate, free: NDArray[np.bool_]) -> dict:
        """Return the record's entry on the hyperparameters of the prior."""
        weights = normalised(self.log_weights)
        integrated = free & (len(weights) > 1)
        k, held = pareto_k(self.log_weights), _names(splits, estimate.matters & ~integrated)
        rows = zip(splits.names, estimate.theta, estimate.sd, estimate.shift)
        return {
            "estimates": {
                name: {
                    "mode": float(mode),
                    "sd": None if np.isnan(shift) else float(sd),
                    "shift": None if np.isnan(shift) else float(shift),
                }
                for name, mode, sd, shift in rows
            },
            "evaluations": estimate.steps,
            "integrated": _names(splits, integrated),
            "points": len(weights),
            "effective_points": float(1 / (weights**2).sum()),
            "pareto_k": k if np.isfinite(k) else None,
            "doubts": [
                *self._doubts(k),
                *(
                    ["The search for the prior's parameters ended before it converged."]
                    * (not estimate.settled)
                ),
                *([f"Taken as known at their mode, though uncertain: {', '.join(held)}."] if held else []),
            ],
        }

    def _doubts(self, k: float) -> list[str]:
        if self.beyond:
            return ["Solutions near the mode of the prior's parameters omit more probability than allowed."]
        if k > MAX_TRUSTED_PARETO_K:
            return [
                f"Pareto's k of the weights of the prior's parameters is {k:.2f}, above {MAX_TRUSTED_PARETO_K}: "
                "their uncertainty may be poorly accounted for."
            ]
        if self.unsolved:
            return [
                f"{self.unsolved} of {len(self.log_weights)} points of the prior's parameters could not be solved."
            ]
        if np.isnan(k) and len(self.log_weights) > 1:
            return [f"{len(self.log_weights)} points of the prior's parameters are too few for Pareto's k."]
        return []


def _names(splits: Splits, which: NDArray[np.bool_]) -> list[str]:
    return [name for name, one in zip(splits.names, which) if one]


@dataclass(frozen=True, eq=False)
class Spread:
    """A tree, or its upper levels, that is solved at several points of the prior's hyperparameters.

    Attributes
    ----------
    solved
        The solution at the mode.
    first, parents
        Number of nodes, the first ones, whose splits vary; and number of those above the last level with such splits.
    splits, tolerance
        The prior, and the largest posterior mass that may be dropped.
    deeper
        A function that solves the whole tree with tables as deep as needed; None for a top, whose leaves are messages.
    """

    solved: Solved
    first: int
    parents: int
    splits: Splits
    tolerance: float
    deeper: Callable[[Reals], Solved] | None

    def at(self, theta: Reals) -> Solved | None:
        """Return the solution at given hyperparameters, or None if the posterior cannot be computed there.

        Where only upper levels vary, with the tilts of the mode, unless these turn out not to suit.
        """
        tilted, k = self.solved.tilted, self.first
        try:
            if self.deeper and k == len(tilted.low):
                return self.deeper(theta)
            alpha, total = tilted.factors.alpha.copy(), tilted.factors.total.copy()
            fresh = self.splits.parameters(theta)
            alpha[:k], total[:k] = fresh[0][:k], fresh[1][:k]
            tilted = tilted._replace(factors=tilted.factors._replace(alpha=alpha, total=total))
            solved = solve_above(self.solved, tilted, k, self.parents, self.tolerance)
            if self.deeper is None:
                return solved if solved.dropped < MAX_MISSING_MASS else None
            return solved if solved.dropped <= self.tolerance else self.deeper(theta)
        except ConvergenceError:
            return None

    def _log_density(self, theta: Reals, solved: Solved | None) -> float:
        return -np.inf if solved is None else solved.evidence + self.splits.log_hyperprior(theta)[0]

    def _left(self, estimate: Estimate, free: NDArray[np.bool_]) -> float:
        """Return how much further below the mode the small parts' parameter spreads than above it.

        It is computed from the log density at `SMALLER`, as if that were normal on this side.
        """
        if not (self.splits.mean and free[-1]):
            return 1.0
        smaller = estimate.theta - SMALLER * (np.arange(len(free)) == len(free) - 1)
        fall = self._log_density(estimate.theta, self.solved) - self._log_density(smaller, self.at(smaller))
        precision = np.linalg.inv(estimate.covariance)[-1, -1]
        return float(max(SMALLER * np.sqrt(precision / max(2 * fall, 1.0)), 1.0))

    def parts(
        self,
        estimate: Estimate,
        free: NDArray[np.bool_],
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
        deadline: Deadline,
    ) -> PriorMixture:
        """Return weighted solutions of the tree at points of the hyperparameters about the mode."""
        if not free.any():
            return PriorMixture([(1.0, self.solved, draws)], np.zeros(1))
        count = count_points(self.first)
        thetas, log_density = points(estimate, free, count, rng, self._left(estimate, free))
        solutions, log_weights = [], np.empty(count)
        for i, theta in in_turn(thetas, deadline, progress, SOLUTIONS_DRAWN_IN):
            solved = self.at(theta)
            if solved and not np.isfinite(marginals(solved)[2]).all():
                solved = None  # its tilts are so steep that messages end where floating-point numbers do
            solutions.append(solved)
            log_weights[i] = self._log_density(theta, solved) - log_density[i]
        alone = PriorMixture([(1.0, self.solved, draws)], np.zeros(1), beyond=True)
        if np.isneginf(log_weights).all():
            return alone
        weights = normalised(log_weights)
        counts = rng.multinomial(draws, weights)
        if sum(w * s.dropped for w, s in zip(weights, solutions) if s) > self.tolerance:
            return alone  # too far from what the messages below reach
        kept = [
            (float(w), s, int(c))
            for w, s, c in zip(weights, solutions, counts)
            if s and (w > MIN_POINT_WEIGHT or c)
        ]
        return PriorMixture(kept, log_weights)


def normalised(log_weights: Reals) -> Reals:
    """Return weights that sum to 1, given their logs."""
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def pareto_k(log_weights: Reals) -> float:
    """Return the tail shape of importance weights, which are unreliable above .7. NaN for too few.

    Zhang and Stephens' (2009) estimate with the prior of Vehtari et al. (2024), as in their appendix.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> pareto_k(rng.exponential(1 / 4, 4000)) < 0.5 < 0.7 < pareto_k(rng.exponential(1.2, 4000))
    True
    """
    count = len(log_weights)
    tail = int(min(np.ceil(0.2 * count), np.ceil(3 * np.sqrt(count))))
    if tail < 5:
        return np.nan
    weights = np.sort(np.exp(log_weights - log_weights.max()))
    excess = weights[-tail:] - weights[-tail - 1]
    if excess[-1] <= 0:
        return -np.inf
    excess = np.maximum(excess, 1e-300)
    grid = 30 + int(np.sqrt(tail))
    quarter = excess[int(tail / 4 + 0.5) - 1]
    b = 1 / excess[-1] + (1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))) / (3 * quarter)
    k = np.log1p(-b[:, None] * excess).mean(axis=1)
    log_likelihood = tail * (np.log(-b / k) - k - 1)
    share = 1 / np.exp(log_likelihood - log_likelihood[:, None]).sum(axis=1)
    shape = np.log1p(-(b @ share / share.sum()) * excess).mean()
    return float((tail * shape + 5) / (tail + 10))
