"""Faults of CSV files: the line and the cause, never the content."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import suppress
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from trueup.files.likely_encoding import likely_encoding

MOST_LINES = 5_000_000
"""Lines that are searched for a fault."""
DELIMITERS = ",|;\t"
DAMAGED = (OSError, EOFError, zlib.error)
"""Exceptions of reading a file that is packed by gzip and damaged, or is not there."""


class FileFault(NamedTuple):
    """A fault and its remedy."""

    line: int
    what: str
    remedy: str


def opened_csv(path: Path):
    """Open a CSV file, compressed or not, as bytes."""
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")


def encoding_of(path: Path) -> str:
    """Return the encoding that the beginning of a file is likely to be in; UTF-8 if it cannot be read."""
    try:
        with opened_csv(path) as file:
            held = file.read(1 << 20)
    except DAMAGED:
        return "utf-8-sig"  # what is wrong is said where it is read
    return likely_encoding(held)


def line_of_row(path: Path, number: int) -> int | None:
    """Return the line in which a row ends, as an editor counts, with the header and line breaks within quotes.

    None where that cannot be told.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = path.write_text('town,n\\n"a\\nb",1\\nc,2\\n')
    >>> line_of_row(path, 2)
    4
    """
    if path.name.lower().endswith(".zst"):
        return None
    with (
        suppress(*DAMAGED, csv.Error),
        opened_csv(path) as file,
        TextIOWrapper(file, "utf-8-sig", errors="replace", newline="") as text,
    ):
        reader = csv.reader(text, delimiter=delimiter_of(path))
        lines = (reader.line_num for row in reader if row)
        return next(islice(lines, number, None), None)  # the header is the first
    return None


def csv_fault(path: Path, delimiter: str = ",") -> FileFault | None:
    """Find the first fault that keeps a file from being read; lines are counted from 1, as editors do.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = path.write_bytes(b"town,sex\\na,f\\nb\\n")
    >>> csv_fault(path)[:2]
    (3, 'has 1 field, and the header has 2')
    """
    try:
        return _bytes_at_fault(path) or _fields_at_fault(path, delimiter) or _mixed_ends(path)
    except DAMAGED:
        return None  # a file that ends too early is as damaged as it is said to be


def _lines(path: Path) -> Iterator[bytes]:
    with opened_csv(path) as file:
        yield from islice(file, MOST_LINES)


def _bytes_at_fault(path: Path) -> FileFault | None:
    for number, line in enumerate(_lines(path), 1):
        if b"\0" in line:
            return FileFault(
                number, "holds a zero byte, so the file is in UTF-16 or no text", "save it as UTF-8"
            )
        if b"\r" in line.rstrip(b"\r\n"):
            return FileFault(
                number,
                "holds a carriage return without a line feed",
                "save it with the line endings of Unix",
            )
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            return FileFault(
                number,
                "holds bytes that are not UTF-8",
                f"name the encoding: --encoding {encoding_of(path)}; or save the file as UTF-8",
            )
    return None


def _fields_at_fault(path: Path, delimiter: str) -> FileFault | None:
    text = (line.decode("utf-8-sig" if at == 0 else "utf-8") for at, line in enumerate(_lines(path)))
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    wanted, begins = 0, 1
    try:
        for fields in reader:
            wanted = wanted or len(fields)
            if fields and len(fields) != wanted:
                many = f"{len(fields)} field{'s' if len(fields) > 1 else ''}"
                return FileFault(
                    begins,
                    f"has {many}, and the header has {wanted}",
                    "give every row the header's fields",
                )
            begins = reader.line_num + 1
    except csv.Error:
        return FileFault(
            begins,
            "holds a quotation mark out of place, or one that is never closed",
            "double the quotation marks within a text, and close what is opened",
        )
    return None


def _mixed_ends(path: Path) -> FileFault | None:
    first = None
    for number, line in enumerate(_lines(path), 1):
        end = "CRLF" if line.endswith(b"\r\n") else "LF" if line.endswith(b"\n") else None
        first = first or end
        if end and end != first:
            return FileFault(
                number,
                f"ends in {end}, and the lines before it in {first}",
                "save the file with one kind of line endings",
            )
    return None


def delimiter_of(path: Path) -> str:
    """Return the delimiter that occurs most in the header."""
    with suppress(*DAMAGED, UnicodeDecodeError), opened_csv(path) as file:
        return max(DELIMITERS, key=file.readline(1 << 20).decode().count)
    return ","
