"""Readers of CSV files and workbooks, one row of cells after the other.

Rows, cells and texts are bounded, packed files too; links of a workbook to others are not followed.
"""

from __future__ import annotations

import csv
import datetime
import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any
from unicodedata import digit

from trueup.errors import DataError
from trueup.files import DAMAGED, DELIMITERS, Encoded, is_workbook, is_zst, opened_csv
from trueup.files.csv_faults import encoding_of
from trueup.files.workbook import opened_workbook, sheet_of

MOST_ROWS, MOST_CELLS = 20_000_000, 400_000_000
"""Rows and cells of a file."""
WIDEST = 16_384
"""Cells of a row."""

HIGHEST = 40
"""Rows at the top of a file below which no header is expected to end."""
_MARK = re.compile(r"[(\[]?(\d{1,3}|[A-Za-z])[)\].]?(\s*=.*)?", re.ASCII)

Row = list[str]


def rows_of(
    source: Any, sheet: str | None, delimiter: str | None = None, *, stripped: bool = True
) -> Iterator[Row]:
    """Yield the rows of a CSV file or of a sheet of a workbook, each cell as text."""
    path = Path(source)
    rows = (
        _sheet_rows(path, sheet, stripped=stripped)
        if is_workbook(path)
        else _csv_rows(path, source, delimiter or ",", stripped=stripped)
    )
    seen = 0
    for number, row in enumerate(_without_numbering(rows) if stripped else rows):
        seen += len(row)
        if number >= MOST_ROWS or seen > MOST_CELLS or len(row) > WIDEST:
            raise DataError(
                f"'{path.name}' is too large: more than {MOST_ROWS:,} rows, {WIDEST:,} cells in a row or {MOST_CELLS:,} "
                "cells in all",
                needed="a file that holds one table",
                remedy="remove other tables from the file, or save this table in a file of its own",
            )
        yield row


def _without_numbering(rows: Iterator[Row]) -> Iterator[Row]:
    """Yield rows in which a row of column numbers below the header is blank."""
    above: Row = []
    for row in islice(rows, HIGHEST):
        if sum(map(bool, above)) > 1 and numbers_columns(row):
            below = next(rows, [])
            yield row if _counts_on(row, below) else []
            row = below
        yield row
        above = row
    yield from rows


def _counts_on(row: Row, below: Row) -> bool:
    """Return True if a row may contain counts of a place that look like column numbers by chance."""
    words = any(sum(map(str.isalpha, cell)) > 2 for cell in below)
    return len(row) < 8 and row[0].isdigit() and bool(below) and below[0].isdigit() and not words


def numbers_columns(row: Sequence[str]) -> bool:
    """Return True if a row contains only the numbers or letters of the columns.

    Examples
    --------
    >>> [numbers_columns(row) for row in (["1", "2", "3"], ["(a)", "(b)", "(c) = (a) + (b)"], ["1", "2", "4"], ["", "1", "2"])]
    [True, True, False, False]
    """
    marks = [found[1] if (found := _MARK.fullmatch(cell)) else "" for cell in row]
    while marks and not row[len(marks) - 1]:
        marks.pop()
    if len(marks) < 3 or "" in marks:
        return False
    if all(map(str.isdigit, marks)):
        return [int(mark) for mark in marks] in ([*range(1, len(marks) + 1)], [*range(len(marks))])
    return (
        all(len(mark) == 1 and ord(mark) == ord(marks[0]) + k for k, mark in enumerate(marks))
        and marks[0] in "aA"
    )


def delimiters_of(source: Any) -> list[str | None]:
    """Return the possible delimiters of a CSV file, or a list with None for a workbook."""
    return [None] if is_workbook(Path(source)) else list(DELIMITERS)


def _csv_rows(path: Path, source: Any, delimiter: str, *, stripped: bool) -> Iterator[Row]:
    if is_zst(path):
        raise DataError(
            f"'{path.name}' is compressed, and its header is not in row 1", remedy="decompress it"
        )
    encoding = source.encoding if isinstance(source, Encoded) else _unicode(path)
    try:
        with opened_csv(path) as file, TextIOWrapper(file, encoding, newline="") as text:
            read = csv.reader(_without_zeros(text), delimiter=delimiter)
            rows = ([unguarded(cell.strip()) for cell in row] for row in read) if stripped else read
            yield from _apart(rows) if delimiter == "\t" else rows
    except FileNotFoundError:
        raise DataError(f"there is no file '{path}'", remedy="check the path") from None
    except UnicodeError:
        raise DataError(
            f"'{path.name}' is not in the encoding {encoding.removesuffix('-sig').upper()}",
            remedy=f"name the encoding: --encoding {encoding_of(path)}; or save the file as UTF-8",
        ) from None
    except (*DAMAGED, csv.Error):
        raise DataError(
            f"'{path.name}' cannot be read as CSV",
            needed="rows of fields with a delimiter, and quotation marks in pairs",
            remedy="save the table again as CSV, Parquet or xlsx",
        ) from None


def _unicode(path: Path) -> str:
    """Return the name of the Unicode encoding of a file, UTF-8 or a variant of UTF-16."""
    found = encoding_of(path)
    return found if found.startswith("utf") else "utf-8-sig"


def _without_zeros(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines of text, and refuse a zero byte, which NumPy would drop at the end of a text."""
    for line in lines:
        if "\0" in line:
            raise csv.Error
        yield line


def unguarded(text: str) -> str:
    """Return a text in ASCII digits, without marks that protect its leading zeros.

    Examples
    --------
    >>> [unguarded(text) for text in ('="001"', "'0607", "=1", "'s-Graveland")]
    ['001', '0607', '=1', "'s-Graveland"]
    >>> [unguarded(text) for text in ("１，２３４", "٣٬٤٥٦٫٥", "१२", "１月")]
    ['1,234', '3,456.5', '12', '１月']
    """
    if text.startswith('="') and text.endswith('"') and len(text) > 2:
        return text[2:-1]
    if not text.isascii() and _OTHER_DIGITS.fullmatch(text):
        return "".join(str(digit(c)) if c.isdecimal() else _SIGNS.get(c, c) for c in text)
    return text[1:] if _GUARDED.fullmatch(text) else text


_GUARDED = re.compile(r"['’][-\dA-Z]*\d[-\dA-Z.,]*", re.ASCII)
_SIGNS = {"．": ".", "，": ",", "٫": ".", "٬": ",", "－": "-", "\u200e": "", "\u200f": ""}
_OTHER_DIGITS = re.compile(rf"[-−－\u200e\u200f]{{0,2}}\d[\d.,\s{''.join(_SIGNS)}]*")


def _apart(rows: Iterator[Row]) -> Iterator[Row]:
    """Yield rows in which the keys that Eurostat joins by commas in the first cell are separate."""
    first = next(rows, [])
    keys = first[0].partition("\\")[0].split(",") if first and "\\" in first[0] else []
    if len(keys) < 2:
        yield first
        yield from rows
        return
    yield [*keys, *first[1:]]
    for row in rows:
        held = row[0].split(",") if row else []
        yield [*held, *row[1:]] if len(held) == len(keys) else row


def sheets_of(path: Path) -> list[str]:
    """Return the names of the sheets of a workbook."""
    with opened_workbook(path) as book:
        return list(book.sheetnames)


def _sheet_rows(path: Path, sheet: str | None, *, stripped: bool) -> Iterator[Row]:
    with opened_workbook(path) as book:
        for row in sheet_of(path, book, sheet).iter_rows(values_only=stripped):
            yield [cell_text(value) for value in row] if stripped else list(map(_indented, row))


def _indented(cell: Any) -> str:
    """Return the text of a cell after one blank for each step of its indent."""
    if not isinstance(cell.value, str):
        return cell_text(cell.value)
    return " " * int(cell.alignment.indent if cell.has_style else 0) + cell.value


def cell_text(value: Any) -> str:
    """Return the value of a cell as text that is read again as the same number.

    Examples
    --------
    >>> [cell_text(v) for v in (None, 6.0, 1.234, " a ", True)]
    ['', '6', '1.2340', 'a', 'TRUE']
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return sys.intern(unguarded(value.strip()))
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, datetime.datetime):
        return value.date().isoformat() if value.time() == datetime.time() else value.isoformat()
    return str(value).strip()


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        return "" if math.isnan(value) else str(value)
    if value.is_integer():
        return str(int(value))
    text = repr(value)
    return text + "0" if len(text.partition(".")[2]) == 3 else text  # 1.234 could be taken for 1,234
