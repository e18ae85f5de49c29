"""Tables in workbooks (xlsx); the first row of a table is its header."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO
from warnings import catch_warnings
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, TrueupError
from trueup.files.table import Held

MAX_UNPACKED_BYTES, MAX_CELLS = 500_000_000, 20_000_000
"""Bytes that a workbook may unpack to, and cells that are read of it."""
ALWAYS_UNPACKED_BYTES, DENSEST, MEMBERS = 20_000_000, 100, 10_000
"""Bytes to which any workbook may unpack, how many times its own size a larger one may, and its parts."""


def open_workbook(path: Path, sheet: str | None = None, skip: int = 0) -> Held:
    """Read one sheet of a workbook.

    Parameters
    ----------
    path, sheet
        The file, and the sheet's name; by default the first.
    skip
        Rows before the header.

    Raises
    ------
    DataError
        If the file, the sheet or the header is missing or damaged, or the extra `excel` is not installed.
    """
    with opened_workbook(path) as book:
        rows = _filled_rows(path, sheet_of(path, book, sheet), skip)
    return Held(f"'{path.name}'", _sheet_columns(path, rows))


@contextmanager
def opened_workbook(path: Path) -> Iterator[Any]:
    """Open a workbook with openpyxl; errors of its reader in the block become DataErrors.

    Links to other workbooks are not followed, what it says of its own size is not believed, and one that unpacks to far more
    than it is itself is not opened.
    """
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise DataError(
            f"'{path.name}' is a workbook", needed="the extra 'excel'", remedy="pip install 'trueup[excel]'"
        ) from None
    try:
        with path.open("rb") as file, catch_warnings(action="ignore"):  # openpyxl's quote cells
            _refuse_packed(path, file)
            with closing(load_workbook(file, read_only=True, data_only=True, keep_links=False)) as book:
                yield book
    except TrueupError:
        raise
    except FileNotFoundError:
        raise DataError(f"there is no file '{path}'", remedy="check the path") from None
    except Exception:  # whatever a damaged file makes the reader stumble over
        raise DataError(f"'{path.name}' cannot be read as a workbook", remedy="check the file") from None


def sheet_of(path: Path, book: Any, sheet: str | None) -> Any:
    """Return a sheet of an open workbook by its name, by default the first."""
    if sheet is not None and sheet not in book.sheetnames:
        raise DataError(
            f"'{path.name}' has no sheet '{sheet}'", needed=f"one of: {', '.join(book.sheetnames)}"
        )
    page = book[sheet or book.sheetnames[0]]
    if hasattr(page, "reset_dimensions"):
        page.reset_dimensions()
    return page


def _refuse_packed(path: Path, file: BinaryIO) -> None:
    """Refuse a workbook that expands far beyond its own size."""
    with ZipFile(file) as held:
        unpacked, members = sum(part.file_size for part in held.infolist()), len(held.infolist())
    allowed = min(MAX_UNPACKED_BYTES, max(ALWAYS_UNPACKED_BYTES, DENSEST * path.stat().st_size))
    if unpacked > allowed or members > MEMBERS:
        raise DataError(
            f"'{path.name}' expands to more than {allowed:,} bytes or {MEMBERS:,} parts",
            remedy="save the table as CSV or Parquet",
        )


def _filled_rows(path: Path, sheet: Any, skip: int) -> list[list[Any]]:
    """Return the header and every nonempty row below it: a stray cell far away makes no rows between."""
    rows: list[list[Any]] = []
    for row in islice(sheet.iter_rows(values_only=True), skip, None):
        held = list(row[: len(rows[0])] if rows else row)
        if rows and all(value is None for value in held):
            continue
        while not rows and held and held[-1] is None:
            held.pop()
        rows.append(held)
        if len(rows) * len(rows[0]) > MAX_CELLS:
            raise DataError(
                f"'{path.name}' holds more than {MAX_CELLS:,} cells",
                remedy="save the table as CSV or Parquet",
            )
    return rows


def _sheet_columns(path: Path, rows: list[list[Any]]) -> dict[str, NDArray]:
    header = [str(name).strip() for name in (rows[0] if rows else []) if name is not None]
    if not header or len(set(header)) < len(header):
        raise DataError(
            f"the header of '{path.name}' is empty or has a repeated name",
            needed="one name per column",
            remedy="leave one header row above the data, as pandas (reset_index) or R (pivot_longer) write it",
        )
    width = len(rows[0])
    at = [k for k, name in enumerate(rows[0]) if name is not None]
    body = [row + [None] * (width - len(row)) for row in rows[1:] if any(value is not None for value in row)]
    return {name: np.array([row[k] for row in body], dtype=object) for name, k in zip(header, at)}
