"""Search for the tables in a file or sheet, with header rows above them and notes below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from trueup.files import is_parquet
from trueup.io.published.drafting.keys import columns_of_table
from trueup.io.published.drafting.numbered import SHARE
from trueup.io.published.drafting.panels import (
    Panel,
    below_header,
    first_of_numbers,
    header_from,
    last_of_numbers,
    lone_cell,
    panels_below_pairs,
    panels_of,
    values_from,
)
from trueup.io.published.drafting.proposals import indent_of
from trueup.io.published.drafting.roles import sorted_out
from trueup.io.published.drafting.seen import SeenColumn, SeenTable, is_code
from trueup.io.published.drafting.sums import SUM_OF_GROUP, without_repeated_sums
from trueup.io.published.perturbed.around import JOINED, column_names
from trueup.io.published.perturbed.grid import Row, delimiters_of, rows_of

MOST_ROWS = 200_000
"""Rows of a file that are looked at."""


class _Layout(NamedTuple):
    """The rows of a file or sheet, and the position of the table in them.

    Attributes
    ----------
    name, sheet
        The names of the file and of the sheet.
    rows, divided
        All rows, and the sign that divides their cells.
    pairs
        The tables below pairs of headings, if there are any.
    first, top, bottom, last
        The first row of numbers, the first row of the header, the row below the header, and the last row of numbers.
    """

    name: str
    sheet: str | None
    rows: list[Row]
    divided: str | None
    pairs: list[Panel]
    first: int
    top: int
    bottom: int
    last: int

    def columns(self, header: Sequence[Row], body: Sequence[Row], *, named: bool = True) -> list[SeenColumn]:
        """Return the columns of some rows below a header."""
        width = max(map(len, body))
        names = column_names(header) if header else []
        names += [()] * (width - len(names))
        leaves = [each[0] if each else "" for each in names]
        found = []
        for k, each in enumerate(names[:width]):
            texts = [row[k] if k < len(row) else "" for row in body]
            joined = next((name for name in each if JOINED in name), "")
            repeated = leaves.count(leaves[k]) > 1
            name = (named and (joined if repeated else leaves[k])) or f"column {k + 1}"
            path = (joined or leaves[k]).replace("!!", JOINED).split(JOINED)
            found.append(
                SeenColumn(name, tuple(part.rstrip(":") for part in path), texts, self.divided == ",")
            )
        return [column for column in found if column.held]

    def table(self, columns: list[SeenColumn], *, headless: bool) -> list[SeenTable]:
        """Return the table that has the given columns, or an empty list if these have no values."""
        titles = texts_of((*self.rows[: self.top], *self.rows[self.last + 1 :]), self.divided)
        return _sorted(self.name, self.sheet, titles, columns, headless=headless)


def look_at(source: Any, sheet: str | None) -> list[SeenTable]:
    """Return the tables found in one file or sheet."""
    path = Path(source)
    if is_parquet(path):
        return _sorted(path.name, None, "", columns_of_table(source))
    rows, divided = best_rows(source, sheet)
    if (first := first_of_numbers(rows)) is None:
        return _of_shares(path.name, sheet, rows)
    pairs = panels_below_pairs(rows)
    first = pairs[0].start if pairs else first
    bottom = first if pairs else below_header(rows, first)
    top = bottom - 1 if pairs else header_from(rows, bottom)
    layout = _Layout(path.name, sheet, rows, divided, pairs, first, top, bottom, last_of_numbers(rows, first))
    return _below_each_other(layout) or _in_one_block(layout, source)


def _of_shares(name: str, sheet: str | None, rows: Sequence[Row]) -> list[SeenTable]:
    """Return the table of rows that have shares in percent and no numbers, without values, or an empty list."""
    first = next((at for at, row in enumerate(rows) if any(map(SHARE.fullmatch, row[1:]))), 0)
    layout = _Layout(name, sheet, list(rows), None, [], first, first - 1, first, len(rows) - 1)
    columns = layout.columns(rows[first - 1 : first], rows[first:]) if first else []
    return [table for table in layout.table(columns, headless=False) if not table.values]


def _below_each_other(layout: _Layout) -> list[SeenTable]:
    """Return the tables that lie one below the other, or an empty list if there is a single table."""
    rows, pairs, bottom, last = layout.rows, layout.pairs, layout.bottom, layout.last
    filled = max(at for at, row in enumerate(rows) if any(row)) + 1
    found = []
    for panel in [*pairs[:-1], pairs[-1]._replace(end=last + 1)] if pairs else panels_of(rows, bottom, last):
        above = rows[panel.start - 1]
        header = rows[layout.top : bottom] if above == rows[bottom - 1] or not panel.header else [above]
        columns = layout.columns(header, rows[panel.start : panel.end], named=panel.header)
        skip, below = panel.start - panel.header, filled - panel.end
        found += [
            table._replace(label=panel.label, skip=skip, below=below)
            for table in layout.table(columns, headless=not panel.header)
        ]
    return found


def _in_one_block(layout: _Layout, source: Any) -> list[SeenTable]:
    """Return the tables of rows without gaps, with indents and the headings of groups of rows."""
    rows, header = layout.rows, layout.rows[layout.top : layout.bottom]
    heads = _headings(layout)
    if heads == [] and header:  # what looked like a heading is the header's last row
        header = rows[layout.top : layout.first]
    first = layout.first if heads == [] else layout.bottom
    held = [
        at
        for at in range(first, layout.last + 1)
        if any(rows[at]) and at not in (heads or ()) and rows[at] not in header[-1:]
    ]
    above = [max((head for head in heads if head < at), default=at) for at in held] if heads else []
    groups = tuple(rows[at][max(lone_cell(rows[at]), 0)] for at in above)
    raw = list(islice(rows_of(source, layout.sheet, layout.divided, stripped=False), layout.last + 1))
    indents = _indents([raw[at] for at in held])
    return [
        without_repeated_sums(table._replace(indents=indents, groups=groups))
        for side in _side_by_side(layout.columns(header, [rows[at] for at in held]))
        for table in layout.table(side, headless=not header)
        if not table.only or not heads
    ]


def _headings(layout: _Layout) -> list[int] | None:
    """Return the numbers of the rows that are headings of groups, or None if the rows name places."""
    rows, first, last = layout.rows, layout.first, layout.last
    heads = [at for at in range(first, last) if 0 <= lone_cell(rows[at]) < values_from(rows[first])]
    if not heads:
        return []
    at_key = lone_cell(rows[heads[0]])
    keys = [rows[at][at_key] for at in range(first, last + 1) if any(rows[at]) and at not in heads]
    keys = [key for key in keys if not SUM_OF_GROUP.fullmatch(key)]
    return [*range(layout.bottom, first), *heads] if len(set(keys)) == len(keys) else None


def _indents(raw: Sequence[Row]) -> dict[str, str]:
    """Return the indents of the names in the first columns of a table, if these differ."""
    found: dict[str, str] = {}
    for k in range(3):
        cells = [row[k] for row in raw if k < len(row) and row[k].strip()]
        own = {cell.strip(): indent_of(cell) for cell in reversed(cells)}
        found |= own if len(set(own.values())) > 1 else {}
    return found


def _sorted(
    file: str, sheet: str | None, titles: str, columns: list[SeenColumn], *, headless: bool = False
) -> list[SeenTable]:
    table = sorted_out(SeenTable(file, sheet, titles, [], [], [], None, [], headless), columns)
    return [] if table is None else [table]


def best_rows(source: Any, sheet: str | None) -> tuple[list[Row], str | None]:
    """Return the rows of a file, read with the delimiter that gives most cells, and that delimiter."""
    best: list[Row] = []
    divided = None
    for delimiter in delimiters_of(source):
        rows = list(islice(rows_of(source, sheet, delimiter), MOST_ROWS))
        if not best or _filled(rows) > _filled(best):
            best, divided = rows, delimiter
    return best, divided


def texts_of(rows: Iterable[Row], divided: str | None = None) -> str:
    """Return the text of rows outside the tables, with one line for each row."""
    sign = f"{divided} " if divided in (",", ";") else "; "
    lines = [list(filter(None, row)) for row in rows if any(row)]
    return "\n".join((": " if len(line) == 2 and is_code(line[0]) else sign).join(line) for line in lines)


def _filled(rows: Sequence[Row]) -> int:
    return sum(sum(map(bool, row)) > 1 for row in rows) and sum(
        sum(map(bool, row)) for row in rows if sum(map(bool, row)) > 1
    )


def _side_by_side(columns: list[SeenColumn]) -> list[list[SeenColumn]]:
    """Return the columns of each of several tables that lie side by side under equal headers."""
    names = [column.path for column in columns]
    for width in range(2, len(names) // 2 + 1):
        if (
            len(names) % width == 0
            and names == names[:width] * (len(names) // width)
            and len(set(names)) == width
        ):
            return [columns[at : at + width] for at in range(0, len(names), width)]
    return [columns]
