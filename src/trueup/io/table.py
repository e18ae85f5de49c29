"""Read columns from CSV, Parquet, DuckDB or any dataframe, as NumPy arrays of text or numbers.

Messages never quote a reader's own error: it may hold a line of confidential data.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError

Columns = dict[str, NDArray]
COUNT = "trueup_count"
"""Name of the column that `tabulate` adds."""

_CSV = (".csv", ".csv.gz", ".txt", ".tsv", ".tsv.gz")
_PARQUET = (".parquet", ".pq")


class Source(Protocol):
    """A table that can be read by column and counted by group."""

    name: str

    def columns(self) -> list[str]:
        """Names of the columns."""
        ...

    def select(self, columns: Sequence[str]) -> Columns:
        """Return columns as arrays; a missing value is None or NaN."""
        ...

    def tabulate(self, columns: Sequence[str]) -> Columns:
        """Return the distinct combinations of columns and how many rows hold each, as `COUNT`."""
        ...


def open_table(source: Any) -> Source:
    """Open a path (CSV, Parquet), a DuckDB relation, or any dataframe that narwhals takes.

    Raises
    ------
    DataError
        If the file is missing, truncated, or not what its name says, or the type is unknown.

    Examples
    --------
    >>> import pandas
    >>> frame = pandas.DataFrame({"state": ["01", "02"], "pop": [3, 4]})
    >>> open_table(frame).select(["pop"])["pop"]
    array([3, 4])
    """
    if isinstance(source, str | Path):
        return _open_file(Path(source))
    if type(source).__module__.split(".")[0] in ("duckdb", "_duckdb"):
        return _Relation("the DuckDB relation", source)
    return _open_frame(source)


def select(source: Source, columns: Sequence[str]) -> Columns:
    """Read columns, or say which one is missing.

    Raises
    ------
    DataError
        If a column is missing.
    """
    require(source, columns)
    return source.select(list(dict.fromkeys(columns)))


def require(source: Source, columns: Sequence[str]) -> None:
    """Refuse a table that lacks a column. Its own header is not shown: it may be a row of data."""
    held = source.columns()
    for column in columns:
        if column not in held:
            close = get_close_matches(column, held, 1, cutoff=0.75)
            raise DataError(
                f"{source.name} has no column '{column}'",
                remedy=f"did you mean '{close[0]}'?"
                if close
                else "check the column's name and the header row",
            )


def _open_file(path: Path) -> Source:
    name = path.name.lower()
    if not path.is_file():
        raise DataError(f"there is no file '{path}'", remedy="check the path")
    with _quiet_duckdb(f"'{path.name}'"):
        if name.endswith(_PARQUET):
            return _Relation(f"'{path.name}'", _connect().read_parquet(str(path)))
        if name.endswith(_CSV):
            return _open_csv(path)
    raise DataError(f"'{path.name}' has an unknown ending", needed=f"one of {', '.join(_CSV + _PARQUET)}")


def _open_csv(path: Path) -> Source:
    """Read a CSV file strictly: every row has the header's fields, or the file counts as damaged.

    Every column is read as text: a FIPS code keeps its leading zeros, and a count is checked digit
    by digit. The dialect is taken from the header row alone, so that no row of data can change it.
    """
    header = _header(path)
    delimiter = max(",|;\t", key=header.count)
    names = next(csv.reader([header], delimiter=delimiter), [])
    if not names or len(set(names)) < len(names) or not all(names):
        raise DataError(
            f"the header of '{path.name}' has an empty or repeated name", needed="one name per column"
        )
    relation = _connect().read_csv(
        str(path),
        header=True,
        delimiter=delimiter,
        quotechar='"',
        escapechar='"',
        columns=dict.fromkeys(names, "VARCHAR"),
        auto_detect=False,
        null_padding=False,
        strict_mode=True,
    )
    return _Relation(f"'{path.name}'", relation)


def _header(path: Path) -> str:
    opener = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opener(path, "rb") as file:
            return file.readline(1 << 20).decode("utf-8-sig").rstrip("\r\n")
    except (OSError, EOFError, UnicodeDecodeError):
        raise _damaged(f"'{path.name}'") from None


def _connect() -> Any:
    """Return a fresh in-memory database: state shared between calls would not be thread-safe."""
    import duckdb

    return duckdb.connect(":memory:")


@contextmanager
def _quiet_duckdb(name: str) -> Iterator[None]:
    """Turn DuckDB's errors, which quote lines of data, into one that quotes none."""
    import duckdb

    try:
        yield
    except (duckdb.Error, UnicodeDecodeError):
        raise _damaged(name) from None


def _damaged(name: str) -> DataError:
    return DataError(
        f"{name} cannot be read: it is truncated, damaged or not what its name says",
        remedy="check the file; text must be UTF-8, and every row must have the header's fields",
    )


class _Relation:
    """A table that DuckDB reads."""

    def __init__(self, name: str, relation: Any) -> None:
        self.name, self._relation = name, relation

    def columns(self) -> list[str]:
        return list(self._relation.columns)

    def select(self, columns: Sequence[str]) -> Columns:
        return self._fetch(self._relation.select(*map(_column, columns)))

    def tabulate(self, columns: Sequence[str]) -> Columns:
        named = ", ".join(_quoted(c) for c in columns)
        return self._fetch(self._relation.aggregate(f"{named}, count(*) AS {COUNT}", named))

    def _fetch(self, relation: Any) -> Columns:
        with _quiet_duckdb(self.name):
            return {name: _plain(values) for name, values in relation.fetchnumpy().items()}


class _Frame:
    """A dataframe that narwhals reads."""

    def __init__(self, name: str, frame: Any) -> None:
        self.name, self._frame = name, frame

    def columns(self) -> list[str]:
        return list(self._frame.columns)

    def select(self, columns: Sequence[str]) -> Columns:
        return {name: self._frame.get_column(name).to_numpy() for name in columns}

    def tabulate(self, columns: Sequence[str]) -> Columns:
        import narwhals as nw

        counted = self._frame.group_by(*columns).agg(nw.len().alias(COUNT))
        return {name: counted.get_column(name).to_numpy() for name in counted.columns}


def _open_frame(source: Any) -> Source:
    import narwhals as nw

    try:
        frame = nw.from_native(source)
    except TypeError:
        raise DataError(
            f"a {type(source).__name__} is not a table", needed="a path, a dataframe or a DuckDB relation"
        ) from None
    eager = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    return _Frame(f"the {type(source).__name__}", eager)


def _plain(values: NDArray) -> NDArray:
    """Turn a masked array into an object array with None where a value is missing."""
    if not np.ma.isMaskedArray(values):
        return values
    mask, data = np.ma.getmaskarray(values), np.ma.getdata(values)
    if not mask.any():
        return data
    held = data.astype(object)
    held[mask] = None
    return held


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _column(column: str) -> Any:
    import duckdb

    return duckdb.ColumnExpression(column)
