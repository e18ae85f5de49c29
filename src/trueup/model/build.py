"""Cells and constraints built from a spec and the public places."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, InfeasibleError, SpecError
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Bound, Constraints, LinearRule, name_mask
from trueup.model.linear import parse_linear
from trueup.model.nested import canonical
from trueup.model.reading import plain_attribute
from trueup.model.spec import Spec
from trueup.model.spec_queries import BoundPart, InvariantPart, Query
from trueup.model.tree import Tree

if TYPE_CHECKING:
    from trueup.model.family import FamilyCells
    from trueup.model.joined import RecordTable

LARGEST_CROSS = 10**8
"""Cells of a full cross that general methods could still hold."""


def build_cells(spec: Spec, tree: Tree) -> Cells:
    """Return the cells of all places crossed with all declared attributes."""
    return Cells(tree, tuple(map(plain_attribute, spec.attributes)))


FAMILY_METHOD, FAMILY_INFERENCE = "family-tree", "family-moves"


def problem_cells(spec: Spec, tree: Tree) -> Cells:
    """Return the cells of a spec: all attributes crossed, or only the cells of an acyclic family of tables."""
    cells = build_cells(spec, tree)
    if _asks_for_one_table(spec) or _measures_all(spec, cells):
        return cells
    constraints = build_constraints(spec, cells)
    alone = spec.reconcile.get("method") == FAMILY_METHOD
    return family_if_any(constraints, demanded=cells.n > LARGEST_CROSS, alone=alone) or cells


def _asks_for_one_table(spec: Spec) -> bool:
    """Return True if a spec names a method for one table, or ratios that need all attributes."""
    methods = (
        spec.reconcile.get("method", FAMILY_METHOD) == FAMILY_METHOD,
        spec.infer.get("method", FAMILY_INFERENCE) == FAMILY_INFERENCE,
    )
    return not all(methods) or "quantity" in spec.infer


def _measures_all(spec: Spec, cells: Cells) -> bool:
    """Return True if a query measures the finest cells."""
    return any(
        query_margin(cells, query, level) == cells.finest for query in spec.queries for level in query.budgets
    )


def crossing(constraints: Constraints, *, alone: bool = False) -> bool:
    """Return True if margins cross each other and none of them is the full cross of all attributes."""
    cells = constraints.cells
    if constraints.structure() not in ("margins", "histogram", *(("tree", "sum") if alone else ())):
        return False
    return not any(cells.contains(cells.finest, margin) for margin in constraints.held)


def family_if_any(
    constraints: Constraints, *, demanded: bool = False, alone: bool = False
) -> FamilyCells | None:
    """Return the cells of the family of tables that the margins form, or None if they form none."""
    cells = constraints.cells
    if not crossing(constraints, alone=alone):
        return None
    from trueup.model.family import family_of

    try:
        family = family_of(cells, constraints.held)
    except SpecError:
        if demanded:
            raise
        return None
    if cells.n > 2**62:
        raise SpecError(
            f"{cells.n:,} combinations of places and all attribute values are possible, which is more than 64-bit "
            "numbers can index",
            needed="at most 2^62 combinations",
            remedy="leave out attributes that no query uses, or measure fewer attributes in one release",
        )
    return family


def query_margin(cells: Cells, query: Query, level: str) -> Margin:
    """Return the margin that a query measures at a level, with the condition of the table that it counts."""
    margin = Margin(level, query.attributes)
    return canonical(cells, margin.among([query.where]) if query.where else margin)


def build_constraints(spec: Spec, cells: Cells, further: tuple[Bound, ...] = ()) -> Constraints:
    """Return all constraints on the counts of a spec.

    Parameters
    ----------
    spec, cells
        The declared spec, and the cells that it is about.
    further
        Public bounds that came with the measurements.

    Raises
    ------
    SpecError
        If a linear rule names no attribute value, or sums over values that overlap.
    """
    part = spec.constraints
    margins = (query_margin(cells, q, level) for q in spec.queries for level in q.budgets)
    rules = tuple(LinearRule(parse_linear(r.rule), r.level or cells.tree.levels[-1]) for r in part.linear)
    for name in (name for rule in rules for name in rule.linear.coefficients):
        name_mask(cells, name)
    invariants = tuple(_invariant(cells, m) for m in part.invariants)
    return _linked_constraints(
        spec,
        cells,
        rules,
        margins=tuple(dict.fromkeys(margins)),
        invariants=tuple(dict.fromkeys(invariants)),
        bounds=(*(_bound(cells, b) for b in part.bounds), *further),
    )


def _linked_constraints(
    spec: Spec, cells: Cells, rules: Sequence[LinearRule] = (), **given: Any
) -> Constraints:
    """Return constraints with a spec's structural zeros, and with what two linked tables imply if it has two."""
    part, joined = spec.constraints, None
    if getattr(spec.table, "join", None) is not None:  # other specs need not load it
        from trueup.model.joined import LinkedTables

        joined = LinkedTables.of(spec)
    impossible = map(joined.record_of, joined.zeros) if joined else ()
    linking = (LinearRule(rule, cells.tree.levels[-1]) for rule in joined.rules) if joined else ()
    return Constraints(
        cells,
        nonnegative=part.nonnegative,
        zeros=(*part.zeros, *impossible),
        linear=(*rules, *linking),
        joined=joined,
        **given,
    )


def local_constraints(spec: Spec, cells: Cells) -> Constraints:
    """Return the constraints of a spec that concern the levels of `cells`, a part of the places."""
    bounds = (_bound(cells, b) for b in spec.constraints.bounds if b.level in cells.tree.levels)
    return _linked_constraints(spec, cells, margins=(), bounds=tuple(bounds))


def own_constraints(constraints: Constraints, table: RecordTable) -> Constraints:
    """Return the constraints on one of two linked tables: nonnegativity and structural zeros."""
    cells = table.cells(constraints.cells.tree)
    held = table.of(constraints.zero_cells, constraints.cells.attributes[0].size)
    never = held.reshape(cells.shape)[0] if held.any() else np.zeros(cells.shape[1:], bool)
    zeros = tuple(
        {a.name: a.values[v] for a, v in zip(cells.attributes, at)} for at in np.argwhere(never).tolist()
    )
    return Constraints(cells, (), nonnegative=True, zeros=zeros)


def no_limits(spec: Spec, sizes: Sequence[int]) -> tuple[dict[str, NDArray[np.int64]], ...]:
    """Return limits that are not set (-1) for every public column, given the number of places on each level."""
    return tuple(
        {column: np.full(size, -1) for column in columns} for columns, size in zip(spec.limit_columns, sizes)
    )


def cells_of_sizes(spec: Spec, sizes: Sequence[int]) -> Cells:
    """Return the cells of a spec on made-up places, given the number of places on each level."""
    level_ptr = np.append(0, np.cumsum(sizes))
    counts = [
        np.bincount(np.arange(below) * above // below, minlength=above) for above, below in pairwise(sizes)
    ]
    every = np.concatenate([*counts, np.zeros(sizes[-1], np.int64)])
    names, child_ptr = tuple(level.name for level in spec.levels), sizes[0] + np.append(0, np.cumsum(every))
    return problem_cells(spec, Tree(names, child_ptr, level_ptr, limits=no_limits(spec, sizes)))


def _bound(cells: Cells, part: BoundPart) -> Bound:
    margin = canonical(cells, Margin(part.level, part.attributes))
    outside = [name for name in part.where if not cells.contains(Margin(part.level, (name,)), margin)]
    if outside:
        raise SpecError(
            f"a bound on '{margin}' has a condition on '{min(outside)}', which is not one of its attributes",
            remedy=f"add '{min(outside)}' to the attributes of the bound",
        )
    lower, upper = _limit(cells, margin, part.lower, -np.inf), _limit(cells, margin, part.upper, np.inf)
    _refuse_crossed(cells, margin, lower, upper)
    limits = (("at least", part.lower), ("at most", part.upper))
    said = " and ".join(f"{word} {limit}" for word, limit in limits if limit is not None)
    where = " and ".join(map("=".join, part.where.items()))
    declared = f"{f' where {where}' if where else ''} ({said})"
    return Bound(margin, lower, upper, tuple(part.where.items()), declared)


def _limit(cells: Cells, margin: Margin, given: int | str | None, none: float):
    """Return the limit of every group of a bounded margin, given as one number or as a public column."""
    if not isinstance(given, str):
        return given
    limits = cells.tree.limits[cells.tree.level(margin.level)] if cells.tree.limits else {}
    if given not in limits:
        raise DataError(
            f"a bound names the column '{given}', but the places of level '{margin.level}' were read without it",
            needed="a list of places that is read with this spec and has that column",
        )
    held = limits[given]
    return np.repeat(np.where(held < 0, none, held), cells.size(margin) // held.size)


def _refuse_crossed(cells: Cells, margin: Margin, lower, upper) -> None:
    if lower is None or upper is None:
        return
    groups = cells.size(margin)
    crossed = np.flatnonzero(np.broadcast_to(np.greater(lower, upper), groups))
    if crossed.size:
        place = int(crossed[0]) * cells.tree.sizes[cells.tree.level(margin.level)] // groups
        raise InfeasibleError(
            f"the lower limit of the bound on '{margin}' exceeds its upper limit at "
            f"'{cells.tree.label(margin.level, place)}'",
            remedy="raise the upper limit, or lower the lower one",
        )


def _invariant(cells: Cells, part: InvariantPart) -> Margin:
    margin = canonical(cells, Margin(part.level, part.attributes).among(part.where, part.weights))
    _refuse_overlap(cells, margin)
    if margin.where and not cells.times(margin).any():
        raise SpecError(
            f"the invariant '{margin}' counts no cell", remedy="correct its condition, or leave it out"
        )
    return margin


def _refuse_overlap(cells: Cells, margin: Margin) -> None:
    for attribute in cells.attributes:
        pinned = {dict(each).get(attribute.name) for each in margin.where} - {None}
        one = len(pinned) == 1 and all(attribute.name in dict(each) for each in margin.where)
        if not attribute.partition and attribute.name not in margin.attributes and not one:
            raise SpecError(
                f"the invariant '{margin}' sums over '{attribute.name}', whose values overlap",
                remedy=f"add '{attribute.name}' to the attributes of the invariant, or one value of it to every condition",
            )
