"""Location of tables in a file or sheet, with header rows above and notes below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from trueup.files import is_parquet
from trueup.files.source import open_table
from trueup.io.published.drafting.kept_sums import SUM_OF_GROUP, without_repeated_sums
from trueup.io.published.drafting.panels import numeric_cells, panels_below_pairs, panels_of
from trueup.io.published.drafting.proposals import indent_of
from trueup.io.published.drafting.roles import sorted_out
from trueup.io.published.drafting.seen import (
    YEAR,
    SeenColumn,
    SeenTable,
    explains_code,
    is_code,
    is_marked,
    is_number,
)
from trueup.io.published.perturbed.around import DEEPEST, JOINED, column_names
from trueup.io.published.perturbed.columns import text_of
from trueup.io.published.perturbed.grid import Row, delimiters_of, rows_of
from trueup.io.published.perturbed.numbers import without_mark

MOST_ROWS = 200_000
"""Rows of a file that are looked at."""


def look_at(source: Any, sheet: str | None) -> list[SeenTable]:
    """Return the tables found in one file or sheet."""
    path = Path(source)
    if is_parquet(path):
        return _in_parquet(source, path.name)
    rows, divided = best_rows(source, sheet)
    if (first := _first(rows)) is None:
        return []
    paired = panels_below_pairs(rows)
    first = paired[0].start if paired else first
    bottom = first if paired else _below_header(rows, first)
    top = bottom - 1 if paired else _header(rows, bottom)
    block = rows[top:bottom]
    last = _last(rows, first)
    titles = texts_of((*rows[:top], *rows[last + 1 :]), divided)
    point = divided == ","
    found = []
    filled = max(at for at, row in enumerate(rows) if any(row)) + 1
    if paired:
        paired[-1] = paired[-1]._replace(end=last + 1)
    for panel in paired or panels_of(rows, bottom, last):
        own = (
            block
            if rows[panel.start - 1] == rows[bottom - 1] or not panel.header
            else [rows[panel.start - 1]]
        )
        columns = _columns(own, rows[panel.start : panel.end], point=point, named=panel.header)
        for table in _some(sorted_out(path.name, sheet, titles, columns, headless=not panel.header)):
            skip, below = panel.start - panel.header, filled - panel.end
            found.append(table._replace(label=panel.label, skip=skip, below=below))
    if found:
        return found
    named = _values_from(rows[first])
    heads = [at for at in range(first, last) if 0 <= _lone(rows[at]) < named]
    at_key = _lone(rows[heads[0]]) if heads else 0
    keys = [rows[at][at_key] for at in range(first, last + 1) if any(rows[at]) and at not in heads]
    keys = [key for key in keys if not SUM_OF_GROUP.fullmatch(key)]
    if heads and len(set(keys)) < len(keys):  # places, whose values stand below each
        first, heads = bottom, []
    elif heads:  # of groups of rows
        first, heads = bottom, [*range(bottom, first), *heads]
    else:
        block = rows[top:first] if block else block  # what looked like a heading is the header's last row
    held = [
        at
        for at in range(first, last + 1)
        if any(rows[at]) and at not in heads and rows[at] not in block[-1:]
    ]
    above = [max((head for head in heads if head < at), default=at) for at in held] if heads else []
    groups = tuple(rows[at][max(_lone(rows[at]), 0)] for at in above)
    columns = _columns(block, [rows[at] for at in held], point=point)
    sides = _side_by_side(columns)
    found = [
        table
        for side in sides
        for table in _some(sorted_out(path.name, sheet, titles, side, headless=not block))
    ]
    raw = list(islice(rows_of(source, sheet, divided, stripped=False), last + 1))
    indents = _indents([raw[at] for at in held])
    return [
        without_repeated_sums(table._replace(indents=indents, groups=groups))
        for table in found
        if not table.only or not heads
    ]


def _in_parquet(source: Any, name: str) -> list[SeenTable]:
    held = open_table(source)
    columns = held.select(held.columns())
    every = [SeenColumn(name, (name,), text_of(column).tolist()) for name, column in columns.items()]
    return _some(sorted_out(name, None, "", every, headless=False))


def _indents(raw: Sequence[Row]) -> dict[str, str]:
    """Return the indents of the names in the first columns, if they differ within a column."""
    found: dict[str, str] = {}
    for k in range(3):
        cells = [row[k] for row in raw if k < len(row) and row[k].strip()]
        own = {cell.strip(): indent_of(cell) for cell in reversed(cells)}
        found |= own if len(set(own.values())) > 1 else {}
    return found


def _some(table: SeenTable | None) -> list[SeenTable]:
    return [] if table is None else [table]


def best_rows(source: Any, sheet: str | None) -> tuple[list[Row], str | None]:
    """Return the rows of a file, read with the delimiter that gives most cells, and this delimiter."""
    best: list[Row] = []
    divided = None
    for delimiter in delimiters_of(source):
        rows = list(islice(rows_of(source, sheet, delimiter), MOST_ROWS))
        if not best or _filled(rows) > _filled(best):
            best, divided = rows, delimiter
    return best, divided


def texts_of(rows: Iterable[Row], divided: str | None = None) -> str:
    """Return the text of rows outside the tables, one line for each row."""
    sign = f"{divided} " if divided in (",", ";") else "; "
    lines = [list(filter(None, row)) for row in rows if any(row)]
    return "\n".join((": " if len(line) == 2 and is_code(line[0]) else sign).join(line) for line in lines)


def _filled(rows: Sequence[Row]) -> int:
    return sum(sum(map(bool, row)) > 1 for row in rows) and sum(
        sum(map(bool, row)) for row in rows if sum(map(bool, row)) > 1
    )


def _first(rows: Sequence[Row]) -> int | None:
    """Return the first row of numbers; a row of years above all other cells counts as column names."""
    wide = 0
    for at, row in enumerate(rows):
        numbers = numeric_cells(row)
        wide += sum(map(bool, row)) > 1
        whole = (
            at > 0 and numbers and not row[0] and all(rows[at - 1]) and len(rows[at - 1]) > 1
        )  # its total, without a key
        if not numbers or (sum(map(bool, row)) < 2 and not whole):
            continue
        below = next((other for other in rows[at + 1 :] if any(other)), row)
        years = [row[k].rstrip(".") for k in numbers]
        named = (
            all(map(YEAR.fullmatch, years))
            and (len(set(years)) == len(years) or (at > 0 and sum(map(bool, rows[at - 1])) > 1))
            and (len(numbers) > 1 or wide == 1)
        ) or (wide == 1 and _rise_by_one([row[k] for k in sorted(numbers)]))
        counted = numeric_cells(below)
        if named and not (counted and all(YEAR.fullmatch(below[k].rstrip(".")) for k in counted)):
            continue
        coded = {k for k, cell in enumerate(below) if is_code(cell) or _stands_again(rows, at + 1, cell, k)}
        if numbers & (numeric_cells(below) | coded):
            return _with_codes(rows, at, numbers)
    return None


def _stands_again(rows: Sequence[Row], at: int, text: str, k: int) -> bool:
    """Return True if a text occurs several times in a column."""
    return bool(text) and sum(k < len(row) and row[k] == text for row in rows[at : at + 500]) > 1


def _rise_by_one(cells: Sequence[str]) -> bool:
    """Return True if three or more column names are consecutive whole numbers, such as ages or hours."""
    numbers = [int(cell) for cell in cells if cell.isdecimal()]
    return len(numbers) == len(cells) > 2 and all(b == a + 1 for a, b in pairwise(numbers))


def _with_codes(rows: Sequence[Row], at: int, numbers: set[int]) -> int:
    """Return the number of a table's first row; rows that hold codes instead of numbers count as rows of the table."""
    below = {row[k] for row in rows[at : at + 500] for k in numbers if k < len(row)}
    while at > 1 and sum(map(bool, rows[at - 2])) > 1:
        above = [rows[at - 1][k] for k in numbers if k < len(rows[at - 1]) and rows[at - 1][k]]
        if not above and _lacks_values(rows, at - 1, numbers):
            at -= 1
            continue
        if not above or not all(_in_place(cell, below) for cell in above):
            return at
        at -= 1
    return at


def _lacks_values(rows: Sequence[Row], at: int, numbers: set[int]) -> bool:
    """Return True if a row below the column names has a key but no number."""
    named = all(k < len(rows[at - 1]) and rows[at - 1][k] for k in numbers)
    again = any(
        cell and any(k < len(row) and row[k] == cell for row in rows[at + 1 : at + 500])
        for k, cell in enumerate(rows[at])
    )
    return named and again


def _in_place(cell: str, below: set[str]) -> bool:
    """Return True if a text replaces a number: a code, a repeated text, or a marked number."""
    if is_marked(cell):
        return not YEAR.fullmatch(without_mark(cell).strip())
    return cell in below or (is_code(cell) and not cell[0].isalnum())


def _header(rows: Sequence[Row], first: int) -> int:
    top = first
    if top > 0 and not any(rows[top - 1]):
        top -= 1
    while (
        top > 0
        and first - top < DEEPEST - 1
        and (_heads(rows[top - 1]) or (top == first and any(rows[top - 1])))
    ):
        top -= 1
    return top


def _heads(row: Row) -> bool:
    """Return True if a row is a header: several cells, or one cell above columns after the first."""
    return sum(map(bool, row)) > 1 or (any(row) and not row[0])


def _below_header(rows: Sequence[Row], first: int) -> int:
    """Return the row below the header: the first row of numbers, or a heading above it in the column of keys."""
    head, names = (rows[first - 1], rows[first - 2]) if first > 1 else ([], [])
    at = _lone(head)
    headed = (
        0 <= at < _values_from(rows[first])
        and sum(map(bool, names)) > 1
        and at < len(names)
        and bool(names[at])
    )
    return first - headed


def _values_from(row: Row) -> int:
    """Return the position at which the numbers in a row begin: after the last word, but not in the first cell."""
    words = [k for k, cell in enumerate(row) if cell and not is_number(cell) and not is_code(cell)]
    return max(words, default=0) + 1


def _lone(row: Row) -> int:
    """Return the position of the only nonempty cell of a row; -1 if there are none or several."""
    held = [k for k, cell in enumerate(row) if cell]
    return held[0] if len(held) == 1 else -1


def _last(rows: Sequence[Row], first: int) -> int:
    """Return the last row that has a number or a code, and something else."""
    numbers = {k for row in rows[first : first + 50] for k in numeric_cells(row)}
    full = sum(map(bool, rows[first]))
    for at in range(len(rows) - 1, first, -1):
        row = rows[at]
        held = [c for k, c in enumerate(row) if c and k in numbers]
        words = sum(map(bool, row)) < full  # of a note that the delimiter divides
        shown = any(is_number(c) or (is_code(c) and not (words and " " in c)) for c in held)
        if shown and sum(map(bool, row)) > 1 and not (full > 2 and explains_code(row)):
            return at
    return first


def _side_by_side(columns: list[SeenColumn]) -> list[list[SeenColumn]]:
    """Return the columns of each table when several tables with the same header stand side by side."""
    names = [column.path for column in columns]
    for width in range(2, len(names) // 2 + 1):
        if (
            len(names) % width == 0
            and names == names[:width] * (len(names) // width)
            and len(set(names)) == width
        ):
            return [columns[at : at + width] for at in range(0, len(names), width)]
    return [columns]


def _columns(
    block: Sequence[Row], body: Sequence[Row], *, point: bool, named: bool = True
) -> list[SeenColumn]:
    width = max(map(len, body))
    names = column_names(block) if block else []
    names += [()] * (width - len(names))
    leaves = [each[0] if each else "" for each in names]
    found = []
    for k, each in enumerate(names[:width]):
        texts = [row[k] if k < len(row) else "" for row in body]
        joined = next((name for name in each if JOINED in name), "")
        repeated = leaves.count(leaves[k]) > 1
        name = (named and (joined if repeated else leaves[k])) or f"column {k + 1}"
        path = (joined or leaves[k]).replace("!!", JOINED).split(JOINED)
        found.append(SeenColumn(name, tuple(part.rstrip(":") for part in path), texts, point))
    return [column for column in found if column.held]
