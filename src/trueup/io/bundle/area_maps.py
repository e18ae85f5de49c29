"""Maps of areas off the hierarchy, read into DuckDB and checked row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trueup.errors import DataError
from trueup.files import Source, require
from trueup.files.database import Relation, quiet_duckdb, quoted
from trueup.files.source import open_table
from trueup.io.microdata.sql import text_sql
from trueup.model.place_keys import lost_zeros

THE_AREA = quoted("the area")
"""The column of areas: no key is called so."""


def refuse_taken_area_name(column: str, taken: list[str]) -> None:
    """Refuse a column of areas that is called as one of the release."""
    if column.casefold() in [name.casefold() for name in taken]:
        raise DataError(
            f"the release has a column '{column}' itself",
            remedy="call the mapping's column of areas otherwise, and say how (--column)",
        )


def register_areas(connection: Any, mapping: Any, column: str, keys: list[str], level: str) -> list[str]:
    """Register the table of the areas' places after checking every row; return the keys that tell places apart there."""
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
    """Return the keys of places that a mapping has if they alone tell all places apart; otherwise all."""
    held = [key for key in keys if key in given]
    apart = f"SELECT count(DISTINCT ({', '.join(map(quoted, held))})) = count(*) FROM places"
    return held if held and connection.execute(apart).fetchall()[0][0] else keys


def _brought(connection: Any, table: Source, columns: list[str]) -> Relation:
    """Copy a table from memory, or from another connection, to this connection."""
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
            f"area '{area}' lists '{'/'.join(key)}', which is no place of level '{level}' of the release",
            remedy=next(
                filter(None, read), "correct the mapping, or map from the places that the release has"
            ),
        )
    twice = f"SELECT {THE_AREA}, {same} FROM areas GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL LIMIT 1"
    if found := connection.execute(twice).fetchall():
        area, *key = found[0]
        raise DataError(
            f"area '{area}' lists the place '{'/'.join(key)}' twice",
            needed="each place of an area in one row",
        )
