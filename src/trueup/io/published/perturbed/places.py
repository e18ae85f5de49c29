"""The level and the place of every row in a published table.

A row is of the finest level whose key it names. What stands for a key that it does not name is a blank, the table's label of
totals, or, of a code, a shorter code that others begin with (AT, AT1, AT11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files import Columns
from trueup.io.published.perturbed.columns import Texts, text_of
from trueup.model.geography import is_whole
from trueup.model.perturbed import PerturbedSpec, PublishedTable
from trueup.model.spec import Spec
from trueup.model.spec_table import Level
from trueup.model.tree import Tree


class TableRows(NamedTuple):
    """Rows of a published table, with the texts in its columns of places and each row's level.

    Attributes
    ----------
    part, columns
        The entry, and its columns.
    codes
        The columns of places, as text.
    level
        `(rows,)` the position of each row's level.
    """

    part: PublishedTable
    columns: Columns
    codes: dict[str, Texts]
    level: NDArray[np.int64]

    def among(self, keep: NDArray[np.bool_]) -> TableRows:
        """Return the rows that a mask selects."""
        columns, codes = (
            {name: texts[keep] for name, texts in each.items()} for each in (self.columns, self.codes)
        )
        return TableRows(self.part, columns, codes, self.level[keep])


def rows_by_level(
    spec: PerturbedSpec, part: PublishedTable, columns: Columns, tree: Tree | None
) -> TableRows:
    """Return the rows of a table with their levels, found by columns of places or by parent pointers."""
    last = [level.name for level in spec.levels].index(part.level)
    levels = spec.levels[1 : last + 1]
    codes = {name: text_of(columns[name]) for name in spec.key_columns(part.level)}
    if spec.parents is not None:
        return TableRows(part, columns, codes, _depths(spec, part, codes[spec.parents.id], tree))
    if part.ragged:
        codes = _each_its_own(part, codes)
    rows = len(next(iter(columns.values())))
    named = [_rows_of_level(part, levels, level, codes[str(level.column)]) for level in levels]
    depth, open_ = np.zeros(rows, np.int64), np.ones(rows, bool)
    for at, (level, here) in enumerate(zip(levels, named)):
        if (lost := np.flatnonzero(here & ~open_)).size:
            above = levels[at - 1]
            raise DataError(
                f"row {lost[0] + 1} of table '{part.name}' gives '{codes[str(level.column)][lost[0]]}' of level "
                f"'{level.name}', but no place of level '{above.name}' above it",
                needed="a place of each higher level in every row",
                remedy=f"write fill = true in the entry of '{part.name}' if a blank repeats the place above it; or ragged = "
                "true if the place lies in none",
            )
        open_ &= here
        depth += open_
    return TableRows(part, columns, codes, depth)


def _each_its_own(part: PublishedTable, codes: Mapping[str, Texts]) -> dict[str, Texts]:
    """Return the columns of places with missing keys replaced by those of the level above or below."""
    found = dict(codes)
    columns = list(codes)
    for upper, lower in reversed(list(pairwise(columns))):
        lacks = np.isin(found[upper], part.total_of(upper)) & ~np.isin(found[lower], part.total_of(lower))
        found[upper] = np.where(lacks, found[lower], found[upper])
    for upper, lower in pairwise(columns):
        summed = np.isin(found[lower], part.total_of(lower))
        alone = summed & ~np.isin(found[upper], (*part.total_of(upper), *found[upper][~summed]))
        found[lower] = np.where(alone, found[upper], found[lower])
    return found


def _depths(spec: PerturbedSpec, part: PublishedTable, ids: Texts, tree: Tree | None) -> NDArray[np.int64]:
    """Return the level of each row's place, from the tree of parent pointers."""
    if tree is None:
        raise DataError(
            "`parents` in the spec says that a list gives the places, but no list is given",
            remedy="give the list with the columns that `parents` names: --geography FILE",
        )
    last = [level.name for level in spec.levels].index(part.level)
    depth = {id_: at for at in range(last + 1) for id_ in tree.keys[at]["id"].tolist()}
    totals = part.total_of(str(spec.parents and spec.parents.id))
    if both := [label for label in totals if depth.get(label)]:
        raise DataError(
            f"'{both[0]}' is a total in table '{part.name}', but the list of places has it as a place below "
            f"'{tree.keys[0]['id'][0]}'",
            needed="either a total or a place",
            remedy=f"leave '{both[0]}' out of the list of places; or, if it is a place like the others, leave `total` out of "
            f"the entry of table '{part.name}'",
        )
    depth |= dict.fromkeys(totals, 0)
    for row, id_ in enumerate(ids.tolist()):
        if id_ not in depth:
            raise DataError(
                f"row {row + 1} of table '{part.name}' names the place '{ids[row]}', which is not a place of level "
                f"'{part.level}' or above",
                needed="places in the list of places, of the level that the entry names or of a higher one",
            )
    return np.array([depth[id_] for id_ in ids.tolist()], np.int64)


def _rows_of_level(
    part: PublishedTable, levels: Sequence[Level], level: Level, texts: Texts
) -> NDArray[np.bool_]:
    """Return a mask of the rows that name a place of the given level."""
    column = str(level.column)
    present = ~np.isin(texts, part.total_of(column))
    shared = [each for each in levels if each.column == level.column]
    if not any(each.prefix for each in shared):
        return present
    codes = np.unique(texts[present])
    longer = np.array([b.startswith(a) for a, b in zip(codes.tolist(), [*codes[1:].tolist(), ""])], bool)
    lengths = np.char.str_len(codes) if len(codes) else np.zeros(0, np.int64)
    if level.prefix:
        enough = (lengths >= level.prefix) | (~longer & part.ragged)
        if (short := codes[~enough & ~longer]).size:
            raise DataError(
                f"column '{column}' of table '{part.name}' holds '{short[0]}', shorter than the {level.prefix} characters of "
                f"level '{level.name}', and no other code begins with it",
                needed="full codes with their leading zeros",
                remedy="if such a place has no parts, write in the entry: ragged = true",
            )
    else:
        above = [each.prefix for each in shared if each.prefix]
        enough = ~(longer & (lengths <= max(above)))
    if (
        level is shared[0]
        and (root := codes[~enough]).size
        and (other := [c for c in codes.tolist() if not c.startswith(root[0])])
    ):
        raise DataError(
            f"column '{column}' of table '{part.name}' holds '{root[0]}', shorter than the codes of level "
            f"'{level.name}', but the code '{other[0]}' does not begin with it",
            needed="one short code with which all others begin, or only full codes",
            remedy=f"declare a level for the short codes, of the first {len(root[0])} characters of '{column}'",
        )
    return present & np.isin(texts, codes[enough])


def tree_of_rows(spec: PerturbedSpec, tables: Sequence[TableRows]) -> Tree:
    """Return the tree of places that the rows of the last level name."""
    last = len(spec.levels) - 1
    finest = [t for t in tables if spec.levels[last].name == t.part.level]
    if not finest:
        raise DataError(
            f"no table has rows of the last level '{spec.levels[-1].name}', so that its places are not known",
            remedy="leave the level out of the spec, or give the list of its places: --geography FILE",
        )
    names = [level.name for level in spec.levels]
    columns = list(dict.fromkeys(str(level.column) for level in spec.levels[1:]))
    if not columns:
        return Tree.from_columns(names, [{}])
    listed = [np.array([t.codes[name][t.level == last] for name in columns]) for t in finest]
    listed += [
        _without_parts(table, columns, listed)
        for table in tables
        if table.part.ragged and table not in finest
    ]
    places = np.unique(np.concatenate(listed, axis=1), axis=1)
    if not places.size:
        shown = finest[0].part.name
        raise DataError(
            f"no row of table '{shown}' names a place of level '{spec.levels[-1].name}'",
            needed=f"keys of such places in the columns {', '.join(columns)}",
            remedy=f"leave out level '{spec.levels[-1].name}', or correct the columns or `level` in the entry of '{shown}'",
        )
    held = dict(zip(columns, places))
    return Tree.from_columns(
        names,
        [_keys_of(level, held) for level in spec.levels],
        whole_code=[level.prefix is not None or is_whole(cast(Spec, spec), level) for level in spec.levels],
    )


def _without_parts(table: TableRows, columns: Sequence[str], listed: Sequence[Texts]) -> Texts:
    """Return the keys `(columns, places)` of places that have no parts in any table."""
    own = [name for name in columns if name in table.codes]
    rows = table.level == table.level.max()
    keys = np.array([table.codes[name][rows] for name in own])
    known = {key[: len(own)] for part in listed for key in zip(*part.tolist())}
    alone = [at for at, key in enumerate(zip(*keys.tolist())) if key not in known]
    return np.concatenate([keys, np.repeat(keys[-1:], len(columns) - len(own), axis=0)])[:, alone]


def _keys_of(level: Level, codes: dict[str, Any]) -> dict[str, Texts]:
    """Return the keys that a level adds, which are the texts of a column or prefixes of them."""
    if level.column is None:
        return {}
    text = codes[level.column]
    return {level.column: text} if level.prefix is None else {level.name: text.astype(f"U{level.prefix}")}


def place_index(
    spec: PerturbedSpec, tree: Tree, table: TableRows, at: int, rows: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return the place `(rows,)` of each selected row, as a position within its level."""
    keys = tree.keys[at]
    if not at or not keys:
        return np.zeros(int(rows.sum()), np.int64)
    codes = {name: texts[rows] for name, texts in table.codes.items()}
    own = {name: column for level in spec.levels[: at + 1] for name, column in _keys_of(level, codes).items()}
    if spec.parents is not None:
        own = {"id": codes[spec.parents.id]}
    given = [own[name].tolist() for name in keys]
    known = {key: i for i, key in enumerate(zip(*(column.tolist() for column in keys.values())))}
    found = np.array([known.get(key, -1) for key in zip(*given)], dtype=np.int64)
    if (lost := np.flatnonzero(found < 0)).size:
        shown = "/".join(column[lost[0]] for column in given)
        raise DataError(
            f"row {np.flatnonzero(rows)[lost[0]] + 1} of table '{table.part.name}' names the place '{shown}', which is no "
            f"place of level '{spec.levels[at].name}'",
            needed="places in the list of places or, without one, in the tables of the last level",
            remedy=f"where it is the sum of all places, say so in the entry of '{table.part.name}': "
            f'total = {{ "{spec.levels[at].column}" = "{given[-1][lost[0]]}" }}; where it has no parts: ragged = true'
            if at < len(spec.levels) - 1 and not spec.parents
            else "",
        )
    return found
