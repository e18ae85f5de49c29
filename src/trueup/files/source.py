"""Read columns from CSV, Parquet, DuckDB or any dataframe, as NumPy arrays of text or numbers.

Messages never quote a reader's own error: it may hold a line of confidential data.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trueup.errors import DataError
from trueup.files.csv_files import Encoded, open_csv, open_encoded
from trueup.files.database import Relation, connect, parquet, quiet_duckdb
from trueup.files.frames import open_frame
from trueup.files.paths import (
    CSV,
    PARQUET,
    WORKBOOK,
    files_of,
    is_address,
    is_csv,
    is_parquet,
    is_workbook,
    named_folder,
)
from trueup.files.table import JoinedTables, Source


def open_table(source: Any, connection: Any = None) -> Source:
    """Open a path (CSV, Parquet), a DuckDB relation, or any dataframe that narwhals takes.

    Parameters
    ----------
    source
        A path may also be a folder of Parquet files (read with those of the folders in it), or, where there is
        nothing of that name, a pattern such as `people/*.parquet`.
    connection
        The DuckDB connection that reads files, which it must be allowed to; by default a fresh one.

    Examples
    --------
    >>> import pandas
    >>> frame = pandas.DataFrame({"state": ["01", "02"], "pop": [3, 4]})
    >>> open_table(frame).select(["pop"])["pop"]
    array([3, 4])
    """
    if is_address(source):
        raise DataError(
            f"the source is an address ({source.partition(':')[0]}:...), which only a cluster reads",
            remedy="give --engine spark, for records in Parquet; or a file of this machine",
        )
    if isinstance(source, Encoded):
        return open_encoded(Path(source), source.encoding)
    if isinstance(source, str | Path):
        return _open_file(Path(source), connection)
    if isinstance(source, Relation):
        return source
    if type(source).__module__.split(".")[0] in ("duckdb", "_duckdb"):
        return Relation("the DuckDB relation", source)
    return open_frame(source)


def files_read(source: Any) -> list[Path]:
    """Return the files that a source consists of; empty for an address or a table in memory.

    Raises
    ------
    DataError
        If it is a path that leads to no file.
    """
    if isinstance(source, JoinedTables):
        return [*files_read(source.persons), *files_read(source.households)]
    return files_of(Path(source)) if isinstance(source, str | Path) and not is_address(source) else []


def _open_file(path: Path, connection: Any) -> Source:
    files, name = files_of(path), f"'{path.name}'"
    if files == [path] and is_workbook(path):
        from trueup.files.workbook import open_workbook

        return open_workbook(path)
    connection = connection or connect(files=files)
    with quiet_duckdb(name, files):
        if all(map(is_parquet, files)):
            return Relation(
                name, connection.sql(f"SELECT * FROM {_parquet_files(files, path)}"), files, connection
            )
        if files == [path] and is_csv(path):
            return open_csv(path, connection)
    wanted = CSV + PARQUET + WORKBOOK if files == [path] else PARQUET
    raise DataError(f"{name} has an unknown ending", needed=f"one of {', '.join(wanted)}")


def _parquet_files(files: Sequence[Path], path: Path) -> str:
    """Read the files as one table; a column spelled by folders below the path (`state=01`) is text."""
    folders = {part for file in files for part in file.relative_to(named_folder(path)).parts[:-1]}
    spelled = any("=" in folder for folder in folders)
    return parquet(files, "hive_types_autocast = false") if spelled else parquet(files)
