"""Several tables one below the other in a file or sheet, each with a heading or header of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trueup.io.published.drafting.seen import is_number
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
