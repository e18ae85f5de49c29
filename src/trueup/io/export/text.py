"""Tables as CSV or Parquet: a folder with a file for each, and one on what was protected."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trueup.files.writing import write_csv, write_parquet
from trueup.io.bundle.manifest import slug
from trueup.io.export.content import Exported, ExportedTable

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
