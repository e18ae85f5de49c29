"""Constraints as labelled rows of a polyhedron, and contradictions among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.errors import InfeasibleError
from trueup.kernel.linear.polyhedron import Polyhedron
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Bound, Constraints, LinearRule, name_mask
from trueup.model.family import FamilyCells
from trueup.model.nested import canonical

WHOLE_ROWS = 400  # above this, whether rows hold together in whole numbers alone is not looked into
SEARCHED_CELLS = 50_000  # above this, rules are not held against each other: counts that break them are named


class RowBlock(NamedTuple):
    """Rows `lower <= matrix x <= upper` on n cells, with labels; equalities and ranges are separate blocks."""

    matrix: scipy.sparse.csr_array
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    labels: list[str]
    equal: bool


def margin_rows(cells: Cells, margin: Margin, groups: NDArray | None = None) -> scipy.sparse.csr_array:
    """Return the 0/1 matrix (groups, n) of a margin, or of some of its groups.

    In a family of tables the cells are those of the first table that holds the margin.
    """
    if isinstance(cells, FamilyCells):
        table = cells.holders(margin)[0]
        own = margin_rows(cells.parts[table], margin, groups)
        at = (own.data, own.indices + cells.starts[table], own.indptr)
        return scipy.sparse.csr_array(at, shape=(own.shape[0], cells.n))
    fine = canonical(cells, margin)
    held = np.flatnonzero(cells.among(fine)) if fine.where else np.arange(cells.n)
    times = cells.times(fine)[held].astype(float) if fine.weights else np.ones(held.size)
    group = cells.groups(cells.finest, replace(fine, where=(), weights=()))[held]
    shape = (cells.size(fine), cells.n)
    matrix = scipy.sparse.csr_array((times, (group, held)), shape=shape)
    return matrix if groups is None else scipy.sparse.csr_array(matrix[groups])


def rule_blocks(constraints: Constraints) -> Iterator[RowBlock]:
    """Yield structural zeros, bounds and linear rules as blocks of rows."""
    cells, held = constraints.cells, np.flatnonzero(constraints.zero_cells)
    if held.size:
        one = scipy.sparse.csr_array(scipy.sparse.eye_array(cells.n))[held]
        names = [f"the structural zero '{cells.label(int(c))}'" for c in held]
        yield RowBlock(one, np.zeros(held.size), np.zeros(held.size), names, equal=True)
    for bound in constraints.bounds:
        yield _bound(constraints, bound)
    for rule in constraints.linear:
        yield _rule(cells, rule)


def _bound(constraints: Constraints, bound: Bound) -> RowBlock:
    cells, (low, high) = constraints.cells, constraints.bound_values(bound)
    limited = np.flatnonzero(np.isfinite(low) | np.isfinite(high))
    names = [f"the bound on '{cells.margin_label(bound.margin, int(g))}'" for g in limited]
    return RowBlock(
        margin_rows(cells, bound.margin, limited), low[limited], high[limited], names, equal=False
    )


def _rule(cells: Cells, rule: LinearRule) -> RowBlock:
    places = margin_rows(cells, Margin(rule.level))
    weight = np.zeros(cells.shape)
    for name, coefficient in rule.linear.coefficients.items():
        weight += float(coefficient) * name_mask(cells, name)
    matrix = scipy.sparse.csr_array(places.multiply(weight.ravel()[None]))
    side = np.full(cells.tree.sizes[cells.tree.level(rule.level)], float(rule.linear.bound))
    names = [f"'{rule.linear.text}' at {cells.tree.label(rule.level, p)}" for p in range(side.size)]
    free = np.full(side.size, np.inf)
    lower = -free if rule.linear.sense == "<=" else side
    upper = free if rule.linear.sense == ">=" else side
    return RowBlock(matrix, lower, upper, names, equal=rule.linear.sense == "==")


def polyhedron(constraints: Constraints, blocks: Iterable[RowBlock]) -> tuple[Polyhedron, list[str]]:
    """Return the polyhedron of the rows of all blocks, and the label of each row."""
    n, blocks = constraints.cells.n, list(blocks)
    equal, ranged = ([b for b in blocks if b.equal is kind] for kind in (True, False))
    rows = Polyhedron.of(
        n,
        _stack([b.matrix for b in equal], n),
        np.concatenate([np.zeros(0), *(b.lower for b in equal)]),
        _stack([b.matrix for b in ranged], n),
        np.concatenate([np.zeros(0), *(b.lower for b in ranged)]),
        np.concatenate([np.zeros(0), *(b.upper for b in ranged)]),
        nonnegative=constraints.nonnegative,
    )
    return rows, [label for b in (*equal, *ranged) for label in b.labels]


def _stack(rows: Sequence[scipy.sparse.csr_array], n: int) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array(scipy.sparse.vstack([scipy.sparse.csr_array((0, n)), *rows], format="csr"))


def contradiction(
    rows: Polyhedron, labels: Sequence[str], *, integer: bool = False
) -> InfeasibleError | None:
    """Return an error that names contradictory rows; None if no contradiction is found."""
    rows, narrow = rows.merged(), integer and rows.rows <= WHOLE_ROWS
    found = rows.conflict(integer=narrow)
    if not found:
        return None
    few = rows.of_rows(found)
    shown = "; ".join(labels[r] for r in found[:6])
    more = f"; and {len(found) - 6} more" if len(found) > 6 else ""
    what = " in whole numbers" if narrow and few.feasible() else ""
    signs = rows.nonnegative and replace(few, nonnegative=False).feasible(integer=bool(what))
    sign = " with counts of at least zero" if signs else ""
    return InfeasibleError(
        f"these constraints cannot all hold{what}{sign}: {shown}{more}",
        remedy="correct or drop one of them",
    )


def refuse_contradiction(constraints: Constraints) -> None:
    """Raise InfeasibleError, naming places and rules, if no counts satisfy the rules of a spec.

    Invariants take no part: their values are confidential until they are measured. Beyond `SEARCHED_CELLS` cells
    nothing is searched.

    Examples
    --------
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> bounds = Bound(Margin("all"), lower=5), Bound(Margin("area"), upper=2)
    >>> refuse_contradiction(Constraints(cells, (), bounds=bounds))
    Traceback (most recent call last):
    trueup.errors.InfeasibleError: these constraints cannot all hold: the bound on 'all'; ... one of them.
    """
    if constraints.cells.n > SEARCHED_CELLS:
        return
    rows, labels = polyhedron(constraints, rule_blocks(constraints))
    nobody = rows.residual(np.zeros(constraints.cells.n)) == 0
    if not nobody and (error := contradiction(rows, labels, integer=True)):
        raise error
