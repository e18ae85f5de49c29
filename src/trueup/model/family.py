"""Families of tables: several margins in one release, without the full cross of their attributes.

A margin is a set of variables: its level with all levels above it, and its attributes or recodes with all coarser recodes
that are used. The *tables* of a family are its largest margins; what two of them share is a margin of both, their
separator. If the sets have a junction tree, tables that agree on its separators are margins of one table of records (see
`trueup.kernel.families`), so that cells need to exist inside the tables alone.

A *cycle* has none. Its tables are margins of one table of records if they are sums of the tables of a *closed* family: the
same with the smallest joint table that makes it acyclic, which methods settle and which nothing shows.

One file: the cells of a family, and what makes them from margins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.families import JunctionTree, junction_tree, maximal
from trueup.kernel.histogram import Marginal
from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.family_sets import Variable, closing_table, cyclic, spanned_margin, sums_to, variables
from trueup.model.tree import Tree

MOST_JOINT = 100_000
"""Cells of the joint table up to which a cycle is closed by it."""


@dataclass(frozen=True, eq=False, repr=False)
class FamilyCells(Cells):
    """The cells of a family of tables, table after table.

    Sums of a margin are taken within the first table that holds it; agreeing tables give the same.

    Attributes
    ----------
    tables
        The largest margins, no one of which is a sum of another.
    used
        All margins that the family must hold.
    joint
        The joint table that closes a cycle of them; None for an acyclic family.

    Examples
    --------
    >>> tree = Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}])
    >>> sex, age = Attribute("sex", ("f", "m")), Attribute("age", ("young", "old"))
    >>> cells = family_of(Cells(tree, (sex, age)), [Margin("area", ("sex",)), Margin("all", ("age",))])
    >>> [str(table) for table in cells.tables], cells.n, [str(m) for m in cells.separators]
    (['all x age', 'area x sex'], 6, ['all'])
    >>> cells.sum(np.array([5, 5, 1, 2, 3, 4]), "all x sex")
    array([4, 6])
    """

    tables: tuple[Margin, ...] = ()
    used: tuple[Margin, ...] = ()
    joint: Margin | None = None

    def __repr__(self) -> str:
        return f"FamilyCells(tables={[str(table) for table in self.tables]}, n={self.n})"

    @property
    def whole(self) -> Cells:
        """Return the cells of the full cross of all attributes, which are too many for arrays."""
        return Cells(self.tree, self.attributes)

    def on(self, tree: Tree) -> FamilyCells:
        """Return the family's tables on other places."""
        return replace(self, tree=tree)

    def within(self, tree: Tree) -> FamilyCells:
        """Return the tables on the levels of a given tree; tables that end above these levels are left out."""
        names = self.tree.levels
        first, last = (names.index(tree.levels[i]) for i in (0, -1))
        depths = [(table, names.index(table.level)) for table in self.tables]
        cut = tuple(Margin(names[min(d, last)], table.attributes) for table, d in depths if d >= first)
        return replace(self, tree=tree, tables=cut)

    @cached_property
    def closed(self) -> FamilyCells:
        """Return an acyclic family that contains these tables, with a joint table if they form a cycle."""
        if self.joint is None:
            return self
        return _largest_of(self, (*self.used, self.joint))

    def of_closed(self, values: NDArray) -> NDArray:
        """Sum cells `(..., n)` of the closed family into the cells of these tables."""
        if self.joint is None:
            return values
        return np.concatenate([self.closed.sum(values, table) for table in self.tables], axis=-1)

    @cached_property
    def parts(self) -> tuple[Cells, ...]:
        """Return every table as cells of its own."""
        return tuple(table_alone(self, table) for table in self.tables)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Return the position of each table's first cell, and the number of cells."""
        return tuple(int(i) for i in np.cumsum([0, *(part.n for part in self.parts)]))

    @property
    def n(self) -> int:
        """Return the number of cells of all tables."""
        return self.starts[-1]

    @property
    def finest(self) -> Margin:
        """Raise an error, because no table contains all others."""
        raise SpecError(
            "no table contains all others, so that there is no finest table",
            needed=f"one of the tables: {', '.join(map(str, self.tables))}",
        )

    @property
    def is_family(self) -> bool:
        """Return True, because these are the cells of a family of tables."""
        return True

    @property
    def finest_tables(self) -> tuple[Margin, ...]:
        """Return the tables, whose groups listed in order are the cells."""
        return self.tables

    def holds(self, margin: Margin) -> bool:
        """Return True if a margin is a sum over one of the tables."""
        return bool(self.holders(margin))

    def holding(self, margin: Margin) -> Cells:
        """Return the cells of the first table that contains a margin."""
        return self.parts[self.holders(margin)[0]]

    def split(self, values: NDArray) -> list[NDArray]:
        """Split cells `(..., n)` into one array for each table."""
        return np.split(values, self.starts[1:-1], axis=-1)

    def holders(self, margin: Margin | str) -> list[int]:
        """Return the positions of the tables that contain a margin."""
        margin = self._named(margin)
        return [i for i, table in enumerate(self.tables) if self.contains(margin, table)]

    def sum(self, values: NDArray, margin: Margin | str) -> NDArray:
        """Sum cells `(..., n)` into the groups of a margin that a table contains.

        Raises
        ------
        SpecError
            If no table holds it.
        """
        margin = self._named(margin)
        self.refuse_unheld(margin)
        return self.sum_in(self.holders(margin)[0], values, margin)

    def refuse_unheld(self, margin: Margin) -> None:
        """Raise SpecError if no table contains a margin."""
        if not self.holders(margin):
            raise SpecError(
                f"no measured table determines '{margin}'",
                needed=f"one of the measured tables, or a sum over one: {', '.join(map(str, self.tables))}",
                remedy="measure it by a query of its own",
            )

    def sum_in(self, table: int, values: NDArray, margin: Margin | str) -> NDArray:
        """Sum cells `(..., n)` into the groups of a margin that one given table contains."""
        margin = self._named(margin)
        own = values[..., self.starts[table] : self.starts[table + 1]]
        return self.parts[table].sum(own, margin)

    def groups(self, fine: Margin | str, coarse: Margin | str) -> NDArray[np.int64]:
        """Return for every group of `fine` the group of `coarse` that contains it, within one table."""
        holder = self.holders(fine)
        return self.parts[holder[0]].groups(fine, coarse) if holder else super().groups(fine, coarse)

    def label(self, cell: int) -> str:
        """Return the label of a cell."""
        table = int(np.searchsorted(self.starts, cell, side="right")) - 1
        return self.parts[table].label(cell - self.starts[table])

    def zero_cells(self, zeros: Iterable[Mapping[str, str]]) -> NDArray[np.bool_]:
        """Return a mask `(n,)` of structural zeros; a zero holds in every table that has all its attributes."""
        return np.concatenate([_zeros_of(part, zeros) for part in self.parts])

    def tally(self, index: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return counts `(n,)` of the cells of all tables, given positions and counts in the full cross."""
        places, *values = np.unravel_index(index, self.shape)
        return np.concatenate(
            [
                self._tallied(table, part, places, values, count)
                for table, part in zip(self.tables, self.parts)
            ]
        )

    def tables_holding(self, values: NDArray, margin: Margin) -> list[tuple[Margin, NDArray]]:
        """Return every table that contains a margin, with the margin's sums in that table."""
        return [(self.tables[i], self.sum_in(i, values, margin)) for i in self.holders(margin)]

    def _tallied(
        self, table: Margin, part: Cells, places, values, count: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        last, level = len(self.tree.levels) - 1, self.tree.level(table.level)
        at = self.tree.ancestors(last, level)[places]
        for recode, value in zip(self.recodes(table.attributes), values):
            if recode.name:
                at = at * recode.size + np.array(recode.groups)[value]
        found = np.zeros(part.n, np.int64)
        np.add.at(found, at, count)
        return found

    @cached_property
    def sets(self) -> tuple[frozenset[Variable], ...]:
        """Return the set of variables of every table."""
        return tuple(variables(self, table, self.used) for table in self.tables)

    def junction(self, root: int = 0) -> JunctionTree:
        """Return a junction tree of the tables, which must not form a cycle."""
        assert self.joint is None, "a cycle has no junction tree"
        return junction_tree(self.sets, root)

    def separator(self, one: int, other: int) -> Margin:
        """Return the margin that two tables share."""
        shared = spanned_margin(self, self.sets[one] & self.sets[other])
        assert shared is not None, "families whose separators are no margins are refused"
        return shared

    @cached_property
    def shared(self) -> tuple[tuple[int, int], ...]:
        """Return pairs of tables; if each pair agrees on the shared margin, all tables agree."""
        if self.joint is not None:
            return tuple(combinations(range(len(self.tables)), 2))
        tree = self.junction()
        return tuple((i, tree.parent[i]) for i in tree.order[1:])

    @cached_property
    def separators(self) -> tuple[Margin, ...]:
        """Return the margins that adjacent tables of a junction tree share; for a cycle, those of all pairs."""
        return tuple(dict.fromkeys(self.separator(*pair) for pair in self.shared))

    def disagreements(self, counts: NDArray, slack: float = 0) -> Iterator[tuple[Margin, str]]:
        """Yield (margin, group) pairs on which tables differ by more than `slack`, at most 3 per margin."""
        for i, other in self.shared:
            shared = self.separator(i, other)
            gap = self.sum_in(i, counts, shared) - self.sum_in(other, counts, shared)
            for group in np.flatnonzero(np.abs(gap) > slack)[:3]:
                yield shared, self.margin_label(shared, int(group))


def family_of(cells: Cells, margins: Sequence[Margin]) -> FamilyCells:
    """Return the family of tables that contains the given margins.

    Raises
    ------
    SpecError
        If recodes cross, or if the margins are a cycle and no joint table of at most `MOST_JOINT` cells closes it.
    """
    joint = None
    if fault := cyclic(cells, margins):
        joint = closing_table(cells, margins)
        if joint is None or cells.size(joint) > MOST_JOINT:
            raise fault
    return _largest_of(FamilyCells(cells.tree, cells.attributes, joint=joint), margins)


def _largest_of(family: FamilyCells, margins: Sequence[Margin]) -> FamilyCells:
    """Return the family of the largest of the given margins, with the joint table of a cycle if there is one."""
    tables = [margins[i] for i in maximal([variables(family, margin, margins) for margin in margins])]
    level = family.tree.level
    ordered = tuple(sorted(tables, key=lambda m: (level(m.level), len(m.attributes), m.attributes)))
    joint = None if family.joint in margins else family.joint
    return replace(family, tables=ordered, used=tuple(margins), joint=joint)


def tables_beside(cells: Cells, level: int) -> list[tuple[Cells, slice]]:
    """Return the tables that reach a level, each with its columns in the array of a place's cells."""
    found, start = [], 0
    for part in cells.parts if isinstance(cells, FamilyCells) else (cells,):
        if len(part.tree.levels) > level:
            found.append((part, slice(start, start + part.n // part.shape[0])))
            start = found[-1][1].stop
    return found


def table_alone(family: Cells, table: Margin) -> Cells:
    """Return one table of a family as fully crossed cells."""
    tree = family.tree
    own = tree.branch(0, 0, tree.sizes[0], tree.level(table.level))
    views = {view.name: (a, view) for a in family.attributes for view in a.views}
    return Cells(own, tuple(_as_attribute(*views[r.name]) for r in family.kept(table)))


def _as_attribute(attribute: Attribute, own: Recode) -> Attribute:
    """Return a recode as an attribute, with the coarser recodes of the same attribute."""
    first = np.unique(own.groups, return_index=True)[1]
    recodes = tuple(
        Recode(view.name, view.values, tuple(int(view.groups[i]) for i in first))
        for view in attribute.views
        if view.name != own.name and sums_to(own, view)
    )
    return Attribute(own.name, own.values, attribute.partition, recodes)


def _zeros_of(part: Cells, zeros: Iterable[Mapping[str, str]]) -> NDArray[np.bool_]:
    known = {view.name for a in part.attributes for view in a.views}
    return part.zero_cells([zero for zero in zeros if set(zero) <= known])


def marginal_in(part: Cells, margin: Margin) -> Marginal:
    """Return a margin of a table as group numbers, one array for each attribute of the table."""
    return part.marginal(margin.attributes) or (np.zeros(1, np.int64),)
