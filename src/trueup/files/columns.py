"""Write columns to Parquet or CSV."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.files.database import connect, parquet, writing_by_duckdb


def write_parquet(
    path: Path,
    columns: Mapping[str, NDArray],
    connection: Any = None,
    *,
    select: str = "*",
    together: int = 122_880,
) -> None:
    """Write equally long columns to one Parquet file.

    Parameters
    ----------
    path, columns
        The file and what it holds.
    connection
        The DuckDB connection that writes, which it must be allowed to, where several files are written; by default a
        fresh one.
    select
        What is written of the columns, in SQL.
    together
        Rows of a group, which share their lists of texts; by default DuckDB's own number.

    Raises
    ------
    ResourceError
        If the disk refuses.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from trueup.files.source import open_table
    >>> path = Path(tempfile.mkdtemp()) / "counts.parquet"
    >>> write_parquet(path, {"area": np.array(["01", "02"]), "count": np.array([3, 4])})
    >>> open_table(path).select(["area"])["area"].tolist()
    ['01', '02']
    """
    with connection.cursor() if connection else connect(folders=[path.parent]) as writer:
        _write(path, columns, writer, "write_parquet", select, compression="zstd", row_group_size=together)


def write_csv(
    path: Path, columns: Mapping[str, NDArray], connection: Any = None, *, select: str = "*"
) -> None:
    """Write equally long columns to one CSV file with a header row; see `write_parquet`."""
    with connection.cursor() if connection else connect(folders=[path.parent]) as writer:
        _write(path, columns, writer, "write_csv", select, header=True)


FEW_TEXTS = 1 << 17
"""Different texts up to which every group of a file's rows may hold a list of all."""


def hold_keys(connection: Any, keys: Mapping[str, NDArray]) -> dict[str, str]:
    """Register key columns whose rows are written repeatedly in DuckDB, and return each as an SQL list.

    Few texts are numbers to it, which it neither compares nor compresses as texts.

    Parameters
    ----------
    connection
        The connection that writes.
    keys
        Equally long columns of texts.

    Examples
    --------
    >>> import numpy as np
    >>> with connect() as connection:
    ...     held = hold_keys(connection, {"area": np.array(["01", "02"], object)})
    ...     connection.sql(f"SELECT {held['area']}[place] FROM (VALUES (2), (1), (2)) v(place)").fetchall()
    [('02',), ('01',), ('02',)]
    """
    lists = {}
    for k, (name, column) in enumerate(keys.items()):
        connection.register("key", {"text": _held_as_objects(column), "row": np.arange(len(column))})
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE texts AS SELECT DISTINCT text FROM key WHERE text IS NOT NULL"
        )
        few = 0 < connection.execute("SELECT count(*) FROM texts").fetchall()[0][0] <= FEW_TEXTS
        if few:
            connection.execute(f"CREATE TYPE text_{k} AS ENUM (SELECT text FROM texts ORDER BY text)")
        kind = f"text_{k}" if few else "VARCHAR"
        connection.execute(
            f"CREATE TABLE key_{k} AS SELECT list(text::{kind} ORDER BY row) AS every FROM key"
        )
        lists[name] = f"(SELECT every FROM key_{k})"
    return lists


def _write(
    path: Path, columns: Mapping[str, NDArray], connection: Any, method: str, select: str, **options: Any
) -> None:
    with _handed_over(connection, columns, path.parent) as held, writing_by_duckdb(path):
        getattr(connection.sql(f"SELECT {select} FROM {held}"), method)(str(path), **options)


CHUNK, HELD = 100_000, 500_000
"""Rows of text that are held as objects at once, and that DuckDB holds; of more, each chunk is a file first."""


@contextmanager
def _handed_over(connection: Any, columns: Mapping[str, NDArray], folder: Path) -> Iterator[str]:
    """Give columns to DuckDB, long text in chunks, since objects take several times its memory; return what to select from."""
    rows = max((len(column) for column in columns.values()), default=0)
    if rows <= CHUNK or all(column.dtype.kind != "U" for column in columns.values()):
        connection.register("given", {name: _held_as_objects(column[:]) for name, column in columns.items()})
        yield "given"
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix=".rows-") as made:
        files = []
        for start in range(0, rows, CHUNK):
            part = slice(start, start + CHUNK)
            connection.register("chunk", {k: _held_as_objects(column[part]) for k, column in columns.items()})
            into = "INSERT INTO given" if start else "CREATE OR REPLACE TEMP TABLE given AS"
            connection.execute(f"{into} FROM chunk")
            if rows > HELD:
                files.append(Path(made) / f"{len(files):06d}.parquet")
                connection.table("given").write_parquet(str(files[-1]))
                connection.execute("TRUNCATE given")
        connection.unregister("chunk")
        yield parquet(files) if files else "given"


def _held_as_objects(column: NDArray) -> NDArray:
    """Return text as objects, because DuckDB converts fixed-width text on every access."""
    if not column.size and column.dtype == object:
        return column.astype(str)  # objects show DuckDB their type by their values
    return column.astype(object) if column.dtype.kind == "U" and column.size else column
