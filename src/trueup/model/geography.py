"""The public list of places, read into a Tree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files import Columns, select
from trueup.files.source import open_table
from trueup.files.values import as_text, public_numbers, whole_limits, without_blanks
from trueup.model.spec import Spec
from trueup.model.spec_table import Level, Parents
from trueup.model.tree import Tree


def read_tree(spec: Spec, source: Any) -> Tree:
    """Return the tree of places that a spec describes, read from the public list.

    Parameters
    ----------
    spec
        Names the levels and their columns.
    source
        The geography file (or the table itself, where the spec declares its keys public): a row
        for each place of the last level, or for each place when the spec gives parent pointers.

    Examples
    --------
    >>> import pandas
    >>> from trueup.model.spec import parse_spec
    >>> spec = parse_spec('''
    ... format = 2
    ... title = "Blocks"
    ... table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
    ... privacy = { unit = "person", neighbours = "add-remove" }
    ... level = [{ name = "state" }, { name = "county", column = "GEOID", prefix = 3 }, { name = "block", column = "GEOID" }]
    ... query = [{ name = "total", levels = ["block"], epsilon = 1 }]
    ... ''')
    >>> read_tree(spec, pandas.DataFrame({"GEOID": ["0011", "0012", "0021"]})).sizes
    (1, 2, 3)
    """
    limited = sorted({column for columns in spec.limit_columns for column in columns})
    if spec.parents is not None:
        return _from_parents(
            spec, spec.parents, select(open_table(source), [spec.parents.id, spec.parents.parent, *limited])
        )
    columns = [c for level in spec.levels for c in (level.column, level.label) if c]
    table = open_table(source) if columns else None
    given = select(table, [*columns, *limited]) if table else {}
    limits = {name: _numbers(spec, given[name], name) for name in limited}
    if columns and not len(given[columns[0]]):
        raise DataError("the list of places has a header but no rows", needed="a row for each place")
    for name in dict.fromkeys(columns):
        refuse_fractional_keys(given[name], name)
    rows = {name: without_blanks(as_text(given.pop(name))) for name in dict.fromkeys(columns)}
    if rows and spec.table.keys == "public" and spec.table.in_rows(spec.attributes):
        first = _distinct_places(rows, limits)
        rows, limits = ({name: col[first] for name, col in held.items()} for held in (rows, limits))
    return Tree.from_columns(
        [level.name for level in spec.levels],
        [key_columns(level, rows) for level in spec.levels],
        whole_code=[level.prefix is not None or is_whole(spec, level) for level in spec.levels],
        names=[None if level.label is None else rows[level.label] for level in spec.levels],
        limits=[{name: limits[name] for name in columns} for columns in spec.limit_columns],
        where=lambda at: table.row(at + 1) if table else f"row {at + 1}",
    )


def _from_parents(spec: Spec, pointers: Parents, rows: Columns) -> Tree:
    """Return the tree of places given by parent pointers."""
    ids, parents = (without_blanks(as_text(rows[name])) for name in (pointers.id, pointers.parent))
    if not any(spec.limit_columns):
        pairs = list(dict.fromkeys(zip(ids.tolist(), parents.tolist())))
        ids, parents = (np.array(each, dtype=object) for each in zip(*pairs)) if pairs else (ids, parents)
    tree = Tree.from_parents(ids, parents, [level.name for level in spec.levels])
    order = np.argsort(ids)
    at = [order[np.searchsorted(ids, keys["id"], sorter=order)] for keys in tree.keys]
    return replace(
        tree,
        limits=tuple(
            {name: _numbers(spec, rows[name], name)[place] for name in columns}
            for columns, place in zip(spec.limit_columns, at)
        ),
    )


def _numbers(spec: Spec, values: NDArray, name: str) -> NDArray:
    """Read a public column of numbers: whole limits, or any numbers if only a prior reads the column."""
    return (public_numbers if name in spec.fractional_columns else whole_limits)(values, name)


def is_whole(spec: Spec, level: Level) -> bool:
    """Return True if a level has the full code of which a higher level's code is a prefix."""
    return level.column is not None and any(
        other.prefix is not None and other.column == level.column for other in spec.levels
    )


def key_columns(level: Level, rows: Columns) -> Columns:
    """Return the key column that a level adds, by its name in published tables: the level's column, or a prefix of it.

    Raises
    ------
    DataError
        If a code is shorter than the prefix.
    """
    if level.column is None:
        return {}
    if level.prefix is None:
        return {level.key: rows[level.column]}
    return {level.key: _prefix(rows[level.column], level)}


def refuse_fractional_keys(column: NDArray, name: str) -> None:
    """Refuse keys of places that are numbers with a fraction, of which the text may differ from that in the table."""
    if column.dtype.kind == "f" and (column[np.isfinite(column)] % 1).any():
        raise DataError(
            f"column '{name}' holds numbers with a fraction, but keys of places are text",
            needed="text, with leading zeros, or whole numbers",
            remedy=f"read the column as text, for example with pandas.read_csv(..., dtype={{'{name}': str}})",
        )


def _prefix(codes: NDArray, level: Level) -> NDArray:
    text = as_text(codes)
    assert level.prefix is not None
    lengths = np.char.str_len(text) if text.dtype != object else np.array(list(map(len, text)))
    short = lengths < level.prefix
    if short.any():  # no row number: rows that were counted together have none
        raise DataError(
            f"column '{level.column}' holds '{text[short][0]}', shorter than the {level.prefix} characters of "
            f"level '{level.name}'",
            needed="full codes with their leading zeros",
        )
    if text.dtype == object:
        return np.array([code[: level.prefix] for code in text.tolist()])
    return text.astype(f"U{level.prefix}")


def _distinct_places(rows: Columns, limits: Columns) -> NDArray[np.int64]:
    """Return the number of one row for each place of a long table."""
    held = [*rows.values(), *limits.values()]
    codes = [np.unique(column, return_inverse=True)[1] for column in held]
    return np.unique(np.rec.fromarrays(codes), return_index=True)[1]
