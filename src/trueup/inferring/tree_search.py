"""Solutions of a tree at one hyperparameter after another, with tables only as deep as nodes need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.files.memory import return_freed
from trueup.inferring.hierarchical import Density, Objective
from trueup.inferring.method import Progress, announce
from trueup.inferring.subtree_part import ALONE, expected_of
from trueup.inferring.tree_parts import CutTree, Top
from trueup.inferring.tree_state import DEPTHS, FINE, ROUGHLY, WIDE, TreeState
from trueup.inferring.tree_work import AllowedWork, FamilySample, pass_cost
from trueup.kernel.messages import plan_pairs
from trueup.kernel.messages.partition import Partition
from trueup.kernel.messages.pmf import MANY_NODES, Factors, coded, held, no_splits, reach_all, uncoded
from trueup.kernel.messages.solve import (
    MOST_PASSES,
    Solved,
    end_too_soon,
    hold_all,
    marginals,
    settle_tilts,
    tilt,
    too_short,
)
from trueup.kernel.messages.tilting import bounds, certain
from trueup.kernel.messages.upward import Tilted
from trueup.layouts.factors import Split
from trueup.layouts.splits import Splits
from trueup.run import Executor

Outcome = TypeVar("Outcome", Solved, Top)

MOST_LOST, LOST = 6, 0.9
"""Solutions one after the other, each with deeper tables, of which windows may leave out more than this share all the same."""
MOST_WHOLE_NODES, MOST_LOST_BY_PARTS = 1 << 17, 2
"""Nodes of the largest tree that is solved whole if its parts are not, and the solutions by parts that may fail before."""
FEW_NODES = 1 << 10
"""Nodes of a tree whose tilts are found anew for every hyperparameter."""
MAX_DROPPED_IN_SEARCH = 1e-6
"""Posterior mass that may be dropped while hyperparameters are sought."""
MAX_DROPPED_IN_FIRST_LOOK = 1.0
"""Posterior mass that may be dropped where it is only asked whether to search there at all: what is kept is no more than all."""
DEEPEST_OF_KINDS, TRIES = WIDE + 1, 4
"""Position in `DEPTHS` of the deepest tables with which two kinds of parts are tried, and solutions for one hyperparameter."""


class Attempt(NamedTuple, Generic[Outcome]):
    """One attempt to solve a tree, with a mask of the leaves whose tables end too soon."""

    soon: NDArray[np.bool_]
    complete: bool
    solve: Callable[[], Outcome]
    tilted: Tilted | None


@dataclass(eq=False)
class SolutionSearch:
    """Repeated solutions of a tree, each starting from the tables and tilts of the one before.

    Attributes
    ----------
    wanted
        Largest posterior mass that the method may drop.
    depth
        `(nodes,)` position in `DEPTHS` of each node's tables.
    splits
        Parameters of the splits, if the prior has any.
    start
        The tilts that were found last.
    mixture
        Splits, and log weights, that families of the last level may follow; those above have `splits`.
    reached, last, tries
        Positions in `DEPTHS` of the deepest tables so far and of the deepest tables allowed; largest number of solutions.
    work
        Work that is allowed, and work that was done.
    """

    state: TreeState
    values: NDArray
    executor: Executor
    wanted: float = 1e-9
    splits: Split | None = None
    start: Tilted | None = None
    mixture: tuple[Sequence[Split], NDArray] | None = None
    reached: int = ROUGHLY
    last: int = len(DEPTHS) - 1
    tries: float = np.inf
    work: AllowedWork = field(default_factory=AllowedWork)

    def __post_init__(self) -> None:
        self.depth = np.full(len(self.child_ptr) - 1, ROUGHLY, np.int8)

    @property
    def child_ptr(self) -> NDArray:
        return self.state.child_ptr

    def of(self, sample: FamilySample) -> SolutionSearch:
        """Return a search for solutions on a sample of the tree."""
        return SolutionSearch(
            sample, self.values, self.executor, self.wanted, last=self.last, tries=self.tries, work=self.work
        )

    @property
    def may_be_whole(self) -> bool:
        """Return True if a cut tree is small enough to be solved whole, should its parts fail."""
        return len(self.child_ptr) <= MOST_WHOLE_NODES

    @property
    def deepest(self) -> float:
        """Return the depth of the deepest table (nats below its peak)."""
        return float(DEPTHS[self.reached])

    def for_kinds(self) -> SolutionSearch:
        """Return the search for a prior with two kinds of parts, which allows only shallower tables."""
        return replace(self, last=DEEPEST_OF_KINDS, tries=TRIES)

    def whole(self, tolerance: float, passes: int = MOST_PASSES) -> Solved:
        """Return the whole tree solved at once, with tables as deep as needed."""
        plan = plan_pairs(self.child_ptr)

        def attempt(factors: Factors) -> Attempt[Solved]:
            tilted = tilt(self.child_ptr, factors, self.start)
            soon = end_too_soon(self.child_ptr, tilted) & (tilted.low <= tilted.high).all()
            solve = partial(settle_tilts, plan, tilted, tolerance, passes=passes, spend=self.work.begin_pass)
            return Attempt(soon, hold_all(tilted), solve, tilted)

        return self._deepened(
            self.state.factors, attempt, lambda s: too_short(self.child_ptr, s, tolerance), tolerance
        )

    def glance(self, splits: Splits, theta: NDArray) -> float:
        """Return a lower bound on the log evidence at some hyperparameters, from one pass with shallow tables."""
        quick = replace(self, splits=splits.parameters(theta), start=None, tries=1)
        try:
            return quick.whole(MAX_DROPPED_IN_FIRST_LOOK, passes=1).evidence
        except ConvergenceError:
            return -np.inf

    def by_parts(self, cut: Partition, tolerance: float, most_lost: float = np.inf) -> Top:
        """Return the tree above the parts, solved with the messages of the parts."""
        above: list[NDArray] = []  # what shallower tables said of it
        splits = tuple(map(coded, self.splits or no_splits(len(self.depth))))
        self.splits = None if self.splits is None else splits  # pyright: ignore[reportAttributeAccessIssue]
        if len(self.depth) >= MANY_NODES:
            return_freed()

        def attempt(factors: Factors) -> Attempt[Top]:
            components, weights = self.mixture or ((), ALONE)
            parts = CutTree(self.child_ptr, cut, factors, tolerance, self.executor, components, weights)
            seen = parts.look()

            def solve() -> Top:
                top = parts.up(seen, above[-1] if above else None)
                above.append(top.evidence_above)
                return top

            return Attempt(seen.soon, seen.complete, solve, None)

        def tables(values: NDArray, depth: NDArray, _: Split | None) -> Factors | None:
            if (found := self.state.tables(values, depth, no_splits(0))) is None:
                return None
            found.lower[:], found.upper[:] = bounds(self.child_ptr, *certain(found))  # parts are told of it
            return held(found, splits)

        return self._deepened(tables, attempt, lambda top: top.short, tolerance, most_lost)

    def at(self, splits: Splits, tolerance: float, theta: NDArray) -> Solved:
        """Return the whole tree solved at given hyperparameters."""
        self.splits, self.start = splits.parameters(theta), None
        before = self.depth
        self.depth = before.copy()
        try:
            return self.whole(tolerance)
        finally:
            self.depth = before  # what one point far off takes, the next ones do not

    def objective(self, splits: Splits, progress: Progress) -> Objective:
        """Return a function of the hyperparameters: log density, gradient, and posterior counts."""

        evaluations = count(1)

        def density(theta: NDArray) -> Density:
            announce(progress, f"estimating the prior from the noisy values, evaluation {next(evaluations)}")
            self.splits = splits.parameters(theta)
            if len(self.depth) <= FEW_NODES:  # where tilts found anew cost next to nothing
                self.start = None
            evidence, expected = self._evidence(MAX_DROPPED_IN_SEARCH)
            if not (np.isfinite(evidence) and np.isfinite(expected).all()):
                self.start = None  # the last tilts were those of hyperparameters too far off
                evidence, expected = self._evidence(MAX_DROPPED_IN_SEARCH)
            if not (np.isfinite(evidence) and np.isfinite(expected).all()):
                raise ConvergenceError(
                    "the prior's concentrations cannot be estimated: a likelihood overflows or vanishes in floating point",
                    needed="a prior with given concentrations, or another prior",
                    remedy="give the concentrations under [infer], or name another prior",
                )
            self.work.end_evaluation()
            value, gradient = splits.log_hyperprior(theta)
            scores = splits.scores(theta, expected[0], expected[1], expected[2:4])
            slope = gradient + scores.sum(axis=0)
            return Density(evidence + value, slope, expected[4:], splits.information(scores))

        return density

    def _evidence(self, tolerance: float) -> tuple[float, NDArray]:
        solved = self.whole(tolerance)
        return solved.evidence, expected_of(solved, marginals(solved))

    def _deepened(
        self,
        tables: Callable[[NDArray, NDArray, Split | None], Factors | None],
        attempt: Callable[[Factors], Attempt[Outcome]],
        short: Callable[[Outcome], NDArray],
        tolerance: float,
        most_lost: float = np.inf,
    ) -> Outcome:
        """Return a solution whose tables are deepened until the mass left out is within the tolerance.

        It gives up once nearly all mass was dropped `most_lost` times in a row.
        """
        before = self.depth.copy()
        if self.splits is not None:
            inner = self.child_ptr[1:] > self.child_ptr[:-1]
            self.depth[inner] = np.maximum(self.depth[inner], WIDE)
        if tolerance < MAX_DROPPED_IN_SEARCH:
            self.depth = np.maximum(self.depth, FINE)
        left, inherited, lost, spent = self.tries, self.start is not None, 0, 0.0
        while left > 0 and (factors := tables(self.values, DEPTHS[self.depth], self.splits)) is not None:
            cost = pass_cost(self.child_ptr, *bounds(self.child_ptr, *reach_all(uncoded(factors))))
            self.work.begin_pass(spent + cost)
            tried = attempt(factors)
            ended = tried.soon & (self.depth < self.last)
            if len(ended) > FEW_NODES and ended.any():  # a pass up would find the same
                self.depth[ended] += 1
                self.start = tried.tilted
                del tried, factors  # before the next ones are made
                continue
            solved, left, spent = tried.solve(), left - 1, spent + cost
            if solved.dropped <= tolerance:
                self.start, self.reached = tried.tilted, max(self.reached, int(self.depth.max()))
                return solved
            if inherited and solved.dropped >= 1:  # tilts of another problem may be far off
                self.start, inherited = None, False
                continue
            self.state.refuse_contradiction(self.values, uncoded(factors))
            deeper, lost = self.depth < self.last, lost + 1 if solved.dropped > LOST else 0
            if not deeper.any() or tried.complete or lost == min(most_lost, MOST_LOST):
                break
            named = short(solved) & deeper
            self.depth[named if named.any() else deeper] += 1
            del tried, factors, solved
        self.depth = before  # a prior far off, which the search has tried, must not spoil the next
        raise ConvergenceError(
            f"exact inference needs larger ranges of counts than it can hold (tolerance {self.wanted:g}): the "
            "measurements may contradict each other, the prior or the bounds",
            remedy="correct laws or values that belong to other tables; or give tier = 'approximate' and leave out --engine",
        )
