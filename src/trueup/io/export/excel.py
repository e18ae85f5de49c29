"""Tables as an Excel workbook: labels typed as text, so that keys keep their zeros and no label is run as a formula."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np

from trueup.errors import TrueupError, load_extra
from trueup.io.export.content import Exported, ExportedTable
from trueup.model.tables import position_of

ROWS = 2**20 - 1
"""Rows of a sheet below its heading."""
_LONGEST = 31
_REFUSED = re.compile(r"[\[\]:*?/\\]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_ABOUT = "About"


def workbook(exported: Exported) -> bytes:
    """Return a workbook with a sheet that says what was protected, and a sheet for each table.

    Raises
    ------
    TrueupError
        If openpyxl is not installed, or a table is longer than a sheet.
    """
    openpyxl = load_extra("openpyxl", "excel")
    for table in exported.tables:
        refuse_long(table)
    book = openpyxl.Workbook(write_only=True)
    book.properties.title, book.properties.creator = _clean(exported.title), "trueup"
    _fill(book, _ABOUT, ("about", "text"), iter(exported.about), {0, 1}, (32, 120))
    for name, table in zip(sheet_names([str(t.margin) for t in exported.tables]), exported.tables):
        columns = table.columns
        text = {i for i, heading in enumerate(columns) if heading in table.labels}
        rows = zip(*(np.ma.asarray(column).tolist() for column in columns.values()))
        widths = tuple(max(10, min(40, len(heading) + 4)) for heading in columns)
        _fill(book, name, tuple(columns), rows, text, widths)
    held = BytesIO()
    book.save(held)
    return held.getvalue()


def refuse_long(table: ExportedTable) -> None:
    """Refuse a table that no sheet holds."""
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
    """Names that Excel takes, different also in lower case.

    Examples
    --------
    >>> sheet_names(["county x sex", "a/b", "a:b", "about"])
    ['county x sex', 'a_b', 'a_b 2', 'about 2']
    """
    taken, found = {_ABOUT.lower(), "history"}, []  # Excel keeps the second name to itself
    for name in names:
        plain = _REFUSED.sub("_", _clean(name)).strip("'")[:_LONGEST] or "table"
        tries = (plain, *(f"{plain[: _LONGEST - 5]} {i}" for i in range(2, 10_000)))
        found.append(next(each for each in tries if each.lower() not in taken))
        taken.add(found[-1].lower())
    return found


def _fill(
    book: Any, name: str, heading: tuple[str, ...], rows: Iterator, text: set[int], widths: tuple[int, ...]
) -> None:
    from openpyxl.styles import Font
    from openpyxl.utils import get_column_letter

    sheet = book.create_sheet(name)
    sheet.freeze_panes = "A2"
    for i, width in enumerate(widths):
        sheet.column_dimensions[get_column_letter(i + 1)].width = width
    sheet.append([_text(sheet, label, Font(bold=True)) for label in heading])
    for row in rows:
        sheet.append([_text(sheet, value) if i in text else _number(value) for i, value in enumerate(row)])


def _text(sheet: Any, value: object, font: Any = None) -> Any:
    """A cell that is text whatever it looks like: `01`, `=1+1`."""
    from openpyxl.cell import WriteOnlyCell

    cell = WriteOnlyCell(sheet, _clean(str(value)))
    cell.data_type, cell.number_format = "s", "@"
    if font is not None:
        cell.font = font
    return cell


def _number(value: Any) -> Any:
    return None if value is None or value != value else value


def _clean(text: str) -> str:
    """Replace characters that XML does not hold."""
    return _CONTROL.sub("\ufffd", text)
