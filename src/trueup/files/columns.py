"""Write columns to Parquet or CSV."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from trueup.errors import BundleError
from trueup.files.database import connect


def write_parquet(
    path: Path, columns: Mapping[str, NDArray], connection: Any = None, *, select: str = "*"
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

    Raises
    ------
    BundleError
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
        _write(path, columns, writer, "write_parquet", select, compression="zstd")


def write_csv(path: Path, columns: Mapping[str, NDArray]) -> None:
    """Write equally long columns to one CSV file with a header row."""
    with connect(folders=[path.parent]) as writer:
        _write(path, columns, writer, "write_csv", "*", header=True)


def _write(
    path: Path, columns: Mapping[str, NDArray], connection: Any, method: str, select: str, **options: Any
) -> None:
    import duckdb

    _hand_over(connection, columns)
    try:
        getattr(connection.table("columns_to_write").project(select), method)(str(path), **options)
    except duckdb.IOException:
        raise BundleError(f"cannot write '{path.name}'", remedy="check space and permissions") from None


CHUNK = 100_000
"""Rows of text that are held as objects at once."""


def _hand_over(connection: Any, columns: Mapping[str, NDArray]) -> None:
    """Let DuckDB have the columns; long ones with text a chunk at a time, since objects take several times its room."""
    rows = max((len(column) for column in columns.values()), default=0)
    if rows <= CHUNK or all(column.dtype.kind != "U" for column in columns.values()):
        connection.register("columns_to_write", {name: _held(column) for name, column in columns.items()})
        return
    for start in range(0, rows, CHUNK):
        part = slice(start, start + CHUNK)
        connection.register("chunk", {name: _held(column[part]) for name, column in columns.items()})
        into = "INSERT INTO" if start else "CREATE OR REPLACE TEMP TABLE"
        connection.execute(f"{into} columns_to_write {'' if start else 'AS '}FROM chunk")
    connection.unregister("chunk")


def _held(column: NDArray) -> NDArray:
    """Hold text as objects: of fixed width DuckDB converts it anew each time it looks at it, many times a file."""
    if not column.size and column.dtype == object:
        return column.astype(str)  # objects show DuckDB their type by their values
    return column.astype(object) if column.dtype.kind == "U" and column.size else column
