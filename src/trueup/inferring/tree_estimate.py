"""Estimation of a tree's hyperparameters: where the search begins, on which part, and with how many kinds of parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.inferring.family_sample import BEGIN, SAMPLE_PARTS, FamilySample
from trueup.inferring.hierarchical import (
    MODE_TOLERANCE_SDS,
    NEARLY,
    Ascent,
    Estimate,
    Objective,
    ascend,
    start_of,
    varied,
    with_curvature,
)
from trueup.inferring.method import Progress
from trueup.inferring.tree_search import SolutionSearch
from trueup.layouts.splits import Splits

Found = TypeVar("Found")

BEGUN = 0.5
"""Standard deviations by which the mode of the smaller sample, where the search begins, may be off."""
ASKED = 1.0
"""Log evidence that two kinds of parts have to add for each of their parameters: what it is worth by Akaike's criterion."""
NONE, SOME, SMALL = -7.0, -2.0, -7.0
"""Logits of the share of small parts at which it is asked whether there are some, and at which their search begins; and of how
small they are."""
PART, RATIOS, FAR = 0.9, (-2.0, -4.0), 0.1
"""How much of the inequality of parts two kinds may explain, and logits of how small the small are, where that is asked; and by
how much a part the log evidence may be below that of one kind there for the next to be looked at."""
FAILURES = 3
"""Hyperparameters of two kinds that do not serve, after which these are given up."""


def estimate_from(
    search: SolutionSearch, splits: Splits, progress: Progress, *, kinds: int = 1
) -> tuple[SolutionSearch, FamilySample | None, Splits, Estimate]:
    """Estimate hyperparameters; for a large tree, start on a small sample of its families and finish on a larger one.

    Where the values ask for it, they are those of two kinds of parts; the search and the splits come back for these.
    """
    first = FamilySample.of(search.state, BEGIN)
    small = search if first is None else search.of(first)
    splits, begun = Beginning(small, first, progress).chosen(
        splits, search.noisy_total if kinds > 1 else None
    )
    search = search.for_kinds() if splits.mean else search
    _, guess, few = start_of(splits)
    if first is None:
        objective = search.objective(splits, progress)
        return search, None, splits, with_curvature(objective, begun, guess, varied(few, splits))
    sample = FamilySample.of(search.state, SAMPLE_PARTS)
    seen, known, within = search, splits, MODE_TOLERANCE_SDS
    if sample is not None:
        seen, known, within = search.of(sample), sample.splits(splits), NEARLY
    objective = seen.objective(known, progress)
    found = ascend(objective, begun.theta, begun.inverse, few, within)
    estimate = with_curvature(objective, found, begun.inverse, varied(few, splits))
    return search, sample, splits, replace(estimate, steps=begun.evaluations + estimate.steps)


@dataclass(frozen=True, eq=False)
class Beginning:
    """The start of the search for hyperparameters: a small tree, or the smaller of two samples of a large one."""

    search: SolutionSearch
    sample: FamilySample | None
    progress: Progress

    def chosen(self, splits: Splits, total: float | None) -> tuple[Splits, Ascent]:
        """Return the splits and their mode; given about the sum of all, of two kinds where the log evidence rises by more
        than `ASKED` for each of their parameters.
        """
        theta, guess, few = start_of(splits)
        begun = self._ascend(splits, theta, guess, few)
        if total is None or (wider := splits.of_two_kinds(total)) is None:
            return splits, begun
        one = _log_evidence(splits, begun)
        start, looks = self._start(wider, begun.theta, one)
        begun = begun._replace(evaluations=begun.evaluations + looks)
        if start is None:
            return splits, begun
        _, guess, few = start_of(wider)
        guess[: len(begun.inverse), : len(begun.inverse)] = begun.inverse
        try:
            found = self._ascend(wider, start, guess, few)
        except ConvergenceError:
            return splits, begun
        tried = begun.evaluations + found.evaluations
        if _log_evidence(wider, found) > one + ASKED * wider.of_kinds:
            return wider, found._replace(evaluations=tried)
        return splits, begun._replace(evaluations=tried)

    def _ascend(self, splits: Splits, theta: NDArray, guess: NDArray, few: NDArray) -> Ascent:
        within = MODE_TOLERANCE_SDS if self.sample is None else BEGUN
        return ascend(self._objective(splits), theta, guess, few, within)

    def _objective(self, splits: Splits) -> Objective:
        search = self.search.for_kinds() if splits.mean else self.search
        found = search.objective(self._seen(splits), self.progress)
        return until_given_up(found) if splits.mean else found

    def _seen(self, splits: Splits) -> Splits:
        return splits if self.sample is None else self.sample.splits(splits)

    def _start(self, wider: Splits, theta: NDArray, one: float) -> tuple[NDArray | None, int]:
        """Return the start of a search for two kinds, if their log evidence is or rises above `one`'s, and at how many points
        it was looked.
        """
        search, seen = self.search.for_kinds(), self._seen(wider)
        for looks, ratio in enumerate(RATIOS, 1):
            matched = wider.with_kinds(*_matched(theta, wider.concentrations - 1, ratio))
            rise = search.glance(seen, matched) - one
            if rise > 0:
                return matched, looks
            if rise < -FAR * seen.families()[-1]:
                break
        rises = self._rises(wider, wider.with_kinds(theta, NONE, SMALL))
        return wider.with_kinds(theta, SOME, SMALL) if rises else None, looks + 1

    def _rises(self, wider: Splits, theta: NDArray) -> bool:
        """Return True if the log evidence rises with the share of small parts."""
        try:
            return bool(self._objective(wider)(theta).gradient[-2] > wider.log_hyperprior(theta)[1][-2])
        except ConvergenceError:
            return False


def _matched(theta: NDArray, last: int, ratio: float) -> tuple[NDArray, float, float]:
    """Return hyperparameters of two kinds of parts as unequal as with one kind of parameter `a`, given a share and a ratio.

    With one, the mean square of parts is `1 + 1 / a` times their squared mean. With a share rho of none and others of parameter
    `a'` it is `(1 + 1 / a') / (1 - rho)`. Both are equal where `a' = a / (1 - p)` and `rho = p / (1 + a)`, for any `p` below 1:
    `PART` of the inequality is then that of kinds.
    """
    matched = theta.copy()
    matched[last] -= np.log(1 - PART)
    return matched, float(np.log(PART / (1 - PART + np.exp(theta[last])))), ratio


def until_given_up(solve: Callable[[NDArray], Found]) -> Callable[[NDArray], Found]:
    """Return `solve`, made to fail at once after `FAILURES` failures, each of which costs as much as many successes."""
    failures = 0

    def solved(theta: NDArray) -> Found:
        nonlocal failures
        if failures >= FAILURES:
            raise ConvergenceError(
                "the search for two kinds of parts failed repeatedly", remedy="set most_kinds = 1"
            )
        try:
            return solve(theta)
        except ConvergenceError:
            failures += 1
            raise

    return solved


def _log_evidence(splits: Splits, found: Ascent) -> float:
    return found.here.value - splits.log_hyperprior(found.theta)[0]
