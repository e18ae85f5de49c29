"""A tree that is solved again and again: tables as deep as each node needs, at one hyperparameter after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.inferring.family_sample import BEGIN, ENOUGH, FamilySample
from trueup.inferring.hierarchical import (
    NEARLY,
    SETTLED,
    Ascent,
    Density,
    Estimate,
    Objective,
    ascend,
    climb,
    start_of,
    with_curvature,
)
from trueup.inferring.method import Progress, announce
from trueup.inferring.subtree_part import expected_of
from trueup.inferring.tree_parts import CutTree, Top
from trueup.inferring.tree_state import DEPTHS, FINE, ROUGHLY, WIDE, TreeState
from trueup.kernel.messages.pairs import plan_pairs
from trueup.kernel.messages.partition import Partition
from trueup.kernel.messages.solve import Solved, end_too_soon, marginals, settle_tilts, tilt, too_short
from trueup.kernel.messages.upward import Tilted
from trueup.layouts.factors import Split
from trueup.layouts.splits import Splits
from trueup.run.executor import Executor

Outcome = TypeVar("Outcome", Solved, Top)
Found = TypeVar("Found")

FEW_NODES = 1 << 10
"""Nodes of a tree whose tilts are found anew for every hyperparameter."""
BEGUN = 0.5
"""Standard deviations by which the mode of the smaller sample, where the search begins, may be off."""
ASKED = 1.0
"""Log evidence that extra zeros have to add: as much as a parameter is worth by Akaike's criterion."""
NONE, SOME = -7.0, -2.0
"""Logits of the share of extra zeros at which it is asked whether there are some, and at which their search begins."""
DEEPEST_WITH_ZEROS = WIDE + 1
"""Position in `DEPTHS` of the deepest tables with which extra zeros are tried."""
TRIES, FAILURES = 4, 3
"""Solutions for one hyperparameter with extra zeros, and hyperparameters that these do not serve, after which it is given up."""
ROUGH = 1e-6
"""Posterior mass that may be dropped while hyperparameters are sought."""


@dataclass(eq=False)
class SolutionSearch:
    """One tree that is solved again and again: depths of tables and tilts that served are where the next begins.

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
    reached, last, tries
        Positions in `DEPTHS` of the deepest tables so far, and of those beyond which it gives up, or after so many solutions.
    """

    state: TreeState
    values: NDArray
    executor: Executor
    wanted: float = 1e-9
    splits: Split | None = None
    start: Tilted | None = None
    reached: int = ROUGHLY
    last: int = len(DEPTHS) - 1
    tries: float = np.inf

    def __post_init__(self) -> None:
        self.depth = np.full(len(self.child_ptr) - 1, ROUGHLY)

    @property
    def child_ptr(self) -> NDArray:
        return self.state.child_ptr

    def of(self, sample: FamilySample) -> SolutionSearch:
        """A search on a part of the tree."""
        return SolutionSearch(
            sample, self.values, self.executor, self.wanted, last=self.last, tries=self.tries
        )

    @property
    def noisy_total(self) -> float:
        """The published total, or the sum of the values of the first level that was published."""
        problem = self.state.problem
        return float(problem.filled(problem.values(np.asarray(self.values, float)))[0])

    @property
    def deepest(self) -> float:
        """The deepest table (nats below its peak)."""
        return float(DEPTHS[self.reached])

    def whole(self, tolerance: float) -> Solved:
        """Solve the whole tree at once."""
        return self._deepened(
            lambda tilted: settle_tilts(plan_pairs(self.child_ptr), tilted, tolerance),
            lambda s: too_short(self.child_ptr, s, tolerance),
            tolerance,
        )

    def by_parts(self, cut: Partition, tolerance: float) -> Top:
        """Solve the top of a cut tree, given the messages of its parts."""
        parts = CutTree(self.child_ptr, cut, tolerance, self.executor)
        return self._deepened(parts.up, lambda top: top.short, tolerance)

    def at(self, splits: Splits, tolerance: float, theta: NDArray) -> Solved:
        """Solve the whole tree at some hyperparameters, whose tilts may be far from those of others."""
        self.splits, self.start = splits.parameters(theta), None
        before = self.depth
        self.depth = before.copy()
        try:
            return self.whole(tolerance)
        finally:
            self.depth = before  # what one point far off takes, the next ones do not

    def objective(self, splits: Splits, progress: Progress) -> Objective:
        """Return the log density of hyperparameters, its gradient, and the posterior of counts, as a function."""

        evaluations = count(1)

        def density(theta: NDArray) -> Density:
            announce(progress, f"estimating the prior from the noisy values, evaluation {next(evaluations)}")
            self.splits = splits.parameters(theta)
            if len(self.depth) <= FEW_NODES:  # where tilts found anew cost next to nothing
                self.start = None
            evidence, expected = self._evidence(ROUGH)
            if not (np.isfinite(evidence) and np.isfinite(expected).all()):
                self.start = None  # the last tilts were those of hyperparameters too far off
                evidence, expected = self._evidence(ROUGH)
            if not (np.isfinite(evidence) and np.isfinite(expected).all()):
                raise ConvergenceError(
                    "the posterior at some parameters of the prior is beyond floating-point numbers",
                    remedy="name a prior with given concentrations, or another one",
                )
            value, gradient = splits.log_hyperprior(theta)
            scores = splits.scores(theta, *expected[:3])
            slope = gradient + scores.sum(axis=0)
            return Density(evidence + value, slope, expected[3:], splits.information(scores))

        return density

    def _evidence(self, tolerance: float) -> tuple[float, NDArray]:
        if (cut := self.state.cut) is not None:
            top = self.by_parts(cut, tolerance)
            return top.evidence, CutTree(self.child_ptr, cut, tolerance, self.executor).expected(top)
        solved = self.whole(tolerance)
        return solved.evidence, expected_of(solved, marginals(solved))

    def _deepened(
        self,
        solve: Callable[[Tilted], Outcome],
        short: Callable[[Outcome], NDArray],
        tolerance: float,
    ) -> Outcome:
        """Deepen the tables that end too soon until the dropped mass is within the tolerance."""
        before = self.depth.copy()
        if self.splits is not None:
            inner = self.child_ptr[1:] > self.child_ptr[:-1]
            self.depth[inner] = np.maximum(self.depth[inner], WIDE)
        if tolerance < ROUGH:
            self.depth = np.maximum(self.depth, FINE)
        left = self.tries
        while (
            left > 0
            and (factors := self.state.factors(self.values, DEPTHS[self.depth], self.splits)) is not None
        ):
            tilted = tilt(self.child_ptr, factors, self.start)
            ended = (
                end_too_soon(self.child_ptr, tilted)
                & (self.depth < self.last)
                & (tilted.low <= tilted.high).all()
            )
            if len(ended) > FEW_NODES and ended.any():  # a pass up would find the same
                self.depth[ended] += 1
                self.start = tilted
                continue
            solved, left = solve(tilted), left - 1
            if solved.dropped <= tolerance:
                self.start, self.reached = solved.tilted, max(self.reached, int(self.depth.max()))
                return solved
            if self.start is not None and solved.dropped >= 1:  # tilts of another problem may be far off
                self.start = None
                continue
            self.state.refuse_contradiction(self.values, factors)
            deeper = self.depth < self.last
            if not deeper.any():
                break
            named = short(solved) & deeper
            self.depth[named if named.any() else deeper] += 1
        self.depth = before  # a prior far off, which the search has tried, must not spoil the next
        raise ConvergenceError(
            "the measurements disagree so far with each other, the prior or the bounds that no window of "
            f"counts holds all but {self.wanted:g} of the posterior",
            remedy="check that the laws and values belong to these margins; or raise 'tolerance'",
        )


def estimate_from(
    search: SolutionSearch, splits: Splits, progress: Progress, *, extra_zeros: bool = False
) -> tuple[FamilySample | None, Splits, Estimate]:
    """Estimate hyperparameters: of a large tree from a sample of its families, begun on a smaller one.

    Extra zeros may be among them, where the values ask for them; the splits come back with them.
    """
    first = FamilySample.of(search.state, BEGIN)
    small = search if first is None else search.of(first)
    splits, begun = Beginning(small, first, progress).chosen(
        splits, search.noisy_total if extra_zeros else None
    )
    if splits.mean:
        search.last, search.tries = DEEPEST_WITH_ZEROS, TRIES
    _, guess, few = start_of(splits)
    if first is None:
        return None, splits, with_curvature(search.objective(splits, progress), begun, guess, few)
    sample = FamilySample.of(search.state, ENOUGH)
    seen, known, within = search, splits, SETTLED
    if sample is not None:
        seen, known, within = search.of(sample), sample.splits(splits), NEARLY
    estimate = climb(seen.objective(known, progress), begun.theta, begun.inverse, few, within)
    return sample, splits, replace(estimate, steps=begun.evaluations + estimate.steps)


@dataclass(frozen=True, eq=False)
class Beginning:
    """Where the search for hyperparameters begins: on a small tree, or the smaller of two samples of a large one."""

    search: SolutionSearch
    sample: FamilySample | None
    progress: Progress

    def chosen(self, splits: Splits, total: float | None) -> tuple[Splits, Ascent]:
        """Return the splits and their mode; given about the sum of all, with extra zeros where the log evidence rises by more
        than `ASKED`.
        """
        theta, guess, few = start_of(splits)
        begun = self._ascend(splits, theta, guess, few)
        if total is None or (wider := splits.with_zeros(total)) is None:
            return splits, begun
        begun = begun._replace(evaluations=begun.evaluations + 1)
        if not self._rises(wider, begun.theta):
            return splits, begun
        try:
            found = self._with_zeros(wider, begun)
        except ConvergenceError:
            return splits, begun
        tried = begun.evaluations + found.evaluations
        if _log_evidence(wider, found) > _log_evidence(splits, begun) + ASKED:
            return wider, found._replace(evaluations=tried)
        return splits, begun._replace(evaluations=tried)

    def _with_zeros(self, wider: Splits, begun: Ascent) -> Ascent:
        _, guess, few = start_of(wider)
        guess[:-1, :-1] = begun.inverse
        return self._ascend(wider, np.append(begun.theta, SOME), guess, few)

    def _ascend(self, splits: Splits, theta: NDArray, guess: NDArray, few: NDArray) -> Ascent:
        within = SETTLED if self.sample is None else BEGUN
        return ascend(self._objective(splits), theta, guess, few, within)

    def _objective(self, splits: Splits) -> Objective:
        search = self.search
        if splits.mean:  # where tables this deep do not serve, the prior without extra zeros does
            search = replace(search, last=DEEPEST_WITH_ZEROS, tries=TRIES)
        found = search.objective(splits if self.sample is None else self.sample.splits(splits), self.progress)
        return until_given_up(found) if splits.mean else found

    def _rises(self, wider: Splits, theta: NDArray) -> bool:
        """Whether the log evidence rises with the share of extra zeros, where there are next to none."""
        few = np.append(theta, NONE)
        try:
            return bool(self._objective(wider)(few).gradient[-1] > wider.log_hyperprior(few)[1][-1])
        except ConvergenceError:
            return False


def until_given_up(solve: Callable[[NDArray], Found]) -> Callable[[NDArray], Found]:
    """The same, but after so many `FAILURES` it fails at once: each takes as long as many that succeed."""
    failures = 0

    def solved(theta: NDArray) -> Found:
        nonlocal failures
        if failures >= FAILURES:
            raise ConvergenceError("extra zeros are given up", remedy="set extra_zeros = false")
        try:
            return solve(theta)
        except ConvergenceError:
            failures += 1
            raise

    return solved


def _log_evidence(splits: Splits, found: Ascent) -> float:
    return found.here.value - splits.log_hyperprior(found.theta)[0]
