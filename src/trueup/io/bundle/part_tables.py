"""Parquet tables of bundles by blocks: one file holds many places of one part of a country.

A file of measurements has one row for each place and query, with the list of its values in the order of the margin's
groups, as the noisy-measurement files of the 2020 census have. A file of counts lists the cells that are not zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import BundleError
from trueup.files.columns import write_parquet
from trueup.files.source import connect, parquet, quoted
from trueup.model.cells import Cells
from trueup.model.header import Measured
from trueup.model.tables import place_keys
from trueup.model.tree import Tree


def write_measured(
    path: Path, cells: Cells, headers: Sequence[Measured], values: Sequence[NDArray[np.int64]]
) -> None:
    """Write the measurements of a bundle, header after header, places in their order.

    Raises
    ------
    BundleError
        If the disk refuses.
    """
    rows: dict[str, list[NDArray]] = {name: [] for name in ("level", "place", "query", "exact", "value")}
    for header, measured in zip(headers, values, strict=True):
        level = header.margin.level
        places = cells.tree.sizes[cells.tree.level(level)]
        rows["level"].append(np.full(places, level))
        rows["place"].append(labels(cells.tree, level))
        rows["query"].append(np.full(places, query_label(header)))
        rows["exact"].append(np.full(places, header.exact))
        rows["value"].append(_lists(measured.reshape(places, -1)))
    write_parquet(path, {name: np.concatenate(parts) for name, parts in rows.items()})


def query_label(header: Measured) -> str:
    """The name of a header's query in a file of measurements: an invariant is told from others by its margin."""
    return header.query if not header.exact else " x ".join((header.query, *header.margin.attributes))


def _lists(table: NDArray[np.int64]) -> NDArray:
    """One array object a row, in the smallest integers that hold them all."""
    small = np.abs(table).max(initial=0) < 2**31
    rows = np.empty(len(table), dtype=object)
    rows[:] = list(table.astype(np.int32) if small else table)
    return rows


def read_measured(path: Path, cells: Cells, headers: Sequence[Measured]) -> tuple[NDArray[np.int64], ...]:
    """Read the measurements of a bundle, one vector for each header as `Measurements.values` holds them.

    Raises
    ------
    BundleError
        If the file does not hold what the headers announce.
    """
    with connect(files=[path], threads=1) as connection:
        query = f"SELECT unnest(value)::BIGINT AS value FROM {parquet([path])}"
        flat = _fetched(connection, query, path)["value"]
    sizes = [cells.size(h.margin) for h in headers]
    if flat.size != sum(sizes):
        raise BundleError(f"'{path.name}' does not hold the measurements of its places")
    return tuple(np.split(flat, np.cumsum(sizes)[:-1]))


def write_counts(
    path: Path, cells: Cells, level: str, place: NDArray, cell: NDArray, count: NDArray[np.int64]
) -> None:
    """Write the histograms of a level, cells that are not zero alone: `place` and `cell` say which.

    Raises
    ------
    BundleError
        If the disk refuses.
    """
    keys = {name: column[place] for name, column in place_keys(cells.tree, cells.tree.level(level)).items()}
    attributes = np.unravel_index(cell, cells.shape[1:]) if cells.attributes else ()
    values = {a.name: np.array(a.values)[at] for a, at in zip(cells.attributes, attributes, strict=True)}
    write_parquet(path, keys | values | {"count": count})


def labels(tree: Tree, level: str) -> NDArray:
    """The key of every place of a level as one text: a JSON pointer (RFC 6901), so that no two places share one.

    Examples
    --------
    >>> tree = Tree.from_columns(["all", "area"], [{}, {"state": ["1", "1/2"], "area": ["2/3", "3"]}])
    >>> labels(tree, "area").tolist(), labels(tree, "all").tolist()
    (['1/2~13', '1~12/3'], ['all'])
    """
    at = tree.level(level)
    columns = list(tree.keys[at].values()) if tree.keys and tree.keys[at] else []
    if not columns:
        return np.array([tree.label(level, place) for place in range(tree.sizes[at])])
    text = _escaped(columns[0])
    for column in columns[1:]:
        text = np.char.add(np.char.add(text, "/"), _escaped(column))
    return text


def label_sql(columns: Sequence[str]) -> str:
    """The same text of key columns as an expression of DuckDB."""
    return " || '/' || ".join(f"replace(replace({quoted(c)}, '~', '~0'), '/', '~1')" for c in columns)


def _escaped(keys: NDArray) -> NDArray:
    """Keys without a slash: `~1` stands for one, and `~0` for the tilde."""
    for plain, escape in (("~", "~0"), ("/", "~1")):
        # NumPy cuts a Python text to the width of the keys: texts of its own keep theirs.
        keys = np.char.replace(keys, np.str_(plain), np.str_(escape))
    return keys


def _fetched(connection: Any, query: str, path: Path) -> Mapping[str, NDArray]:
    import duckdb

    try:
        return connection.execute(query).fetchnumpy()
    except duckdb.Error:
        raise BundleError(f"'{path.name}' cannot be read: it is truncated or damaged") from None
