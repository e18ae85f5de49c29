"""The approximate tier of trees: messages on grids of counts, with an estimate of the grids' error.

One file: the search on coarse grids, finer ones for draws with the error of these, and chains where no grids hold a posterior.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.inferring.chains import OutOfTimeError
from trueup.inferring.hierarchical import (
    NEARLY,
    Estimate,
    ascend,
    given,
    noisy_start,
    start_of,
    varied,
    with_curvature,
)
from trueup.inferring.method import Progress, announce, silent
from trueup.inferring.prior_mixture import PriorMixture, normalised, points, uncertain
from trueup.inferring.tree_estimate import Beginning
from trueup.inferring.tree_grid import Settled, TreeGrid
from trueup.inferring.tree_state import TreeState
from trueup.inferring.tree_work import FamilySample, in_turn
from trueup.kernel.messages.pmf import no_splits
from trueup.layouts import refuses_columns
from trueup.layouts.factors import Split
from trueup.layouts.splits import Splits, splits_of
from trueup.model.cells import Attribute, Cells
from trueup.model.constraints import Constraints
from trueup.model.prior import Hierarchical
from trueup.model.records.drawn import Drawn
from trueup.run import Deadline

Reals = NDArray[np.float64]
Part = tuple[Settled, int]
"""A solution, and how many of the draws come from it."""

ESTIMATING, DRAWING, FINEST = 0.4, 0.2, 0.05
"""Gaps of grids, in standard scores: while hyperparameters are sought, for draws, and where these move means by too much."""
LARGEST_MOVE, MOST_POINTS = 0.03, 500_000
"""Standard deviations (and a tenth of a count) by which grids twice as coarse may move a mean, or else gaps are halved; and
points of a tree whose grids are not made finer for that."""
ERROR_MEASURED = 0.4
"""In the place of `RESOLVED`, of finer grids: their error is measured by how far they move means."""
MIN_DEVIATION_COUNTS = 0.1
"""Counts that are added to a standard deviation where errors of means are judged."""
ROUNDING = 1e-8
"""Error of means that is stated where every count is a point of its grid: what rounding leaves."""
LARGE, LARGE_STEPS, LARGEST = 5_000, 8, 16_000
"""Nodes of a tree from which on hyperparameters are taken near their mode, after so many steps; and from which on none varies."""
MANY_PARTS, DRAWING_LARGEST = 2_000, 0.3
"""Parts of a level, where it has more, from which hyperparameters of such a tree are estimated: concentrations within a
thirtieth at best; and gaps of grids for draws where none varies."""
MAX_FIRST_GRID_MOVES = 8
"""Moves of the first grids of such a tree where chains take it: those that hold its posterior are found in 2 or 3."""
FOR_CHAINS = 0.4
"""Share of the time allowed that is left for chains where these take a tree."""
COUNTS_DRAWN_AT_ONCE = 1 << 25
"""Counts of all nodes, sums of pairs included, that are drawn at a time."""
SOUGHT = 0.6
"""Share of the time allowed after which hyperparameters of a large tree are sought no further."""
POINTS = ((250_000, 24), (500_000, 12), (1 << 62, 6))
"""Most points of a tree's grids, and points of the hyperparameters that are integrated over: 2 s each for a million of those."""
DRAWN_IN_POINTS, SECONDS_DRAWN = 3, 5e-9
"""Predicted time of drawing: in points of the hyperparameters, and for each draw at each point of a grid."""
WEAK_R_HAT = 1.2
"""Largest R-hat from which on chains are called weak."""
ONE_COLUMN = (Attribute("counted", ("all",)),)
PRIOR = (
    "Grids could not represent the posterior under the prior of 'tree-exact'. These draws are from the Markov chains of "
    "'histogram-gibbs', under whose prior the composition of a place varies around that of the place above it."
)
WEAK = "These chains agree poorly: intervals are rough, and would differ with another seed."


@dataclass(frozen=True, eq=False)
class ApproximateTree:
    """A tree whose counts are drawn on grids of counts, or by Markov chains where grids fail.

    Attributes
    ----------
    state, values
        The problem with its prior, and its values.
    deadline
        When an answer must stand.
    """

    state: TreeState
    values: NDArray
    draws: int
    rng: np.random.Generator
    progress: Progress
    deadline: Deadline

    def drawn(self) -> Drawn:
        """Return draws `(1, draws, n)` of the counts, made by the deadline."""
        replaced, deadline = chains_take(self.state), self.deadline
        announce(self.progress, "approximate tier: computing the posterior")
        try:
            grid = TreeGrid(
                self.state, self.values, deadline.sooner(1 - FOR_CHAINS) if replaced else deadline
            )
            if replaced and grid.nodes > LARGE:
                grid.first_rounds = MAX_FIRST_GRID_MOVES
            return self._on_grids(grid)
        except (OutOfTimeError, ConvergenceError) as error:
            if replaced and not deadline.passed:
                announce(self.progress, "the approximation failed; starting Markov chains instead")
                found = self._by_chains()
                if not found.refused:
                    return found
            if isinstance(error, ConvergenceError):
                raise
            tree = f"a tree of {len(self.state.child_ptr) - 1:,} counts"
            raise ConvergenceError(
                f"the {deadline.allowed / 60:g} minutes allowed were too few to solve {tree}",
                remedy="allow more minutes, give the prior's concentrations, or infer one place",
            ) from None

    def _on_grids(self, grid: TreeGrid) -> Drawn:
        """Return draws of the counts, made from messages on grids."""
        prior, nested, upper = self.state.prior, self.state.problem.nested, self.state.problem.bounds()[1]
        if not isinstance(prior, Hierarchical) or not (splits := splits_of(prior, nested, upper)).names:
            return self._given(grid, no_splits(grid.nodes), {})
        if prior.concentrations:
            record = {"prior": {"concentrations": "given"}}
            return self._given(grid, splits.parameters(given(prior, splits)), record)
        sample = FamilySample.of(self.state, MANY_PARTS) if grid.nodes > LARGE else None
        splits, estimate = self._estimated(grid, splits, prior.most_kinds, sample)
        _, free = uncertain(splits, estimate, len(nested.margins))
        told = silent if free.any() else self.progress  # points predict the time better
        mode, moved = refined_solution(grid, splits.parameters(estimate.theta), self.draws, told)
        parts, log_weights = self._mixture(grid, mode, splits, estimate, free)
        known = PriorMixture([], log_weights).record(splits, estimate, free)
        if sample is not None:
            known["estimated_from"] = sample.record(splits)
        return self._drawn(parts, moved, {"prior": known})

    def _given(self, grid: TreeGrid, split: Split, record: dict[str, Any]) -> Drawn:
        """Return draws of the counts under a prior with given concentrations."""
        solved, moved = refined_solution(grid, split, self.draws, self.progress)
        return self._drawn([(solved, self.draws)], moved, record)

    def _estimated(
        self, grid: TreeGrid, splits: Splits, kinds: int, sample: FamilySample | None
    ) -> tuple[Splits, Estimate]:
        """Return the prior's splits, with the mode of their hyperparameters and the curvature there."""
        grid.step = ESTIMATING
        theta, guess, few = start_of(splits)
        # Many families inform what is sought: the mode's neighbourhood, and one kind of parts, will do.
        if grid.nodes > LARGE:
            problem = self.state.problem
            noisy = problem.values(np.asarray(self.values, float))
            theta = noisy_start(theta, splits, noisy, problem.variance)
            part = grid if sample is None else replace(grid, sample=sample)
            objective = part.objective(sample.splits(splits) if sample else splits, self.progress)
            few = few[few < splits.concentrations]
            found = ascend(
                objective, theta, guess, few, NEARLY, LARGE_STEPS, lambda: grid.deadline.left(SOUGHT) < 0
            )
            few = few if grid.nodes <= LARGEST else few[:0]
            return splits, with_curvature(objective, found, guess, few)
        beginning = Beginning(grid, None, self.progress)  # pyright: ignore[reportArgumentType]
        splits, begun = beginning.chosen(splits, self.state.noisy_total(self.values) if kinds > 1 else None)
        _, guess, few = start_of(splits)
        objective = grid.objective(splits, self.progress)
        return splits, with_curvature(objective, begun, guess, varied(few, splits))

    def _mixture(
        self,
        grid: TreeGrid,
        mode: Settled,
        splits: Splits,
        estimate: Estimate,
        free: NDArray[np.bool_],
    ) -> tuple[Iterable[Part], Reals]:
        """Return solutions at points about the mode with their numbers of draws, and log weights."""
        if not free.any():
            return [(mode, self.draws)], np.zeros(1)
        count = next(points for most, points in POINTS if len(grid.grids.x) <= most)
        thetas, log_density = points(estimate, free, count, self.rng)
        log_weights, messages = np.empty(count), []
        for i, theta in in_turn(thetas, grid.deadline, self.progress, DRAWN_IN_POINTS):
            solved = grid.solve(splits.parameters(theta))
            messages.append(solved.up)
            log_weights[i] = solved.evidence + splits.log_hyperprior(theta)[0] - log_density[i]
        counts = self.rng.multinomial(self.draws, normalised(log_weights))
        return [(mode._replace(up=up), int(k)) for up, k in zip(messages, counts) if k], log_weights

    def _drawn(self, parts: Iterable[Part], moved: float, record: dict[str, Any]) -> Drawn:
        """Return draws from every component of a mixture of solutions, in random order."""
        nested, found, done, points = self.state.problem.nested, [], 0, 0
        leaves, nodes = nested.nodes[-1], len(self.state.child_ptr) - 1
        announce(self.progress, "drawing counts")
        for solved, count in parts:
            points = len(solved.grids.x)
            most = max(1, COUNTS_DRAWN_AT_ONCE // len(solved.grids.ptr))
            for k in (min(most, count - begun) for begun in range(0, count, most)):
                found.append(solved.draw(nodes, k, self.rng)[leaves].T)
                done += k
                self.progress(done, self.draws)
        counts = found[0] if len(found) == 1 else self.rng.permutation(np.concatenate(found))
        grids = {"points": points, "moved_by_coarser_grids": moved}
        stats = {"draws": self.draws, "interrupted": False, "tier": "approximate", "grids": grids, **record}
        text = (
            f"Tier 'approximate': messages on grids of {points:,} points; grids twice as coarse change no mean by more than "
            f"{moved:.3f} of its standard deviation plus a tenth of a count, and the error is about a third of that."
        )
        draws = np.ascontiguousarray(counts)[None]
        return Drawn(draws, independent=True, approximate=text, stats=stats)

    def _by_chains(self) -> Drawn:
        """Return draws by Markov chains, with a record that names the chains' prior.

        Raises
        ------
        SpecError
            If they are predicted to take longer than is left, or more memory than there is.
        ConvergenceError
            If time is spent before anything can be said.
        """
        from trueup.inferring.histogram_gibbs import HistogramGibbs  # few trees need it, and it is large

        problem, prior = self.state.problem, self.state.prior
        assert isinstance(prior, Hierarchical)
        chains = HistogramGibbs(prior, "approximate")
        prepared = chains.prepare(_of_columns(problem.constraints), problem.headers)
        found = chains.apply(
            prepared, self.values, self.draws, self.rng, self.progress, deadline=self.deadline
        )
        weak = not found.stats["largest_r_hat"] <= WEAK_R_HAT  # nor is one good whose R-hat is not known
        said = " ".join([PRIOR, found.approximate, *([WEAK] if weak else [])])
        return replace(found, approximate=said, stats={**found.stats, "chains_of": chains.name})


def refined_solution(
    grid: TreeGrid, split: Split, draws: int = 0, progress: Progress = silent
) -> tuple[Settled, float]:
    """Return a solution on grids that are fine enough for draws, with the error of these grids.

    A grid takes about as long as the one before: twice the points, fewer moves. So the whole time is predicted.
    Return also by how much grids twice as coarse move means (sd and a tenth of a count): errors fall with the square of the gaps,
    so that about a third of the move is left.
    """
    grid.step = 2 * (DRAWING if grid.nodes <= LARGEST else DRAWING_LARGEST)
    began = time.monotonic()
    known = grid.settle(split)[1]
    coarse = grid.moments(known.p)
    while True:
        left = time.monotonic() - began + SECONDS_DRAWN * draws * 2 * len(grid.grids.x)
        announce(progress, f"refining the approximation, {grid.deadline.in_all(left)}")
        began = time.monotonic()
        grid.step /= 2
        grid.move(known)
        solved, known = grid.settle(split, ERROR_MEASURED)
        fine = grid.moments(known.p)
        moved = float((np.abs(fine[0] - coarse[0]) / (fine[1] + MIN_DEVIATION_COUNTS)).max())
        if moved <= LARGEST_MOVE or grid.step <= FINEST or len(grid.grids.x) > MOST_POINTS:
            return Settled(grid.grids, solved.up, known.slope), max(moved, ROUNDING)
        coarse = fine


def chains_take(state: TreeState) -> bool:
    """Return True if method `histogram-gibbs` accepts the tree's prior, constraints and measurements."""
    prior, problem = state.prior, state.problem
    if not isinstance(prior, Hierarchical) or prior != Hierarchical(most_kinds=prior.most_kinds):
        return False
    return not refuses_columns(_of_columns(problem.constraints), problem.headers)


def _of_columns(constraints: Constraints) -> Constraints:
    """Return the constraints, with an attribute of one value added to cells without attributes."""
    cells = constraints.cells
    return constraints if cells.attributes else replace(constraints, cells=Cells(cells.tree, ONE_COLUMN))
