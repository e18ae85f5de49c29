"""A place and all below it as a problem of its own, without what was measured elsewhere or above it.

The posterior given a part of what was measured is a posterior: it says less than the whole one, and nothing wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Bound, Constraints
from trueup.model.family import FamilyCells, family_of
from trueup.model.header import Measured
from trueup.model.records.measurements import Measurements


def place_named(cells: Cells, text: str) -> tuple[int, int]:
    """Return level and position of a place that is written `level=key`.

    Examples
    --------
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> place_named(cells, "all=all")
    (0, 0)
    """
    tree = cells.tree
    level, _, key = text.partition("=")
    if level not in tree.levels[:-1]:
        raise SpecError(
            f"'{text}' names no place that holds others",
            needed=f"a level and a key, such as '{tree.levels[-2]}={tree.label(tree.levels[-2], 0)}'; "
            f"levels: {', '.join(tree.levels[:-1])}",
        )
    at = tree.level(level)
    found = [place for place in range(tree.sizes[at]) if tree.label(level, place) == key]
    if not found:
        raise SpecError(
            f"level '{level}' has no place '{key}'", needed=f"a key such as '{tree.label(level, 0)}'"
        )
    return at, found[0]


def cells_within(cells: Cells, top: int, place: int, end: int | None = None) -> Cells:
    """Return the cells of a place of level `top` and of all below it; or of places up to an `end`."""
    tree = cells.tree
    return Cells(tree.branch(top, place, end or place + 1, len(tree.levels) - 1), cells.attributes)


def within(
    measured: Measurements, constraints: Constraints, place: str
) -> tuple[Measurements, Constraints, NDArray[np.int64]]:
    """Keep one place, written `level=key`, and everything below it; also return its finest cells."""
    cells = measured.cells
    at = place_named(cells, place)
    some, headers, values, leaves = parts_within(constraints, measured.headers, measured.values, *at)
    record = replace(
        measured, cells=some.cells, headers=headers, values=values, bounds=(), sealed=measured.digest
    )
    if isinstance(cells, FamilyCells) and isinstance(some.cells, FamilyCells):
        tables = [(cells.starts[cells.tables.index(table)], table) for table in some.cells.tables]
        return (
            record,
            some,
            np.concatenate(
                [first + _margin_groups(cells, at[0], (at[1], at[1] + 1), table) for first, table in tables]
            ),
        )
    each = cells.n // cells.shape[0]
    return record, some, (leaves[:, None] * each + np.arange(each)).ravel()


def parts_within(
    constraints: Constraints,
    headers: Sequence[Measured],
    values: Sequence[NDArray],
    top: int,
    place: int,
    end: int | None = None,
) -> tuple[Constraints, tuple[Measured, ...], tuple[NDArray, ...], NDArray[np.int64]]:
    """Return constraints, headers, values and lowest places of a place of level `top`, or some, and those below."""
    cells, tree = constraints.cells, constraints.cells.tree
    last, kept, end = len(tree.levels) - 1, tree.levels[top:], end or place + 1
    own = cells_within(cells, top, place, end)
    rows = partial(_margin_groups, cells, top, (place, end))

    def bound(one: Bound) -> Bound:
        ends = {name: getattr(one, name) for name in ("lower", "upper")}
        cut = {k: v if np.ndim(v) == 0 else np.asarray(v)[rows(one.margin)] for k, v in ends.items()}
        return replace(one, **cut)

    some = replace(
        constraints,
        cells=own,
        margins=tuple(m for m in constraints.margins if m.level in kept),
        invariants=tuple(m for m in constraints.invariants if m.level in kept),
        bounds=tuple(bound(b) for b in constraints.bounds if b.margin.level in kept),
        linear=tuple(rule for rule in constraints.linear if rule.level in kept),
    )
    if isinstance(cells, FamilyCells):
        some = replace(some, cells=family_of(own, some.held))
    found = [_cut(h, v, rows(h.margin)) for h, v in zip(headers, values) if h.margin.level in kept]
    fewer, less = zip(*found) if found else ((), ())
    return some, tuple(fewer), tuple(less), np.arange(*tree.starts(top, last)[[place, end]])


def _margin_groups(cells: Cells, top: int, places: tuple[int, int], margin: Margin) -> NDArray[np.int64]:
    """Return the groups of a margin that lie in places of level `top`, from a first to an end."""
    level = cells.tree.level(margin.level)
    first, stop = cells.tree.starts(top, level)[[*places]]
    each = cells.size(margin) // cells.tree.sizes[level]
    return np.arange(first * each, stop * each)


def _cut(header: Measured, values: NDArray, rows: NDArray[np.int64]) -> tuple[Measured, NDArray]:
    """Return a header and its values for some groups of its margin."""
    if header.groups is None:
        return header, values[rows]
    chosen = np.flatnonzero(np.isin(header.groups, rows))
    return replace(header, groups=header.groups[chosen] - rows[0]), values[chosen]
