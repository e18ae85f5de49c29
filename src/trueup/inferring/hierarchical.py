"""Hyperparameters of the hierarchical prior: their mode by exact evidence and gradient, and points to integrate over.

Everything rests on the published noisy values. The log evidence is what messages up the tree come to; its gradient
costs one pass down (Fisher's identity, `trueup.kernel.messages.splits`). The search is BFGS in the logs of the
concentrations; each pass starts from the tilts of the last.

Parameters that few parts inform are uncertain. How much that matters is measured: each is moved by a third of its
posterior standard deviation, and the posterior means of all counts are compared with those at the mode. To first order a
parameter of standard deviation s that moves a mean by `d` per s adds `d^2` to the variance of that count. Where the
largest d, in standard deviations of the count, is above `NOTICED / sqrt(k)` for k parameters, the parameter is
integrated over by importance sampling from a t distribution about the mode, with Pareto's k of the weights (Vehtari et
al. 2024) in the record. All others stay at the mode, as if they were known: together they would widen no interval by more
than `NOTICED^2 / 2` of its width, .5 %, which is .17 points of the coverage of a 90 % interval. Those that
more than `FEW` parts inform are not tried. The record says which were
integrated over, how far each moves counts, and whatever makes that doubtful.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, SpecError
from trueup.inferring.method import Progress, announce
from trueup.inferring.tree_parts import Part
from trueup.kernel.messages.solve import Solved, settle_tilts
from trueup.layouts.splits import Splits
from trueup.model.prior import Hierarchical

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
Objective = Callable[[Reals], tuple[float, Reals, Reals]]
"""Log posterior density of hyperparameters (up to a constant), its gradient, and under them the posterior means and standard
deviations `(2, n)` of all counts."""

NOTICED = 0.1
"""Standard deviations of a count by which the uncertainty of all parameters that are held at the mode may move it."""
TRUSTED = 0.7
"""Pareto's k above which importance weights are not to be trusted (Vehtari et al. 2024)."""
FEW = 2000
"""Parts that inform a hyperparameter, up to which its curvature is worked out."""
STEPS = 30
SETTLED = 0.05
"""Standard deviations by which the mode may be off."""
MOST = 2.0
"""Longest step in the log of a concentration."""
POINTS, FEW_POINTS = 64, 16
"""Points to integrate over, and those where more than `SMALL` nodes are solved at each."""
SMALL = 1 << 12
NEGLIGIBLE = 1e-12
"""Weight below which a point is left out."""
FREEDOM = 5.0
"""Degrees of freedom of the t distribution that points are drawn from."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """Where the log density of `k` hyperparameters is largest, and its curvature there.

    Attributes
    ----------
    theta
        (k,) the mode.
    covariance
        (k, k) inverse of the negative curvature.
    shift
        (k,) by how many of its standard deviations a count's mean moves at most where the parameter does by one of its own;
        NaN of those that more than `FEW` parts inform.
    steps
        Evaluations of evidence and gradient.
    settled
        Whether the search ended where the gradient is next to nothing.
    """

    theta: Reals
    covariance: Reals
    shift: Reals
    steps: int
    settled: bool = True

    @property
    def sd(self) -> Reals:
        """Posterior standard deviations (k,), by the curvature at the mode."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def matters(self) -> NDArray[np.bool_]:
        """Whether the uncertainty of each (k,) may widen some interval."""
        return self.shift > NOTICED / np.sqrt(len(self.theta))


def start_of(splits: Splits) -> tuple[Reals, Reals, Integers]:
    """Return hyperparameters to start from, a guess of their variances, and those that few parts inform.

    The guess is two over the parts that inform each; few are up to `FEW`.
    """
    informed = np.concatenate(
        [splits.families(), np.full(splits.covariates.shape[1], splits.free.sum()), splits.held()]
    )
    return np.zeros(len(informed)), 2.0 / (informed + 0.5), np.flatnonzero(informed <= FEW)


def climb(objective: Objective, theta: Reals, variances: Reals, few: Integers) -> Estimate:
    """Find the mode by BFGS with backtracking, then the curvature of the hyperparameters `few` by differences of gradients.

    For the others, which many parts inform, the curvature is the one that BFGS has learnt; they move counts next to nothing.
    """
    inverse = np.diag(variances)
    value, gradient, counts = objective(theta)
    evaluations, settled = 1, False
    for _ in range(STEPS):
        step = inverse @ gradient
        if settled := bool(gradient @ step < SETTLED**2):
            break
        step *= min(1.0, MOST / np.abs(step).max())
        size = 1.0
        while True:
            fresh, slope, moved = _or_nothing(objective, theta + size * step)
            evaluations += 1
            if fresh >= value + 1e-4 * size * (gradient @ step) or size < 1e-3:
                break
            size *= 0.3
        if fresh <= value:
            break
        inverse = _updated(inverse, size * step, gradient - slope)
        theta, value, gradient, counts = theta + size * step, fresh, slope, moved
    covariance = np.diag(np.diag(inverse))
    here = gradient, *counts
    covariance[np.ix_(few, few)], slopes = _curvature(objective, theta, here, few, np.sqrt(np.diag(inverse)))
    shift = np.full(len(theta), np.nan)
    shift[few] = slopes * np.sqrt(np.diag(covariance))[few]
    return Estimate(theta, covariance, shift, evaluations + len(few), settled)


def _or_nothing(objective: Objective, theta: Reals) -> tuple[float, Reals, Reals]:
    """Return minus infinity where a prior is so far from the measurements that no window of counts holds its posterior."""
    try:
        return objective(theta)
    except ConvergenceError:
        return -np.inf, np.zeros(len(theta)), np.zeros((2, 0))


def _updated(inverse: Reals, moved: Reals, bent: Reals) -> Reals:
    """Return the BFGS update of an inverse curvature, unless the function is not concave along the step."""
    product = moved @ bent
    if product <= 1e-10:
        return inverse
    left = np.eye(len(moved)) - np.outer(moved, bent) / product
    return left @ inverse @ left.T + np.outer(moved, moved) / product


def _curvature(
    objective: Objective, theta: Reals, here: tuple[Reals, Reals, Reals], few: Integers, scale: Reals
) -> tuple[Reals, Reals]:
    """Invert the negative second derivatives, found by a step of a third of a standard deviation in each direction.

    `here` holds the gradient, the means and the standard deviations of counts at `theta`.

    Returns
    -------
    covariance, slopes
        And by how many of its standard deviations a count's mean moves at most for each unit of the parameter.
    """
    gradient, mean, spread = here
    second, slopes = np.empty((len(few), len(few))), np.empty(len(few))
    uncertain = spread > 1e-6
    for row, i in enumerate(few):
        width = np.clip(scale[i] / 3, 1e-3, 0.3)
        _, slope, (moved, _) = objective(theta + width * np.eye(len(theta))[i])
        second[row] = (gradient - slope)[few] / width
        slopes[row] = (np.abs(moved - mean)[uncertain] / spread[uncertain]).max(initial=0.0) / width
    values, vectors = np.linalg.eigh((second + second.T) / 2)
    return (vectors / np.maximum(values, 0.05)) @ vectors.T, slopes


def points(
    estimate: Estimate, free: NDArray[np.bool_], count: int, rng: np.random.Generator
) -> tuple[Reals, Reals]:
    """Draw hyperparameters `(count, k)` about the mode, in pairs; those that are not free stay there.

    Returns
    -------
    points, log_density
        And the log density that they were drawn with, up to a constant.
    """
    precision = np.linalg.inv(estimate.covariance)[np.ix_(free, free)]
    root = np.linalg.cholesky(np.linalg.inv(precision))
    half = rng.standard_normal((-(-count // 2), int(free.sum())))
    half /= np.sqrt(rng.chisquare(FREEDOM, len(half)) / FREEDOM)[:, None]
    z = np.concatenate([half, -half])[:count]
    out = np.tile(estimate.theta, (count, 1))
    out[:, free] += z @ root.T
    return out, -0.5 * (FREEDOM + z.shape[1]) * np.log1p((z**2).sum(axis=1) / FREEDOM)


def given(prior: Hierarchical, splits: Splits) -> Reals:
    """Return hyperparameters for concentrations that were given; all values of an attribute are as likely."""
    if len(prior.concentrations) != splits.concentrations:
        raise SpecError(
            f"prior 'hierarchical' has {len(prior.concentrations)} concentrations",
            needed=f"{splits.concentrations}, one for each margin below the root",
        )
    theta = np.zeros(len(splits.names))
    theta[: splits.concentrations] = np.log(prior.concentrations)
    return theta


def uncertain(splits: Splits, estimate: Estimate, levels: int, most: int) -> tuple[int, NDArray[np.bool_]]:
    """Return the level whose nodes are the leaves of the top that must be solved again, and which hyperparameters vary.

    Parameters
    ----------
    levels
        Of the tree, the root's included.
    most
        The last level that the top may reach.
    """
    free = estimate.matters & (splits.depths <= most)
    if not free.any():
        return 1, free
    deepest = int(splits.depths[free].max())
    return (levels - 1 if deepest == levels - 1 else deepest + 1), free


@dataclass(frozen=True, eq=False)
class PriorMixture:
    """Solutions at several points of the hyperparameters: what the posterior is a mixture of.

    Attributes
    ----------
    parts, log_weights
        The solutions with their weights and draws; the log importance weights of all points.
    beyond
        Whether points could not be solved within the tolerance, so that the mode alone is used.
    """

    parts: list[Part]
    log_weights: Reals
    beyond: bool = False

    def record(self, splits: Splits, estimate: Estimate, free: NDArray[np.bool_]) -> dict:
        """What the record of a posterior says of its prior."""
        weights = normalised(self.log_weights)
        integrated = free & (len(weights) > 1)
        k = pareto_k(self.log_weights)
        rows = zip(splits.names, estimate.theta, estimate.sd, estimate.shift)
        return {
            "estimates": {
                name: {
                    "mode": float(mode),
                    "sd": float(sd),
                    "shift": None if np.isnan(shift) else float(shift),
                }
                for name, mode, sd, shift in rows
            },
            "evaluations": estimate.steps,
            "integrated": _named(splits, integrated),
            "points": len(weights),
            "effective_points": float(1 / (weights**2).sum()),
            "pareto_k": k if np.isfinite(k) else None,
            "doubts": [
                *self._doubts(k),
                *(
                    []
                    if estimate.settled
                    else ["The search for the prior's parameters ended before it settled."]
                ),
                *_held(splits, estimate.matters & ~integrated),
            ],
        }

    def _doubts(self, k: float) -> list[str]:
        if self.beyond:
            return ["Solutions about the mode of the prior's parameters drop more than the tolerance."]
        if k > TRUSTED:
            return [
                f"Pareto's k of the weights of the prior's parameters is {k:.2f}, above {TRUSTED}: "
                "their uncertainty may not be integrated over well."
            ]
        if unsolved := int(np.isneginf(self.log_weights).sum()):
            return [
                f"{unsolved} of {len(self.log_weights)} points of the prior's parameters could not be solved."
            ]
        if np.isnan(k) and len(self.log_weights) > 1:
            return [f"{len(self.log_weights)} points of the prior's parameters are too few for Pareto's k."]
        return []


def _held(splits: Splits, uncertain: NDArray[np.bool_]) -> list[str]:
    """Name the parameters that are held at the mode though they are uncertain."""
    names = ", ".join(_named(splits, uncertain))
    return [f"Taken as known at their mode, though uncertain: {names}."] if names else []


def _named(splits: Splits, which: NDArray[np.bool_]) -> list[str]:
    return [name for name, one in zip(splits.names, which) if one]


@dataclass(frozen=True, eq=False)
class Spread:
    """A tree, or its top, that is solved at other hyperparameters.

    Attributes
    ----------
    solved
        The solution at the mode.
    nodes
        How many of its nodes, the first ones, have splits that vary; the rest stand for what is below.
    splits, tolerance
        The prior, and the largest posterior mass that may be dropped.
    deeper
        Solves the whole tree with tables as deep as that takes; None for a top, whose leaves are messages.
    """

    solved: Solved
    nodes: int
    splits: Splits
    tolerance: float
    deeper: Callable[[Reals], Solved] | None

    def at(self, theta: Reals) -> Solved | None:
        """Solve at some hyperparameters, with the tilts of the mode; None where no window of counts holds the posterior."""
        tilted, k = self.solved.tilted, self.nodes
        alpha, total = tilted.factors.alpha.copy(), tilted.factors.total.copy()
        fresh = self.splits.parameters(theta)
        alpha[:k], total[:k] = fresh[0][:k], fresh[1][:k]
        tilted = tilted._replace(factors=tilted.factors._replace(alpha=alpha, total=total))
        solved = settle_tilts(self.solved.plan, tilted, self.tolerance)
        try:
            return self.deeper(theta) if self.deeper and solved.dropped > self.tolerance else solved
        except ConvergenceError:
            return None

    def parts(
        self,
        estimate: Estimate,
        free: NDArray[np.bool_],
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
    ) -> PriorMixture:
        """Solve at points about the mode, weighed by posterior density over density of the points."""
        if not free.any():
            return PriorMixture([(1.0, self.solved, draws)], np.zeros(1))
        count = POINTS if len(self.solved.tilted.low) <= SMALL else FEW_POINTS
        thetas, log_density = points(estimate, free, count, rng)
        solutions, log_weights = [], np.empty(count)
        for i, theta in enumerate(thetas):
            announce(progress, f"integrating over the prior, {i + 1} of {count} points")
            solutions.append(solved := self.at(theta))
            evidence = -np.inf if solved is None else solved.evidence
            log_weights[i] = evidence + self.splits.log_hyperprior(theta)[0] - log_density[i]
        weights = normalised(log_weights)
        counts = rng.multinomial(draws, weights)
        if sum(w * s.dropped for w, s in zip(weights, solutions) if s) > self.tolerance:
            # too far from what the messages below reach
            return PriorMixture([(1.0, self.solved, draws)], np.zeros(1), beyond=True)
        kept = [
            (float(w), s, int(c))
            for w, s, c in zip(weights, solutions, counts)
            if s and (w > NEGLIGIBLE or c)
        ]
        return PriorMixture(kept, log_weights)


def normalised(log_weights: Reals) -> Reals:
    """Return weights that sum to 1."""
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def pareto_k(log_weights: Reals) -> float:
    """Shape of the upper tail of importance weights; above .7 they are not to be trusted. NaN for too few of them.

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
