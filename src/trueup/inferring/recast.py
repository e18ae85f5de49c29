"""Restriction of inference problems to one place, and recasting of an attribute's values as places.

*Within a place* all measurements elsewhere or above it are left out. The posterior given some of the measurements is still a
posterior: it contains less information than the whole one, and nothing wrong.

*As places.* In a table without places, the values of one attribute stand for places, so that counts differ as places do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.cells import Cells, Margin, place_labelled
from trueup.model.constraints import Bound, Constraints
from trueup.model.header import Measured, split
from trueup.model.nested import chain
from trueup.model.records.drawn import Drawn
from trueup.model.records.measurements import Measurements
from trueup.model.tree import Tree


def place_named(cells: Cells, text: str) -> tuple[int, int]:
    """Return level and position of a place that is given as `level=key`.

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
            f"'{text}' is not a place with others below it",
            needed=f"a level and a key, such as '{tree.levels[-2]}={tree.label(tree.levels[-2], 0)}'; "
            f"levels: {', '.join(tree.levels[:-1])}",
        )
    if (place := place_labelled(tree, level, key)) is None:
        raise SpecError(
            f"level '{level}' has no place '{key}'", needed=f"a key such as '{tree.label(level, 0)}'"
        )
    return tree.level(level), place


def cells_within(cells: Cells, top: int, place: int, end: int | None = None) -> Cells:
    """Return the cells of some places of level `top`, and of all places below them."""
    tree = cells.tree
    return Cells(tree.branch(top, place, end or place + 1, len(tree.levels) - 1), cells.attributes)


def within(
    measured: Measurements, constraints: Constraints, place: str
) -> tuple[Measurements, Constraints, NDArray[np.int64]]:
    """Return the problem restricted to one place `level=key` and those below, with its finest cells."""
    cells = measured.cells
    at = place_named(cells, place)
    some, headers, values, leaves = parts_within(constraints, measured.headers, measured.values, *at)
    record = replace(
        measured, cells=some.cells, headers=headers, values=values, bounds=(), sealed=measured.digest
    )
    if cells.is_family:
        from trueup.model.family import FamilyCells

        assert isinstance(cells, FamilyCells)
        assert isinstance(some.cells, FamilyCells)
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
    """Return constraints, headers and values restricted to some places, with the lowest places."""
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
    if cells.is_family:
        from trueup.model.family import family_of

        some = replace(some, cells=family_of(own, some.held))
    found = [_cut(h, v, rows(h.margin)) for h, v in zip(headers, values) if h.margin.level in kept]
    fewer, less = zip(*found) if found else ((), ())
    return some, tuple(fewer), tuple(less), np.arange(*tree.starts(top, last)[[place, end]])


def _margin_groups(cells: Cells, top: int, places: tuple[int, int], margin: Margin) -> NDArray[np.int64]:
    """Return the group numbers of a margin that lie in neighbouring places of level `top`."""
    level = cells.tree.level(margin.level)
    first, stop = cells.tree.starts(top, level)[[*places]]
    each = cells.size(margin) // cells.tree.sizes[level]
    return np.arange(first * each, stop * each)


def _cut(header: Measured, values: NDArray, rows: NDArray[np.int64]) -> tuple[Measured, NDArray]:
    """Return a header and its values, restricted to some groups of its margin."""
    if header.groups is None:
        return header, values[rows]
    chosen = np.flatnonzero(np.isin(header.groups, rows))
    return replace(header, groups=header.groups[chosen] - rows[0]), values[chosen]


@dataclass(frozen=True, eq=False)
class AsPlaces:
    """A single-place table recast so that the values of one attribute are places.

    Attributes
    ----------
    cells
        The original cells.
    name
        The attribute.
    constraints, headers
        Constraints and headers of the recast table, in which places stand for the attribute's values.
    order
        `(n,)` the cell that each cell of these was.
    """

    cells: Cells
    name: str
    constraints: Constraints
    headers: tuple[Measured, ...]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, constraints: Constraints, headers: Sequence[Measured]) -> AsPlaces | None:
        """Return the table with the values of its largest free attribute as places, or None if there is none.

        None, too, if invariants cross: moves between tables that keep several margins are those of a lattice.
        """
        cells = constraints.cells
        named = {key for zeros in constraints.zeros for key in zeros}
        named |= {key for bound in constraints.bounds for key, _ in bound.where}
        asked = {name for m in _margins(constraints, headers) for name in m.attributes}
        recodes = {a.name: {recode.name for recode in a.recodes} for a in cells.attributes}
        free = [
            a
            for a in cells.attributes
            if a.partition and not recodes[a.name] & asked and not {a.name, *recodes[a.name]} & named
        ]
        conditional = any(m.where or m.weights for m in _margins(constraints, headers))
        crossing = chain(cells, constraints.invariants) is None
        if not free or conditional or crossing or any(h.groups is not None for h in headers):
            return None
        chosen = max(free, key=lambda a: a.size)
        at = cells.attributes.index(chosen)
        root = cells.tree.levels[0]
        tree = Tree.from_columns([root, chosen.name], [{}, {chosen.name: list(chosen.values)}])
        order = np.moveaxis(np.arange(cells.n).reshape([a.size for a in cells.attributes]), at, 0).ravel()
        bare = cls(cells, chosen.name, constraints, (), order)
        own = Cells(tree, tuple(a for a in cells.attributes if a is not chosen))
        laid = replace(
            constraints,
            cells=own,
            margins=tuple(bare.margin(m) for m in constraints.margins),
            invariants=tuple(bare.margin(m) for m in constraints.invariants),
            bounds=tuple(bare._bound(own, b) for b in constraints.bounds),
        )
        return replace(
            bare, constraints=laid, headers=tuple(replace(h, margin=bare.margin(h.margin)) for h in headers)
        )

    def margin(self, margin: Margin) -> Margin:
        """Return the margin of the recast table that equals a margin of the original table."""
        level = self.name if self.name in margin.attributes else self.cells.tree.levels[0]
        return replace(margin, level=level, attributes=tuple(a for a in margin.attributes if a != self.name))

    def values(self, values: NDArray, headers: Sequence[Measured]) -> NDArray:
        """Return measured values `(q,)`, reordered from the original to the recast table."""
        own = self.constraints.cells
        parts = zip(split(values, headers, self.cells), headers, strict=True)
        return np.concatenate([part[self._groups(own, h.margin)] for part, h in parts])

    def restored(self, drawn: Drawn) -> Drawn:
        """Return draws of the recast table, reordered as draws of the original table."""
        draws = np.empty_like(drawn.draws)
        draws[..., self.order] = drawn.draws
        return replace(drawn, draws=draws)

    def _groups(self, own: Cells, margin: Margin) -> NDArray[np.int64]:
        """Return the original margin's group that each group of the recast margin equals."""
        laid = self.margin(margin)
        found = np.empty(own.size(laid), np.int64)
        found[own.groups(own.finest, laid)] = self.cells.groups(self.cells.finest, margin)[self.order]
        return found

    def _bound(self, own: Cells, bound: Bound) -> Bound:
        ends = {name: getattr(bound, name) for name in ("lower", "upper")}
        some = {name: end for name, end in ends.items() if np.ndim(end)}
        groups = self._groups(own, bound.margin) if some else None
        return replace(
            bound, margin=self.margin(bound.margin), **{k: np.asarray(v)[groups] for k, v in some.items()}
        )


def _margins(constraints: Constraints, headers: Sequence[Measured]) -> list[Margin]:
    bounded = (bound.margin for bound in constraints.bounds)
    return [*constraints.margins, *constraints.invariants, *(h.margin for h in headers), *bounded]
