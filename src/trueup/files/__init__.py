"""Reading and writing of tables as files, independent of any spec.

A table is read by column and counted by group. This is its interface, what its path means, and its address.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError

CSV = tuple(kind + packed for kind in (".csv", ".tsv", ".txt") for packed in ("", ".gz", ".zst"))
OPENDOCUMENT = ".ods"
WORKBOOK = (".xlsx", ".xlsm", OPENDOCUMENT)
PARQUET = (".parquet", ".pq")
DELIMITERS = ",|;\t"
DAMAGED = (OSError, EOFError, zlib.error)
"""Exceptions of reading a file that is packed by gzip and damaged, or is not there."""
_ADDRESS = re.compile(r"[a-z][a-z0-9+]+:")  # a drive has one letter


class Encoded(str):
    """The path and the encoding of a CSV file that is not in UTF-8.

    Examples
    --------
    >>> Encoded("people.csv", "latin-1").encoding
    'latin-1'
    """

    encoding: str

    def __new__(cls, path: str, encoding: str) -> Encoded:
        made = super().__new__(cls, path)
        try:
            "".encode(encoding)
        except LookupError:
            raise DataError(
                f"the encoding '{encoding}' is unknown",
                needed="an encoding such as utf-8, latin-1, cp1252 or utf-16",
            ) from None
        made.encoding = encoding
        return made


def is_address(source: Any) -> bool:
    """Return True if a source is a remote address or a catalogue's table, which only a cluster can read.

    Examples
    --------
    >>> is_address("s3a://census/people"), is_address("table:census.people"), is_address("people.parquet")
    (True, True, False)
    """
    return isinstance(source, str) and _ADDRESS.match(source) is not None


def is_parquet(path: Path) -> bool:
    """Return True if a file's name ends like that of a Parquet file."""
    return path.name.lower().endswith(PARQUET)


def is_workbook(path: Path) -> bool:
    """Return True if a file's name ends like that of a workbook."""
    return path.name.lower().endswith(WORKBOOK)


def is_csv(path: Path) -> bool:
    """Return True if a file's name ends like that of a CSV file, compressed or not."""
    return path.name.lower().endswith(CSV)


def opened_csv(path: Path):
    """Open a CSV file as bytes, decompressed if it is compressed."""
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")


def files_of(path: Path) -> list[Path]:
    """Return the files that a path stands for: one file, or the Parquet files of a folder or pattern."""
    try:
        files = _found(path)
    except (OSError, ValueError, NotImplementedError):  # a name too long, or a pattern that is none
        files = []
    if not files and _ADDRESS.match(str(path)):
        raise DataError(
            f"'{path}' is the address of a remote file",
            needed="a file on this machine; only records are read from an address, with --engine spark",
        )
    if not files:
        what = f"no Parquet file in the folder '{path}'" if _is_folder(path) else f"no file '{path}'"
        raise DataError(f"there is {what}", remedy="check the path")
    return files


def _found(path: Path) -> list[Path]:
    """Return the files at a path, which is read literally if it exists, and as a pattern otherwise."""
    if path.is_file():
        return [path]
    if path.is_dir():
        found = filter(is_parquet, path.rglob("*"))
        return sorted(p for p in found if not p.name.startswith((".", "_")))
    return sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))


def _is_folder(path: Path) -> bool:
    with suppress(OSError, ValueError):
        return path.is_dir()
    return False


def named_folder(path: Path) -> Path:
    """Return the folder of a path, which is above the file or above the first wildcard."""
    if path.is_dir() or path.is_file():
        return path if path.is_dir() else path.parent
    return Path(*takewhile(lambda part: not set(part) & set("*?["), path.parts))


def is_zst(path: Path) -> bool:
    return path.name.lower().endswith(".zst")


Columns = dict[str, NDArray]
"""Columns of a table by name, each of one value a row."""
COUNT = "trueup_count"
"""Name of the column that `tabulate` adds."""


@dataclass(frozen=True)
class JoinedTables:
    """Two linked tables of records: persons, and the households in which they live.

    Attributes
    ----------
    persons, households
        A path, a dataframe or a DuckDB relation each.
    """

    persons: Any
    households: Any


class Source(Protocol):
    """The interface of a table whose columns can be read, and whose equal rows can be counted."""

    name: str

    def columns(self) -> list[str]:
        """Return the names of the columns."""
        ...

    def select(self, columns: Sequence[str]) -> Columns:
        """Return the named columns as arrays, with None or NaN for missing values."""
        ...

    def tabulate(self, columns: Sequence[str]) -> Columns:
        """Return the distinct combinations of values in columns, with numbers of rows as `COUNT`."""
        ...

    def row(self, number: int) -> str:
        """Return words that state the location of a row, given its number from 1."""
        ...

    def row_with(self, held: Mapping[str, Any]) -> str:
        """Return words that state the location of the first row that has the given values."""
        ...


def select(source: Source, columns: Sequence[str]) -> Columns:
    """Read columns as arrays; raise DataError if one is missing."""
    require(source, columns)
    return source.select(list(dict.fromkeys(columns)))


def require(source: Source, columns: Sequence[str]) -> None:
    """Refuse a table that lacks a column, in an error that does not show the table's header."""
    held = source.columns()
    for column in columns:
        if column not in held:
            raise DataError(
                f"{source.name} has no column '{column}'",
                needed="a column of that name in the header row, the first row of a file; upper and lower case matter",
                about=f"column {column.casefold()}",
            )


@dataclass
class Held:
    """A table in memory, with None for empty values, and the last line of each row in its file."""

    name: str
    held: Columns
    lines: Sequence[int] = ()

    def columns(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.held)

    def select(self, columns: Sequence[str]) -> Columns:
        """Return the named columns as arrays."""
        return {name: self.held[name] for name in columns}

    def tabulate(self, columns: Sequence[str]) -> Columns:
        """Return the distinct combinations of values in some columns, and the number of rows of each."""
        if not columns:
            return {COUNT: np.array([max(map(len, self.held.values()), default=0)])}
        counted = Counter(zip(*(self.held[name].tolist() for name in columns)))
        found = (np.array(values, dtype=object) for values in zip(*counted))
        named = dict(zip(columns, found)) or {name: np.array([], dtype=object) for name in columns}
        return named | {COUNT: np.array(list(counted.values()), dtype=np.int64)}

    def row(self, number: int) -> str:
        """Return words that state the location of a row, given its number from 1."""
        return f"row {number} of {self.name}" + (f" (line {self.lines[number - 1]})" if self.lines else "")

    def row_with(self, held: Mapping[str, Any]) -> str:
        """Return words that state the location of the first row that has the given values."""
        rows = zip(*(self.held[name].tolist() for name in held))
        wanted = tuple(held.values())
        number = next((at for at, row in enumerate(rows, 1) if row == wanted), None)
        return self.row(number) if number else f"a row of {self.name}"


def address_of(source: Any) -> Any:
    """Return a table's address as plain values that a worker can be sent; None for a table in memory.

    Raises
    ------
    DataError
        For a file that there is not.

    Examples
    --------
    >>> address_of("s3a://census/people"), address_of({"area": ["a"]})
    ('s3a://census/people', None)
    """
    if isinstance(source, JoinedTables):
        held = {"persons": address_of(source.persons), "households": address_of(source.households)}
        return None if None in held.values() else held
    if is_address(source) or not isinstance(source, str | Path):
        return source if is_address(source) else None
    files_of(Path(source))
    path = str(Path(source).absolute())
    return {"path": path, "encoding": source.encoding} if isinstance(source, Encoded) else path


def source_at(address: Any) -> Any:
    """Return the table at an address that `address_of` returned.

    Examples
    --------
    >>> source_at({"path": "/people.csv", "encoding": "latin-1"}).encoding
    'latin-1'
    """
    if not isinstance(address, dict):
        return address
    if "encoding" in address:
        return Encoded(**address)
    return JoinedTables(**{name: source_at(part) for name, part in address.items()})


def refuse_addresses(source: Any) -> None:
    """Refuse two linked tables if either is given by a remote address, which only a cluster can read."""
    if isinstance(source, JoinedTables):
        for name, table in (("persons", source.persons), ("households", source.households)):
            if is_address(table):
                raise DataError(
                    f"the table of {name} is at a remote address ({table.partition(':')[0]}:...), and two linked tables "
                    "are read on one machine",
                    needed="two files on the machine that runs the command, which is the driver's machine on a cluster",
                    remedy="copy the table to a Parquet file on that machine",
                )
