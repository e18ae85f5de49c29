"""The finest cells: every place of the last level crossed with every attribute value.

One file: attributes with their recodes, margins and cells, which are defined by one another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.histogram import Marginal, marginalise, refines, relative
from trueup.model.tree import Tree


@dataclass(frozen=True)
class Recode:
    """A grouping of an attribute's values.

    The attribute itself is the recode that keeps every value apart; an attribute that is summed out is the
    recode with one group, which has no name.

    Attributes
    ----------
    name, values
        Its name and the labels of its groups, in the order in which they are laid out.
    groups
        For every value of the attribute, the position of its group.

    Examples
    --------
    >>> Recode.of("adult", {"no": ["0-17"], "yes": ["18-64", "65+"]}, ("0-17", "18-64", "65+")).groups
    (0, 1, 1)
    """

    name: str
    values: tuple[str, ...]
    groups: tuple[int, ...]

    @classmethod
    def of(cls, name: str, groups: Mapping[str, Collection[str]], values: tuple[str, ...]) -> Recode:
        """Make the recode that puts each value of an attribute into the group that lists it."""
        group = {value: i for i, listed in enumerate(groups.values()) for value in listed}
        return cls(name, tuple(groups), tuple(group[value] for value in values))

    @property
    def size(self) -> int:
        """Return the number of groups."""
        return len(self.values)

    def holds(self, label: str) -> NDArray[np.bool_]:
        """Return a mask `(values,)` of the attribute's values in the group with the given label."""
        return np.array(self.groups) == self.values.index(label)


@dataclass(frozen=True)
class Attribute:
    """A public list of values that classify the counted units.

    Attributes
    ----------
    name, values
        Its name and its domain, in the order in which cells are laid out.
    partition
        True if each unit falls under exactly one value. If not (persons and families side by
        side), the values are never summed.
    recodes
        Groupings of the values that a margin may name in place of the attribute.
    """

    name: str
    values: tuple[str, ...]
    partition: bool = True
    recodes: tuple[Recode, ...] = ()

    @property
    def size(self) -> int:
        """Return the number of values."""
        return len(self.values)

    @cached_property
    def views(self) -> tuple[Recode, ...]:
        """Return the groupings that a margin may name: the attribute itself, then its recodes."""
        return (Recode(self.name, self.values, tuple(range(self.size))), *self.recodes)

    @cached_property
    def summed(self) -> Recode:
        """Return the recode with one group, by which a margin sums the attribute out."""
        return Recode("", ("",), (0,) * self.size)


Condition = tuple[tuple[str, str], ...]
"""Values of attributes or recodes, and places of levels, that hold together."""


@dataclass(frozen=True)
class Margin:
    """A marginal table: the places of one level, crossed with some attributes or recodes.

    Attributes
    ----------
    level, attributes
        The table's level, and its attributes or recodes.
    where
        It counts the units alone that meet one of these conditions; all units if there are none.
    weights
        Number of times that it counts a unit meeting each condition, whole and not zero; once each if there are none.

    Examples
    --------
    >>> str(Margin("county", ("sex",)))
    'county x sex'
    >>> old, men = (("age", "old"), ("sex", "f")), (("sex", "m"),)
    >>> str(Margin("county", where=(old, men))), str(Margin("county", where=(old, men), weights=(1, -2)))
    ('county where age=old, sex=f or sex=m', 'county where 1 x age=old, sex=f and -2 x sex=m')
    """

    level: str
    attributes: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()
    weights: tuple[int, ...] = ()

    def __str__(self) -> str:
        return " x ".join((self.level, *self.attributes)) + self.whose

    @property
    def whose(self) -> str:
        """Return the margin's conditions in words; empty if there are none."""
        told = [", ".join(map("=".join, condition)) for condition in self.where]
        if self.weights:
            return " where " + " and ".join(f"{w} x {each}" for w, each in zip(self.weights, told))
        return f" where {' or '.join(told)}" if told else ""

    def among(self, alternatives: Iterable[Mapping[str, str]], weights: Iterable[int] = ()) -> Margin:
        """Return the margin restricted to the units that meet one of some conditions, in canonical order.

        Examples
        --------
        >>> str(Margin("all").among([{"sex": "f", "age": "old"}, {"age": "old", "sex": "f"}]))
        'all where age=old, sex=f'
        >>> str(Margin("all").among([{"size": "2"}, {"size": "1"}, {"size": "2"}], [1, 1, 1]))
        'all where 1 x size=1 and 2 x size=2'
        """
        given = [tuple(sorted(each.items())) for each in alternatives]
        times: dict[Condition, int] = dict.fromkeys(sorted(given), 0)
        for each, weight in zip(given, weights):
            times[each] += weight
        return replace(self, where=tuple(times), weights=tuple(times.values()) if weights else ())


@dataclass(frozen=True, eq=False)
class Cells:
    """The `n` finest cells, in C order: places of the last level first, then attributes.

    Examples
    --------
    >>> tree = Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}])
    >>> cells = Cells(tree, (Attribute("sex", ("f", "m")),))
    >>> cells.n, cells.label(3)
    (4, 'b, sex=m')
    >>> cells.sum(np.array([1, 2, 3, 4]), Margin("all", ("sex",)))
    array([4, 6])
    """

    tree: Tree
    attributes: tuple[Attribute, ...] = ()

    def __repr__(self) -> str:
        levels = dict(zip(self.tree.levels, self.tree.sizes))
        sizes = {attribute.name: attribute.size for attribute in self.attributes}
        return f"Cells(levels={levels}, attributes={sizes}, n={self.n})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of places of the last level, then the size of every attribute."""
        return (self.tree.sizes[-1], *(a.size for a in self.attributes))

    @property
    def n(self) -> int:
        """Return the number of finest cells."""
        return prod(self.shape)

    @property
    def finest(self) -> Margin:
        """Return the margin whose groups are the finest cells."""
        return Margin(self.tree.levels[-1], tuple(a.name for a in self.attributes))

    @property
    def is_family(self) -> bool:
        """Return True for the cells of several tables that are not fully crossed; see `FamilyCells`."""
        return False

    @property
    def whole(self) -> Cells:
        """Return the fully crossed cells: these cells, except in a family of tables."""
        return self

    def tally(self, index: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return counts `(n,)` of these cells, given positions and counts in the full cross."""
        counts = np.zeros(self.n, dtype=np.int64)
        np.add.at(counts, index, count)
        return counts

    def disagreements(self, counts: NDArray, slack: float = 0) -> Iterable[tuple[Margin, str]]:
        """Return (margin, group) pairs on which tables differ by more than `slack`, at most 3 per margin."""
        return ()

    @property
    def finest_tables(self) -> tuple[Margin, ...]:
        """Return the finest margins, whose groups listed in order are the cells; a single table has one."""
        return (self.finest,)

    def holds(self, margin: Margin) -> bool:
        """Return True if a margin is a sum of these cells; in a family of tables, of one table's cells."""
        return True

    def holding(self, margin: Margin) -> Cells:
        """Return the cells that a margin sums: in a family of tables, those of the table that contains it."""
        return self

    def refuse_unheld(self, margin: Margin) -> None:
        """Raise SpecError if a margin is not a sum of these cells."""

    def margin(self, given: Margin | str) -> Margin:
        """Read a margin from text: a level, then attributes or recodes, separated by crosses.

        Raises
        ------
        SpecError
            If the level or an attribute is not declared, or is named twice.

        Examples
        --------
        >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]), (Attribute("sex", ("f", "m")),))
        >>> cells.margin("area x sex")
        Margin(level='area', attributes=('sex',), where=(), weights=())
        """
        if isinstance(given, str):
            views = (r.name for a in self.attributes for r in a.views)
            level, *names = _crossed(given, (*self.tree.levels, *views))
            given = Margin(level, tuple(names))
        if not isinstance(given, Margin):
            raise SpecError(
                f"a {type(given).__name__} is given as a table",
                needed=f"its name, such as '{self.finest}' or '{self.tree.levels[-1]}'",
            )
        self.tree.level(given.level)
        self.recodes(given.attributes)
        if len(set(given.attributes)) < len(given.attributes):
            raise SpecError(f"the table '{given}' names an attribute twice", needed="different attributes")
        return given

    @property
    def coarsest(self) -> Margin:
        """Return the coarsest meaningful margin: the root place, with only partition attributes summed out."""
        kept = tuple(a.name for a in self.attributes if not a.partition)
        return Margin(self.tree.levels[0], kept)

    def recodes(self, names: Collection[str]) -> tuple[Recode, ...]:
        """Return how each attribute enters a table: by its values, by a named recode, or summed out; in cell order.

        Raises
        ------
        SpecError
            If a name is not declared, or an attribute is named twice, as by two of its recodes.

        Examples
        --------
        >>> sex = Attribute("sex", ("f", "m"))
        >>> [r.groups for r in Cells(Tree.from_columns(["all"], [{}]), (sex,)).recodes([])]
        [(0, 0)]
        """
        seen = [[r for r in a.views if r.name in names] for a in self.attributes]
        known = {r.name for named in seen for r in named}
        if unknown := set(names) - known:
            declared = ", ".join(r.name for a in self.attributes for r in a.views) or "none"
            raise SpecError(f"attribute '{min(unknown)}' is not declared", needed=f"one of: {declared}")
        if twice := next((named for named in seen if len(named) > 1), None):
            raise SpecError(
                f"'{twice[0].name}' and '{twice[1].name}' are the same attribute",
                needed="one of the two names",
            )
        return tuple(named[0] if named else a.summed for a, named in zip(self.attributes, seen))

    def kept(self, margin: Margin | str) -> tuple[Recode, ...]:
        """Return the attributes and recodes that a margin names, in cell order."""
        return tuple(r for r in self.recodes(self._named(margin).attributes) if r.name)

    def _named(self, margin: Margin | str) -> Margin:
        """Return a margin read from text; a `Margin` is returned unchanged."""
        return self.margin(margin) if isinstance(margin, str) else margin

    def marginal(self, names: Collection[str]) -> Marginal:
        """Return, for every attribute, an array with the group of each value in a table by the named attributes or recodes."""
        return tuple(np.array(r.groups) for r in self.recodes(names))

    def where(self, values: Mapping[str, str]) -> NDArray[np.bool_]:
        """Return a mask `(1, sizes...)` of the attribute combinations with given values of attributes or recodes."""
        held = (r.holds(values.get(r.name, "")) for r in self.recodes(values.keys()))
        return reduce(np.logical_and.outer, held, np.ones(1, bool))

    def zero_combinations(self, zeros: Iterable[Mapping[str, str]]) -> NDArray[np.bool_]:
        """Return a mask `(n / places,)` of the attribute combinations that some structural zero covers."""
        table = np.zeros((1, *self.shape[1:]), dtype=bool)
        for zero in zeros:
            table |= self.where(zero)
        return table.ravel()

    def zero_cells(self, zeros: Iterable[Mapping[str, str]]) -> NDArray[np.bool_]:
        """Return a mask `(n,)` of the cells that are structural zeros."""
        return np.tile(self.zero_combinations(zeros), self.shape[0])

    def among(self, margin: Margin | str) -> NDArray[np.bool_]:
        """Return a mask `(n,)` of the finest cells that a margin counts.

        Raises
        ------
        SpecError
            If a condition names a place that there is not.

        Examples
        --------
        >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]), (Attribute("sex", ("f", "m")),))
        >>> cells.among(Margin("all", where=((("area", "b"),), (("sex", "f"),)))).tolist()
        [True, False, True, True]
        """
        margin = self._named(margin)
        if not margin.where:
            return np.ones(self.n, bool)
        return reduce(np.logical_or, (self._meets(dict(each)) for each in margin.where)).ravel()

    def times(self, margin: Margin | str) -> NDArray[np.int64]:
        """Return how often a margin counts each finest cell, `(n,)`.

        Examples
        --------
        >>> cells = Cells(Tree.from_columns(["all"], [{}]), (Attribute("size", ("1", "2", "3")),))
        >>> cells.times(Margin("all").among([{"size": "1"}, {"size": "3"}], [1, 3])).tolist()
        [1, 0, 3]
        """
        margin = self._named(margin)
        if not margin.weights:
            return self.among(margin).astype(np.int64)
        met = np.array([self._meets(dict(each)).ravel() for each in margin.where])
        return np.array(margin.weights) @ met

    def held(self, margin: Margin | str) -> NDArray[np.int64]:
        """Return the numbers of a margin's groups that contain a cell which meets the margin's condition.

        Examples
        --------
        >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]), (Attribute("sex", ("f", "m")),))
        >>> cells.held(Margin("area", ("sex",), ((("sex", "m"),),)))
        array([1, 3])
        """
        margin = replace(self._named(margin), weights=())
        levels = {name for each in margin.where for name, _ in each} & set(self.tree.levels)
        if levels:
            return np.flatnonzero(self.sum(np.ones(self.n, np.int64), margin))
        place = Cells(Tree.from_columns(["all"], [{}]), self.attributes)  # which is the same at every place
        here = np.flatnonzero(place.sum(np.ones(place.n, np.int64), replace(margin, level="all")))
        each = place.size(replace(margin, level="all"))
        return np.add.outer(each * np.arange(self.margin_shape(margin)[0]), here).ravel()

    def _meets(self, values: Mapping[str, str]) -> NDArray[np.bool_]:
        """Return a mask `(places, sizes...)` of the finest cells that meet one condition."""
        views = {r.name for a in self.attributes for r in a.views}
        places = np.ones(self.shape[0], bool)
        for level in values.keys() - views:
            places &= self._within(level, values[level])
        chosen = self.where({name: value for name, value in values.items() if name in views})
        return np.logical_and.outer(places, chosen[0])

    def _within(self, level: str, label: str) -> NDArray[np.bool_]:
        """Return a mask `(places,)` of the last level's places within the place that a level and a label name."""
        if (place := place_labelled(self.tree, level, label)) is None:
            raise SpecError(
                f"a condition names '{label}', which is not a place of level '{level}'",
                needed=f"a key of a place as it is written in messages and reports, such as '{self.tree.label(level, 0)}'",
            )
        return self.tree.ancestors(len(self.tree.levels) - 1, self.tree.level(level)) == place

    def margin_shape(self, margin: Margin | str) -> tuple[int, ...]:
        """Return the number of places of the margin's level, then the sizes of its attributes, in cell order."""
        margin = self._named(margin)
        return (self.tree.sizes[self.tree.level(margin.level)], *(r.size for r in self.kept(margin)))

    def size(self, margin: Margin | str) -> int:
        """Return the number of groups of a margin."""
        return prod(self.margin_shape(margin))

    def sum(self, values: NDArray, margin: Margin | str) -> NDArray:
        """Sum cell values `(..., n)` into the groups of a margin `(..., groups)`.

        Examples
        --------
        >>> tree = Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}])
        >>> Cells(tree).sum(np.array([[1, 2], [3, 4]]), "all")
        array([[3],
               [7]])
        """
        margin = self._named(margin)
        lead = values.shape[:-1]
        if margin.where:
            values = np.where(self.among(margin), values, 0)
        if margin.weights:
            values = values * self.times(margin)
        table = marginalise(values.reshape(*lead, self.shape[0], -1), self.marginal(margin.attributes))
        level = self.tree.level(margin.level)
        if level < len(self.tree.levels) - 1:
            wide = (
                np.result_type(table, np.int64) if table.dtype.kind in "iu" else None
            )  # sums outgrow narrow counts
            table = np.add.reduceat(table, self.tree.leaf_ptr(level)[:-1], axis=len(lead), dtype=wide)
        return table.reshape(*lead, -1)

    def groups(self, fine: Margin | str, coarse: Margin | str) -> NDArray[np.int64]:
        """Return for every group of `fine` the group of `coarse` that contains it.

        Raises
        ------
        SpecError
            If `coarse` does not contain `fine` (is not a sum of its groups).
        """
        fine, coarse = self._named(fine), self._named(coarse)
        if not self.contains(coarse, fine):
            raise SpecError(
                f"the table '{coarse}' is not a sum of '{fine}'",
                needed=f"a table whose groups are sums of groups of '{fine}'",
            )
        tree = self.tree
        index = tree.ancestors(tree.level(fine.level), tree.level(coarse.level))
        for group in relative(self.marginal(fine.attributes), self.marginal(coarse.attributes)):
            index = np.add.outer(index * (group.max() + 1), group).ravel()
        return index

    def contains(self, coarse: Margin | str, fine: Margin | str) -> bool:
        """Return True if every group of `coarse` is a sum of groups of `fine`."""
        coarse, fine = self._named(coarse), self._named(fine)
        level = self.tree.level
        if (coarse.where, coarse.weights) != (fine.where, fine.weights) or level(coarse.level) > level(
            fine.level
        ):
            return False
        return refines(self.marginal(fine.attributes), self.marginal(coarse.attributes))

    def margin_label(self, margin: Margin | str, group: int) -> str:
        """Return the label of a group of a margin: its place and its attribute values."""
        margin = self._named(margin)
        shape = self.margin_shape(margin)
        place, *values = (int(i) for i in np.unravel_index(group, shape))
        parts = (f"{r.name}={r.values[v]}" for r, v in zip(self.kept(margin), values))
        return ", ".join((self.tree.label(margin.level, place), *parts)) + margin.whose

    def margin_labels(self, margin: Margin | str) -> Iterator[str]:
        """Yield the labels of all groups of a margin.

        Examples
        --------
        >>> cells = Cells(Tree.from_columns(["all"], [{}]), (Attribute("sex", ("f", "m")),))
        >>> list(cells.margin_labels(Margin("all", ("sex",))))
        ['all, sex=f', 'all, sex=m']
        """
        margin = self._named(margin)
        kept, condition = self.kept(margin), margin.whose
        named = [[f", {r.name}={value}" for value in r.values] for r in kept]
        ends = ["".join(values) + condition for values in product(*named)]
        places = range(self.tree.sizes[self.tree.level(margin.level)])
        return (self.tree.label(margin.level, place) + end for place in places for end in ends)

    def label(self, cell: int) -> str:
        """Return the label of a finest cell."""
        return self.margin_label(self.finest, cell)


def _crossed(text: str, names: Collection[str]) -> tuple[str, ...]:
    """Split a margin's name at its crosses; declared names that contain a cross stay whole."""
    for name in sorted(names, key=len, reverse=True):
        if text == name:
            return (name,)
        if text.startswith(f"{name} x "):
            return (name, *_crossed(text.removeprefix(f"{name} x "), names))
    return tuple(text.split(" x "))


def detailed(cells: Cells) -> Marginal:
    """Return the marginal of all attributes: the histogram itself."""
    return cells.marginal(cells.finest.attributes)


def place_labelled(tree: Tree, level: str, label: str) -> int | None:
    """Return the number of the first place of a level that has a label; None if there is none."""
    every = range(tree.sizes[tree.level(level)])
    return next((place for place in every if tree.label(level, place) == label), None)
