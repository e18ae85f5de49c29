"""Read a bundle by blocks whole, where memory holds it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import BundleError
from trueup.files.source import connect, parquet, quiet_duckdb, quoted
from trueup.io.bundle.manifest import guarantee_in, header_in, read_spec
from trueup.io.bundle.part_tables import labels, query_label
from trueup.io.bundle.places import read_places
from trueup.model.build import build_cells
from trueup.model.cells import Cells, Margin
from trueup.model.records.measurements import Measurements
from trueup.model.tables import place_keys

LARGEST = 200_000_000
"""More cells than this are not read whole."""


def read_part_measurements(folder: Path, manifest: Mapping[str, Any]) -> Measurements:
    """Read the measurements of a bundle by blocks.

    Their digest is that of their values in this order; the manifest states that of the parts.

    Raises
    ------
    BundleError
        If they are too many to be held at once, or a part does not list its places.
    """
    spec = read_spec(folder)[1]
    cells = build_cells(spec, read_places(folder / "public" / "places.parquet", spec))
    refuse_large(folder, cells)
    headers = tuple(header_in(entry) for entry in manifest["headers"])
    parts = parquet(folder / "public" / "measurements" / f"part-{name}.parquet" for name in manifest["parts"])
    # One thread keeps the rows in order.
    with connect(folders=[folder / "public"], threads=1) as connection, quiet_duckdb(f"'{folder}'"):
        values = tuple(_values(connection, parts, cells, header) for header in headers)
    return Measurements(cells, headers, values, guarantee_in(manifest["guarantee"]), spec=spec)


def _values(connection: Any, parts: str, cells: Cells, header: Any) -> NDArray[np.int64]:
    rows = f"FROM {parts} WHERE level = $1 AND query = $2"
    given = [header.margin.level, query_label(header)]
    places = connection.execute(f"SELECT place {rows}", given).fetchnumpy()["place"]
    if not np.array_equal(places.astype(str), labels(cells.tree, header.margin.level)):
        raise BundleError(
            f"the measurements do not list the places of level '{header.margin.level}' in order"
        )
    return connection.execute(f"SELECT unnest(value)::BIGINT AS value {rows}", given).fetchnumpy()["value"]


def read_part_counts(
    folder: Path, manifest: Mapping[str, Any], cells: Cells
) -> dict[Margin, NDArray[np.int64]]:
    """Read the histogram of every level, its zeros filled in."""
    refuse_large(folder, cells)
    with connect(folders=[folder / "public"]) as connection, quiet_duckdb(f"'{folder}'"):
        return {
            Margin(entry["level"], tuple(entry["attributes"])): _table(connection, folder, entry, cells)
            for entry in manifest["counts"]
        }


def _table(connection: Any, folder: Path, entry: Mapping[str, Any], cells: Cells) -> NDArray[np.int64]:
    level = cells.tree.level(entry["level"])
    keys = place_keys(cells.tree, level)
    connection.register("given_places", {**keys, "at place": np.arange(cells.tree.sizes[level])})
    tables, position = [f"given_places USING ({', '.join(map(quoted, keys))})"], quoted("at place")
    for attribute in cells.attributes:
        name, at = f"given {attribute.name}", f"at {attribute.name}"
        connection.register(name, {attribute.name: np.array(attribute.values), at: np.arange(attribute.size)})
        tables.append(f"{quoted(name)} USING ({quoted(attribute.name)})")
        position = f"({position}) * {attribute.size} + {quoted(at)}"
    files = parquet(sorted((folder / "public").glob(entry["files"])))
    query = f"SELECT {position} AS position, count FROM {files} JOIN {' JOIN '.join(tables)}"
    rows = connection.execute(query).fetchnumpy()
    table = np.zeros(cells.tree.sizes[level] * (cells.n // cells.shape[0]), dtype=np.int64)
    table[rows["position"]] = rows["count"]
    return table


def refuse_large(folder: Path, cells: Cells) -> None:
    """Refuse a bundle of more cells than memory should hold at once.

    Raises
    ------
    BundleError
        Saying how to read it in parts.
    """
    if cells.n > LARGEST:
        raise BundleError(
            f"'{folder}' holds {cells.n:,} finest counts, too many to be read at once",
            needed=f"at most {LARGEST:,}",
            remedy="read the places you need from public/counts/LEVEL/*.parquet, with DuckDB or any reader of Parquet; "
            "counts that are not listed are zero",
        )
