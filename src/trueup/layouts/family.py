"""Families of tables prepared for joint least squares, and for reconciling one table after the other.

One file: both read the same margins and separators of one junction tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.families import JunctionTree
from trueup.kernel.families.least_squares import Contrast, FamilyLeastSquares
from trueup.kernel.histogram import Marginal, marginalise
from trueup.kernel.histogram.anova import Axis
from trueup.kernel.histogram.least_squares import HistogramLeastSquares
from trueup.kernel.histogram.spine import Spine
from trueup.kernel.settling.descend import SettledTables, Settling, node_keys, settle, settling_sequence
from trueup.kernel.settling.transport import mixed_keys
from trueup.layouts import MAX_VARIANCE_RATIO_IN_HISTOGRAMS, refuse_wide_levels
from trueup.layouts.family_rules import (
    JOINT_VARIANCE,
    JointTable,
    TableBounds,
    bounded_tables,
    closed_constraints,
    closed_zeros,
    family_cells,
    invariant_margins,
    refuse_unmeasured_tables,
    rooted,
    table_bounds,
)
from trueup.model.cells import Cells, Margin, Recode, detailed
from trueup.model.constraints import Constraints
from trueup.model.family import FamilyCells, marginal_in
from trueup.model.family_sets import spanned_margin, variables
from trueup.model.header import Measured, split
from trueup.model.nested import canonical


@dataclass(frozen=True, eq=False)
class Shared:
    """The margin that a table and its parent in the junction tree have in common.

    Attributes
    ----------
    parent
        The parent's position among the tables.
    levels
        Number of levels at which they share it, from the root.
    own, parents
        The margin as a marginal of the table, and of its parent.
    """

    parent: int
    levels: int
    own: Marginal
    parents: Marginal


@dataclass(frozen=True, eq=False)
class TableLayout:
    """One table of a family, prepared for reconciling its estimates level by level.

    Attributes
    ----------
    part
        Its cells.
    whole
        The table as a marginal of the family's axes.
    tree
        Its places with the covariances of its estimates from the subtrees.
    chains, required
        Per level the nested marginals to fix in turn, and the fewer ones to fix if zeros make these impossible.
    first
        Marginals of the root place that are fixed before its cells are held at zero.
    zeros
        `(cells of a place,)` which are zero by definition, in this table or by another one.
    shared
        The margin that is fixed before the table; None for the root of the junction tree.
    bounds
        Bounds on its counts, which only the root has.
    """

    part: Cells
    whole: Marginal
    tree: HistogramLeastSquares
    chains: tuple[list[Marginal], ...]
    required: tuple[list[Marginal], ...]
    first: tuple[Marginal, ...]
    zeros: NDArray[np.bool_]
    shared: Shared | None
    bounds: TableBounds

    @property
    def levels(self) -> int:
        """Return the number of levels of places in the table."""
        return self.tree.spine.depth

    def on(self, least_squares: FamilyLeastSquares, levels: range) -> TableLayout:
        """Return the layout of the table on a range of levels, given the least squares on these."""
        own = slice(levels.start, min(self.levels, levels.stop))
        tree = _from_subtrees(least_squares, self.whole, own.stop - own.start)
        shared = self.shared and replace(self.shared, levels=self.shared.levels - own.start)
        shared = shared if shared and shared.levels > 0 else None
        return replace(self, tree=tree, chains=self.chains[own], required=self.required[own], shared=shared)


@dataclass(frozen=True, eq=False)
class FamilyProblem:
    """A family of tables, prepared for joint least squares and for reconciling one table after the other.

    Attributes
    ----------
    constraints, headers
        The constraints on the closed family, and the measured headers.
    shown
        The cells of the tables themselves.
    least_squares
        Least squares of all tables together.
    tables
        Layouts of the tables.
    order
        Their positions, a parent in the junction tree before its children.
    joint
        The joint table that closes a cycle, which nothing measures.
    top, firsts
        The level of the whole tree at which the places begin, and per level where they stand there.
    """

    constraints: Constraints
    headers: tuple[Measured, ...]
    shown: FamilyCells
    least_squares: FamilyLeastSquares
    tables: tuple[TableLayout, ...]
    order: tuple[int, ...]
    joint: JointTable | None = None
    top: int = 0
    firsts: tuple[int, ...] = ()

    def on(
        self, spine: Spine, levels: range, firsts: tuple[int, ...], below: Mapping[Contrast, NDArray] | None
    ) -> FamilyProblem:
        """Return the problem on a range of levels of another tree of places."""
        least_squares = self.least_squares.on(spine, levels, below)
        order = tuple(i for i in self.order if self.tables[i].levels > levels.start)
        tables = tuple(t.on(least_squares, levels) if i in order else t for i, t in enumerate(self.tables))
        return replace(
            self, least_squares=least_squares, tables=tables, order=order, top=levels.start, firsts=firsts
        )

    @property
    def cells(self) -> FamilyCells:
        """Return the cells of all tables, including the joint table that closes a cycle."""
        return family_cells(self.constraints)

    def fit(self, rows: NDArray, *, subtrees: bool = False) -> list[list[NDArray]]:
        """Return least-squares estimates for all tables of the family from measured values `(b, q)`."""
        parts = split(rows, self.headers, self.cells.whole)
        sizes = self.cells.tree.sizes
        answers = [
            [
                np.asarray(part, float).reshape(len(rows), size, -1)
                for h, part in zip(self.headers, parts, strict=True)
                if h.margin.level == name
            ]
            for name, size in zip(self.cells.tree.levels, sizes, strict=True)
        ]
        if self.joint is not None:
            fitted = self.joint.fitted(answers)
            answers[self.joint.level].append(fitted)
        return self.least_squares.fit(answers, subtrees=subtrees)

    def estimates(self, rows: NDArray, margin: Margin) -> NDArray:
        """Return least-squares estimates `(b, groups)` of a margin from measured values `(b, q)`."""
        level = self.cells.tree.level(margin.level)
        found = self.least_squares.table(self.fit(rows), level, self.marginal(margin))
        return found.reshape(len(rows), -1)

    def marginal(self, margin: Margin) -> Marginal:
        """Return a margin as group numbers along each axis of the family."""
        return _marginal(self.cells, bases_of(self.cells), margin)

    def settle(self, rows: NDArray, seeds: NDArray, how: Settling) -> tuple[NDArray, list[SettledTables]]:
        """Reconcile measured values `(b, q)` table by table; return the cells `(b, n)` and the tables."""
        settled = self.settle_fit(self.fit(rows, subtrees=True), seeds, how)
        found = [settled[i] for i in range(len(self.tables))]
        return np.concatenate([s.values[-1].reshape(len(rows), -1) for s in found], axis=1), found

    def settle_fit(
        self,
        fit: Sequence[Sequence[NDArray]],
        seeds: NDArray,
        how: Settling,
        above: Mapping[int, NDArray] | None = None,
    ) -> dict[int, SettledTables]:
        """Reconcile least-squares estimates table by table, parents in the junction tree first."""
        copies, settled = len(seeds), {}
        firsts = self.firsts or (0,) * self.least_squares.spine.depth
        for i in self.order:
            table = self.tables[i]
            estimates = [
                self.least_squares.table(fit, level, table.whole).reshape(-1, table.tree.domain.cells)
                for level in range(table.levels)
            ]
            tree = table.tree.tiled(copies) if copies > 1 else table.tree
            keys = mixed_keys(seeds, np.full(1, i))
            zeros = (
                [np.tile(table.zeros, (len(each), 1)) for each in estimates] if table.zeros.any() else None
            )
            settled[i] = settle(
                tree,
                estimates,
                table.chains,
                replace(how, nonnegative=self.constraints.nonnegative, first=table.first),
                required=table.required,
                zeros=zeros,
                keys=[
                    node_keys(keys, self.top + level, firsts[level] + np.arange(table.tree.spine.size(level)))
                    for level in range(table.levels)
                ],
                above=None if above is None else above[i],
                bounds=table.bounds.of_copies(copies, drawn=how.drawn is not None),
                fixed=table.shared and _fixed(table.shared, settled[table.shared.parent]),
            )
        return settled

    @cached_property
    def standard_errors(self) -> dict[Margin, NDArray]:
        """Return the standard errors (counts) of least squares for measured and shared margins."""
        cells = self.shown
        margins = {canonical(cells, h.margin) for h in self.headers} | {*cells.tables, *cells.separators}
        return {m: self._spread(m) for m in sorted(margins, key=str)}

    def _spread(self, margin: Margin) -> NDArray:
        level = self.cells.tree.level(margin.level)
        known = self.joint.measured if self.joint is not None else self.least_squares
        variances = known.variances(level, self.marginal(margin))
        places = self.cells.tree.sizes[level]
        return np.sqrt(np.broadcast_to(variances, (places, variances.shape[1]))).ravel()


def _fixed(shared: Shared, parent: SettledTables) -> tuple[Marginal, list[NDArray]]:
    return shared.own, [marginalise(x, shared.parents) for x in parent.values[: shared.levels]]


def family_problem(constraints: Constraints, headers: Sequence[Measured]) -> FamilyProblem:
    """Return the estimation problem of a family of tables, from its constraints and its measured margins.

    Raises
    ------
    SpecError
        If a table is not measured, or no order of the tables keeps its invariants.
    """
    shown = family_cells(constraints)
    refuse_wide_levels(headers, MAX_VARIANCE_RATIO_IN_HISTOGRAMS)
    refuse_unmeasured_tables(shown, headers)
    constraints = closed_constraints(constraints)
    cells = family_cells(constraints)
    bases = bases_of(cells)
    plan = [
        [
            (_marginal(cells, bases, h.margin), float(h.law.variance))
            for h in headers
            if h.margin.level == name
        ]
        for name in cells.tree.levels
    ]
    seen = [m for level in plan for m, _ in level]
    axes = [Axis.of([np.zeros(base.size, np.int64), *(m[i] for m in seen)]) for i, base in enumerate(bases)]
    spine = Spine(cells.tree.child_ptr, cells.tree.sizes[0])
    least_squares = FamilyLeastSquares.prepare(axes, spine, plan)
    known = invariant_margins(constraints)
    junction = rooted(cells, known, bounded_tables(constraints) if constraints.bounds else None)
    zeros = closed_zeros(constraints, junction)
    joint = None
    if shown.joint is not None:
        joint = _joint(shown.joint, cells, headers, least_squares, bases, zeros)
        wide = JOINT_VARIANCE * max(variance for level in plan for _, variance in level)
        plan[joint.level].append((_marginal(cells, bases, shown.joint), wide))
        least_squares = FamilyLeastSquares.prepare(axes, spine, plan)
    tables = tuple(
        _table_layout(constraints, headers, least_squares, bases, junction, known[i], zeros[i], i)
        for i in range(len(cells.tables))
    )
    return FamilyProblem(constraints, tuple(headers), shown, least_squares, tables, junction.order, joint)


def _joint(
    margin: Margin,
    cells: FamilyCells,
    headers: Sequence[Measured],
    measured: FamilyLeastSquares,
    bases: Sequence[Recode],
    zeros: Sequence[NDArray[np.bool_]],
) -> JointTable:
    at = cells.tables.index(margin)
    part, level = cells.parts[at], cells.tree.level
    shared = (spanned_margin(cells, variables(cells, h.margin, cells.used) & cells.sets[at]) for h in headers)
    held = dict.fromkeys(m for m in shared if m is not None)
    sums = tuple((level(m.level), _marginal(cells, bases, m), part.groups(margin, m)) for m in held)
    return JointTable(part, level(margin.level), measured, sums, np.tile(~zeros[at], part.shape[0]))


def bases_of(cells: FamilyCells) -> list[Recode]:
    """Return, for every attribute, the finest grouping of its values in any table of the family."""
    found = []
    for at, attribute in enumerate(cells.attributes):
        views = [cells.recodes(table.attributes)[at] for table in cells.tables]
        found.append(max(views, key=lambda view: view.size) if views else attribute.summed)
    return found


def _marginal(cells: FamilyCells, bases: Sequence[Recode], margin: Margin) -> Marginal:
    """Return a margin of a family as group numbers of the finest groupings, by attribute."""
    own = cells.recodes(margin.attributes)
    return tuple(
        np.array(view.groups)[np.unique(base.groups, return_index=True)[1]]
        for view, base in zip(own, bases, strict=True)
    )


def _table_layout(
    constraints: Constraints,
    headers: Sequence[Measured],
    least_squares: FamilyLeastSquares,
    bases: Sequence[Recode],
    junction: JunctionTree,
    known: Sequence[Margin],
    zeros: NDArray[np.bool_],
    i: int,
) -> TableLayout:
    cells = family_cells(constraints)
    part, whole = cells.parts[i], _marginal(cells, bases, cells.tables[i])
    spine = least_squares.spine.upper(len(part.tree.levels))
    bounds = table_bounds(constraints, i, spine) if junction.parent[i] < 0 else TableBounds()
    tree = _from_subtrees(least_squares, whole, spine.depth)
    children = [cells.separator(i, j) for j in junction.order if junction.parent[j] == i]
    chains, required = [], []
    for level in range(spine.depth):
        at_least = [m for m in known if cells.tree.level(m.level) >= level]
        passed = [m for m in children if cells.tree.level(m.level) >= level]
        own = [
            h.margin
            for h in headers
            if cells.tree.level(h.margin.level) == level and i in cells.holders(h.margin)
        ]
        own += [Margin(cells.tree.levels[0])] * (level == 0)
        exact = [*_marginals(part, at_least), *bounds.marginals]
        required.append(settling_sequence([], _detailed(part), exact))
        exact += _marginals(part, sorted(passed, key=cells.size))
        chains.append(settling_sequence(_marginals(part, own), _detailed(part), exact))
    inside = [h.margin for h in headers if i in cells.holders(h.margin)]
    first = _marginals(part, [Margin(cells.tree.levels[0]), *children, *inside])
    shared = _shared(cells, i, junction.parent[i]) if junction.parent[i] >= 0 else None
    return TableLayout(part, whole, tree, tuple(chains), tuple(required), tuple(first), zeros, shared, bounds)


def _from_subtrees(least_squares: FamilyLeastSquares, whole: Marginal, depth: int) -> HistogramLeastSquares:
    """Return the least squares of one table on its first `depth` levels."""
    covariances = [least_squares.covariances(level, whole) for level in range(depth)]
    spine = least_squares.spine.upper(depth)
    return HistogramLeastSquares.given(least_squares.view(whole).domain, spine, covariances)


def _shared(cells: FamilyCells, i: int, parent: int) -> Shared:
    margin = cells.separator(i, parent)
    own, parents = (marginal_in(cells.parts[at], margin) for at in (i, parent))
    return Shared(parent, 1 + cells.tree.level(margin.level), own, parents)


def _marginals(part: Cells, margins: Sequence[Margin]) -> list[Marginal]:
    return [marginal_in(part, margin) for margin in margins]


def _detailed(part: Cells) -> Marginal:
    return detailed(part) or (np.zeros(1, np.int64),)
