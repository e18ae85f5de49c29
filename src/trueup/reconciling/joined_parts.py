"""Reconciliation of two linked tables segment by segment: households first, then persons.

Estimates of both tables go up from segment to segment. On the way down, a segment's households are computed, then its
persons given the numbers that these households hold. `joined_tree` makes the same integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.histogram import Marginal
from trueup.kernel.histogram.spine import Lower, Spine, close_bounds
from trueup.kernel.histogram.structural_zeros import Fold
from trueup.model.build import own_constraints
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.joined import ROOT, LinkedTables, PersonsHeld, RecordTable
from trueup.reconciling import histogram_parts as parts
from trueup.reconciling.histogram_parts import Answers, Settlement, Summary
from trueup.reconciling.histogram_tree import Within
from trueup.reconciling.segments import Bounds, Segment, SegmentPlan, segment_plan

SUMMARIES = ("persons/", "households/")
"""Beginnings of the names of a summary's arrays, for each of the two tables."""


def own_header(joined: LinkedTables, header: Measured) -> Measured:
    """Return a measured header of both tables as a header of the one table that it measures."""
    return Measured(header.query, joined.own_margin(header.margin), header.law)


def of_table(joined: LinkedTables, headers: Sequence[Measured], table: RecordTable) -> list[int]:
    """Return the positions of the headers that measure a given one of the two tables."""
    return [i for i, h in enumerate(headers) if joined.table(h.margin) is table]


def known_margins(joined: LinkedTables, level: str) -> list[Margin]:
    """Return the margins of persons that the table of households determines or bounds from below."""
    persons = [p for p in (joined.determined, *joined.least) if p is not None]
    return [Margin(level, p.attributes) for p in persons]


def least_of(spine: Spine, bounds: Sequence[tuple[Marginal, Sequence[NDArray]]]) -> tuple[Lower, ...]:
    """Return lower bounds on the counts of persons for every level, from coarse to fine."""
    if not bounds:
        return ()
    levels = range(len(bounds[0][1]))
    own = [[np.rint(tables[level]).astype(np.int64) for _, tables in bounds] for level in levels]
    return close_bounds(spine, [marginal for marginal, _ in bounds], own)


def within_households(
    joined: LinkedTables, fold: Fold, spine: Spine, households: Sequence[NDArray]
) -> Within:
    """Return values and bounds for counts of persons, implied by tables `(places, n)` of households by level."""
    cells = joined.persons.cells(ROOT)

    def tables(held: PersonsHeld) -> tuple[Marginal, list[NDArray]]:
        own = cells.marginal(held.attributes)
        return fold.marginal(own), [held.held(table)[:, fold.columns(own)] for table in households]

    fixed = None if joined.determined is None else tables(joined.determined)
    return Within(fixed, least_of(spine, [tables(p) for p in joined.least]))


@dataclass(frozen=True, eq=False)
class JoinedPlan:
    """The data shared by all segments of two linked tables.

    Attributes
    ----------
    joined
        The tables.
    persons, households
        The plans that the segments of each table have in common.
    order
        Per level and table, which of the level's headers measure it.
    """

    joined: LinkedTables
    persons: SegmentPlan
    households: SegmentPlan
    order: tuple[tuple[list[int], list[int]], ...]

    @property
    def levels(self) -> tuple[str, ...]:
        """Return the names of the levels, root first."""
        return self.persons.levels

    @property
    def cells(self) -> int:
        """Return the number of cells of a place in both tables together."""
        return self.persons.cells + self.households.cells

    def place_cells(self, sizes: Sequence[int]) -> tuple[int, int]:
        """Return the number of cells of a place, and the largest number of measured values, in both tables together."""
        of_levels = zip(self.persons.columns, self.households.columns)
        return self.cells, max(sum(size for _, size in (*p, *h)) for p, h in of_levels)

    def bounds(self, constraints: Constraints) -> Bounds:
        """Return no bounds, because persons are bounded by the reconciled households."""
        return tuple(() for _ in constraints.cells.tree.levels)


def joined_plan(
    constraints: Constraints, headers: Sequence[Measured], *, integer: bool, posterior: bool
) -> JoinedPlan:
    """Return the plan that is shared by all segments of two linked tables."""
    joined, levels = constraints.joined, constraints.cells.tree.levels
    assert joined is not None
    known = known_margins(joined, levels[0])

    def plan(table: RecordTable, known: Sequence[Margin], bounded: Sequence[Margin]) -> SegmentPlan:
        own = [own_header(joined, headers[i]) for i in of_table(joined, headers, table)]
        rules = own_constraints(constraints, table)
        return segment_plan(rules, own, integer=integer, posterior=posterior, known=known, bounded=bounded)

    order = tuple(
        (of_table(joined, at, joined.persons), of_table(joined, at, joined.households))
        for at in ([h for h in headers if h.margin.level == level] for level in levels)
    )
    persons = plan(joined.persons, known, known[len(known) - len(joined.least) :])
    return JoinedPlan(joined, persons, plan(joined.households, (), ()), order)


@dataclass(frozen=True, eq=False)
class JoinedSegment:
    """A segment of the tree of places, for both linked tables."""

    plan: JoinedPlan
    persons: Segment
    households: Segment

    @classmethod
    def of(cls, plan: JoinedPlan, whole: Segment) -> JoinedSegment:
        """Return a segment for both linked tables, given its places."""
        bounds = tuple(() for _ in range(whole.spine.depth))
        none = tuple(
            tuple(
                np.zeros((1, int(np.prod([g.max() + 1 for g in m]))), np.int64) for m in plan.persons.bounded
            )
            for _ in bounds
        )
        return cls(
            plan,
            replace(whole, plan=plan.persons, bounds=none),
            replace(whole, plan=plan.households, bounds=bounds),
        )

    def answers(self, answers: Answers) -> tuple[Answers, Answers]:
        """Return the measured values of persons, then those of households."""
        orders = [self.plan.order[level] for level in self.persons.measured]
        return tuple(
            [[at[i] for i in order[t]] for at, order in zip(answers, orders, strict=True)] for t in range(2)
        )  # pyright: ignore[reportReturnType]


def _of_both(below: Summary | None) -> tuple[Summary | None, Summary | None]:
    """Return the summary of persons, then that of households; the arrays of each are named after it."""
    if below is None:
        return None, None
    named = ({k.removeprefix(at): v for k, v in below.items() if k.startswith(at)} for at in SUMMARIES)
    return tuple(named)  # pyright: ignore[reportReturnType]


def joined_up(segment: JoinedSegment, answers: Answers, below: Summary | None = None) -> Summary:
    """Return estimates of a segment's top places in both tables, from measurements at and below them."""
    persons, households = segment.answers(answers)
    below_persons, below_households = _of_both(below)
    both = (
        parts.up(segment.persons, persons, below_persons),
        parts.up(segment.households, households, below_households),
    )
    return {f"{at}{name}": array for at, one in zip(SUMMARIES, both) for name, array in one.items()}


def joined_down(
    segment: JoinedSegment,
    answers: Answers,
    below: Summary | None,
    above: NDArray | None,
    seed: np.uint64 | int,
) -> Settlement:
    """Return the final tables of a segment: those of households, then of persons given these households."""
    joined = segment.plan.joined
    persons, households = segment.answers(answers)
    below_persons, below_households = _of_both(below)
    tops = (None, None) if above is None else tuple(t.of(above, joined.records) for t in joined.tables)
    first = parts.down(segment.households, households, below_households, tops[1], seed)
    every = first.tables if tops[1] is None else (tops[1], *first.tables)
    within = within_households(joined, segment.plan.persons.fold, segment.persons.spine, every)
    second = parts.down(segment.persons, persons, below_persons, tops[0], seed, *within)
    stacked = tuple(np.concatenate(both, axis=1) for both in zip(second.tables, first.tables, strict=True))
    stats = {key: max(value, second.stats[key]) for key, value in first.stats.items()}
    return Settlement(stacked, first.levels, stats, first.solved and second.solved)
