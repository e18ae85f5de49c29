"""Segments of a tree of places with a histogram each, for reconciliation part by part.

The levels are cut at boundary levels; a *segment* covers the levels from one boundary to the next, both included, and
a run of neighbouring places of its top level with everything below them. Segments are plain arrays.

Exact comparison of a tree's invariants, level by level and segment by segment.
Sums of whole numbers are exact. From the lowest level up every invariant is summed over the children, so that at each
level those of the levels below stand beside its own; two of which one refines the other have common sums, which differ
only if no counts at all have both. Sums known at the top of a segment are passed on with its summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueup.errors import InfeasibleError, SpecError
from trueup.kernel.histogram import Marginal, cell_groups, marginalise, refines, relative
from trueup.kernel.histogram.anova import Domain
from trueup.kernel.histogram.spine import Spine
from trueup.kernel.histogram.structural_zeros import Fold
from trueup.kernel.settling.descend import settling_sequence
from trueup.layouts import refuses_on_histogram
from trueup.layouts.histogram_plan import (
    FUSED_CODES,
    bounded_marginals,
    domain_of,
    level_bounds,
    level_plans,
    refuse_impossible_bounds,
    refuse_undetermined,
    small_fold,
)
from trueup.model.cells import Margin, detailed
from trueup.model.constraints import Constraints
from trueup.model.header import Measured

Bounds = tuple[tuple[NDArray[np.int64], ...], ...]
"""Per level and bounded marginal `(places, groups)` counts, or `(1, groups)` if they are the same at every place."""


@dataclass(frozen=True, eq=False)
class SegmentPlan:
    """The data shared by all segments of a histogram problem, whatever their places.

    Attributes
    ----------
    levels
        Their names, root first.
    domain, fold
        The histograms' basis, and how structural zeros were taken out of them.
    measured
        Per level and header: the marginal (folded) and the variance of its noise (counts squared).
    columns
        Per level and header: where the folded marginal's cells stand in the header's groups, and how many groups
        there are.
    chains, required
        Per level, the nested marginals to fix in turn, and fewer ones for parents where these are infeasible.
    nonnegative, integer, posterior
        True if counts below zero are refused; True to round; True to compute final tables at posterior means.
    bounded
        Marginals with lower bounds.
    first
        Marginals of the root that are fixed before its cells are held at zero.
    """

    levels: tuple[str, ...]
    domain: Domain
    fold: Fold
    measured: tuple[tuple[tuple[Marginal, float], ...], ...]
    columns: tuple[tuple[tuple[NDArray[np.int64], int], ...], ...]
    chains: tuple[tuple[Marginal, ...], ...]
    required: tuple[tuple[Marginal, ...], ...]
    nonnegative: bool
    integer: bool
    posterior: bool
    bounded: tuple[Marginal, ...]
    first: tuple[Marginal, ...]

    @property
    def cells(self) -> int:
        """Return the number of cells of a histogram, structural zeros included."""
        return int(np.prod(self.fold.sizes))

    def place_cells(self, sizes: Sequence[int]) -> tuple[int, int]:
        """Return the number of cells of a place, and the largest number of its measured values."""
        return self.cells, max(sum(size for _, size in columns) for columns in self.columns)

    def exact(self, level: int) -> list[Exact]:
        """Return the invariants on a level and on all levels below it."""
        levels = range(level, len(self.levels))
        return [(at, m) for at in levels for m, variance in self.measured[at] if variance == 0]

    def bounds(self, constraints: Constraints) -> Bounds:
        """Return the lower bounds that the constraints set on the places of every level."""
        return tuple(
            tuple(level_bounds(constraints, self.fold, self.bounded, name)) if self.bounded else ()
            for name in constraints.cells.tree.levels
        )


@dataclass(frozen=True, eq=False)
class Segment:
    """A segment of the tree of places: some places, with those below them down to another level.

    Attributes
    ----------
    plan
        The plan that all segments have in common.
    top, bottom
        Its first and last level.
    spine
        The places, a forest.
    firsts
        Per level of the segment, the position of its first place within the level of the whole tree; its places are
        neighbours there, so that those of level `top + i` are `firsts[i] : firsts[i] + spine.size(i)`.
    bounds
        Lower bounds on its places; see `SegmentPlan.bounds`.
    """

    plan: SegmentPlan
    top: int
    bottom: int
    spine: Spine
    firsts: tuple[int, ...]
    bounds: Bounds

    @property
    def lowest(self) -> bool:
        """Return True if the segment contains the last level of places."""
        return self.bottom == len(self.plan.levels) - 1

    @property
    def measured(self) -> range:
        """Return the range of levels whose measurements the segment takes into account."""
        return range(self.top, self.bottom + self.lowest)


def segment_plan(
    constraints: Constraints,
    headers: Sequence[Measured],
    *,
    integer: bool = True,
    posterior: bool = False,
    known: Sequence[Margin] = (),
    bounded: Sequence[Margin] = (),
) -> SegmentPlan:
    """Return the plan that is shared by all segments of a histogram problem."""
    if reason := refuses_on_histogram(constraints):
        raise SpecError(
            f"reconciliation by parts cannot keep the constraints: {reason}", remedy="give --engine memory"
        )
    cells, fold = constraints.cells, small_fold(constraints)
    if fold is None:
        raise SpecError(
            f"the structural zeros link more than {FUSED_CODES} combinations of attribute values",
            needed=f"at most {FUSED_CODES} combinations of the attributes that the zeros name",
            remedy="reconcile all places together: give --engine memory",
        )
    refuse_impossible_bounds(constraints, fold)
    plans = level_plans(constraints, headers, fold)
    domain = domain_of(cells, fold, plans, known)
    refuse_undetermined(domain, plans[-1], constraints, cells.tree.levels[-1])
    finest = fold.marginal(detailed(cells))
    given = (fold.marginal(cells.marginal(m.attributes)) for m in bounded)
    bounds = [*bounded_marginals(constraints, fold), *given]
    exact = [
        [*(m for p in plans[level:] for m, variance in p if variance == 0), *bounds]
        for level in range(len(plans))
    ]
    total = fold.marginal(cells.marginal(()))
    wanted = [[m for m, _ in p] for p in plans]
    wanted[0].append(total)
    return SegmentPlan(
        cells.tree.levels,
        domain,
        fold,
        tuple(map(tuple, plans)),
        tuple(_columns(constraints, headers, fold, name) for name in cells.tree.levels),
        tuple(tuple(settling_sequence(w, finest, e)) for w, e in zip(wanted, exact, strict=True)),
        tuple(tuple(settling_sequence((), finest, e)) for e in exact),
        constraints.nonnegative,
        integer,
        posterior,
        tuple(bounds),
        (total, *(m for p in plans for m, _ in p)),
    )


def _columns(constraints: Constraints, headers: Sequence[Measured], fold: Fold, level: str):
    marginals = [constraints.cells.marginal(h.margin.attributes) for h in headers if h.margin.level == level]
    return tuple((fold.columns(m), int(cell_groups(m).max()) + 1) for m in marginals)


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
    """Return all invariants at and below a segment, summed at its top places; refuse contradictory ones.

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
            f"the invariants of {where} have different sums, and so contradict each other",
            remedy="correct one of them, so that these sums agree",
        )


def _common(one: tuple[Exact, Table], other: tuple[Exact, Table]) -> Iterator[tuple[Table, Table]]:
    """Yield the sums of two invariants on the coarser one's margin, if the other refines it."""
    for ((_, fine), table), ((_, coarse), sums) in ((one, other), (other, one)):
        if refines(fine, coarse):
            yield marginalise(table, relative(fine, coarse)), sums
            return
