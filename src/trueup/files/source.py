"""Read columns from CSV, Parquet, DuckDB or any dataframe, as NumPy arrays of text or numbers.

Messages never quote a reader's own error: it may hold a line of confidential data.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from glob import escape
from io import TextIOWrapper
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, TrueupError
from trueup.files.csv_faults import csv_fault, opened_csv
from trueup.files.held import COUNT, Held

Columns = dict[str, NDArray]
ROW = "trueup_row"
"""Name of the column with the numbers of rows, where a query needs them."""

_CSV = tuple(kind + packed for kind in (".csv", ".tsv", ".txt") for packed in ("", ".gz", ".zst"))
_WORKBOOK = (".xlsx", ".xlsm")
_PARQUET = (".parquet", ".pq")
_UTF_8 = "utf-8-sig"
_DELIMITERS = ",|;\t"
_ADDRESS = re.compile(r"[a-z][a-z0-9+]+:")  # a drive has one letter


@dataclass(frozen=True)
class JoinedTables:
    """Two tables of records, of persons and of the households that they live in.

    Attributes
    ----------
    persons, households
        A path, a dataframe or a DuckDB relation each.
    """

    persons: Any
    households: Any


class Encoded(str):
    """The path of a CSV file that is not in UTF-8.

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
                f"there is no encoding '{encoding}'", needed="one such as utf-8, latin-1, cp1252 or utf-16"
            ) from None
        made.encoding = encoding
        return made


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

    def row(self, number: int) -> str:
        """Say where the row of this number (from 1) stands: what it holds may be confidential."""
        ...

    def row_with(self, held: Mapping[str, Any]) -> str:
        """Say where the first row stands that holds these values."""
        ...


def open_table(source: Any, connection: Any = None) -> Source:
    """Open a path (CSV, Parquet), a DuckDB relation, or any dataframe that narwhals takes.

    Parameters
    ----------
    source
        A path may also be a folder of Parquet files (read with those of the folders in it), or, where there is
        nothing of that name, a pattern such as `people/*.parquet`.
    connection
        The DuckDB connection that reads files, which it must be allowed to; by default a fresh one.

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
    if is_address(source):
        raise DataError(
            f"the source is an address ({source.partition(':')[0]}:...), which only a cluster reads",
            remedy="give --engine spark, for records in Parquet; or a file of this machine",
        )
    if isinstance(source, Encoded):
        return _decoded(Path(source), source.encoding)
    if isinstance(source, str | Path):
        return _open_file(Path(source), connection)
    if isinstance(source, Relation):
        return source
    if type(source).__module__.split(".")[0] in ("duckdb", "_duckdb"):
        return Relation("the DuckDB relation", source)
    return _open_frame(source)


def is_address(source: Any) -> bool:
    """Whether a source is an address or a catalogue's table, which an engine reads where it lives.

    Examples
    --------
    >>> is_address("s3a://census/people"), is_address("table:census.people"), is_address("people.parquet")
    (True, True, False)
    """
    return isinstance(source, str) and _ADDRESS.match(source) is not None


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
            raise DataError(
                f"{source.name} has no column '{column}'",
                needed="a header row with the names that the spec gives, in the same upper and lower case",
            )


def is_parquet(path: Path) -> bool:
    """Whether a file's name says that it is Parquet."""
    return path.name.lower().endswith(_PARQUET)


def is_csv(path: Path) -> bool:
    """Whether a file's name says that it is CSV."""
    return path.name.lower().endswith(_CSV)


def files_of(path: Path) -> list[Path]:
    """Return the files that a path names: itself, or the Parquet files of a folder or a pattern.

    Raises
    ------
    DataError
        If there are none.
    """
    try:
        files = _found(path)
    except (OSError, ValueError, NotImplementedError):  # a name too long, or a pattern that is none
        files = []
    if not files:
        what = f"no Parquet file in the folder '{path}'" if _is_folder(path) else f"no file '{path}'"
        raise DataError(f"there is {what}", remedy="check the path")
    return files


def _found(path: Path) -> list[Path]:
    """A path that exists is taken by the letter; only one that does not is a pattern."""
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


def files_read(source: Any) -> list[Path]:
    """Return the files that a source consists of; none if it is an address or a table in memory.

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
    if files == [path] and path.name.lower().endswith(_WORKBOOK):
        from trueup.files.workbook import open_workbook

        return open_workbook(path)
    connection = connection or connect(files=files)
    with quiet_duckdb(name, files):
        if all(map(is_parquet, files)):
            return Relation(
                name, connection.sql(f"SELECT * FROM {_parquet_files(files, path)}"), files, connection
            )
        if files == [path] and is_csv(path):
            return _open_csv(path, connection)
    wanted = _CSV + _PARQUET + _WORKBOOK if files == [path] else _PARQUET
    raise DataError(f"{name} has an unknown ending", needed=f"one of {', '.join(wanted)}")


def parquet(files: Iterable[str | Path], options: str = "hive_partitioning = false") -> str:
    """Parquet files as a table of SQL, with the columns that they hold themselves.

    Unless told otherwise DuckDB puts the names of all folders above a file (`state=01`) in the place of its columns.
    """
    return f"read_parquet({_texts(map(_by_letter, files))}, {options})"


def _parquet_files(files: Sequence[Path], path: Path) -> str:
    """Read the files as one table; a column that folders below the path spell (`state=01`) is text."""
    folders = {part for file in files for part in file.relative_to(_named(path)).parts[:-1]}
    spelled = any("=" in folder for folder in folders)
    return parquet(files, "hive_types_autocast = false") if spelled else parquet(files)


def _named(path: Path) -> Path:
    """The folder that a path names in full: itself, or the one that a file or the first wildcard is in."""
    if path.is_dir() or path.is_file():
        return path if path.is_dir() else path.parent
    return Path(*takewhile(lambda part: not set(part) & set("*?["), path.parts))


def _open_csv(path: Path, connection: Any) -> Source:
    """Read a CSV file strictly: every row has the header's fields, or the file counts as damaged.

    Every column is read as text: a FIPS code keeps its leading zeros, and a count is checked digit
    by digit. The dialect is taken from the header row alone, so that no row of data can change it.
    """
    delimiter, names = _header(path, connection)
    relation = connection.read_csv(
        _by_letter(path),
        header=True,
        delimiter=delimiter,
        quotechar='"',
        escapechar='"',
        columns=dict.fromkeys(names, "VARCHAR"),
        auto_detect=False,
        null_padding=False,
        strict_mode=True,
        hive_partitioning=False,
    )
    return Relation(f"'{path.name}'", relation, [path], connection)


def _header(path: Path, connection: Any = None, encoding: str = _UTF_8) -> tuple[str, list[str]]:
    """The delimiter, and the names of the columns."""
    try:
        header = _first_line(path, connection, encoding)
        delimiter = max(_DELIMITERS, key=header.count)
        names = next(csv.reader([header], delimiter=delimiter), [])
    except (OSError, EOFError, UnicodeError, csv.Error):
        raise (
            _damaged(f"'{path.name}'", [path]) if encoding == _UTF_8 else _undecoded(path, encoding)
        ) from None
    if not names or len(set(names)) < len(names) or not all(names):
        raise DataError(
            f"the header of '{path.name}' has an empty or repeated name", needed="one name per column"
        )
    return delimiter, names


def _first_line(path: Path, connection: Any, encoding: str) -> str:
    if _is_zst(path):  # Python reads it from 3.14 on
        options = "columns = {'line': 'VARCHAR'}, delim = '\x01', quote = '', escape = '', header = false, auto_detect = false"
        first = f"SELECT line FROM read_csv({literal(_by_letter(path))}, {options}) LIMIT 1"
        return "".join(line for (line,) in connection.execute(first).fetchall()).removeprefix("\ufeff")
    with opened_csv(path) as file, TextIOWrapper(file, encoding, newline="") as text:
        return text.readline(1 << 20).rstrip("\r\n")


def _is_zst(path: Path) -> bool:
    return path.name.lower().endswith(".zst")


def _decoded(path: Path, encoding: str) -> Source:
    """Read a CSV file of another encoding whole, as strictly as one in UTF-8."""
    name = f"'{path.name}'"
    if not files_of(path) == [path] or not is_csv(path) or _is_zst(path):
        raise DataError(f"{name} is given an encoding", needed="one CSV file, packed by gzip or not at all")
    delimiter, names = _header(path, encoding=encoding)
    try:
        with opened_csv(path) as file, TextIOWrapper(file, encoding, newline="") as text:
            reader = csv.reader(text, delimiter=delimiter, strict=True)
            next(reader)
            rows = [(reader.line_num, row) for row in reader if row]
    except (OSError, EOFError, UnicodeError, csv.Error):
        raise _undecoded(path, encoding) from None
    if short := next((line for line, row in rows if len(row) != len(names)), None):
        raise DataError(f"line {short} of {name} does not have the header's {len(names)} fields")
    columns = zip(*(row for _, row in rows)) if rows else ([] for _ in names)
    return Held(
        name, {n: np.array([v or None for v in column], dtype=object) for n, column in zip(names, columns)}
    )


def _undecoded(path: Path, encoding: str) -> DataError:
    return DataError(f"'{path.name}' cannot be read in the encoding '{encoding}'", remedy="name another")


def connect(*, files: Iterable[str | Path] = (), folders: Iterable[str | Path] = (), **settings: Any) -> Any:
    """Return a fresh in-memory database, the one way to DuckDB: state shared between calls would not be thread-safe.

    It opens no file but those named, and those in the folders named, nothing on a network, and loads no extension: what
    a table or a spec holds can make it do nothing else. It spills to disk only where it is given a `temp_directory`:
    DuckDB's own choice is a folder `.tmp` wherever the command stands, and everybody may read the rows there.

    Parameters
    ----------
    files
        What it may read.
    folders
        Where it may read and write.
    settings
        Of DuckDB, such as `threads`; none can be changed afterwards.

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


_ALONE = {
    "temp_directory": "",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
}


def _both_ways(paths: Iterable[str | Path]) -> Iterator[str]:
    """Paths as they are and as they are asked for: DuckDB holds both against what it allows."""
    for path in map(Path, paths):
        yield from {str(path.absolute()), _by_letter(path)}


def _by_letter(path: str | Path) -> str:
    """Write a path so that DuckDB takes it for no pattern, no address and no home folder."""
    whole = str(Path(path).absolute())
    if "\\" in whole and escape(whole) != whole:
        raise DataError(
            f"the path '{path}' holds a backslash beside one of * ? [, which DuckDB reads as a pattern",
            remedy="rename the file or folder",
        )
    return escape(whole)


def _texts(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(literal, texts))}]"


@contextmanager
def quiet_duckdb(name: str, files: Sequence[Path] = ()) -> Iterator[None]:
    """Turn DuckDB's errors, which quote lines of data, into one that quotes none, but says which line of a file is at fault."""
    import duckdb

    try:
        yield
    except (duckdb.Error, UnicodeDecodeError) as error:
        full = isinstance(error, duckdb.OutOfMemoryException) or "No space left" in str(error)
        line = re.match(r"Invalid Input Error: CSV Error on Line: (\d+)\n", str(error))
        raise _too_large(name) if full else _damaged(name, files, line[1] if line else "") from None


def _damaged(name: str, files: Sequence[Path] = (), line: str = "") -> DataError:
    texts = [path for path in files if is_csv(path) and not _is_zst(path) and path.is_file()]
    for path in texts:
        with suppress(UnicodeDecodeError):
            if fault := csv_fault(path, _delimiter(path)):
                return DataError(
                    f"line {fault.line} of {name} cannot be read: it {fault.what}", remedy=fault.remedy
                )
    where = f"line {line} of {name}" if line else name
    return DataError(
        f"{where} cannot be read: it is truncated, damaged or not what its name says",
        remedy="check the file; text must be UTF-8, and every row must have the header's fields",
    )


def _delimiter(path: Path) -> str:
    with suppress(OSError, EOFError, UnicodeDecodeError), opened_csv(path) as file:
        return max(_DELIMITERS, key=file.readline(1 << 20).decode().count)
    return ","


def _too_large(name: str) -> TrueupError:
    return TrueupError(
        f"{name} needs more memory, or more disk for what does not fit in memory, than there is",
        remedy="allow more memory, or free space beside the output",
    )


class Relation:
    """A table that DuckDB reads."""

    def __init__(self, name: str, relation: Any, files: Sequence[Path] = (), connection: Any = None) -> None:
        # Before DuckDB 2 a relation does not keep its connection open.
        self.name, self.relation, self.files, self._connection = name, relation, files, connection

    def columns(self) -> list[str]:
        return list(self.relation.columns)

    def select(self, columns: Sequence[str]) -> Columns:
        return self._fetch(self.relation.select(*map(_column, columns)))

    def tabulate(self, columns: Sequence[str]) -> Columns:
        named = ", ".join(quoted(c) for c in columns)
        return self._fetch(self.relation.aggregate(f"{named}, count(*) AS {COUNT}", named))

    def row(self, number: int) -> str:
        if len(self.files) > 1:
            for file in self.files:
                (held,) = self._connection.sql(f"SELECT count(*) FROM {parquet([file])}").fetchall()[0]
                if number <= held:
                    return f"row {number} of '{file}'"
                number -= held
        return f"row {number} of {self.name}"

    def row_with(self, held: Mapping[str, Any]) -> str:
        numbered = self.relation.project(f"row_number() OVER () AS {ROW}, {', '.join(map(quoted, held))}")
        same = (
            f"CAST({quoted(c)} AS VARCHAR) IS NOT DISTINCT FROM {_text_or_null(v)}" for c, v in held.items()
        )
        found = numbered.filter(" AND ".join(same)).aggregate(f"min({ROW})").fetchall()
        return self.row(found[0][0]) if found[0][0] else f"a row of {self.name}"

    def _fetch(self, relation: Any) -> Columns:
        with quiet_duckdb(self.name, self.files):
            return {name: _plain(values) for name, values in relation.fetchnumpy().items()}


class _Frame:
    """A dataframe that narwhals reads."""

    def __init__(self, name: str, frame: Any) -> None:
        self.name, self._given = name, frame

    @cached_property
    def _frame(self) -> Any:
        import narwhals as nw

        return self._given.collect() if isinstance(self._given, nw.LazyFrame) else self._given

    def columns(self) -> list[str]:
        return self._given.collect_schema().names()  # of a lazy frame, without a row

    def select(self, columns: Sequence[str]) -> Columns:
        return {name: self._frame.get_column(name).to_numpy() for name in columns}

    def tabulate(self, columns: Sequence[str]) -> Columns:
        import narwhals as nw

        counted = self._frame.group_by(*columns).agg(nw.len().alias(COUNT))
        return {name: counted.get_column(name).to_numpy() for name in counted.columns}

    def row(self, number: int) -> str:
        return f"row {number} of {self.name}"

    def row_with(self, held: Mapping[str, Any]) -> str:
        rows = zip(*self.select(list(held)).values())
        same = (i for i, row in enumerate(rows, 1) if list(map(str, row)) == list(map(str, held.values())))
        number = next(same, None)
        return self.row(number) if number else f"a row of {self.name}"


def _open_frame(source: Any) -> Source:
    import narwhals as nw

    try:
        frame = nw.from_native(source)
    except TypeError:
        raise DataError(
            f"a {type(source).__name__} is not a table", needed="a path, a dataframe or a DuckDB relation"
        ) from None
    return _Frame(f"the {type(source).__name__}", frame)


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


def _text_or_null(value: Any) -> str:
    return "NULL" if value is None else literal(str(value))


def literal(text: str) -> str:
    """Write a text into SQL."""
    return "'" + text.replace("'", "''") + "'"


def quoted(column: str) -> str:
    """Write a column's name into SQL."""
    return '"' + column.replace('"', '""') + '"'


def _column(column: str) -> Any:
    import duckdb

    return duckdb.ColumnExpression(column)
