"""Inference on a tree from messages on grids of counts, at a cost that does not grow with the noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.inferring.chains import OutOfTimeError
from trueup.inferring.hierarchical import Density, Objective
from trueup.inferring.method import Progress, announce
from trueup.inferring.tree_state import TreeState, reach_of
from trueup.inferring.tree_work import FamilySample
from trueup.kernel.grids.factors import add_splits, add_tables, expected_slopes, rough_posterior
from trueup.kernel.grids.points import coarsest, first_points, pair_sums, zoom
from trueup.kernel.grids.sweeps import (
    GridMarginals,
    Grids,
    grid_downward,
    grid_draws,
    grid_upward,
    grids_of,
    log_evidence,
)
from trueup.kernel.messages import PairPlan, plan_pairs
from trueup.kernel.messages.partition import take_factors
from trueup.kernel.messages.pmf import OPEN, reach_all
from trueup.kernel.tree.whole import propagate
from trueup.layouts.factors import FactorTable, Split
from trueup.layouts.splits import Splits
from trueup.run import Deadline

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

STEP = 0.4
"""Gaps of grids, in standard scores of the marginal."""
VALUE_DEPTH_NATS = 80.0
"""Nats below its peak at which what a value says of a count is cut off."""
ROUNDS, FIRST_ROUNDS = 16, 24
"""Most moves of grids to where the posterior is: later, and at first."""
MAX_GAP_MASS = 0.3
"""Largest marginal mass between two points, and gap as a share of a scale, at which grids are fine enough."""
ENDED = 1e-4
"""Largest marginal mass allowed at an end of a window, unless that end is a bound of the count."""


class GridSolution(NamedTuple):
    """The messages on grids for one value of the hyperparameters.

    Attributes
    ----------
    factor, up
        `(points,)` log factors of nodes, and log masses given all that is at and below them.
    evidence
        Log evidence of the values (nats); minus infinity where no mass is left.
    """

    factor: Reals
    up: Reals
    evidence: float


class Settled(NamedTuple):
    """A solution of a tree, together with the grids of counts on which it was computed.

    Attributes
    ----------
    grids, up, slope
        Grids, log densities of nodes given all that is at and below them, and slopes of `GridMarginals`.
    """

    grids: Grids
    up: Reals
    slope: Reals

    def draw(self, nodes: int, draws: int, rng: np.random.Generator) -> Integers:
        """Return joint draws `(nodes, draws)` of the counts of the first nodes."""
        return grid_draws(self.grids, self.up, self.slope, nodes, draws, rng)


@dataclass(eq=False)
class TreeGrid:
    """A tree on grids that adapt to the posterior from one point of the hyperparameters to the next.

    Attributes
    ----------
    state, values
        The problem and its values.
    deadline
        When an answer must stand.
    step
        Gaps of grids, in standard scores of the marginal.
    first_rounds
        Number of times that grids are moved at first.
    sample
        The families that it is confined to, or None for the whole tree.
    """

    state: TreeState
    values: NDArray
    deadline: Deadline
    step: float = STEP
    first_rounds: int = FIRST_ROUNDS
    sample: FamilySample | None = None

    def __post_init__(self) -> None:
        self.plan: PairPlan = plan_pairs(self.tree.child_ptr)
        self.fitted = np.inf
        table = FactorTable(*self.state.problem.whole_bounds(self.values))
        self.state.add_prior(table, VALUE_DEPTH_NATS)
        self.prior = table.build()
        low, high = self._windows()
        if self.sample:
            kept = take_factors(self.prior, self.sample.nodes)
            self.prior = kept._replace(lower=low[self.sample.nodes], upper=high[self.sample.nodes])
        self.low, self.high = self._of_plan(low), self._of_plan(high)
        middle, spread = self._expected()
        self.grids = grids_of(self.plan, *first_points(self.plan, self.low, self.high, middle, spread))
        self.likelihood = self._likelihood()

    @property
    def tree(self) -> TreeState:
        """Return the tree that is solved: the whole tree, or the sample of it if there is one."""
        return self.sample or self.state

    @property
    def nodes(self) -> int:
        """Return the number of nodes of the tree that is solved."""
        return len(self.tree.child_ptr) - 1

    def _of_plan(self, every: NDArray) -> NDArray:
        """Return values of the whole tree's nodes at the solved nodes, with values of partial sums."""
        return pair_sums(self.plan, every if self.sample is None else every[self.sample.nodes])

    def _windows(self) -> tuple[Integers, Integers]:
        """Return bounds on the counts of all nodes, outside which the likelihood is negligible."""
        problem = self.state.problem
        for depth in (VALUE_DEPTH_NATS, 30 * VALUE_DEPTH_NATS, 1e9):
            lower, upper = (side.astype(float) for side in reach_all(self.prior))
            for header, nodes, part in zip(problem.headers, problem.nodes, problem.parts(self.values)):
                if not header.exact:
                    low, high = reach_of(header.law, part, depth)
                    np.maximum.at(lower, nodes, low)
                    np.minimum.at(upper, nodes, high)
            if propagate(problem.child_ptr, lower, upper) < 0:
                break
        _narrow(problem.child_ptr, lower, upper)
        ends = [np.clip(side, -float(OPEN), float(OPEN)).astype(np.int64) for side in (lower, upper)]
        self.state._refuse_improper(*ends)
        return ends[0], ends[1]

    def _expected(self) -> tuple[Reals, Reals]:
        """Return expected counts and standard deviations for all solved nodes."""
        problem = self.state.problem
        values = problem.values(np.asarray(self.values, float))
        middle, spread = rough_posterior(problem.child_ptr, problem.variance, values, *problem.messages)
        return self._of_plan(middle), np.sqrt(self._of_plan(spread**2))

    def _likelihood(self) -> Reals:
        """Return the log likelihood of the values, with priors of single counts, at every grid point."""
        problem, ptr, x = self.state.problem, self.grids.ptr, self.grids.x
        owner = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
        out = np.zeros(len(x))
        for header, nodes, part in zip(problem.headers, problem.nodes, problem.parts(self.values)):
            if header.exact or np.isinf(header.law.variance):
                continue
            every = np.full(len(problem.child_ptr) - 1, np.nan)
            every[nodes] = part
            published = np.full(len(ptr) - 1, np.nan)
            published[: self.nodes] = every[self.sample.nodes] if self.sample else every
            at = np.flatnonzero(np.isfinite(published[owner]))
            out[at] += header.law.log_mass(published[owner[at]], x[at])
        add_tables(ptr, x, self.prior, out)
        return out

    def solve(self, split: Split) -> GridSolution:
        """Return the messages of one pass up the tree, on the current grids."""
        if self.deadline.passed:
            raise OutOfTimeError
        factor = self.likelihood.copy()
        add_splits(self.grids.ptr, self.grids.x, split, factor)
        up = grid_upward(self.grids, factor)
        evidence = log_evidence(self.grids, up)
        return GridSolution(factor, up, evidence if np.isfinite(evidence) else -np.inf)

    def settle(self, split: Split, resolved: float = MAX_GAP_MASS) -> tuple[GridSolution, GridMarginals]:
        """Return a solution on sufficiently fine grids, and the marginals of every node."""
        begun = self.grids, self.likelihood, self.fitted
        for _ in range(ROUNDS if np.isfinite(self.fitted) else self.first_rounds):
            if not np.diff(self.grids.ptr).all():  # a window that ends before it begins
                break
            solved = self.solve(split)
            found = grid_downward(self.grids, solved.factor, solved.up)
            if not (np.isfinite(solved.evidence) and np.isfinite(found.p).all()):
                break
            if self._fits(found, resolved):
                return solved, found
            self.move(found)
        self.grids, self.likelihood, self.fitted = (
            begun  # the next point of the hyperparameters begins where this one did
        )
        raise ConvergenceError(
            "the posterior could not be approximated: the measurements may contradict each other, the prior or the "
            "bounds",
            remedy="correct laws or values that belong to other tables, or name another prior",
        )

    def _fits(self, found: GridMarginals, resolved: float) -> bool:
        """Return True if the grids are fine and wide enough for the posterior."""
        ptr, x = self.grids.ptr, self.grids.x
        first, last = ptr[:-1], ptr[1:] - 1
        if (
            (x[first] > self.low) & (found.p[first] > ENDED) | (x[last] < self.high) & (found.p[last] > ENDED)
        ).any():
            return False
        widest = resolved * self.step / STEP
        return self.fitted <= self.step and coarsest(ptr, x, found.p, found.scale) < widest

    def move(self, found: GridMarginals) -> None:
        """Place new grid points where the marginals have most mass."""
        ptr, x = self.grids.ptr, self.grids.x
        points = zoom(self.plan, ptr, x, found.p, found.scale, self.low, self.high, self.step)
        self.grids, self.fitted = grids_of(self.plan, *points), self.step
        self.likelihood = self._likelihood()

    def moments(self, p: Reals) -> Reals:
        """Return posterior means and standard deviations `(2, nodes)` of the counts."""
        ptr, x = self.grids.ptr, self.grids.x
        begin = x[ptr[:-1]]
        away = (x - np.repeat(begin, np.diff(ptr))).astype(float)
        mean = np.add.reduceat(p * away, ptr[:-1])
        square = np.add.reduceat(p * (away - np.repeat(mean, np.diff(ptr))) ** 2, ptr[:-1])
        return np.array([begin + mean, np.sqrt(square)], np.float64)[:, : self.nodes]

    def objective(self, splits: Splits, progress: Progress) -> Objective:
        """Return a function of the hyperparameters: log density, gradient, and posterior counts."""
        evaluations = iter(range(1, 1 << 30))

        def density(theta: Reals) -> Density:
            announce(progress, f"estimating the prior from the noisy values, evaluation {next(evaluations)}")
            split = splits.parameters(theta)
            solved, (p, _, _) = self.settle(split)
            value, gradient = splits.log_hyperprior(theta)
            expected = expected_slopes(self.grids.ptr, self.grids.x, p, split, splits.free)
            scores = splits.scores(theta, expected[0], expected[1], expected[2:])
            slope = gradient + scores.sum(axis=0)
            counts, known = self.moments(p), splits.information(scores)
            if len(held := splits.held()):
                own = slice(at := splits.concentrations + splits.covariates.shape[1], at + len(held))
                known[own] = known[:, own] = 0.0
                known[own, own] = np.diag(self._of_weights(splits, split, counts[0]))
            return Density(solved.evidence + value, slope, counts, known)

        return density

    def _of_weights(self, splits: Splits, split: Split, mean: Reals) -> Reals:
        """Return the approximate Fisher information on the log weight of each attribute value.

        A part of a sum T with share m has mean T m and variance T m (T + A) / (1 + A) for a total A of parameters, and its value
        has the noise's variance more; a family's values say `(T m)^2` over that.
        """
        at = np.flatnonzero(splits.category >= 0)
        parent = np.repeat(np.arange(self.nodes), np.diff(self.tree.child_ptr))[at - 1]
        noise = self.state.problem.variance
        noise = (noise[self.sample.nodes] if self.sample else noise)[at]
        whole, total = np.maximum(mean[parent], 1.0), split[1][parent]
        part = whole * split[0][at] / total
        each = part**2 / (noise + part * (whole + total) / (1 + total))
        known = np.bincount(splits.category[at], np.where(splits.free[at], each, 0.0), len(splits.held()))
        return np.asarray(known, np.float64)

    # What the search for two kinds of parts asks of a solver (`trueup.inferring.tree_estimate`).
    def for_kinds(self) -> TreeGrid:
        """Return the object itself, because grids serve priors with two kinds of parts too."""
        return self

    def glance(self, splits: Splits, theta: Reals) -> float:
        """Return the log evidence at given hyperparameters, on the current grids."""
        return self.solve(splits.parameters(theta)).evidence


def _narrow(child_ptr: Integers, lower: Reals, upper: Reals) -> None:
    """Tighten bounds on counts in place, from the root down, by the bounds on their siblings."""
    for v in np.flatnonzero(np.diff(child_ptr)):
        own = slice(child_ptr[v], child_ptr[v + 1])
        low, high = lower[own].copy(), upper[own].copy()
        upper[own] = np.minimum(high, upper[v] - (low.sum() - low))
        if np.isfinite(high).all():
            lower[own] = np.maximum(low, lower[v] - (high.sum() - high))
