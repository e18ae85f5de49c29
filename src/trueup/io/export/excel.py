"""Tables as an Excel workbook, with labels typed as text: keys keep their zeros, and no label runs as a formula."""

from __future__ import annotations

import re

from trueup.errors import TrueupError
from trueup.files.workbook import Sheet, workbook_of
from trueup.io.export.content import Exported, ExportedTable
from trueup.model.tables import position_of

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
