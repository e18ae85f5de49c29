"""Tables without places as histograms: one attribute's values stand for places, so that counts differ as those of places do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Bound, Constraints
from trueup.model.header import Measured, split
from trueup.model.nested import canonical, chain
from trueup.model.records.drawn import Drawn
from trueup.model.tree import Tree


@dataclass(frozen=True, eq=False)
class AsPlaces:
    """A table of one place whose attribute is laid out as a level of places.

    Attributes
    ----------
    cells
        As they were.
    name
        The attribute.
    constraints, headers
        Of the places that stand for its values.
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
        """Lay out the attribute with most values of those that no recode and no condition names; None if there is none.

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
        """Return a margin of the table as one of places."""
        level = self.name if self.name in margin.attributes else self.cells.tree.levels[0]
        return replace(margin, level=level, attributes=tuple(a for a in margin.attributes if a != self.name))

    def values(self, values: NDArray, headers: Sequence[Measured]) -> NDArray:
        """Return measured values `(q,)` in the order of the places' margins."""
        own = self.constraints.cells
        parts = zip(split(values, headers, self.cells), headers, strict=True)
        return np.concatenate([part[self._groups(own, h.margin)] for part, h in parts])

    def restored(self, drawn: Drawn) -> Drawn:
        """Return what was drawn of the places as counts of the table."""
        draws = np.empty_like(drawn.draws)
        draws[..., self.order] = drawn.draws
        return replace(drawn, draws=draws, tables=tuple(self._restored(table) for table in drawn.tables))

    def _restored(self, table: Margin) -> Margin:
        first = (self.name,) if table.level == self.name else ()
        return canonical(self.cells, Margin(self.cells.tree.levels[0], (*first, *table.attributes)))

    def _groups(self, own: Cells, margin: Margin) -> NDArray[np.int64]:
        """Return the group of a margin that each group of the places' margin was."""
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
