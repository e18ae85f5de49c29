"""Sums of released counts over areas outside the hierarchy, such as school districts or watersheds.

One file: the mapping of places to areas is read for nothing but these sums.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trueup.errors import BundleError, DataError, SpecError
from trueup.files import Source, require
from trueup.files.database import Relation, connect, literal, parquet, quiet_duckdb, quoted
from trueup.files.memory import parse_memory
from trueup.files.source import files_read, open_table
from trueup.files.target import refuse_file
from trueup.files.writing import writing
from trueup.io.bundle.manifest import listed, read_manifest, read_spec, refuse_altered
from trueup.io.microdata.sql import text_sql
from trueup.model.build import build_cells
from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.place_keys import lost_zeros
from trueup.model.records.expected_errors import ErrorClass, ExpectedErrors
from trueup.model.spec import Spec
from trueup.model.tree import Tree

THE_AREA = quoted("the area")
"""Name of the column of areas in SQL; no key column has this name."""


def refuse_taken_area_name(column: str, taken: list[str]) -> None:
    """Refuse a name for the column of areas if the release already has a column of that name."""
    if column.casefold() in [name.casefold() for name in taken]:
        raise DataError(
            f"the areas are named '{column}', but the released tables have a column of that name",
            remedy="give the areas another name: --areas NAME=FILE",
        )


def register_areas(connection: Any, mapping: Any, column: str, keys: list[str], level: str) -> list[str]:
    """Register a checked list of areas as the SQL table `areas`, and return its key columns of places."""
    table = open_table(mapping, connection)
    keys = _telling_keys(connection, keys, table.columns())
    require(table, [column, *keys])
    if isinstance(table, Relation) and isinstance(mapping, str | Path):
        rows = table
    else:
        rows = _brought(connection, table, [column, *keys])
    rows.relation.create_view("given")
    texts = [
        f"{text_sql(rows, column)} AS {THE_AREA}",
        *(f"{text_sql(rows, k)} AS {quoted(k)}" for k in keys),
    ]
    with quiet_duckdb(table.name):
        connection.execute(f"CREATE TABLE areas AS SELECT {', '.join(texts)} FROM given")
    _refuse_bad_rows(connection, table.name, keys, level)
    return keys


def _telling_keys(connection: Any, keys: list[str], given: list[str]) -> list[str]:
    """Return the key columns in the list of areas if they identify every place, and else all key columns."""
    held = [key for key in keys if key in given]
    apart = f"SELECT count(DISTINCT ({', '.join(map(quoted, held))})) = count(*) FROM places"
    return held if held and connection.execute(apart).fetchall()[0][0] else keys


def _brought(connection: Any, table: Source, columns: list[str]) -> Relation:
    """Copy a table from memory or from another connection to this DuckDB connection."""
    connection.register("in_memory", table.select(columns))
    return Relation(table.name, connection.table("in_memory"))


def _refuse_bad_rows(connection: Any, name: str, keys: list[str], level: str) -> None:
    same = ", ".join(map(quoted, keys))
    missing = " OR ".join(f"coalesce(trim({column}), '') = ''" for column in (THE_AREA, *map(quoted, keys)))
    if not connection.execute("SELECT 1 FROM areas LIMIT 1").fetchall():
        raise DataError(f"{name} is empty", needed="a row for each place of each area")
    if connection.execute(f"SELECT 1 FROM areas WHERE {missing} LIMIT 1").fetchall():
        raise DataError(f"{name} has a row without an area or a place", needed="both in every row")
    stray = f"SELECT {THE_AREA}, {same} FROM areas ANTI JOIN places USING ({same}) ORDER BY ALL LIMIT 1"
    if lost := connection.execute(stray).fetchall():
        area, *key = lost[0]
        known = (connection.execute(f"SELECT DISTINCT {quoted(k)} FROM places").fetchall() for k in keys)
        read = map(lost_zeros, keys, key, ([each for (each,) in found] for found in known))
        raise DataError(
            f"area '{area}' lists '{'/'.join(key)}', which is not a place of level '{level}' of the release",
            remedy=next(
                filter(None, read), "correct the mapping, or map from the places that the release has"
            ),
            needed="keys of places of that level",
        )
    twice = f"SELECT {THE_AREA}, {same} FROM areas GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL LIMIT 1"
    if found := connection.execute(twice).fetchall():
        area, *key = found[0]
        raise DataError(
            f"area '{area}' lists the place '{'/'.join(key)}' twice",
            needed="each place of an area in one row",
        )


AREA = "area"
"""Name of the column that holds areas, unless told otherwise."""
MARGIN = "margin_of_error"
"""Name of the file's column of margins of error."""
_ENDINGS = {".parquet": "FORMAT parquet, COMPRESSION zstd", ".csv": "FORMAT csv, HEADER"}


def write_areas(
    folder: str | Path,
    mapping: Any,
    out: str | Path,
    *,
    attributes: Sequence[str] | None = None,
    column: str = AREA,
    memory: str = "2GB",
) -> int:
    """Sum a bundle's released counts over areas, where each area is a list of the finest places.

    Every area gets the sum of its places, so that areas agree with each other and with every published table.
    Nothing is measured for them: it costs no privacy, but the errors of their places add up, and an area
    cut across many places is less exact than a place of the hierarchy with as many inhabitants.

    Parameters
    ----------
    folder
        A bundle with a release, of any size: it is read by DuckDB as a stream.
    mapping
        A table with a row for each place of each area: the column of areas, and the key columns of the last level, or those of
        them that tell all places apart.
        Areas may overlap and need not cover the country.
    out
        A new file, `.parquet` or `.csv`: one row for every area and every combination of the attributes, zeros as
        well, in their order: `count`, and its 90 % `margin_of_error`, empty where the errors of the places' own counts by these
        attributes are not known. Those are added as if unrelated, which is no less than what they are in a hierarchy: parts of
        a whole err against each other.
    attributes
        Attributes or recodes to keep; the others are summed out. By default all attributes, where one table has them; else none.
    column
        Name of the mapping's column of areas, and of the file's.
    memory
        Memory that DuckDB may use, such as '2GB'.

    Returns
    -------
    int
        Number of areas.

    Raises
    ------
    DataError
        If the mapping names a place that the release does not have, or lists one twice in an area.
    BundleError
        If the bundle has no release or was altered, or the file exists or cannot be written.
    SpecError
        If an attribute is unknown, one would be summed out whose values overlap, or the memory is no size.

    Examples
    --------
    >>> import pandas
    >>> from trueup.releasing.pipeline import release
    >>> made = Path(tempfile.mkdtemp())
    >>> _ = (made / "areas.toml").write_text('''
    ... format = 2
    ... title = "Three blocks"
    ... table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
    ... privacy = { unit = "person", neighbours = "add-remove" }
    ... level = [{ name = "all" }, { name = "block", column = "block" }]
    ... query = [{ name = "total", epsilon = { block = "1/2" } }]
    ... ''')
    >>> blocks = pandas.DataFrame({"block": ["a", "b", "c"], "n": [300, 400, 500]})
    >>> released = release(made / "areas.toml", blocks, made / "out")
    >>> districts = pandas.DataFrame({"area": ["north", "north", "lake"], "block": ["a", "b", "b"]})
    >>> write_areas(made / "out", districts, made / "districts.csv")
    2
    >>> counts = pandas.read_csv(made / "districts.csv", index_col="area")["count"]
    >>> bool(counts["north"] == released.counts[:2].sum()), bool(counts["lake"] == released.counts[1])
    (True, True)
    """
    folder, out = Path(folder), Path(out)
    if out.suffix not in _ENDINGS:
        raise BundleError(
            f"'{out.name}' has an unknown file extension", needed=f"one of {', '.join(_ENDINGS)}"
        )
    refuse_file(out)
    manifest = read_manifest(folder)
    spec = read_spec(folder)[1]
    cells = build_cells(spec, Tree.from_columns(["all"], [{}]))
    whole = {spec.levels[-1].name, *(a.name for a in spec.attributes)}
    if whole not in [{e["level"], *e["attributes"]} for e in manifest.get("counts", ())]:
        attributes = attributes or ()
    kept = _kept(cells, attributes)
    files = _finest(folder, manifest, spec, {a.name for a, _ in kept})
    classes = _error_classes(manifest, Margin(spec.levels[-1].name, tuple(r.name for _, r in kept)))
    with (
        quiet_duckdb(f"'{folder}'"),
        tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.absolute().parent) as scratch,
        connect(
            files=files_read(mapping),
            folders=[scratch, folder / "public"],
            memory_limit=f"{parse_memory(memory)}B",
            temp_directory=scratch,
        ) as connection,
    ):
        keys = _register_places(connection, folder, spec)
        refuse_taken_area_name(
            column, [*keys, *(r.name for a in cells.attributes for r in a.views), "count", MARGIN]
        )
        keys = register_areas(connection, mapping, column, keys, spec.levels[-1].name)
        with writing(out):
            query = _area_sums_sql(connection, files, keys, column, kept, classes)
            part = Path(scratch) / f"areas{out.suffix}"
            connection.execute(f"COPY ({query}) TO {literal(str(part))} ({_ENDINGS[out.suffix]})")
            part.replace(out)
        return connection.execute(f"SELECT count(DISTINCT {THE_AREA}) FROM areas").fetchall()[0][0]


def _kept(cells: Cells, attributes: Sequence[str] | None) -> list[tuple[Attribute, Recode]]:
    """Return the attributes to keep in the sums, each with the recode by which its values are grouped."""
    names = [a.name for a in cells.attributes] if attributes is None else attributes
    seen = list(zip(cells.attributes, cells.recodes(names)))
    if lost := [a.name for a, recode in seen if not recode.name and not a.partition]:
        raise SpecError(
            f"the values of '{lost[0]}' overlap, so a sum over them counts some units twice",
            remedy=f"keep '{lost[0]}' as an attribute of the areas, by --by",
        )
    return [(a, recode) for a, recode in seen if recode.name]


def _error_classes(manifest: Mapping[str, Any], margin: Margin) -> tuple[ErrorClass, ...]:
    """Return the expected errors of a finest table by size class of counts; empty if unknown."""
    written = manifest.get("expected errors")
    return ExpectedErrors.read(written).tables.get(margin, ()) if written else ()


def _squared_margin(classes: Sequence[ErrorClass], count: str) -> str:
    """Return an SQL expression for the squared 90 % margin of error of a place's count."""
    found = [(c.lowest, float(c.margin(90)) ** 2) for c in classes]
    others = "".join(f"WHEN {count} >= {low} THEN {square!r} " for low, square in reversed(found[1:]))
    return f"CASE {others}ELSE {found[0][1]!r} END" if others else repr(found[0][1])


def _finest(folder: Path, manifest: Mapping[str, Any], spec: Spec, kept: set[str]) -> str:
    """Return SQL that reads the finest released table, after checking the digests of its files."""
    last, every = spec.levels[-1].name, {a.name for a in spec.attributes}
    counts = manifest.get("counts", ())
    by = [e for e in counts if e["level"] == last and set(e["attributes"]) <= every]
    found = (e for names in (every, kept) for e in by if set(e["attributes"]) == names)
    if (entry := next(found, None)) is None:
        if counts:
            tables = ", ".join(" x ".join((last, *e["attributes"])) for e in by)
            raise BundleError(
                f"'{folder}' holds no table '{' x '.join((last, *sorted(kept)))}'",
                needed=f"attributes of a released table of the finest places: {tables or 'there is none'}",
                remedy="name the attributes of one of them by --by; for totals, --by ''" if by else "",
            )
        raise BundleError(
            f"'{folder}' holds no released counts of the finest places", remedy="run `trueup reconcile`"
        )
    pattern = entry["files"]
    named = listed(manifest, pattern)
    refuse_altered(folder, manifest, [*named, "places.parquet", "spec.toml"])
    return parquet(folder / "public" / name for name in named)


def _register_places(connection: Any, folder: Path, spec: Spec) -> list[str]:
    """Register the finest places as the SQL table `places`, and return the names of its key columns."""
    prefix = f"{spec.levels[-1].name}."
    places = open_table(folder / "public" / "places.parquet", connection)
    keys = [name.removeprefix(prefix) for name in places.columns() if name.startswith(prefix)]
    if not keys:
        raise BundleError(
            f"'{folder}' has only one place, so there are no areas to sum",
            needed="a release with several places",
        )
    columns = ", ".join(f"{quoted(prefix + key)} AS {quoted(key)}" for key in keys)
    file = parquet([folder / "public" / "places.parquet"])
    connection.execute(f"CREATE TABLE places AS SELECT {columns} FROM {file}")
    return keys


def _area_sums_sql(
    connection: Any,
    files: str,
    keys: list[str],
    column: str,
    kept: list[tuple[Attribute, Recode]],
    classes: Sequence[ErrorClass],
) -> str:
    """Return the SQL for the count and margin of error of every area, including groups without records."""
    for at, (attribute, recode) in enumerate(kept):
        groups = np.array(recode.groups)
        connection.register(f"values{at}", {"value": np.array(attribute.values), "position": groups})
        connection.register(
            f"groups{at}", {"label": np.array(recode.values), "position": np.arange(recode.size)}
        )
    every = range(len(kept))
    held = "".join(f" JOIN values{i} ON cells.{quoted(kept[i][0].name)} = values{i}.value" for i in every)
    grouped = "".join(f", values{i}.position AS g{i}" for i in every)
    same_place = ", ".join(map(quoted, keys))
    each = (
        f"SELECT {same_place}, sum(count) AS n{grouped} FROM {files} AS cells "
        f"SEMI JOIN areas USING ({same_place}){held} GROUP BY ALL"
    )
    groups = "".join(f", each.g{i} AS g{i}" for i in every)
    square = _squared_margin(classes, "each.n") if classes else "NULL"
    summed = (
        f"SELECT {THE_AREA}, sum(each.n) AS n, count(*) AS places, sum({square}) AS square{groups} FROM ({each}) AS each "
        f"JOIN areas USING ({same_place}) GROUP BY ALL"
    )
    empty = _squared_margin(classes, "0") if classes else "NULL"
    margin = (
        f"ceil(sqrt(coalesce(square, 0) + (listed.places - coalesce(summed.places, 0)) * {empty}) - 1e-9)"
    )
    listed = "".join(f", groups{i}.label AS {quoted(kept[i][1].name)}" for i in every)
    domain = "".join(f" CROSS JOIN groups{i}" for i in every)
    same = "".join(f" AND summed.g{i} = groups{i}.position" for i in every)
    order = "".join(f", groups{i}.position" for i in every)
    return (
        f"WITH summed AS ({summed}), listed AS (SELECT {THE_AREA}, count(*) AS places FROM areas GROUP BY ALL) "
        f"SELECT listed.{THE_AREA} AS {quoted(column)}{listed}, CAST(coalesce(n, 0) AS BIGINT) AS count, "
        f"CAST({margin} AS BIGINT) AS {MARGIN} FROM listed{domain} "
        f"LEFT JOIN summed ON summed.{THE_AREA} = listed.{THE_AREA}{same} ORDER BY listed.{THE_AREA}{order}"
    )
