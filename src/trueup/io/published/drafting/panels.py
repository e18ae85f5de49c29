"""Several tables below each other in one file or sheet, each below a heading or a header of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trueup.io.published.drafting.seen import is_number
from trueup.io.published.perturbed.grid import Row
from trueup.io.published.perturbed.numbers import without_mark


def numeric_cells(row: Row) -> set[int]:
    """Return the positions of the numbers of a row."""
    return {
        k for k, cell in enumerate(row) if cell and is_number(without_mark(cell) if "%" in cell else cell)
    }


class Panel(NamedTuple):
    """One of several tables in a file.

    Attributes
    ----------
    label
        Its heading.
    start, end
        Its rows, from the first to the one behind the last.
    header
        Whether the row above is a header of its own.
    """

    label: str
    start: int
    end: int
    header: bool


def panels_of(rows: Sequence[Row], bottom: int, last: int) -> list[Panel]:
    """Return the tables below each other, of the same or of other places; none if the rows below a header are one table.

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
                and _names(row, header, rows[at + 1 : last + 1])
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


def _names(row: Row, header: Row, below: Sequence[Row]) -> bool:
    """Return True for a header behind a break: one that begins as the first one, or of names that stand above numbers once."""
    names = [cell for cell in row[1:] if cell]
    held = {cell for other in below for cell in other[1:]}
    numbers = numeric_cells(below[0]) if below else set[int]()
    above = len(names) > 1 and len(set(names)) == len(names) and len(numbers) >= len(names)
    return row[:1] == header[:1] != [""] or (above and not held & set(names))


def _heading(rows: Sequence[Row], bottom: int) -> str:
    """Return the heading above the first header."""
    above = next((row for row in reversed(rows[: max(bottom - 1, 0)]) if any(row)), [])
    return next(filter(None, above), "")
