"""Tables in workbooks (xlsx), the first row of a table its header."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files.held import Held

LARGEST, MOST = 500_000_000, 20_000_000
"""Bytes that a workbook may unpack to, and cells that are read of it."""


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
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise DataError(
            f"'{path.name}' is a workbook", needed="the extra 'excel'", remedy="pip install 'trueup[excel]'"
        ) from None
    _refuse_packed(path)
    try:
        with path.open("rb") as file, closing(load_workbook(file, read_only=True, data_only=True)) as book:
            if sheet is not None and sheet not in book.sheetnames:
                raise DataError(
                    f"'{path.name}' has no sheet '{sheet}'", needed=f"one of: {', '.join(book.sheetnames)}"
                )
            rows = _filled(path, book[sheet or book.sheetnames[0]], skip)
    except DataError:
        raise
    except Exception:  # whatever a damaged file makes the reader stumble over
        raise DataError(f"'{path.name}' cannot be read as a workbook", remedy="check the file") from None
    return Held(f"'{path.name}'", _columns(path, rows))


def _refuse_packed(path: Path) -> None:
    """Refuse a workbook that holds far more than its own size says."""
    try:
        with ZipFile(path) as held:
            unpacked = sum(part.file_size for part in held.infolist())
    except FileNotFoundError:
        raise DataError(f"there is no file '{path}'", remedy="check the path") from None
    except Exception:
        raise DataError(f"'{path.name}' cannot be read as a workbook", remedy="check the file") from None
    if unpacked > LARGEST:
        raise DataError(
            f"'{path.name}' unpacks to more than {LARGEST:,} bytes", remedy="save the table as CSV or Parquet"
        )


def _filled(path: Path, sheet: Any, skip: int) -> list[list[Any]]:
    """The header and every row in which something stands below it: a stray cell far away makes no rows between."""
    rows: list[list[Any]] = []
    sheet.reset_dimensions()  # what the file says of its own size
    for row in islice(sheet.iter_rows(values_only=True), skip, None):
        held = list(row[: len(rows[0])] if rows else row)
        if rows and all(value is None for value in held):
            continue
        while not rows and held and held[-1] is None:
            held.pop()
        rows.append(held)
        if len(rows) * len(rows[0]) > MOST:
            raise DataError(
                f"'{path.name}' holds more than {MOST:,} cells", remedy="save the table as CSV or Parquet"
            )
    return rows


def _columns(path: Path, rows: list[list[Any]]) -> dict[str, NDArray]:
    header = [str(name).strip() for name in (rows[0] if rows else []) if name is not None]
    if not header or len(set(header)) < len(header):
        raise DataError(
            f"the header of '{path.name}' is empty or has a repeated name",
            needed="one name per column",
            remedy="say how many rows stand before the header: skip = 3",
        )
    width = len(rows[0])
    at = [k for k, name in enumerate(rows[0]) if name is not None]
    body = [row + [None] * (width - len(row)) for row in rows[1:] if any(value is not None for value in row)]
    return {name: np.array([row[k] for row in body], dtype=object) for name, k in zip(header, at)}
