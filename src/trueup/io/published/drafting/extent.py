"""Search for the header, the first row and the last row of a table in the rows of a sheet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from trueup.io.published.drafting.panels import numeric_cells
from trueup.io.published.drafting.seen import YEAR, explains_code, is_code, is_marked, is_number
from trueup.io.published.perturbed.around import DEEPEST
from trueup.io.published.perturbed.grid import Row
from trueup.io.published.perturbed.numbers import without_mark


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
        coded = {k for k, cell in enumerate(below) if is_code(cell) or _stands_again(rows, at + 1, cell, k)}
        if numbers & (numeric_cells(below) | coded):
            return _with_codes(rows, at, numbers)
    return None


def _stands_again(rows: Sequence[Row], at: int, text: str, k: int) -> bool:
    """Return True if a text occurs at least twice in a column."""
    return bool(text) and sum(k < len(row) and row[k] == text for row in rows[at : at + 500]) > 1


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
