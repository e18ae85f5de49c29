"""Tables as files: a folder of CSV or Parquet, or one Excel workbook, with a file or sheet on what was protected."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trueup.errors import TrueupError
from trueup.files.workbook import Sheet, workbook_of
from trueup.files.writing import write_csv, write_parquet
from trueup.io.bundle.manifest import slug
from trueup.io.export.content import Exported, ExportedTable
from trueup.model.tables import position_of

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters that make a spreadsheet read a label as a formula."""


def write_csv_folder(folder: Path, exported: Exported, *, for_spreadsheets: bool) -> None:
    """Write a CSV file for each table.

    Parameters
    ----------
    for_spreadsheets
        Whether labels that a spreadsheet would run as formulas begin with an apostrophe, and files with a byte order mark,
        by which spreadsheets know UTF-8. Otherwise labels are written as they are.
    """
    guard = guarded if for_spreadsheets else np.asarray
    for table in exported.tables:
        path = folder / f"{slug(table.margin)}.csv"
        write_csv(path, _guarded_labels(table) if for_spreadsheets else table.columns)
        _mark(path, for_spreadsheets)
    what, says = (guard(np.array(column)) for column in zip(*exported.about))
    write_csv(folder / "about.csv", {"about": what, "text": says})
    _mark(folder / "about.csv", for_spreadsheets)


def write_parquet_folder(folder: Path, exported: Exported) -> None:
    """Write a Parquet file for each table."""
    for table in exported.tables:
        write_parquet(folder / f"{slug(table.margin)}.parquet", table.columns)
    what, says = (np.array(column) for column in zip(*exported.about))
    write_parquet(folder / "about.parquet", {"about": what, "text": says})


def _guarded_labels(table: ExportedTable) -> dict[str, NDArray]:
    columns = {k: guarded(c) if k in table.labels else c for k, c in table.columns.items()}
    return {str(guarded(np.array([name]))[0]): column for name, column in columns.items()}


def guarded(labels: NDArray) -> NDArray:
    """Put an apostrophe before labels that a spreadsheet would run as formulas.

    Examples
    --------
    >>> guarded(np.array(["01", "=1+1", "-"])).tolist()
    ['01', "'=1+1", "'-"]
    """
    return np.array([f"'{text}" if str(text).startswith(FORMULA) else str(text) for text in labels])


def _mark(path: Path, wanted: bool) -> None:
    """Write a byte order mark at the beginning of a file."""
    if wanted:
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())


ROWS = 2**20 - 1
"""Rows of a sheet below its heading."""
_LONGEST = 31
_REFUSED = re.compile(r"[\[\]:*?/\\]")
_CONTROL = re.compile(r"[\x00-\x1f]")
_ABOUT = "About"


def workbook(exported: Exported) -> bytes:
    """Return a workbook with a sheet on what was protected and a sheet for each table.

    Raises
    ------
    TrueupError
        If a table is longer than a sheet.
    """
    for table in exported.tables:
        refuse_long(table)
    headings, texts = zip(*exported.about)
    about = {"about": headings, "text": texts}
    sheets = [Sheet(_ABOUT, about, frozenset(about), (32, 120))]
    for name, table in zip(sheet_names([str(t.margin) for t in exported.tables]), exported.tables):
        columns = table.columns
        widths = tuple(max(10, min(40, len(heading) + 4)) for heading in columns)
        sheets.append(Sheet(name, columns, frozenset(table.labels), widths))
    return workbook_of(sheets, exported.title)


def refuse_long(table: ExportedTable) -> None:
    """Refuse a table too long for a sheet."""
    rows = table.cells.size(table.margin)
    if table.wide is not None:
        kept = table.cells.kept(table.margin)
        rows //= kept[position_of(table.cells, table.margin, table.wide)].size
    if rows > ROWS:
        raise TrueupError(
            f"the table '{table.margin}' has {rows:,} rows, and a sheet of Excel holds {ROWS:,}",
            remedy="name coarser tables with --table, or export to csv or parquet",
        )


def sheet_names(names: list[str]) -> list[str]:
    """Return names that Excel accepts and that differ in lower case.

    Examples
    --------
    >>> sheet_names(["county x sex", "a/b", "a:b", "about"])
    ['county x sex', 'a_b', 'a_b 2', 'about 2']
    """
    taken, found = {_ABOUT.lower(), "history"}, []  # Excel keeps the second name to itself
    for name in names:
        plain = _REFUSED.sub("_", _CONTROL.sub("\ufffd", name)).strip("'")[:_LONGEST] or "table"
        tries = (plain, *(f"{plain[: _LONGEST - 5]} {i}" for i in range(2, 10_000)))
        found.append(next(each for each in tries if each.lower() not in taken))
        taken.add(found[-1].lower())
    return found
