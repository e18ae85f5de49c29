"""Families of large trees whose parts are of two kinds: the odds of small parts differ from one family to the next.

A group of blocks in a town has few uninhabited ones, one with a park many. The log odds of each family are off those of all
by one of a few steps, with weights like a normal law's; what is below a parent then follows a mixture, whose components are
solved one by one and weighed by their evidence (`trueup.inferring.tree_parts`). The standard deviation is where the log
evidence of all values is largest: other weights need the top solved again, but no family.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.inferring.method import Progress, announce
from trueup.inferring.tree_parts import Top, weighed
from trueup.inferring.tree_search import SolutionSearch
from trueup.inferring.tree_state import TreeState
from trueup.kernel.messages.partition import Partition
from trueup.layouts.splits import Splits

Reals = NDArray[np.float64]

STEPS = 2.0 * np.arange(-2, 3)
"""By how much the log odds of a family may be off those of all."""
LEAST, MOST, CLOSE = 0.3, 6.0, 0.15
"""Between which standard deviations the best one is sought, and how closely, in logs."""
FIRST = 2.0
"""The standard deviation at which the first solution must hold the posterior."""
SCALE = 2.0
"""Of the half-normal hyperprior of the standard deviation."""
MANY = 30
"""Families of the last level from which on it is estimated: its own uncertainty is not integrated over."""
ASKED = 1.0
"""Log evidence that it has to add: what one parameter is worth by Akaike's criterion."""


@dataclass(frozen=True)
class FamilyOdds:
    """A tree whose families differ in their odds by a standard deviation `sd`, and its solution."""

    top: Top
    sd: float

    def record(self, splits: Splits) -> dict:
        """Return the entry of a posterior's record, by name."""
        margin = splits.names[splits.concentrations - 1].partition(" of ")[2]
        name = f"spread of the log odds of small parts of {margin} between families"
        return {name: {"mode": self.sd, "sd": None, "shift": None}}


def families_at(state: TreeState) -> int:
    """Return the level whose counts are the sums of the last level's families."""
    return len(state.problem.nested.margins) - 2


def cut_above_families(state: TreeState, splits: Splits, size: int) -> Partition | None:
    """Return the cut of a large tree of two kinds that lets its families differ; None for other trees."""
    level = families_at(state)
    families = np.diff(state.child_ptr)[slice(*state.problem.nested.level_ptr[level : level + 2])]
    if not splits.mean or state.cut is None or (families > 1).sum() < MANY:
        return None
    return state.cut_below(level, size)


def log_weights(sd: float) -> Reals:
    """Return log weights of the steps, like those of a normal law.

    Examples
    --------
    >>> np.exp(log_weights(2.0)).round(3).tolist()
    [0.054, 0.244, 0.403, 0.244, 0.054]
    """
    logs = -0.5 * (STEPS / sd) ** 2
    return logs - np.logaddexp.reduce(logs)


def estimate_odds(
    search: SolutionSearch,
    splits: Splits,
    theta: Reals,
    cut: Partition,
    progress: Progress,
) -> FamilyOdds | None:
    """Let families differ in their odds as much as the values suggest; return None if they do not.

    `search` then solves for the mixture, if they do.
    """
    from scipy.optimize import minimize_scalar  # slow to import

    announce(progress, "estimating how much families differ in their odds of small parts")
    alpha, total, second, odds, parts_of = splits.parameters(theta)
    each = [(alpha, total, second, odds + step, parts_of) for step in STEPS]
    search.mixture = each, log_weights(FIRST)
    try:
        first = search.by_parts(cut, search.wanted)
    except ConvergenceError:  # at odds so far off no window may hold the posterior
        search.mixture = None
        return None

    def density(sd: float) -> float:
        return weighed(first, log_weights(sd)).evidence - 0.5 * (sd / SCALE) ** 2

    ends = np.log([LEAST, MOST])
    best = minimize_scalar(
        lambda log: -density(np.exp(log)), bounds=ends, method="bounded", options={"xatol": CLOSE}
    )
    sd = float(np.exp(best.x))
    alike = weighed(first, log_weights(0.05 * LEAST)).evidence
    if not -float(best.fun) - alike > ASKED:
        search.mixture = None
        return None
    search.mixture = each, log_weights(sd)
    top = weighed(first, log_weights(sd))
    if top.dropped > search.wanted:
        top = search.by_parts(cut, search.wanted)
    return FamilyOdds(top, sd)
