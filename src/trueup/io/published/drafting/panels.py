"""The extent of a table in the rows of a sheet, and several tables one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from trueup.io.published.drafting.seen import YEAR, explains_code, is_code, is_marked, is_number
from trueup.io.published.perturbed.around import DEEPEST
from trueup.io.published.perturbed.grid import HIGHEST, Row
from trueup.io.published.perturbed.numbers import without_mark


def numeric_cells(row: Row) -> set[int]:
    """Return the positions of the cells in a row that contain numbers."""
    return {
        k for k, cell in enumerate(row) if cell and is_number(without_mark(cell) if "%" in cell else cell)
    }


class Panel(NamedTuple):
    """One of several tables that lie one below the other in a file.

    Attributes
    ----------
    label
        Its heading.
    start, end
        Its rows, from the first to the one behind the last.
    header
        True if the row above is a header of its own.
    """

    label: str
    start: int
    end: int
    header: bool


def panels_of(rows: Sequence[Row], bottom: int, last: int) -> list[Panel]:
    """Return the tables that lie one below the other, or an empty list if there is a single table.

    Examples
    --------
    >>> head, north, south = ["Area", "n"], ["North", "1"], ["South", "2"]
    >>> panels_of([["Men"], head, north, south, [], ["Women"], head, north, south], 2, 8)
    [Panel(label='Men', start=2, end=4, header=True), Panel(label='Women', start=7, end=9, header=True)]
    """
    header = rows[bottom - 1] if bottom else []
    found: list[Panel] = []
    label, own, start = _heading(rows, bottom), bool(header), None
    for at in range(bottom, last + 2):
        row = rows[at] if at <= last else []
        headed = bool(header) and (
            row == header
            or (
                bool(row)
                and not numeric_cells(row)
                and start is None
                and _is_further_header(row, header, rows[at + 1 : last + 1])
            )
        )
        if headed or sum(map(bool, row)) < 2:
            if start is not None:
                found.append(Panel(label, start, at, own))
            start, own = None, headed
            label = next(filter(None, row), label) if not headed else label
        elif start is None:
            start = at
    keys = [{next(filter(None, row)) for row in rows[panel.start : panel.end]} for panel in found]
    alike = all(2 * len(one & keys[0]) >= max(len(one), len(keys[0])) for one in keys)
    alike = alike or (
        all(panel.header for panel in found) and len(set().union(*keys)) >= sum(map(len, keys)) - len(keys)
    )
    apart = len({panel.label for panel in found}) == len(found)
    return found if len(found) > 1 and alike and apart else []


def panels_below_pairs(rows: Sequence[Row]) -> list[Panel]:
    """Return the tables with the same header below rows of a name and a text; empty unless several.

    Examples
    --------
    >>> head, north, south = ["Area", "n"], ["North", "1"], ["South", "2"]
    >>> panels_below_pairs([["sex:", "Men"], head, north, south, [], ["sex:", "Women"], [], head, north, south])
    [Panel(label='Men', start=2, end=4, header=True), Panel(label='Women', start=8, end=10, header=True)]
    """
    tops = [
        at for at, row in enumerate(rows[:HIGHEST]) if sum(map(bool, row)) > 1 and _pairs_above(rows, at)[0]
    ]
    header = next((rows[at] for at in tops if rows[at] in rows[at + 1 :]), None)
    starts = [at + 1 for at, row in enumerate(rows) if row == header]
    found = [_pairs_above(rows, start - 1) for start in starts]
    heads = [dict(pairs) for pairs, _ in found]
    numbered = all(start < len(rows) and numeric_cells(rows[start]) for start in starts)
    names = [
        name
        for name in (heads[-1] if heads else ())
        if numbered and len({head.get(name) for head in heads} - {None}) == len(heads)
    ]
    ends = [end for _, end in found[1:]] + [len(rows)]
    return [
        Panel(head[names[-1]], start, end, header=True)
        for head, start, end in zip(heads, starts, ends)
        if names
    ]


def _pairs_above(rows: Sequence[Row], at: int) -> tuple[list[tuple[str, str]], int]:
    """Return the pairs of a name and a text just above a row, and the number of the first such row."""
    found: list[tuple[str, str]] = []
    while at > 0 and (pair := _pair(rows[at - 1])) is not None:
        found = [pair] * any(pair) + found
        at -= 1
    return found, at


def _pair(row: Row) -> tuple[str, str] | None:
    """Return the only two cells of a row as a name and a text, or None for any other row."""
    held = [cell for cell in row if cell.strip(":")]
    named = bool(held) and ":" in held[0]  # else a name and a number are a row of a table
    if len(held) == 1 and named:
        held = [part.strip() for part in held[0].split(":", 1)]
    if not held:
        return "", ""
    told = len(held) == 2 and all(held) and not numeric_cells(held[: 1 if named else 2])
    return (held[0].rstrip(": "), held[1]) if told else None


def _is_further_header(row: Row, header: Row, below: Sequence[Row]) -> bool:
    """Return True if a row is the header of a further table."""
    names = [cell for cell in row[1:] if cell]
    held = {cell for other in below for cell in other[1:]}
    numbers = numeric_cells(below[0]) if below else set[int]()
    above = len(names) > 1 and len(set(names)) == len(names) and len(numbers) >= len(names)
    return row[:1] == header[:1] != [""] or (above and not held & set(names))


def _heading(rows: Sequence[Row], bottom: int) -> str:
    """Return the text of the last nonblank row above the first header of a file."""
    above = next((row for row in reversed(rows[: max(bottom - 1, 0)]) if any(row)), [])
    return next(filter(None, above), "")


def first_of_numbers(rows: Sequence[Row]) -> int | None:
    """Return the number of the first row of values, where a row of years may be part of the header."""
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
        coded = {
            k
            for k, cell in enumerate(below)
            if is_code(cell)
            or (cell and sum(k < len(row) and row[k] == cell for row in rows[at + 1 : at + 501]) > 1)
        }
        if numbers & (numeric_cells(below) | coded):
            return _with_codes(rows, at, numbers)
    return None


def _rise_by_one(cells: Sequence[str]) -> bool:
    """Return True if three or more column names are consecutive whole numbers, such as ages."""
    numbers = [int(cell) for cell in cells if cell.isdecimal()]
    return len(numbers) == len(cells) > 2 and all(b == a + 1 for a, b in pairwise(numbers))


def _with_codes(rows: Sequence[Row], at: int, numbers: set[int]) -> int:
    """Return the number of a table's first row, which may have codes instead of numbers."""
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
    """Return True if a row below the header has a key that occurs again, but no number."""
    named = all(k < len(rows[at - 1]) and rows[at - 1][k] for k in numbers)
    again = any(
        cell and any(k < len(row) and row[k] == cell for row in rows[at + 1 : at + 500])
        for k, cell in enumerate(rows[at])
    )
    return named and again


def _in_place(cell: str, below: set[str]) -> bool:
    """Return True if a text replaces a number: a code, a repeated text, or a number with a mark."""
    if is_marked(cell):
        return not YEAR.fullmatch(without_mark(cell).strip())
    return cell in below or (is_code(cell) and not cell[0].isalnum())


def header_from(rows: Sequence[Row], first: int) -> int:
    """Return the number of the first header row, given that of the first row of a table."""
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
    """Return True if a row is part of a header."""
    return sum(map(bool, row)) > 1 or (any(row) and not row[0])


def below_header(rows: Sequence[Row], first: int) -> int:
    """Return the number of the first row below the header, which may be a heading in the column of keys."""
    head, names = (rows[first - 1], rows[first - 2]) if first > 1 else ([], [])
    at = lone_cell(head)
    headed = (
        0 <= at < values_from(rows[first])
        and sum(map(bool, names)) > 1
        and at < len(names)
        and bool(names[at])
    )
    return first - headed


def values_from(row: Row) -> int:
    """Return the position at which the numbers in a row begin, which is after the last word."""
    words = [k for k, cell in enumerate(row) if cell and not is_number(cell) and not is_code(cell)]
    return max(words, default=0) + 1


def lone_cell(row: Row) -> int:
    """Return the position of the only nonempty cell in a row, or -1 if there is no such cell."""
    held = [k for k, cell in enumerate(row) if cell]
    return held[0] if len(held) == 1 else -1


def last_of_numbers(rows: Sequence[Row], first: int) -> int:
    """Return the number of a table's last row, which has a number or a code and another cell."""
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
