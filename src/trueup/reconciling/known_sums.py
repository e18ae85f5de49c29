"""Exact comparison of a tree's invariants, level by level and segment by segment.

Sums of whole numbers are exact. From the lowest level up every invariant is summed over the children, so that at each
level those of the levels below stand beside its own; two of which one refines the other have common sums, which differ
only if no counts at all have both. Sums known at the top of a segment are passed on with its summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from trueup.errors import InfeasibleError
from trueup.kernel.histogram.marginals import Marginal, marginalise, refines, relative
from trueup.kernel.histogram.spine import Spine

Table = NDArray[np.int64]
"""(places, groups)"""
Exact = tuple[int, Marginal]
"""An invariant: its level and its marginal."""


def summed_up(
    spine: Spine,
    levels: Sequence[str],
    own: Sequence[Sequence[tuple[Exact, Table]]],
    below: Sequence[tuple[Exact, Table]],
) -> list[tuple[Exact, Table]]:
    """Return all invariants of a segment and of what is below it, summed at its top places; refuse contradictions.

    Parameters
    ----------
    spine, levels : the segment's places, and the names of the whole tree's levels
    own : per level of the segment, its invariants with their tables
    below : those of the levels below, summed at its bottom places

    Raises
    ------
    InfeasibleError
        If two of them have different sums; it names their levels.
    """
    found = list(below)
    for at in reversed(range(spine.depth)):
        if at < spine.depth - 1:
            found = [(exact, spine.sum_children(at, table)) for exact, table in found]
        here = list(own[at]) if at < len(own) else []
        for i, one in enumerate(here):
            for other in here[:i] + found:
                _hold(levels, one, other)
        found = here + found
    return found


def _hold(levels: Sequence[str], one: tuple[Exact, Table], other: tuple[Exact, Table]) -> None:
    ((level, _), _), ((lower, _), _) = one, other
    if any((a != b).any() for a, b in _common(one, other)):
        where = f"level '{levels[level]}'" + (f" and of level '{levels[lower]}'" if lower != level else "")
        raise InfeasibleError(
            f"invariants of {where} contradict each other: they have different sums",
            remedy="correct one of them",
        )


def _common(one: tuple[Exact, Table], other: tuple[Exact, Table]) -> Iterator[tuple[Table, Table]]:
    """Yield the sums that two invariants share, if one refines the other."""
    for ((_, fine), table), ((_, coarse), sums) in ((one, other), (other, one)):
        if refines(fine, coarse):
            yield marginalise(table, relative(fine, coarse)), sums
            return
