"""Location of the table in a file or sheet: below which header rows, and above which notes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from trueup.files.paths import is_parquet
from trueup.files.source import open_table
from trueup.io.published.drafting.roles import YEAR, SeenColumn, SeenTable, is_code, is_number, sorted_out
from trueup.io.published.perturbed.around import DEEPEST, JOINED, column_names
from trueup.io.published.perturbed.columns import text_of
from trueup.io.published.perturbed.grid import Row, delimiters_of, rows_of

MOST_ROWS = 200_000
"""Rows of a file that are looked at."""


def look_at(source: Any, sheet: str | None) -> SeenTable | None:
    """Look at one file or sheet; return None if it holds no table."""
    path = Path(source)
    if is_parquet(path):
        held = open_table(source)
        columns = held.select(held.columns())
        every = [SeenColumn(name, (name,), text_of(column).tolist()) for name, column in columns.items()]
        return sorted_out(path.name, None, "", every, headless=False)
    best: list[Row] = []
    divided = None
    for delimiter in delimiters_of(source):
        rows = list(islice(rows_of(source, sheet, delimiter), MOST_ROWS))
        if _filled(rows) > _filled(best):
            best, divided = rows, delimiter
    if (first := _first(best)) is None:
        return None
    top = _header(best, first)
    block = best[top:first]
    last = _last(best, first)
    body = [row for row in best[first : last + 1] if any(row)]
    titles = " ".join(cell for row in (*best[:top], *best[last + 1 :]) for cell in row if cell)
    return sorted_out(
        path.name, sheet, titles, _columns(block, body, point=divided == ","), headless=not block
    )


def _filled(rows: Sequence[Row]) -> int:
    return sum(sum(map(bool, row)) > 1 for row in rows) and sum(
        sum(map(bool, row)) for row in rows if sum(map(bool, row)) > 1
    )


def _numeric(row: Row) -> set[int]:
    return {k for k, cell in enumerate(row) if cell and is_number(cell)}


def _first(rows: Sequence[Row]) -> int | None:
    """Return the first row of numbers; years above all other cells, or in several columns, count as column names."""
    wide = 0
    for at, row in enumerate(rows):
        numbers = _numeric(row)
        wide += sum(map(bool, row)) > 1
        if not numbers or sum(map(bool, row)) < 2:
            continue
        below = next((other for other in rows[at + 1 :] if any(other)), row)
        years = [row[k] for k in numbers]
        named = (
            all(map(YEAR.fullmatch, years))
            and len(set(years)) == len(years)
            and (len(numbers) > 1 or wide == 1)
        )
        if named and not all(YEAR.fullmatch(below[k]) for k in _numeric(below)):
            continue
        if numbers & (_numeric(below) | {k for k, cell in enumerate(below) if is_code(cell)}):
            return _with_codes(rows, at, numbers)
    return None


def _with_codes(rows: Sequence[Row], at: int, numbers: set[int]) -> int:
    """Return the first row of the table, including rows above it that hold codes in place of numbers."""
    below = {row[k] for row in rows[at : at + 500] for k in numbers if k < len(row)}
    while at > 1 and sum(map(bool, rows[at - 2])) > 1:
        above = [rows[at - 1][k] for k in numbers if k < len(rows[at - 1]) and rows[at - 1][k]]
        if not above or not all(is_code(cell) and (cell in below or not cell[0].isalnum()) for cell in above):
            return at
        at -= 1
    return at


def _header(rows: Sequence[Row], first: int) -> int:
    top = first
    if top > 0 and not any(rows[top - 1]):
        top -= 1
    while top > 0 and first - top < DEEPEST - 2 and sum(map(bool, rows[top - 1])) > (1 if top < first else 0):
        top -= 1
    return top


def _last(rows: Sequence[Row], first: int) -> int:
    """Return the last row that has a number, or a code, beside something else."""
    numbers = {k for row in rows[first : first + 50] for k in _numeric(row)}
    for at in range(len(rows) - 1, first, -1):
        row = rows[at]
        if sum(map(bool, row)) > 1 and any(
            k in numbers and (is_number(c) or is_code(c)) for k, c in enumerate(row) if c
        ):
            return at
    return first


def _columns(block: Sequence[Row], body: Sequence[Row], *, point: bool) -> list[SeenColumn]:
    width = max(map(len, body))
    names = column_names(block) if block else []
    names += [()] * (width - len(names))
    leaves = [each[0] if each else "" for each in names]
    found = []
    for k, each in enumerate(names[:width]):
        texts = [row[k] if k < len(row) else "" for row in body]
        joined = next((name for name in each if JOINED in name), "")
        repeated = leaves.count(leaves[k]) > 1 and joined
        name = (joined if repeated else leaves[k]) or f"column {k + 1}"
        found.append(SeenColumn(name, tuple((joined or leaves[k]).split(JOINED)), texts, point))
    return [column for column in found if column.held]
