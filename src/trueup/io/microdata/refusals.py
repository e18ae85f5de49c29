"""Refused faults of confidential tables: missing values, two rows of one cell, too few or too many rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files.table import Source
from trueup.files.whole import Where, is_missing, rows_at

PLACES, IDS, TABLE, ROWS, LINKS = "places", "ids", "table", "rows", "links"
"""Topics of refusals of confidential rows, beside those of columns; see `TrueupError`."""


def refuse_missing(values: NDArray, column: str, where: Where, topic: str, remedy: str = "") -> None:
    """Refuse a column with a missing value in a row; `topic` is the subject of the refusal."""
    lost = np.flatnonzero([is_missing(value) for value in values])
    if lost.size:
        raise DataError(
            f"column '{column}' has no value in {rows_at(where, lost)}",
            needed="a value in every row",
            remedy=remedy,
            about=topic,
        )


def refuse_twins(index: NDArray[np.int64], where: Where) -> None:
    """Refuse a table of counts in which two rows name the same cell (or, in a wide one, the same place)."""
    order = np.argsort(index, kind="stable")
    if (same := np.flatnonzero(np.diff(index[order]) == 0)).size:
        first, second = order[same[0] : same[0] + 2]
        raise DataError(
            f"{where(int(first))} and {where(int(second))} name the same cell",
            needed="one row for each cell of a table of counts",
            about=TABLE,
        )


def refuse_rows(found: int, expected: int | None, table: Source) -> None:
    """Refuse a table that is empty or has another number of rows than required; the number is never stated."""
    if expected is None and not found:
        raise DataError(
            f"{table.name} is empty: it has a header and no row",
            needed="at least one row",
            remedy="check the file; if it is to be empty, give --expect-rows 0",
            about=ROWS,
        )
    if expected not in (None, found):
        raise DataError(
            f"{table.name} does not hold the {expected:,} rows that are expected",
            remedy="check that the file is whole, and the number given as --expect-rows",
            about=ROWS,
        )
