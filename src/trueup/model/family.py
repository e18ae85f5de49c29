"""Families of tables: several margins in one release, with no cell of their full cross.

A margin is a set of variables: its level with all levels above it, and its attributes or recodes with all coarser recodes
that are used. The *tables* of a family are its largest margins; what two of them share is a margin of both, their
separator. If the sets have a junction tree, tables that agree on its separators are margins of one table of records (see
`trueup.kernel.families.sets`), so that cells need to exist inside the tables alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.families.sets import JunctionTree, closing_sets, cyclic_core, junction_tree, maximal
from trueup.kernel.histogram.marginals import Marginal, refines
from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.tree import Tree

Variable = tuple[str, str]
"""A level (`""` and its name), or an attribute and one of its views."""


@dataclass(frozen=True, eq=False, repr=False)
class FamilyCells(Cells):
    """The cells of an acyclic family: those of its tables, table after table.

    Sums of a margin are taken within the first table that holds it; agreeing tables give the same.

    Attributes
    ----------
    tables
        The largest margins, no one of which is a sum of another.
    used
        All margins that the family must hold.

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

    def __repr__(self) -> str:
        return f"FamilyCells(tables={[str(table) for table in self.tables]}, n={self.n})"

    @property
    def whole(self) -> Cells:
        """The full cross, of which no array is ever made."""
        return Cells(self.tree, self.attributes)

    def on(self, tree: Tree) -> FamilyCells:
        """The same tables of other places."""
        return FamilyCells(tree, self.attributes, self.tables, self.used)

    @cached_property
    def parts(self) -> tuple[Cells, ...]:
        """Every table as cells of its own: places down to its level, and its attributes."""
        return tuple(_alone(self, table) for table in self.tables)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where the cells of every table begin, and where the last ends."""
        return tuple(int(i) for i in np.cumsum([0, *(part.n for part in self.parts)]))

    @property
    def n(self) -> int:
        """Number of cells of all tables."""
        return self.starts[-1]

    @property
    def finest(self) -> Margin:
        """Refuse: no table holds all the others."""
        raise SpecError(
            "a family of tables has no finest table",
            needed=f"one of its tables: {', '.join(map(str, self.tables))}",
        )

    def split(self, values: NDArray) -> list[NDArray]:
        """Cut cells `(..., n)` into tables."""
        return np.split(values, self.starts[1:-1], axis=-1)

    def holders(self, margin: Margin | str) -> list[int]:
        """Positions of the tables that a margin is a sum of."""
        margin = self._named(margin)
        return [i for i, table in enumerate(self.tables) if self.contains(margin, table)]

    def sum(self, values: NDArray, margin: Margin | str) -> NDArray:
        """Sum cells `(..., n)` into the groups of a margin that a table holds.

        Raises
        ------
        SpecError
            If no table holds it.
        """
        margin = self._named(margin)
        if not (holders := self.holders(margin)):
            raise SpecError(
                f"no table holds '{margin}'",
                needed=f"a table or a sum of one: {', '.join(map(str, self.tables))}",
                remedy="measure it by a query of its own",
            )
        return self.sum_in(holders[0], values, margin)

    def sum_in(self, table: int, values: NDArray, margin: Margin | str) -> NDArray:
        """Sum cells `(..., n)` into the groups of a margin within one table."""
        margin = self._named(margin)
        own = values[..., self.starts[table] : self.starts[table + 1]]
        return self.parts[table].sum(own, margin)

    def groups(self, fine: Margin | str, coarse: Margin | str) -> NDArray[np.int64]:
        """For every group of `fine`, the group of `coarse` that holds it, within one table."""
        holder = self.holders(fine)
        return self.parts[holder[0]].groups(fine, coarse) if holder else super().groups(fine, coarse)

    def label(self, cell: int) -> str:
        """Name one cell."""
        table = int(np.searchsorted(self.starts, cell, side="right")) - 1
        return self.parts[table].label(cell - self.starts[table])

    def zero_cells(self, zeros: Sequence[Mapping[str, str]]) -> NDArray[np.bool_]:
        """Which cells `(n,)` are structural zeros: of each table those whose attributes it has."""
        return np.concatenate([_zeros_of(part, zeros) for part in self.parts])

    def tally(self, index: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count what stands in cells of the full cross, given by their positions, in every table `(n,)`."""
        places, *values = np.unravel_index(index, self.shape)
        return np.concatenate(
            [
                self._tallied(table, part, places, values, count)
                for table, part in zip(self.tables, self.parts)
            ]
        )

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
        """The variables of every table."""
        return tuple(variables(self, table, self.used) for table in self.tables)

    def junction(self, root: int = 0) -> JunctionTree:
        """A junction tree of the tables."""
        return junction_tree(self.sets, root)

    def separator(self, one: int, other: int) -> Margin:
        """The margin that two tables share."""
        shared = margin_of(self, self.sets[one] & self.sets[other])
        assert shared is not None, "families whose separators are no margins are refused"
        return shared

    @cached_property
    def separators(self) -> tuple[Margin, ...]:
        """What the tables of a junction tree share, each margin once."""
        tree = self.junction()
        return tuple(dict.fromkeys(self.separator(i, tree.parent[i]) for i in tree.order[1:]))

    def disagreements(self, counts: NDArray) -> list[tuple[Margin, NDArray[np.int64]]]:
        """For every pair of tables that differ in what they share, that margin and the groups that differ."""
        found = []
        for i, j in combinations(range(len(self.tables)), 2):
            shared = self.separator(i, j)
            gap = self.sum_in(i, counts, shared) - self.sum_in(j, counts, shared)
            if gap.any():
                found.append((shared, np.flatnonzero(gap)))
        return found


def variables(cells: Cells, margin: Margin, used: Iterable[Margin]) -> frozenset[Variable]:
    """The variables of a margin: levels below the root down to its own, and every used view that it can be summed to."""
    depth = cells.tree.level(margin.level)
    places = {("", level) for level in cells.tree.levels[1 : depth + 1]}
    named = {name for each in used for name in each.attributes}
    views = {
        (attribute.name, view.name)
        for attribute, own in zip(cells.attributes, cells.recodes(margin.attributes))
        for view in attribute.views
        if view.name in named and view.size > 1 and _sums(own, view)
    }
    return frozenset(places | views)


def _sums(fine: Recode, coarse: Recode) -> bool:
    return refines((np.array(fine.groups),), (np.array(coarse.groups),))


def margin_of(cells: Cells, own: frozenset[Variable]) -> Margin | None:
    """The margin of some variables; None if two views of an attribute are among them, neither of which refines the other."""
    levels = [level for level in cells.tree.levels if ("", level) in own]
    names = []
    for attribute in cells.attributes:
        held = [view for view in attribute.views if (attribute.name, view.name) in own]
        finest = [view for view in held if all(_sums(view, other) for other in held)]
        if held and not finest:
            return None
        names += [finest[0].name] if held else []
    return Margin(levels[-1] if levels else cells.tree.levels[0], tuple(names))


def family_of(cells: Cells, margins: Sequence[Margin]) -> FamilyCells:
    """Make the family of some margins.

    Raises
    ------
    SpecError
        If it is not acyclic: it names the smallest joint table that would close it.
    """
    if fault := cyclic(cells, margins):
        raise fault
    sets = [variables(cells, margin, margins) for margin in margins]
    tables = [margins[i] for i in maximal(sets)]
    order = {
        margin: (cells.tree.level(margin.level), len(margin.attributes), margin.attributes)
        for margin in tables
    }
    return FamilyCells(
        cells.tree, cells.attributes, tuple(sorted(tables, key=order.__getitem__)), tuple(margins)
    )


def cyclic(cells: Cells, margins: Sequence[Margin]) -> SpecError | None:
    """Say why margins are no acyclic family; None if they are one.

    Examples
    --------
    >>> abc = tuple(Attribute(name, ("0", "1", "2")) for name in "abc")
    >>> cells = Cells(Tree.from_columns(["all"], [{}]), abc)
    >>> pairs = [Margin("all", pair) for pair in (("a", "b"), ("b", "c"), ("a", "c"))]
    >>> cyclic(cells, pairs[:2]) is None
    True
    >>> print(cyclic(cells, pairs))
    the tables 'all x a x b', 'all x b x c', 'all x a x c' share margins in a ring: tables that agree on these need not be margins of one table of records. Needed: tables without a ring; the smallest joint table that breaks this one is 'all x a x b x c' (27 cells). To do: give a query on 'all x a x b x c' a budget, however small, or drop one of these tables.
    """
    sets = [variables(cells, margin, margins) for margin in margins]
    held = maximal(sets)
    tables, own = [margins[i] for i in held], [sets[i] for i in held]
    if crossed := _crossed(cells, own):
        return _crossing(*crossed)
    if not (core := cyclic_core(own)):
        return None
    chosen = closing_sets(own, lambda union: _size(cells, union))
    joint = margin_of(cells, frozenset().union(*(own[i] for i in chosen)))
    named = ", ".join(f"'{tables[i]}'" for i in core)
    closed = f"'{joint}' ({cells.size(joint):,} cells)" if joint else "one of all of them"
    return SpecError(
        f"the tables {named} share margins in a ring: tables that agree on these need not be margins of one table of records",
        needed=f"tables without a ring; the smallest joint table that breaks this one is {closed}",
        remedy=f"give a query on '{joint}' a budget, however small, or drop one of these tables",
    )


def _size(cells: Cells, own: frozenset[Variable]) -> int:
    """Cells of the joint table of some variables."""
    depth = max((cells.tree.level(name) for kind, name in own if not kind), default=0)
    finest = (max((v.size for v in a.views if (a.name, v.name) in own), default=1) for a in cells.attributes)
    return cells.tree.sizes[depth] * prod(finest)


def _crossed(cells: Cells, sets: Sequence[frozenset[Variable]]) -> tuple[str, str, str] | None:
    """An attribute with two used views, neither of which refines the other, that no table holds together."""
    every = frozenset().union(*sets)
    for attribute in cells.attributes:
        views = [view for view in attribute.views if (attribute.name, view.name) in every]
        for one, other in combinations(views, 2):
            pair = {(attribute.name, one.name), (attribute.name, other.name)}
            if not (_sums(one, other) or _sums(other, one)) and not any(pair <= own for own in sets):
                return attribute.name, one.name, other.name
    shared = (a & b for a, b in combinations(sets, 2))
    if any(margin_of(cells, own) is None for own in shared):
        return next(
            (a.name, *(v.name for v in a.recodes[:2])) for a in cells.attributes if len(a.recodes) > 1
        )  # pyright: ignore[reportReturnType]
    return None


def _crossing(attribute: str, one: str, other: str) -> SpecError:
    return SpecError(
        f"'{one}' and '{other}' cut the values of '{attribute}' at different places, so that tables by them share no margin",
        needed=f"recodes of '{attribute}' each of which refines the next",
        remedy=f"name a recode that refines both, or '{attribute}' itself, in these queries",
    )


def _alone(family: FamilyCells, table: Margin) -> Cells:
    """A table as cells of its own."""
    tree = family.tree
    own = tree.branch(0, 0, tree.sizes[0], tree.level(table.level))
    views = {view.name: (a, view) for a in family.attributes for view in a.views}
    return Cells(own, tuple(_as_attribute(*views[r.name]) for r in family.kept(table)))


def _as_attribute(attribute: Attribute, own: Recode) -> Attribute:
    """A view of an attribute as an attribute, with the coarser views as its recodes."""
    first = np.unique(own.groups, return_index=True)[1]
    recodes = tuple(
        Recode(view.name, view.values, tuple(int(view.groups[i]) for i in first))
        for view in attribute.views
        if view.name != own.name and _sums(own, view)
    )
    return Attribute(own.name, own.values, attribute.partition, recodes)


def _zeros_of(part: Cells, zeros: Sequence[Mapping[str, str]]) -> NDArray[np.bool_]:
    known = {view.name for a in part.attributes for view in a.views}
    table = np.zeros((1, *part.shape[1:]), bool)
    for zero in zeros:
        if set(zero) <= known:
            table |= part.where(zero)
    return np.tile(table.ravel(), part.shape[0])


def marginal_in(part: Cells, margin: Margin) -> Marginal:
    """A margin of a table as a marginal of its attributes; of a table without any, of one attribute of one value."""
    return part.marginal(margin.attributes) or (np.zeros(1, np.int64),)
