"""Parquet tables of a bundle: measurements, released counts, and values that others published.

A file of measurements has one row for each place and query, with the list of its values in the order of the margin's
groups, as the noisy-measurement files of the 2020 census have. A table of counts has a row for each cell that it lists,
under its keys; a cell of the public domain that it does not list is zero.

Measurements are of all groups of a margin, and whole; published values are of some, and may be fractions.
`public/published.parquet` holds them, one row a value.

One file: every table below `public/` is written and read in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.files.database import TEXTS_AT_ONCE, connect_to_files, parquet, quiet_duckdb, quoted
from trueup.files.values import as_text
from trueup.files.writing import write_parquet
from trueup.io.bundle.manifest import header_in
from trueup.io.bundle.strict import columns_of, damaged_bundle, read_typed, refuse_untyped
from trueup.model.cells import Cells, Margin
from trueup.model.header import Measured
from trueup.model.spec_queries import LeftOutPart
from trueup.model.tables import place_keys
from trueup.model.tree import Tree


def write_measured(
    path: Path,
    cells: Cells,
    headers: Sequence[Measured],
    values: Sequence[NDArray[np.int64]],
    connection: Any = None,
    *,
    left_out: int | None = None,
) -> None:
    """Write measurements to a Parquet file, ordered by measured margin and then by place.

    Raises
    ------
    BundleError
        If the disk refuses.
    """
    sizes = [np.diff(place_edges(cells, h)) for h in headers]
    texts = {h.margin.level: labels(cells.tree, h.margin.level) for h in headers}
    columns = {
        "level": [np.full(size.size, h.margin.level, dtype=object) for h, size in zip(headers, sizes)],
        "place": [texts[h.margin.level] for h in headers],
        "query": [np.full(size.size, query_label(h), dtype=object) for h, size in zip(headers, sizes)],
        "exact": [np.full(size.size, h.exact) for h, size in zip(headers, sizes)],
    }
    if left_out is not None:  # of no level and no place
        sizes, values = [*sizes, np.ones(1, np.int64)], [*values, np.array([left_out])]
        for name, value in (("level", ""), ("place", ""), ("query", LeftOutPart.name), ("exact", False)):
            columns[name] = [*columns[name], np.array([value], dtype=bool if name == "exact" else object)]
    if all((size == 1).all() for size in sizes):  # DuckDB makes millions of lists of one faster than Python
        columns["value"], select = list(values), "* REPLACE ([value] AS value)"
    else:
        columns["value"], select = [_lists(v, size) for v, size in zip(values, sizes, strict=True)], "*"
    whole = {name: np.concatenate(parts) for name, parts in columns.items()}
    write_parquet(path, whole, connection, select=select)


def place_edges(cells: Cells, header: Measured) -> NDArray[np.int64]:
    """Return the positions `(places + 1,)` that divide the values of a measured margin by place."""
    places = cells.margin_shape(header.margin)[0]
    each = cells.size(header.margin) // places
    every = np.arange(places + 1) * each
    return every if header.groups is None else np.searchsorted(header.groups, every)


def query_label(header: Measured) -> str:
    """Return the name of a measured margin in a file: its query and, for an invariant, its margin."""
    return (
        header.query
        if not header.exact
        else f"{header.query}{str(header.margin)[len(header.margin.level) :]}"
    )


def _lists(values: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray:
    """Split values into one array for each place, of 32-bit integers if all values fit."""
    small = np.abs(values).max(initial=0) < 2**31
    rows = np.empty(sizes.size, dtype=object)
    held, edges = values.astype(np.int32) if small else values, [0, *np.cumsum(sizes).tolist()]
    rows[:] = [held[a:b] for a, b in pairwise(edges)]  # many times faster than `numpy.split`
    return rows


def read_measured(
    path: Path, cells: Cells, headers: Sequence[Measured], connection: Any = None
) -> tuple[NDArray[np.int64], ...]:
    """Return the measurements in one file as one vector for each measured margin."""
    import duckdb

    with connection.cursor() if connection else connect_to_files([path], threads=1) as reader:
        try:
            rows = reader.execute(
                f"SELECT unnest(value)::BIGINT AS value FROM {parquet([path])} WHERE level <> ''"
            )
            flat = rows.fetchnumpy()["value"]
        except duckdb.Error:
            raise damaged_bundle(f"'{path.name}' cannot be read: it is truncated or damaged") from None
    sizes = [cells.size(h.margin) if h.groups is None else len(h.groups) for h in headers]
    if flat.size != sum(sizes):
        raise damaged_bundle(
            f"'{path.name}' holds {flat.size} values instead of {sum(sizes)}: it is incomplete or was changed",
            needed="the files as trueup wrote them",
        )
    return tuple(np.split(flat, np.cumsum(sizes)[:-1]))


def read_values(
    connection: Any, files: str, cells: Cells, headers: Sequence[Measured]
) -> list[NDArray[np.int64]]:
    """Return the values of every measured margin, in the order of places, from all files of measurements.

    Raises
    ------
    BundleError
        If the files do not list every place once, in order, with its values.
    """
    found: dict[int, NDArray[np.int64]] = {}
    for level in dict.fromkeys(h.margin.level for h in headers):
        found |= _values_of_level(connection, files, cells, level, headers)
    return [found[i] for i in range(len(headers))]


def _values_of_level(
    connection: Any, files: str, cells: Cells, level: str, headers: Sequence[Measured]
) -> dict[int, NDArray[np.int64]]:
    """Return the values of each measured margin of a level, by the margin's position among all."""
    given = {i: query_label(h) for i, h in enumerate(headers) if h.margin.level == level}
    asked = [level, [*given.values()]]
    rows = f"FROM {files} WHERE level = $1 AND list_contains($2, query)"
    which = f"SELECT list_position($2, query) - 1 AS query, len(value) AS size {rows}"
    listed = connection.execute(which, asked).fetchnumpy()
    # A part lists header after header, its places in order.
    order = np.argsort(listed["query"], kind="stable")
    expected = [np.diff(place_edges(cells, headers[i])) for i in given]
    as_expected = np.array_equal(listed["size"][order], np.concatenate(expected))
    if not as_expected or not _lists_places_in_order(
        connection.execute(f"SELECT place {rows}", asked), cells.tree, level, order
    ):
        raise damaged_bundle(f"the measurements do not list the places of level '{level}' in order")
    flat = connection.execute(f"SELECT unnest(value)::BIGINT AS value {rows}", asked).fetchnumpy()["value"]
    if (np.diff(listed["query"]) < 0).any():
        flat = flat[np.argsort(np.repeat(listed["query"], listed["size"]), kind="stable")]
    return dict(zip(given, np.split(flat, np.cumsum([sizes.sum() for sizes in expected])[:-1]), strict=True))


def _lists_places_in_order(listed: Any, tree: Tree, level: str, order: NDArray[np.int64]) -> bool:
    """Return True if the sorted rows list all places of a level in order, once or several times."""
    expected, begun = np.empty(len(order), np.int64), 0
    expected[order] = np.arange(len(order)) % tree.sizes[tree.level(level)]
    while rows := listed.fetchmany(TEXTS_AT_ONCE):
        texts, own = as_text([text for (text,) in rows]), expected[begun : begun + len(rows)]
        if not np.array_equal(texts, labels(tree, level, own)):
            return False
        begun += len(rows)
    return begun == len(order)


def write_counts(
    path: Path,
    cells: Cells,
    level: str,
    place: NDArray,
    cell: NDArray,
    count: NDArray[np.int64],
    connection: Any = None,
) -> None:
    """Write the nonzero counts of one level, each with the position of its place and of its cell.

    Raises
    ------
    BundleError
        If the disk refuses.
    """
    texts = place_keys(cells.tree, cells.tree.level(level))
    keys = {name: column.astype(object)[place] for name, column in texts.items()}
    attributes = np.unravel_index(cell, cells.shape[1:]) if cells.attributes else ()
    indexed = zip(cells.attributes, attributes, strict=True)
    values = {a.name: np.array(a.values, dtype=object)[at] for a, at in indexed}
    write_parquet(path, keys | values | {"count": count}, connection)


def read_left_out(connection: Any, files: str) -> int:
    """Return the noisy number of records that the limit on each unit's records excluded."""
    rows = connection.execute(f"SELECT value[1]::BIGINT FROM {files} WHERE level = ''").fetchall()
    if len(rows) != 1:
        raise damaged_bundle("the measurements do not state exactly once how many records were left out")
    return int(rows[0][0])


def read_counted(
    connection: Any, files: Sequence[Path], cells: Cells, margin: Margin
) -> tuple[NDArray, NDArray | None]:
    """Return the counts `(groups,)` of a released table, and its standard errors or None."""
    level, size = cells.tree.level(margin.level), cells.size(margin)
    keys = place_keys(cells.tree, level)
    texts = {name: column.astype(object) for name, column in keys.items()}
    connection.register("given_places", {**texts, "trueup_place": np.arange(cells.tree.sizes[level])})
    joins, position = [f"given_places USING ({', '.join(map(quoted, keys))})"], "trueup_place"
    for k, recode in enumerate(cells.kept(margin)):
        name, at = f"given_{k}", f"trueup_at_{k}"
        connection.register(name, {recode.name: np.array(recode.values), at: np.arange(recode.size)})
        joins.append(f"{name} USING ({quoted(recode.name)})")
        position = f"({position}) * {recode.size} + {at}"
    source = parquet(files)
    held = columns_of(connection, files)
    kinds = dict.fromkeys([*keys, *(recode.name for recode in cells.kept(margin))], "text") | {
        "count": "number"
    }
    kinds |= {"standard_error": "number"} if "standard_error" in held else {}
    refuse_untyped(connection, files, kinds, size)
    with quiet_duckdb(f"the table of '{margin}'"):
        more = ", standard_error" if "standard_error" in held else ""
        query = (
            f"SELECT {position} AS position, count{more} FROM {source} LEFT JOIN {' LEFT JOIN '.join(joins)}"
        )
        rows = connection.execute(query).fetchnumpy()
    position = rows["position"]
    listed = np.zeros(size, bool)
    if not np.ma.is_masked(position):
        listed[np.asarray(position)] = True
    if listed.sum() != len(position):
        raise damaged_bundle(
            f"the table of '{margin}' lists "
            f"{'a group that it does not have' if np.ma.is_masked(position) else 'a group twice'}",
            needed=f"each group of '{margin}' once",
        )
    return tuple(
        _placed(np.asarray(position), rows[name], size) if name in rows else None
        for name in ("count", "standard_error")
    )  # pyright: ignore[reportReturnType]


def _placed(position: NDArray, values: NDArray, size: int) -> NDArray:
    table = np.zeros(size, dtype=values.dtype)
    table[position] = values
    return table


def labels(tree: Tree, level: str, places: slice | NDArray[np.int64] = slice(None)) -> NDArray:
    """Return a unique text for each place of a level: its keys as a JSON pointer (RFC 6901).

    Examples
    --------
    >>> tree = Tree.from_columns(["all", "area"], [{}, {"state": ["1", "1/2"], "area": ["2/3", "3"]}])
    >>> labels(tree, "area").tolist(), labels(tree, "all").tolist()
    (['1/2~13', '1~12/3'], ['all'])
    """
    at = tree.level(level)
    columns = [column[places] for column in tree.keys[at].values()] if tree.keys else []
    if not columns:
        return np.array(tree.labels(level))[places]
    if any(column.dtype == object for column in columns):
        return as_text(
            ["/".join(k.replace("~", "~0").replace("/", "~1") for k in key) for key in zip(*columns)]
        )
    text = _escaped(columns[0])
    for column in columns[1:]:
        text = np.char.add(np.char.add(text, "/"), _escaped(column))
    return text


def label_sql(columns: Sequence[str]) -> str:
    """Return a DuckDB expression that makes the text of `labels` from the key columns of a place."""
    return " || '/' || ".join(f"replace(replace({quoted(c)}, '~', '~0'), '/', '~1')" for c in columns)


def _escaped(keys: NDArray) -> NDArray:
    """Return keys in which `~0` replaces each tilde and `~1` each slash."""
    letters = np.ascontiguousarray(keys).view(np.uint32)
    if not ((letters == ord("~")) | (letters == ord("/"))).any():
        return keys
    for plain, escape in (("~", "~0"), ("/", "~1")):
        # NumPy cuts a Python text to the width of the keys: texts of its own keep theirs.
        keys = np.char.replace(keys, np.str_(plain), np.str_(escape))
    return keys


PUBLISHED = "published.parquet"
LARGEST = 2.0**63 - 2.0**10
"""Largest published value: the largest double that a 64-bit integer can hold."""


def write_published(
    public: Path, cells: Cells, headers: Sequence[Measured], values: Sequence[NDArray], connection: Any
) -> None:
    """Write values published by others to `published.parquet`, with one row for each value."""
    groups = [np.arange(cells.size(h.margin)) if h.groups is None else h.groups for h in headers]
    columns = {
        "header": np.repeat(np.arange(len(headers)), [len(each) for each in groups]),
        "group": np.concatenate(groups),
        "value": np.concatenate([np.asarray(each, np.float64) for each in values]),
    }
    write_parquet(public / PUBLISHED, columns, connection)


def read_published(
    public: Path, cells: Cells, manifest: Mapping[str, Any]
) -> tuple[list[Measured], list[NDArray]]:
    """Read the values of published tables, and refuse a value that its noise law cannot produce."""
    stated = [header_in(entry) for entry in manifest["headers"]]
    most = sum(cells.size(header.margin) for header in stated)
    rows = read_typed(public / PUBLISHED, {"header": "whole", "group": "whole", "value": "number"}, most)
    headers, found = [], []
    for k, header in enumerate(stated):
        here = rows["header"] == k
        groups = np.asarray(rows["group"][here], np.int64)
        size = cells.size(header.margin)
        if not len(groups) or groups.min() < 0 or groups.max() >= size or (np.diff(groups) <= 0).any():
            raise damaged_bundle(f"'{PUBLISHED}' does not hold the values of '{header.query}'")
        values = np.asarray(rows["value"][here], np.float64)
        if not (np.abs(values) <= LARGEST).all() or (header.law.discrete and (values % 1).any()):
            raise damaged_bundle(
                f"'{PUBLISHED}' holds a value of '{header.query}' that its noise cannot produce"
            )
        headers.append(
            Measured(header.query, header.margin, header.law, None if len(groups) == size else groups)
        )
        found.append(values.astype(np.int64) if header.law.discrete else values)
    return headers, found
