"""Counts named in a question: one place, all places of a level or areas off the hierarchy, with attribute values.

One file: every way to name counts is read into the same record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, SpecError, did_you_mean
from trueup.files import require
from trueup.files.source import open_table
from trueup.files.values import as_text, without_blanks
from trueup.kernel.histogram.area_variances import Areas
from trueup.kernel.histogram.spine import Shapes
from trueup.model.cells import Cells, Margin
from trueup.model.place_keys import Keys, lost_zeros


@dataclass(frozen=True, eq=False)
class AreaTable:
    """Areas for which margins of error are planned, each with a list of places of the last level.

    Attributes
    ----------
    column
        Name of the areas in targets.
    names
        Their names, in order.
    area, leaf
        Pairs of an area and a place of the last level in it; areas may overlap.
    by
        Attributes or recodes that are kept of them, where the areas alone do not say it.
    """

    column: str
    names: tuple[str, ...]
    area: NDArray[np.int64]
    leaf: NDArray[np.int64]
    by: tuple[str, ...] = ()

    @classmethod
    def read(cls, mapping: Any, column: str, cells: Cells, by: Sequence[str] = ()) -> AreaTable:
        """Read areas from a table that has one row for each place in each area.

        Of several key columns those are enough that tell all places apart.

        Raises
        ------
        DataError, SpecError
            If a column is missing, a row names no place or lacks an area, or an area lists a place twice.

        Examples
        --------
        >>> import pandas
        >>> from trueup.model.tree import Tree
        >>> cells = Cells(Tree.from_columns(["all", "block"], [{}, {"block": ["a", "b", "c"]}]))
        >>> districts = pandas.DataFrame({"district": ["north", "north", "lake"], "block": ["a", "c", "c"]})
        >>> table = AreaTable.read(districts, "district", cells)
        >>> table.names, table.area.tolist(), table.leaf.tolist()
        (('lake', 'north'), [1, 1, 0], [0, 2, 2])
        """
        keys = cells.tree.keys[-1] if cells.tree.keys else {}
        _refuse_name(column, cells)
        table = open_table(mapping)
        keys = _telling_columns(keys, table.columns())
        require(table, [column, *keys])
        rows = table.select([column, *keys])
        given = [without_blanks(as_text(np.asarray(rows[name]))) for name in (column, *keys)]
        if not given[0].size:
            raise DataError(f"{table.name} is empty", needed="a row for each place of each area")
        if any(text is None or not str(text).strip() for column in given for text in column.tolist()):
            raise DataError(f"{table.name} has a row without an area or a place", needed="both in every row")
        place = {key: i for i, key in enumerate(zip(*(c.tolist() for c in keys.values())))}
        if len(keys) == 1:  # a place may also be written as tables print it
            place = {(label,): i for i, label in enumerate(cells.tree.labels(cells.tree.levels[-1]))} | place
        found = np.array([place.get(key, -1) for key in zip(*(c.tolist() for c in given[1:]))])
        if (found < 0).any():
            at = int(np.argmax(found < 0))
            shown = [str(c[at]) for c in given[1:]]
            raise DataError(
                f"area '{given[0][at]}' lists '{'/'.join(shown)}', which is no place of level "
                f"'{cells.tree.levels[-1]}'",
                remedy=next(
                    filter(None, map(lost_zeros, keys, shown, (key.tolist() for key in keys.values()))),
                    "correct the mapping",
                ),
            )
        names, area = np.unique(given[0], return_inverse=True)
        both, times = np.unique(np.stack([area.reshape(-1), found]), axis=1, return_counts=True)
        if (times > 1).any():
            which, leaf = both[:, int(np.argmax(times > 1))]
            raise DataError(
                f"area '{names[which]}' lists the place '{cells.tree.label(cells.tree.levels[-1], int(leaf))}' twice",
                needed="each place of an area in one row",
            )
        return cls(column, tuple(names.tolist()), area.reshape(-1), found, tuple(by))

    def laid_out(self, cells: Cells, shapes: Shapes) -> Areas:
        """Return the areas, together with the ancestors of their places in the hierarchy."""
        ancestors = [cells.tree.ancestors(level, level - 1) for level in range(1, len(cells.tree.levels))]
        return Areas.of(shapes, ancestors, self.area, self.leaf)


def _telling_columns(keys: Keys, given: Collection[str]) -> Keys:
    """Return the key columns in a table of areas if they identify all places, else all key columns."""
    held = {name: key for name, key in keys.items() if name in given}
    apart = len(set(zip(*(key.tolist() for key in held.values())))) if held else 0
    return held if apart and apart == len(next(iter(keys.values()))) else keys


def _refuse_name(column: str, cells: Cells) -> None:
    taken = {*cells.tree.levels, *(r.name for a in cells.attributes for r in a.views)}
    if column in taken:
        raise SpecError(
            f"the column of areas is named '{column}', which is also the name of a level or an attribute",
            remedy="give the column of areas another name",
        )


@dataclass(frozen=True, eq=False)
class PlacesAsked:
    """Places or areas that a question names, each as a list of places of the last level.

    Attributes
    ----------
    level
        The level they are of, or the column of areas.
    names
        `k` labels.
    leaf, edges
        Place `i` holds the lowest places `leaf[edges[i]:edges[i + 1]]`, at least one.
    """

    level: str
    names: tuple[str, ...]
    leaf: NDArray[np.int64]
    edges: NDArray[np.int64]

    @classmethod
    def of_level(cls, cells: Cells, level: str) -> PlacesAsked:
        """Return all places of a level."""
        tree = cells.tree
        leaves = np.arange(tree.sizes[-1])
        return cls(level, tuple(tree.labels(level)), leaves, tree.leaf_ptr(tree.level(level)))

    @classmethod
    def of_areas(cls, own: AreaTable) -> PlacesAsked:
        """Return areas that cut across the hierarchy, each as a list of places."""
        order = np.argsort(own.area, kind="stable")
        edges = np.searchsorted(own.area[order], np.arange(len(own.names) + 1))
        return cls(own.column, own.names, own.leaf[order], edges)

    def only(self, at: int) -> PlacesAsked:
        """Return one of the places."""
        leaf = self.leaf[self.edges[at] : self.edges[at + 1]]
        return PlacesAsked(self.level, self.names[at : at + 1], leaf, np.array([0, leaf.size]))


@dataclass(frozen=True, eq=False)
class Count:
    """The counts of one combination of attribute values, at one place or several.

    Attributes
    ----------
    places
        The place or places of the counts.
    within
        All places of the same level, among which a rank is asked for.
    values
        Values of attributes or recodes.
    single
        True if one place is meant, not all of a level.
    """

    places: PlacesAsked
    within: PlacesAsked
    values: Mapping[str, str]
    single: bool

    def draws(self, cells: Cells, draws: NDArray, places: PlacesAsked | None = None) -> NDArray:
        """Sum draws `(chains, draws, n)` of the finest cells into `(chains, draws, k)` counts of `k` places.

        Raises
        ------
        SpecError
            If no table of a family holds them.
        """
        places = places or self.places
        if not isinstance(draws, np.ndarray):  # in files, which are read one after the other
            return draws.sums(places.leaf, places.edges, cells.where(self.values).ravel())
        if cells.is_family:
            return self._in_a_table(cells, draws, places)
        kept = cells.where(self.values).ravel()
        table = draws.reshape(*draws.shape[:2], cells.shape[0], -1)
        if not np.array_equal(places.leaf, np.arange(cells.shape[0])):  # of all places nothing need be copied
            table = table[:, :, places.leaf]
        sums = (table if kept.all() else table[..., kept]).sum(axis=3, dtype=np.int64)
        return np.add.reduceat(sums, places.edges[:-1], axis=2)

    def ranks(self, cells: Cells, draws: NDArray) -> NDArray:
        """Return the rank `(chains, draws)` of a single place's count within its level: 1 is the largest, ties share the best."""
        every = self.draws(cells, draws, self.within)
        at = self.within.names.index(self.places.names[0])
        return 1 + (every > every[..., [at]]).sum(axis=-1)

    def _in_a_table(self, cells: Cells, draws: NDArray, places: PlacesAsked) -> NDArray:
        """Sum draws of a family over the cells of one table that contains the counts."""
        tree, last = cells.tree, len(cells.tree.levels) - 1
        level = tree.level(places.level) if places.level in tree.levels else last
        margin = cells.margin(Margin(tree.levels[level], tuple(self.values)))
        at = [r.values.index(self.values[r.name]) for r in cells.kept(margin)]
        sizes = [r.size for r in cells.kept(margin)]
        table = cells.sum(draws, margin).reshape(*draws.shape[:2], tree.sizes[level], *sizes)
        counts = table[(..., *at)][..., tree.ancestors(last, level)[places.leaf]]
        if places.level in tree.levels:
            return counts[..., places.edges[:-1]]
        return np.add.reduceat(counts, places.edges[:-1], axis=2)


@dataclass(frozen=True, eq=False)
class Names:
    """The names of places and counts that questions to draws may use.

    A name is `PLACE` or `PLACE, ATTRIBUTE=VALUE, ...`. A place is `LEVEL=KEY`, or its key alone; the name of a level stands
    for each of its places. Of a key such as `01/003` the last part is enough where the level has it once, and so is a readable
    name. A name of different places of several levels is refused. The column of areas of one's own is named as a level is.

    Examples
    --------
    >>> from trueup.model.cells import Attribute
    >>> from trueup.model.tree import Tree
    >>> tree = Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}])
    >>> names = Names(Cells(tree, (Attribute("sex", ("f", "m")),)))
    >>> found = names.find("area=b, sex=f")
    >>> found.places.names, found.values, found.single
    (('b',), {'sex': 'f'}, True)
    >>> names.find("area").places.names
    ('a', 'b')
    """

    cells: Cells
    own: AreaTable | None = None

    def find(self, name: str) -> Count:
        """Return the counts that a name denotes.

        Raises
        ------
        SpecError
            If there is no such place, attribute or value among the draws; it names the nearest.
        """
        parts = name.split(", ")
        for cut in range(len(parts), -1, -1):
            values = self._values(parts[cut:])
            place = None if values is None else self._places(", ".join(parts[:cut]))
            if place is not None and values is not None:
                self._refuse_overlapping(name, values)
                return Count(*place[:2], values, place[2])
        raise self._unknown(name, parts)

    def _values(self, parts: list[str]) -> dict[str, str] | None:
        """Read attribute values from parts such as `sex=f`; return None if one is unknown."""
        known = {r.name: r.values for a in self.cells.attributes for r in a.views}
        pairs = [(part.partition("=")[0], part.partition("=")[2]) for part in parts]
        if any(name not in known or value not in known[name] for name, value in pairs):
            return None
        names = [name for name, _ in pairs]
        self.cells.recodes(names)  # refuses two views of one attribute
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise SpecError(f"'{twice}' is given two values", needed="one value; add several counts by +")
        return dict(pairs)

    def _places(self, text: str) -> tuple[PlacesAsked, PlacesAsked, bool] | None:
        """Return the named places, all places of their level, and True if a single place is named; None if unknown."""
        if not text and self.cells.tree.sizes[0] == 1:
            every = self._level(self.cells.tree.levels[0])
            return every, every, True
        level, equals, key = text.partition("=")
        if equals and level in self._levels:
            return self._one(self._level(level), key)
        if named := [found for each in self._levels if (found := self._one(self._level(each), text))]:
            self._refuse_several(text, [place for place, _, _ in named])
            return named[0]
        if text in self._levels:
            every = self._level(text)
            return every, every, False
        return None

    def _one(self, every: PlacesAsked, key: str) -> tuple[PlacesAsked, PlacesAsked, bool] | None:
        for names in (every.names, *self._other_names(every)):
            if names.count(key) == 1:
                return every.only(names.index(key)), every, True
        return None

    def _refuse_several(self, text: str, named: list[PlacesAsked]) -> None:
        """Refuse a name that means places of several levels, unless they hold the same lowest places."""
        if any(not np.array_equal(place.leaf, named[0].leaf) for place in named):
            raise SpecError(
                f"'{text}' is the name of places of several levels",
                needed="one of " + ", ".join(f"'{place.level}={place.names[0]}'" for place in named),
            )

    def _other_names(self, every: PlacesAsked) -> Iterator[tuple[str, ...]]:
        """Yield the short names and the readable names of the places of a level."""
        tree = self.cells.tree
        if every.level not in tree.levels:
            return
        at = tree.level(every.level)
        if tree.keys and len(tree.keys[at]) > 1:
            yield tuple(map(str, list(tree.keys[at].values())[-1].tolist()))
        if tree.names and (readable := tree.names[at]) is not None:
            yield tuple(map(str, readable.tolist()))

    @property
    def _levels(self) -> tuple[str, ...]:
        return (*self.cells.tree.levels, *((self.own.column,) if self.own else ()))

    def _level(self, name: str) -> PlacesAsked:
        if self.own is not None and name == self.own.column:
            return PlacesAsked.of_areas(self.own)
        return PlacesAsked.of_level(self.cells, name)

    def _refuse_overlapping(self, name: str, values: Mapping[str, str]) -> None:
        for attribute in self.cells.attributes:
            if not attribute.partition and not {r.name for r in attribute.views} & set(values):
                raise SpecError(
                    f"'{name}' sums over '{attribute.name}', whose values overlap",
                    needed=f"one of them, such as '{name}, {attribute.name}={attribute.values[0]}'",
                )

    def _unknown(self, name: str, parts: list[str]) -> SpecError:
        """Return the error for an unknown name, which states what is wrong and which names the draws know."""
        for part in parts[1:]:
            if error := self._unknown_value(part):
                return error
        level, equals, key = parts[0].partition("=")
        if equals and level not in self._levels:
            return self._unknown_value(parts[0]) or self._no_level(level)
        if several := self._several(
            key if equals else parts[0], [level] if equals else self.cells.tree.levels
        ):
            return several
        among = self._level(level).names if equals else tuple(self._every_name())
        where = (
            f"level '{level}' of these draws has no place" if equals else "no place of these draws is called"
        )
        guess = did_you_mean(key if equals else parts[0], among)
        return SpecError(
            f"{where} '{key if equals else parts[0]}'" + (f"; {guess}" if guess else ""),
            needed=f"a place or level of {self._held()}; for other places, draws that include them",
        )

    def _several(self, key: str, levels: Iterable[str]) -> SpecError | None:
        """Return the error for a name that several places share."""
        for level in levels:
            every = self._level(level)
            for names in self._other_names(every):
                whole = [every.names[k] for k, name in enumerate(names) if name == key]
                if len(whole) > 1:
                    shown = ", ".join(f"'{name}'" for name in whole[:4]) + (", ..." if len(whole) > 4 else "")
                    return SpecError(
                        f"'{key}' is the name of {len(whole)} places of level '{level}'",
                        needed=f"one of {shown}",
                    )
        return None

    def _unknown_value(self, part: str) -> SpecError | None:
        attribute, _, value = part.partition("=")
        known = {r.name: r.values for a in self.cells.attributes for r in a.views}
        if attribute in self._levels:
            return None
        if attribute in known:
            values, shown = known[attribute], ", ".join(known[attribute][:8])
            if value in values:
                return None
            guess = did_you_mean(value, values)
            return SpecError(
                f"'{attribute}' has no value '{value}'" + (f"; {guess}" if guess else ""),
                needed=f"one of {shown}" + (", ..." if len(values) > 8 else ""),
            )
        guess = did_you_mean(attribute, (*known, *self._levels))
        return SpecError(
            f"these draws are not by '{attribute}'" + (f"; {guess}" if guess else ""),
            needed=f"names of {self._held()}; for counts by '{attribute}', draws from a release that measured them",
        )

    def _no_level(self, level: str) -> SpecError:
        guess = did_you_mean(level, self._levels)
        return SpecError(
            f"these draws have no level '{level}'" + (f"; {guess}" if guess else ""),
            needed=f"one of {', '.join(self._levels)}",
            remedy=f"correct the name, or infer from a release with level '{level}', without --within (in Python within=)",
        )

    def _held(self) -> str:
        by = ", ".join(r.name for a in self.cells.attributes for r in a.views)
        first = self.cells.tree.label(self.cells.tree.levels[0], 0)
        return f"{' > '.join(self._levels)} within '{first}'" + (f" by {by}" if by else "")

    def _every_name(self) -> Iterator[str]:
        yield from self._levels
        for level in self._levels:
            every = self._level(level)
            yield from every.names
            for names in self._other_names(every):
                yield from names
