"""Estimation of the hyperparameters of a tree's prior, with one or two kinds of parts.

*Odds of families.* Where parts are of two kinds, the odds of small parts differ from one family to the next. A group of blocks
in a town has few uninhabited ones, one with a park many. The log odds of each family differ from the common ones by one of a
few steps, with weights like those of a normal law. The counts below a parent then follow a mixture; its components are solved
one by one and weighted by evidence (`trueup.inferring.tree_parts`). The standard deviation maximises the log evidence of all
values; for other weights only the top is solved again, and no family.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
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
from trueup.inferring.method import Progress, announce
from trueup.inferring.tree_parts import Top, weighed
from trueup.inferring.tree_search import SolutionSearch
from trueup.inferring.tree_state import TreeState
from trueup.inferring.tree_work import BEGIN, SAMPLE_PARTS, FamilySample
from trueup.kernel.messages.partition import Partition
from trueup.kernel.messages.pmf import coded
from trueup.layouts.splits import Splits

Found = TypeVar("Found")

BEGUN = 0.5
"""Standard deviations by which the mode of the smaller sample, where the search begins, may be off."""
MIN_EVIDENCE_PER_PARAMETER = 1.0
"""Log evidence that two kinds of parts have to add for each of their parameters: what it is worth by Akaike's criterion."""
NONE, SOME, SMALL = -7.0, -2.0, -7.0
"""Logits of the share of small parts at which it is asked whether there are some, and at which their search begins; and of how
small they are."""
PART, RATIOS, FAR = 0.9, (-2.0, -4.0), 0.1
"""How much of the inequality of parts two kinds may explain, and logits of how small the small are, where that is asked; and by
how much a part the log evidence may be below that of one kind there for the next to be looked at."""
MAX_FAILED_SOLUTIONS = 3
"""Hyperparameters of two kinds that do not serve, after which these are given up."""


def estimate_from(
    search: SolutionSearch, splits: Splits, progress: Progress, *, kinds: int = 1
) -> tuple[SolutionSearch, FamilySample | None, Splits, Estimate]:
    """Estimate the hyperparameters of a tree's prior, on samples if the tree is large.

    Where the values ask for it, they are those of two kinds of parts; the search and the splits come back for these.
    """
    first = FamilySample.of(search.state, BEGIN)
    small = search if first is None else search.of(first)
    splits, begun = Beginning(small, first, progress).chosen(
        splits, search.state.noisy_total(search.values) if kinds > 1 else None
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
    """The first search for hyperparameters, on a small tree or on a small sample of a large tree."""

    search: SolutionSearch
    sample: FamilySample | None
    progress: Progress

    def chosen(self, splits: Splits, total: float | None) -> tuple[Splits, Ascent]:
        """Return the prior's splits and mode, with two kinds of parts if the evidence favours them."""
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
        if _log_evidence(wider, found) > one + MIN_EVIDENCE_PER_PARAMETER * wider.of_kinds:
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
        """Return a start for two kinds of parts, or None if it promises no gain, and the points tried."""
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
        """Return True if the log evidence increases with the share of small parts."""
        try:
            return bool(self._objective(wider)(theta).gradient[-2] > wider.log_hyperprior(theta)[1][-2])
        except ConvergenceError:
            return False


def _matched(theta: NDArray, last: int, ratio: float) -> tuple[NDArray, float, float]:
    """Return hyperparameters of two kinds of parts that vary as much as parts of a given single kind.

    With one, the mean square of parts is `1 + 1 / a` times their squared mean. With a share rho of none and others of parameter
    `a'` it is `(1 + 1 / a') / (1 - rho)`. Both are equal where `a' = a / (1 - p)` and `rho = p / (1 + a)`, for any `p` below 1:
    `PART` of the inequality is then that of kinds.
    """
    matched = theta.copy()
    matched[last] -= np.log(1 - PART)
    return matched, float(np.log(PART / (1 - PART + np.exp(theta[last])))), ratio


def until_given_up(solve: Callable[[NDArray], Found]) -> Callable[[NDArray], Found]:
    """Return a version of `solve` that fails at once after `MAX_FAILED_SOLUTIONS` failures."""
    failures = 0

    def solved(theta: NDArray) -> Found:
        nonlocal failures
        if failures >= MAX_FAILED_SOLUTIONS:
            raise ConvergenceError(
                "the prior with two kinds of parts could not be fitted",
                remedy="set most_kinds = 1 in the prior",
            )
        try:
            return solve(theta)
        except ConvergenceError:
            failures += 1
            raise

    return solved


def _log_evidence(splits: Splits, found: Ascent) -> float:
    return found.here.value - splits.log_hyperprior(found.theta)[0]


Reals = NDArray[np.float64]

STEPS = 2.0 * np.arange(-2, 3)
"""By how much the log odds of a family may be off those of all."""
LEAST, MOST, CLOSE = 0.3, 6.0, 0.15
"""Between which standard deviations the best one is sought, and how closely, in logs."""
FIRST = 2.0
"""The standard deviation at which the first solution must hold the posterior."""
ODDS_HYPERPRIOR_SCALE = 2.0
"""Scale of the half-normal hyperprior of the standard deviation."""
MIN_FAMILIES_FOR_ODDS = 30
"""Fewest families of the last level for which the spread of odds is estimated: its own uncertainty is not integrated over."""
ODDS_ASKED = 1.0
"""Log evidence that the standard deviation has to add: what one parameter is worth by Akaike's criterion."""


@dataclass(frozen=True)
class FamilyOdds:
    """A solved tree in which the odds of small parts vary between sums, with standard deviation `sd`."""

    top: Top
    sd: float

    def record(self, splits: Splits) -> dict:
        """Return the record's entry on the variation of the odds."""
        margin = splits.names[splits.concentrations - 1].partition(" of ")[2]
        name = f"spread of the log odds of small parts of {margin} between families"
        return {name: {"mode": self.sd, "sd": None, "shift": None}}


def families_at(state: TreeState) -> int:
    """Return the level whose counts are sums of the last level's counts."""
    return len(state.problem.nested.margins) - 2


def cut_above_families(state: TreeState, splits: Splits, size: int) -> Partition | None:
    """Return the cut of a large tree at which odds may vary between sums, or None for other trees."""
    level = families_at(state)
    families = np.diff(state.child_ptr)[slice(*state.problem.nested.level_ptr[level : level + 2])]
    if not splits.mean or state.cut is None or (families > 1).sum() < MIN_FAMILIES_FOR_ODDS:
        return None
    return state.cut_below(level, size)


def log_weights(sd: float) -> Reals:
    """Return log weights of steps of the log odds, proportional to a normal density.

    Examples
    --------
    >>> np.exp(log_weights(2.0)).round(3).tolist()
    [0.054, 0.244, 0.403, 0.244, 0.054]
    """
    logs = -0.5 * (STEPS / sd) ** 2
    return logs - np.logaddexp.reduce(logs)


def estimate_odds(
    search: SolutionSearch, splits: Splits, theta: Reals, cut: Partition, progress: Progress
) -> FamilyOdds | None:
    """Return the tree with the estimated variation of odds between sums, or None if they do not vary.

    `search` then solves for the mixture, if they do.
    """
    from scipy.optimize import minimize_scalar  # slow to import

    announce(progress, "estimating how much the shares of small parts vary between sums")
    alpha, total, second, odds, parts_of = map(coded, splits.parameters(theta))
    each = [(alpha, total, second, odds + step, parts_of) for step in STEPS]
    search.mixture = each, log_weights(FIRST)
    try:
        first = search.by_parts(cut, search.wanted)
    except ConvergenceError:  # at odds so far off no window may hold the posterior
        search.mixture = None
        return None

    def density(sd: float) -> float:
        return weighed(first, log_weights(sd)).evidence - 0.5 * (sd / ODDS_HYPERPRIOR_SCALE) ** 2

    ends = np.log([LEAST, MOST])
    best = minimize_scalar(
        lambda log: -density(np.exp(log)), bounds=ends, method="bounded", options={"xatol": CLOSE}
    )
    sd = float(np.exp(best.x))
    alike = weighed(first, log_weights(0.05 * LEAST)).evidence
    if not -float(best.fun) - alike > ODDS_ASKED:
        search.mixture = None
        return None
    search.mixture = each, log_weights(sd)
    top = weighed(first, log_weights(sd))
    if top.dropped > search.wanted:
        top = search.by_parts(cut, search.wanted)
    return FamilyOdds(top, sd)
