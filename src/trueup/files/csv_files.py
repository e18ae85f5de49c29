"""Strict readers of CSV files, which take the delimiter from the header."""

from __future__ import annotations

import csv
import zlib
from codecs import getincrementaldecoder
from gzip import BadGzipFile
from io import TextIOWrapper
from pathlib import Path
from shutil import copyfileobj
from typing import Any, BinaryIO

import numpy as np

from trueup.errors import DataError
from trueup.files import DAMAGED, DELIMITERS, Encoded, Held, Source, files_of, is_csv, is_zst, opened_csv
from trueup.files.database import Relation, by_letter, damaged, literal

_UTF_8 = "utf-8-sig"


def is_utf8(path: Path) -> bool:
    """Return True if a CSV file is valid UTF-8, in which case a declared encoding is ignored.

    A zero byte or an escape stands for another encoding whose bytes are all in ASCII.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "people.csv"
    >>> [path.write_bytes("é,n".encode(encoding)) and is_utf8(path) for encoding in ("utf-8", "latin-1", "utf-16")]
    [True, False, False]
    """
    decoder = getincrementaldecoder("utf-8")()
    try:
        with opened_csv(path) as file:
            while block := file.read(1 << 20):
                if b"\0" in block or b"\x1b" in block:
                    return False
                decoder.decode(block)
        decoder.decode(b"", final=True)
    except (*DAMAGED, UnicodeDecodeError):
        return False
    return True


def open_csv(path: Path, connection: Any) -> Source:
    """Read a CSV file strictly: every row must have as many fields as the header.

    Every column is read as text: a FIPS code keeps its leading zeros, and a count is checked digit
    by digit. The dialect is taken from the header row alone, so that no row of data can change it.
    """
    if is_zst(path) and not is_whole_zst(path):
        raise damaged(f"'{path.name}'")
    delimiter, names = _header(path, connection)
    relation = connection.read_csv(
        by_letter(path),
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
    """Return the delimiter of a CSV file and the names of its columns, from the header."""
    try:
        header = _first_line(path, connection, encoding)
        delimiter = max(DELIMITERS, key=header.count)
        names = next(csv.reader([header], delimiter=delimiter), [])
    except (*DAMAGED, UnicodeError, csv.Error):
        raise (
            damaged(f"'{path.name}'", [path]) if encoding == _UTF_8 else _undecoded(path, encoding)
        ) from None
    if not names and not header:
        raise DataError(
            f"'{path.name}' is empty",
            needed="a header row with the names of the columns",
            remedy="check the path",
        )
    if not names or len(set(names)) < len(names) or not all(names):
        what = "a name twice" if names and all(names) else "a column without a name"
        raise DataError(
            f"the header row of '{path.name}' has {what}",
            needed="a different name for each column",
            remedy="correct the header row",
        )
    return delimiter, names


def _first_line(path: Path, connection: Any, encoding: str) -> str:
    if is_zst(path):  # Python reads it from 3.14 on
        options = "columns = {'line': 'VARCHAR'}, delim = '\x01', quote = '', escape = '', header = false, auto_detect = false"
        first = f"SELECT line FROM read_csv({literal(by_letter(path))}, {options}) LIMIT 1"
        return "".join(line for (line,) in connection.execute(first).fetchall()).removeprefix("\ufeff")
    with opened_csv(path) as file, TextIOWrapper(file, encoding, newline="") as text:
        return text.readline(1 << 20).rstrip("\r\n")


def open_encoded(path: Path, encoding: str) -> Source:
    """Read a whole CSV file that is not in UTF-8 into memory, as strictly as a file in UTF-8."""
    name = f"'{path.name}'"
    _refuse_encoding(path)
    delimiter, names = _header(path, encoding=encoding)
    try:
        with opened_csv(path) as file, TextIOWrapper(file, encoding, newline="") as text:
            reader = csv.reader(text, delimiter=delimiter, strict=True)
            next(reader)
            rows = [(reader.line_num, row) for row in reader if row]
    except (*DAMAGED, UnicodeError, csv.Error):
        raise _undecoded(path, encoding) from None
    if short := next((line for line, row in rows if len(row) != len(names)), None):
        raise DataError(
            f"line {short} of {name} does not have as many fields as the header",
            needed=f"{len(names)} fields in every row",
            remedy="correct the line; a field that contains the delimiter needs quotation marks",
        )
    columns = zip(*(row for _, row in rows)) if rows else ([] for _ in names)
    held = {n: np.array([v or None for v in column], dtype=object) for n, column in zip(names, columns)}
    return Held(name, held, [line for line, _ in rows])


def _refuse_encoding(path: Path) -> None:
    if not files_of(path) == [path] or not is_csv(path) or is_zst(path):
        raise DataError(
            f"an encoding is given for '{path.name}', which is read without one",
            needed="one CSV file, uncompressed or compressed by gzip",
            remedy="leave out the encoding",
        )


def in_utf8(source: Any, folder: Path) -> Any:
    """Return a source in UTF-8. A CSV file in another encoding is first copied to a folder.

    Raises
    ------
    DataError
        If it is not in the encoding that is named.
    """
    if not isinstance(source, Encoded):
        return source
    path = Path(source)
    _refuse_encoding(path)
    copy = folder / path.name.removesuffix(".gz")
    try:
        with (
            opened_csv(path) as file,
            TextIOWrapper(file, source.encoding, newline="") as text,
            copy.open("w", encoding="utf-8", newline="") as out,
        ):
            copyfileobj(text, out)
    except (EOFError, UnicodeError, BadGzipFile, zlib.error):
        raise _undecoded(path, source.encoding) from None
    return copy


def _undecoded(path: Path, encoding: str) -> DataError:
    return DataError(
        f"'{path.name}' cannot be read in the encoding '{encoding}'",
        remedy="give the encoding in which it was saved, such as latin-1, cp1252 or utf-16; or save it again as UTF-8",
    )


_FRAME, _SKIPPABLE = 0xFD2FB528, 0x184D2A5
_DICTIONARY, _CONTENT = (0, 1, 2, 4), (0, 2, 4, 8)
"""Bytes of two fields of a frame's header, by their flags."""
_RUN, _RESERVED = 1, 3
"""Kinds of blocks: one byte that is repeated, and none."""


def is_whole_zst(path: Path) -> bool:
    """Return True if a zstd file is complete, judged by the sizes that its frames and blocks state.

    Source: RFC 8878, section 3.1.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.zst"
    >>> packed = bytes.fromhex("28b52ffd2001090000") + b"a"  # one frame, of one block that holds an `a`
    >>> [path.write_bytes(packed[:n]) and is_whole_zst(path) for n in (10, 9)]
    [True, False]
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        while file.tell() < size:
            if not _past_frame(file):
                return False
        return file.tell() == size > 0


def _past_frame(file: BinaryIO) -> bool:
    """Skip to the end of a zstd frame; return False if the file ends before it."""
    magic = _little_endian(file, 4)
    if magic >> 4 == _SKIPPABLE:
        file.seek(_little_endian(file, 4), 1)
        return True
    if magic != _FRAME:
        return False
    flags = _little_endian(file, 1)
    single = flags >> 5 & 1
    content = _CONTENT[flags >> 6] or single
    file.seek((not single) + _DICTIONARY[flags & 3] + content, 1)
    return _past_blocks(file) and (not flags >> 2 & 1 or len(file.read(4)) == 4)


def _past_blocks(file: BinaryIO) -> bool:
    """Skip to the end of the last block of a zstd frame; return False if the file ends before it."""
    while len(head := file.read(3)) == 3:
        block = int.from_bytes(head, "little")
        kind = block >> 1 & 3
        file.seek(1 if kind == _RUN else block >> 3, 1)
        if block & 1 or kind == _RESERVED:
            return kind != _RESERVED
    return False


def _little_endian(file: BinaryIO, size: int) -> int:
    return int.from_bytes(file.read(size), "little")
