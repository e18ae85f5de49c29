"""Locations of faulty rows: the first five by their numbers, and how many more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueup.files.table import Source

Where = Callable[[int], str]
"""Says where the row of a position (from 0) stands, since what it holds may be confidential."""
FIRST = 5
"""Rows at fault that a message names."""


@dataclass(frozen=True)
class Numbered:
    """A locator of rows in a table read row by row; without a table, by their numbers alone."""

    table: Source | None = None

    def __call__(self, at: int) -> str:
        return self.table.row(at + 1) if self.table else f"row {at + 1}"


def rows_at(where: Where, at: NDArray[np.int64] | Sequence[int]) -> str:
    """Return in words where faulty rows stand.

    How many there are is said only of a table that is read row by row and tells rows by their numbers: a source that
    keeps these to itself keeps that as well.

    Examples
    --------
    >>> rows_at(Numbered(), [1]), rows_at(Numbered(), [1, 3]), rows_at(Numbered(), range(120))
    ('row 2', 'row 2 and row 4', 'row 1, row 2, row 3, row 4, row 5 and 115 more')
    >>> rows_at(lambda at: "a row", range(120))
    'a row'
    """
    if len(at) == 1 or not isinstance(where, Numbered):
        return where(int(at[0]))
    named = list(dict.fromkeys(where(int(row)) for row in at[:FIRST]))
    if len(named) < min(len(at), FIRST):
        return named[0]
    if len(at) > FIRST:
        return f"{', '.join(named)} and {len(at) - FIRST:,} more"
    return f"{', '.join(named[:-1])} and {named[-1]}"
