"""DuckDB connections that may open only given files, and the tables that they read.

Messages never quote its own errors: they may hold a line of confidential data.

One file: what a connection may do and what its errors may say.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, ResourceError
from trueup.files import COUNT, Columns, is_csv, is_parquet, is_zst
from trueup.files.values import BYTES_PER_PYTHON_TEXT, as_text

ROW = "trueup_row"
"""Name of the column with the numbers of rows, where a query needs them."""


def parquet(files: Iterable[str | Path], options: str = "hive_partitioning = false") -> str:
    """Return the SQL that reads Parquet files as one table, with the columns stored in the files alone.

    Unless told otherwise DuckDB puts the names of all folders above a file (`state=01`) in the place of its columns.
    """
    return f"read_parquet({_texts(map(by_letter, files))}, {options})"


def connect(*, files: Iterable[str | Path] = (), folders: Iterable[str | Path] = (), **settings: Any) -> Any:
    """Return a new DuckDB connection in memory that may open only the given files and folders.

    It opens no file but those named, and those in the folders named, nothing on a network, and loads no extension: what
    a table or a spec holds can make it do nothing else. It spills to disk only where it is given a `temp_directory`:
    DuckDB's own choice is a folder `.tmp` wherever the command stands, and everybody may read the rows there.

    Parameters
    ----------
    files
        Files that it may read.
    folders
        Folders in which it may read and write.
    settings
        Settings of DuckDB, such as `threads`; none can be changed afterwards.

    Examples
    --------
    >>> connect().sql("SELECT 1 + 1").fetchall()
    [(2,)]
    >>> connect().sql("FROM read_text('/etc/hostname')")
    Traceback (most recent call last):
    _duckdb.PermissionException: Permission Error: Cannot access file "/etc/hostname" - ...
    """
    import duckdb

    connection = duckdb.connect(":memory:", config={**_ALONE, **settings})
    connection.execute(f"SET allowed_paths = {_texts(_both_ways(files))}")
    connection.execute(f"SET allowed_directories = {_texts(_both_ways(folders))}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def connect_to_files(files: Iterable[str | Path], **settings: Any) -> Any:
    """Return a DuckDB connection that may open only the given files, for queries that create no table.

    One database serves all connections to the same small files: DuckDB needs 15 ms to make one, which is more than small
    files take. It keeps nothing of a file, so that each query sees the file as it is at that time. Large files have a
    database of their own, because it holds memory until it is closed.

    Parameters
    ----------
    files
        Files that it may read.
    settings
        Settings of DuckDB for large files, such as `threads`; one thread reads small ones.

    Examples
    --------
    >>> connect_to_files([]).sql("SELECT 1 + 1").fetchall()
    [(2,)]
    """
    absolute = tuple(Path(file).absolute() for file in files)
    if sum(path.stat().st_size for path in absolute if path.is_file()) <= MAX_SHARED_BYTES:
        return shared_database(absolute).cursor()
    return connect(files=absolute, **settings)


MAX_SHARED_BYTES = 1 << 20
"""Size of all files of a shared database: reading as much takes about as long as making a database."""


@lru_cache(maxsize=4)
def shared_database(files: tuple[Path, ...]) -> Any:
    """Make the database that connections to the same small files share."""
    return connect(files=files, threads=1, enable_external_file_cache="false")


if hasattr(os, "register_at_fork"):  # a child has no copies of a database's threads, and would wait for them
    os.register_at_fork(before=shared_database.cache_clear)


_ALONE = {
    "temp_directory": "",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
}


def _both_ways(paths: Iterable[str | Path]) -> Iterator[str]:
    """Yield each path both as given and escaped, because DuckDB compares both with the allowed paths."""
    for path in map(Path, paths):
        yield from {str(path.absolute()), by_letter(path)}


def by_letter(path: str | Path) -> str:
    """Return a path escaped so that DuckDB does not read it as a pattern, address or home folder."""
    whole = str(Path(path).absolute())
    if "\\" in whole and escape(whole) != whole:
        raise DataError(
            f"the path '{path}' holds a backslash beside one of * ? [, which DuckDB reads as a pattern",
            remedy="rename the file or folder, so that its path has no backslash",
        )
    return escape(whole)


def _texts(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(literal, texts))}]"


@contextmanager
def quiet_duckdb(name: str, files: Sequence[Path] = ()) -> Iterator[None]:
    """Replace DuckDB's errors, which may quote data, by errors that state only the line of a faulty file."""
    import duckdb

    try:
        yield
    except (duckdb.Error, UnicodeDecodeError, RuntimeError) as error:  # the last of names that are no UTF-8
        full = isinstance(error, duckdb.OutOfMemoryException) or "No space left" in str(error)
        if full:
            raise ResourceError(
                f"{name} needs more memory or disk space than there is",
                remedy="raise --memory, or free space on the disk of the output",
            ) from None
        line = re.match(r"Invalid Input Error: CSV Error on Line: (\d+)\n", str(error))
        raise damaged(name, files, line[1] if line else "") from None


def damaged(name: str, files: Sequence[Path] = (), line: str = "") -> DataError:
    from trueup.files.csv_faults import csv_fault, delimiter_of

    texts = [path for path in files if is_csv(path) and not is_zst(path) and path.is_file()]
    for path in texts:
        with suppress(UnicodeDecodeError):
            if fault := csv_fault(path, delimiter_of(path)):
                return DataError(
                    f"line {fault.line} of {name} cannot be read: it {fault.what}", remedy=fault.remedy
                )
    where = f"line {line} of {name}" if line else name
    return DataError(
        f"{where} cannot be read: it is truncated or damaged, or its format does not fit its name",
        needed="a complete file; text must be UTF-8, and every row must have as many fields as the header",
        remedy="write the file again, or restore it",
    )


@contextmanager
def writing_by_duckdb(path: Path) -> Iterator[None]:
    """Turn a disk error that DuckDB raises into a ResourceError that names the file and the cause."""
    import duckdb

    try:
        yield
    except duckdb.IOException as error:
        reasons = map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EFBIG))
        reason = next((reason for reason in reasons if reason in str(error)), "the disk refuses")
        raise ResourceError(
            f"cannot write '{path.name}': {reason}",
            remedy="free space on that disk, or choose a folder in which you may write",
        ) from None


_NESTED = ("list", "array", "struct", "map", "union")
"""Kinds of columns that hold several values in a row."""
TEXTS_AT_ONCE = 1 << 16
"""Rows of texts that are held as Python's at once."""
LONGEST_TEXT = 10_000
"""Bytes of a text in a Parquet file."""


class Relation:
    """A table that DuckDB reads, from files or from a query; of a query `where` may say where a row stands."""

    def __init__(
        self,
        name: str,
        relation: Any,
        files: Sequence[Path] = (),
        connection: Any = None,
        where: Callable[[int], str] | None = None,
    ) -> None:
        # Before DuckDB 2 a relation does not keep its connection open.
        self.name, self.relation, self.files, self._connection = name, relation, files, connection
        self._where = where

    def columns(self) -> list[str]:
        with quiet_duckdb(self.name, self.files):
            return list(self.relation.columns)

    def select(self, columns: Sequence[str]) -> Columns:
        if self.files and all(
            map(is_parquet, self.files)
        ):  # a few bytes may stand for long texts in every row
            self._refuse_long(columns)
        return self._fetch(lambda: self.relation.select(*map(_column, columns)))

    def tabulate(self, columns: Sequence[str]) -> Columns:
        named = ", ".join(quoted(c) for c in columns)
        counted = f"{named}, count(*) AS {COUNT}" if columns else f"count(*) AS {COUNT}"
        return self._fetch(lambda: self.relation.aggregate(counted, named))

    def row(self, number: int) -> str:
        from trueup.files.csv_faults import line_of_row

        if self._where:
            return self._where(number)
        if len(self.files) > 1:
            for file in self.files:
                (held,) = self._connection.sql(f"SELECT count(*) FROM {parquet([file])}").fetchall()[0]
                if number <= held:
                    return f"row {number} of '{file}'"
                number -= held
        line = line_of_row(self.files[0], number) if self.files and is_csv(self.files[0]) else None
        return f"row {number} of {self.name}" + (f" (line {line})" if line else "")

    def row_with(self, held: Mapping[str, Any]) -> str:
        numbered = self.relation.project(f"row_number() OVER () AS {ROW}, {', '.join(map(quoted, held))}")
        texts = {c: "NULL" if value is None else literal(str(value)) for c, value in held.items()}
        same = (f"CAST({quoted(c)} AS VARCHAR) IS NOT DISTINCT FROM {text}" for c, text in texts.items())
        found = numbered.filter(" AND ".join(same)).aggregate(f"min({ROW})").fetchall()
        return self.row(found[0][0]) if found[0][0] else f"a row of {self.name}"

    def _refuse_long(self, columns: Sequence[str]) -> None:
        with quiet_duckdb(self.name, self.files):
            chosen = self.relation.select(*map(_column, columns))
            texts = [name for name, kind in zip(chosen.columns, chosen.types) if kind.id == "varchar"]
            longest = ", ".join(f"max(strlen({quoted(name)}))" for name in texts)
            found = chosen.aggregate(longest).fetchall()[0] if texts else ()
        for name, length in zip(texts, found):
            if (length or 0) > LONGEST_TEXT:
                raise DataError(
                    f"the column '{name}' of {self.name} holds a text of more than {LONGEST_TEXT:,} bytes",
                    needed=f"texts of at most {LONGEST_TEXT:,} bytes in columns that are read",
                )

    def _fetch(self, asked: Callable[[], Any]) -> Columns:
        with quiet_duckdb(self.name, self.files):
            found = asked()
            for name, kind in zip(found.columns, found.types):
                if kind.id in _NESTED:  # a few bytes of a file may hold lists of millions of values
                    raise DataError(
                        f"the column '{name}' of {self.name} holds several values in a row ({kind.id})",
                        needed="one value in each row",
                    )
            return {name: unmasked(values) for name, values in found.fetchnumpy().items()}


def text_columns(
    connection: Any, names: Sequence[str], source: str, may_lack: Collection[str] = ()
) -> Columns:
    """Yield columns of text in batches of rows, because the texts of all keys at once would need gigabytes.

    Equal columns are one array; columns that may lack values are objects, with None for a missing one.
    """
    pieces: dict[str, list[NDArray]] = {name: [] for name in names}
    asked = connection.execute(f"SELECT {', '.join(map(quoted, names))} FROM {source}")
    while rows := asked.fetchmany(TEXTS_AT_ONCE):
        seen: list[tuple[tuple, NDArray]] = []
        for name, held in zip(names, zip(*rows)):
            if (texts := next((made for other, made in seen if other == held), None)) is None:
                texts = np.array(held, dtype=object) if name in may_lack else as_text(held)
                seen.append((held, texts))
            pieces[name].append(texts)
    alike: dict[tuple[int, ...], list[str]] = {}
    for name, held in pieces.items():
        alike.setdefault(tuple(map(id, held)), []).append(name)
    found: Columns = {}
    for same in alike.values():
        held, *_ = [pieces.pop(name) or [np.zeros(0, object)] for name in same]
        narrow = all(piece.itemsize <= 4 * BYTES_PER_PYTHON_TEXT for piece in held)
        found |= dict.fromkeys(same, np.concatenate(held if narrow else [p.astype(object) for p in held]))
    return found


def unmasked(values: NDArray) -> NDArray:
    """Return an array without a mask, in which None stands for missing values."""
    if not np.ma.isMaskedArray(values):
        return values
    mask, data = np.ma.getmaskarray(values), np.ma.getdata(values)
    if not mask.any():
        return data
    held = data.astype(object)
    held[mask] = None
    return held


def literal(text: str) -> str:
    """Return a text written as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def quoted(column: str) -> str:
    """Return a column's name quoted for SQL."""
    return '"' + column.replace('"', '""') + '"'


def _column(column: str) -> Any:
    import duckdb

    return duckdb.ColumnExpression(column)
