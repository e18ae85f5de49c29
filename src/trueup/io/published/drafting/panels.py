"""Tables that stand below each other in one file, each under a heading of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trueup.io.published.perturbed.grid import Row


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
    """Return the tables below each other whose rows have the same first cells; none if the rows below a header are one table.

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
        headed = bool(header) and row == header
        if headed or sum(map(bool, row)) < 2:
            if start is not None:
                found.append(Panel(label, start, at, own))
            start, own = None, headed
            label = next(filter(None, row), label) if not headed else label
        elif start is None:
            start = at
    keys = [{next(filter(None, row)) for row in rows[panel.start : panel.end]} for panel in found]
    alike = all(2 * len(one & keys[0]) >= max(len(one), len(keys[0])) for one in keys)
    apart = len({panel.label for panel in found}) == len(found)
    return found if len(found) > 1 and alike and apart else []


def _heading(rows: Sequence[Row], bottom: int) -> str:
    """Return the heading above the first header."""
    above = next((row for row in reversed(rows[: max(bottom - 1, 0)]) if any(row)), [])
    return next(filter(None, above), "")
