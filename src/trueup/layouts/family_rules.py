"""Constraints on a family of tables, and the order in which its tables are reconciled.

The joint table that closes a cycle of tables: as nothing measures it, it is given the values of least interaction.
Least squares of what is measured estimates sums of the joint table. Cells with these sums, and no interaction beyond what the
sums say, are found by proportional fitting from equal cells (negative sums count as zero, so that the fit ends near them where
no table has them all). They enter least squares as if measured, with `JOINT_VARIANCE` times the variance of the widest noise:
what is measured is hardly moved, and what nothing measures is known no better than that. Errors are stated of what is measured
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.families import JunctionTree
from trueup.kernel.families.least_squares import FamilyLeastSquares
from trueup.kernel.histogram import Marginal, cell_groups, marginalise, refines
from trueup.kernel.histogram.spine import Lower, Spine
from trueup.kernel.histogram.structural_zeros import Fold
from trueup.layouts import refuses_on_histogram
from trueup.layouts.histogram_plan import bounded_marginals, closed_bounds
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.family import FamilyCells, marginal_in
from trueup.model.family_sets import spanned_margin, variables
from trueup.model.header import Measured
from trueup.model.nested import canonical


def family_cells(constraints: Constraints) -> FamilyCells:
    """Return the cells of the constraints, which must be cells of a family of tables."""
    assert isinstance(constraints.cells, FamilyCells), "only a family of tables is laid out so"
    return constraints.cells


def closed_constraints(constraints: Constraints) -> Constraints:
    """Return the constraints on a family of tables, with a joint table added if the tables form a cycle."""
    return replace(constraints, cells=family_cells(constraints).closed)


def refuse_unmeasured_tables(cells: FamilyCells, headers: Sequence[Measured]) -> None:
    measured = {canonical(cells, h.margin) for h in headers if h.groups is None}
    if lost := [table for table in cells.tables if table not in measured]:
        raise SpecError(
            f"a constraint concerns '{lost[0]}', which no query measures",
            needed="constraints on margins of the measured tables",
            remedy=f"give a query on '{lost[0]}' a budget, or drop the constraint",
        )


def invariant_margins(constraints: Constraints) -> list[list[Margin]]:
    """Return, for every table of a family, the margins whose counts the invariants determine."""
    cells = family_cells(constraints)
    found = []
    for own in cells.sets:
        shared = (
            spanned_margin(cells, variables(cells, m, cells.used) & own) for m in constraints.invariants
        )
        found.append(list(dict.fromkeys(margin for margin in shared if margin is not None)))
    return found


def bounded_tables(constraints: Constraints) -> list[int]:
    """Return the positions of the tables that contain the margins of all bounds."""
    cells = family_cells(constraints)
    held = [set(cells.holders(bound.margin)) for bound in constraints.bounds]
    return sorted(set(range(len(cells.tables))).intersection(*held))


def refuses_bounds(constraints: Constraints) -> str | None:
    """Return the reason why the bounds on a family cannot be satisfied, or None if they can."""
    if not constraints.bounds:
        return None
    if family_cells(constraints).joint is not None:
        return "it cannot enforce bounds if the tables form a cycle"
    if not (held := bounded_tables(constraints)):
        return "it can enforce only bounds that all lie within one table"
    found = [refuses_on_histogram(_table_constraints(constraints, i), upper=True) for i in held]
    return None if None in found else found[0]


def table_bounds(constraints: Constraints, table: int, spine: Spine) -> TableBounds:
    """Return the bounds on the first table to be reconciled, level by level."""
    own = _table_constraints(constraints, table)
    fold = Fold.of(own.cells.shape[1:])
    marginals = bounded_marginals(own, fold)
    return TableBounds(tuple(marginals), *closed_bounds(own, fold, marginals, spine))


class TableBounds(NamedTuple):
    """Bounds on the counts of one table: its bounded marginals, and their bounds on each level."""

    marginals: tuple[Marginal, ...] = ()
    lower: tuple[Lower, ...] = ()
    upper: tuple[Lower, ...] = ()

    def of_copies(self, copies: int, *, drawn: bool) -> tuple[tuple[Lower, ...], tuple[Lower, ...]]:
        """Return lower and upper bounds for several copies of the places, without upper bounds for draws."""
        lower, upper = (
            tuple(level.at(np.tile(np.arange(len(level.tables[0])), copies)) for level in side)
            for side in (self.lower, self.upper)
        )
        return lower, () if drawn else upper


def _table_constraints(constraints: Constraints, table: int) -> Constraints:
    """Return the bounds and invariants that concern one table, as constraints on that table."""
    part = family_cells(constraints).parts[table]
    one = part if part.attributes else Cells(part.tree, (Attribute("", ("all",)),))
    known = tuple(invariant_margins(constraints)[table])
    return Constraints(one, (one.finest, *known), invariants=known, bounds=constraints.bounds)


def rooted(
    cells: FamilyCells, known: Sequence[Sequence[Margin]], roots: Sequence[int] | None = None
) -> JunctionTree:
    """Return a junction tree in which the exact margins of each table are nested with those fixed before."""

    def flatness(tree: JunctionTree) -> int:
        depth: dict[int, int] = {}
        for i in tree.order:
            depth[i] = 1 + depth.get(tree.parent[i], -1)
        return sum(depth.values())

    trees = [cells.junction(root) for root in (range(len(cells.tables)) if roots is None else roots)]
    fitting = [tree for tree in trees if all(_nested(cells, tree, i, known[i]) for i in tree.order)]
    if not fitting:
        crossing = next(m for margins in known for m in margins if m != Margin(cells.tree.levels[0]))
        raise SpecError(
            f"the invariant '{crossing}' crosses another invariant, or a margin that two tables share",
            needed="in every table, invariants that are nested with each other and with the margins that it shares",
            remedy=f"leave out '{crossing}', or the invariants that cross it",
        )
    return min(fitting, key=flatness)


def _nested(cells: FamilyCells, tree: JunctionTree, table: int, known: Sequence[Margin]) -> bool:
    parent = tree.parent[table]
    margins = [*known, *([cells.separator(table, parent)] if parent >= 0 else [])]
    tables = [cells.marginal(m.attributes) for m in margins]
    return all(refines(a, b) or refines(b, a) for a in tables for b in tables)


def closed_zeros(constraints: Constraints, junction: JunctionTree) -> list[NDArray[np.bool_]]:
    """Return, for each table, a mask of the cells of a place that structural zeros of any table imply."""
    cells = family_cells(constraints)
    masks = [
        mask.reshape(part.shape[0], -1)[0]
        for mask, part in zip(cells.split(constraints.zero_cells), cells.parts, strict=True)
    ]
    edges = [(i, junction.parent[i]) for i in junction.order[1:]]
    for one, other in [*reversed([(p, i) for i, p in edges]), *[(i, p) for i, p in edges]]:
        shared = cells.separator(one, other)
        here, there = (marginal_in(cells.parts[i], shared) for i in (one, other))
        closed = marginalise((~masks[other]).astype(np.int64), there) == 0
        masks[one] = masks[one] | closed[cell_groups(here)]
    return masks


JOINT_VARIANCE = 10.0
"""Variance with which the joint table is taken as measured, as a multiple of the widest noise's."""
FITTING_SWEEPS = 30
"""Sweeps of proportional fitting over all sums."""


@dataclass(frozen=True, eq=False)
class JointTable:
    """An unmeasured joint table that closes a cycle of tables, with the measurements of its sums.

    Attributes
    ----------
    part
        Its cells.
    level
        Its level's position.
    measured
        Least squares of what is measured.
    sums
        The sums of the measured margins that it holds: level, marginal of the family's axes, and the group of each cell.
    open_
        `(cells,)` which cells are not zero by definition.
    """

    part: Cells
    level: int
    measured: FamilyLeastSquares
    sums: tuple[tuple[int, Marginal, NDArray[np.int64]], ...]
    open_: NDArray[np.bool_]

    def fitted(self, answers: Sequence[Sequence[NDArray]]) -> NDArray:
        """Return cells `(b, places, cells of a place)` of the joint table that have the estimated sums."""
        fit = self.measured.fit(answers)
        found = [(self.measured.table(fit, level, marginal), groups) for level, marginal, groups in self.sums]
        targets = [(np.maximum(x.reshape(len(x), -1), 0.0), groups) for x, groups in found]
        cells = proportional_fit(self.open_.astype(float), targets, FITTING_SWEEPS)
        return cells.reshape(len(cells), self.part.shape[0], -1)


def proportional_fit(
    start: NDArray, targets: Sequence[tuple[NDArray, NDArray[np.int64]]], sweeps: int
) -> NDArray:
    """Scale cells `(n,)` until they have the given sums, by iterative proportional fitting.

    Parameters
    ----------
    targets
        For each margin its sums `(b, groups)`, and the group of every cell.

    Returns
    -------
    NDArray
        `(b, n)` cells.

    Examples
    --------
    >>> rows, columns = (np.array([[3.0, 1.0]]), np.array([0, 0, 1, 1])), (np.array([[2.0, 2.0]]), np.array([0, 1, 0, 1]))
    >>> proportional_fit(np.ones(4), [rows, columns], 5)
    array([[1.5, 1.5, 0.5, 0.5]])
    """
    x = np.tile(start, (len(targets[0][0]), 1))
    for _ in range(sweeps):
        for sums, groups in targets:
            now = np.stack([np.bincount(groups, row, sums.shape[1]) for row in x])
            x *= np.divide(sums, now, out=np.zeros_like(now), where=now > 0)[:, groups]
    return x
