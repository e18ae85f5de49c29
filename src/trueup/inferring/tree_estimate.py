"""Hyperparameters of a tree: where their search begins, on what part of it, and whether they have extra zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.inferring.family_sample import BEGIN, ENOUGH, FamilySample
from trueup.inferring.hierarchical import (
    NEARLY,
    SETTLED,
    Ascent,
    Estimate,
    Objective,
    ascend,
    climb,
    start_of,
    with_curvature,
)
from trueup.inferring.method import Progress
from trueup.inferring.tree_search import SolutionSearch
from trueup.inferring.tree_state import WIDE
from trueup.layouts.splits import Splits

Found = TypeVar("Found")

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
