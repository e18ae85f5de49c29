"""Readers of columns from CSV, Parquet, DuckDB or dataframes as NumPy arrays.

Messages never quote a reader's own error: it may hold a line of confidential data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, TrueupError, load_extra
from trueup.files import (
    COUNT,
    CSV,
    PARQUET,
    WORKBOOK,
    Columns,
    Encoded,
    JoinedTables,
    Source,
    files_of,
    is_address,
    is_csv,
    is_parquet,
    is_workbook,
    named_folder,
)
from trueup.files.database import Relation, connect_to_files, parquet, quiet_duckdb

LIBRARIES = {"pandas": "pandas", "polars": "polars", "pyarrow": "arrow"}
"""Libraries that hold tables, and the extra that installs each."""


def frame_library(data: Any) -> str | None:
    """Return the name of the library to which a dataframe belongs; None for anything else, such as a path.

    Examples
    --------
    >>> import pandas
    >>> frame_library(pandas.DataFrame()), frame_library("people.csv")
    ('pandas', None)
    """
    data = data.persons if isinstance(data, JoinedTables) else data
    name = type(data).__module__.partition(".")[0]
    return name if name in LIBRARIES else None


def as_frame(columns: Mapping[str, NDArray], library: str | None = None, *, known: str | None = None) -> Any:
    """Return equally long columns as a dataframe, in which masked entries are missing values.

    Parameters
    ----------
    columns
        Names and values.
    library
        `"pandas"`, `"polars"` or `"pyarrow"` (also `"arrow"`).
    known
        Library used if none is named: that of the table from which the numbers come. By default the first one installed.

    Raises
    ------
    TrueupError
        If no such library is known or installed.

    Examples
    --------
    >>> as_frame({"area": np.array(["a", "b"]), "released": np.array([3, 4])}, "polars").to_dicts()
    [{'area': 'a', 'released': 3}, {'area': 'b', 'released': 4}]
    """
    name = _library(library, known)
    load_extra(name, LIBRARIES[name])
    import narwhals

    backend: Any = name
    held = {k: _entries(c) for k, c in columns.items()}
    if name == "pandas":  # in which a column of nothing but None is one of objects
        held = {k: c if any(x is not None for x in c) else [float("nan")] * len(c) for k, c in held.items()}
    return narwhals.from_dict(held, backend=backend).to_native()


def _library(wanted: str | None, known: str | None) -> str:
    if wanted is not None:
        name = "pyarrow" if wanted == "arrow" else wanted
        if name not in LIBRARIES:
            raise TrueupError(
                f"'{wanted}' is no known library", needed=f"one of {', '.join(map(repr, LIBRARIES))}"
            )
        return name
    return known or next((name for name in LIBRARIES if find_spec(name)), "pandas")


def _entries(column: NDArray) -> list[Any]:
    """Return the entries of a column as Python values, with None for missing ones."""
    if column.dtype.kind != "f":
        return column.tolist()
    return [None if x is None or x != x else x for x in np.ma.asarray(column).tolist()]


class _Frame:
    """A source that reads a dataframe of any library that narwhals supports."""

    def __init__(self, name: str, frame: Any) -> None:
        self.name, self._given = name, frame

    @cached_property
    def _frame(self) -> Any:
        import narwhals as nw

        return self._given.collect() if isinstance(self._given, nw.LazyFrame) else self._given

    def columns(self) -> list[str]:
        return self._given.collect_schema().names()  # of a lazy frame, without a row

    def select(self, columns: Sequence[str]) -> Columns:
        with _quiet(self.name):
            return {name: self._frame.get_column(name).to_numpy() for name in columns}

    def tabulate(self, columns: Sequence[str]) -> Columns:
        import narwhals as nw

        with _quiet(self.name):
            if not columns:
                return {COUNT: np.array([len(self._frame)])}
            counted = self._frame.group_by(*columns).agg(nw.len().alias(COUNT))
            return {name: counted.get_column(name).to_numpy() for name in counted.columns}

    def row(self, number: int) -> str:
        return f"row {number} of {self.name}"

    def row_with(self, held: Mapping[str, Any]) -> str:
        rows = zip(*self.select(list(held)).values())
        same = (i for i, row in enumerate(rows, 1) if list(map(str, row)) == list(map(str, held.values())))
        number = next(same, None)
        return self.row(number) if number else f"a row of {self.name}"


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Replace an error of a dataframe library, which may quote values, by one that quotes none."""
    try:
        yield
    except (TrueupError, MemoryError):
        raise
    except Exception:
        raise DataError(
            f"{name} cannot be read", needed="columns of texts, numbers, dates or truth values"
        ) from None


def open_frame(source: Any) -> Source:
    import narwhals as nw

    try:
        frame = nw.from_native(source)
        frame.collect_schema()
    except nw.exceptions.DuplicateError:
        raise DataError(
            f"the {type(source).__name__} has several columns of the same name",
            needed="a different name for each column",
        ) from None
    except TypeError:
        if isinstance(source, JoinedTables):
            raise DataError(
                "a second table of households is given, but the spec does not link it to the first",
                remedy="leave it out, or link the two tables by [table.join] in the spec",
            ) from None
        raise DataError(
            f"'{type(source).__name__}' is not a type of table",
            needed="a path, a dataframe or a DuckDB relation",
        ) from None
    return _Frame(f"the {type(source).__name__}", frame)


def open_table(source: Any, connection: Any = None) -> Source:
    """Open a CSV or Parquet path, a DuckDB relation, or any dataframe that narwhals supports, as a source.

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
            f"the table is at a remote address ({source.partition(':')[0]}:...), which only a cluster reads",
            remedy="give --engine spark, for records in Parquet; or copy the table to this machine",
        )
    if isinstance(source, Encoded):
        from trueup.files.csv_files import open_encoded

        return open_encoded(Path(source), source.encoding)
    if isinstance(source, str | Path):
        return _open_file(Path(source), connection)
    if isinstance(source, Relation):
        return source
    if type(source).__module__.split(".")[0] in ("duckdb", "_duckdb"):
        return Relation("the DuckDB relation", source)
    return open_frame(source)


def files_read(source: Any) -> list[Path]:
    """Return the files from which a source reads, or an empty list for an address or a table in memory.

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
    connection = connection or connect_to_files(files)
    with quiet_duckdb(name, files):
        if all(map(is_parquet, files)):
            return Relation(
                name, connection.sql(f"SELECT * FROM {_parquet_files(files, path)}"), files, connection
            )
        if files == [path] and is_csv(path):
            from trueup.files.csv_files import open_csv

            return open_csv(path, connection)
    wanted = CSV + PARQUET + WORKBOOK if files == [path] else PARQUET
    raise DataError(f"{name} has an unknown file extension", needed=f"one of {', '.join(wanted)}")


def _parquet_files(files: Sequence[Path], path: Path) -> str:
    """Return the SQL that reads Parquet files, with columns named in folders (`state=01`) as text."""
    folders = {part for file in files for part in file.relative_to(named_folder(path)).parts[:-1]}
    spelled = any("=" in folder for folder in folders)
    return parquet(files, "hive_types_autocast = false") if spelled else parquet(files)
