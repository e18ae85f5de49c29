"""Refused faults of confidential tables: missing values, two rows of one cell, too few or too many rows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files import Source
from trueup.files.values import Where, is_missing, rows_at
from trueup.model.date_forms import ISO
from trueup.model.reading import topic_of
from trueup.model.spec_table import AttributePart

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


def outside_domain(part: AttributePart, said: str, *, of_counts: bool) -> DataError:
    """Return the refusal of a value that is none of an attribute's, with the readings that may help an attribute of its kind."""
    remedies = ["correct the table" + ", and leave out rows of sums such as Total" * of_counts]
    remedies += _readings(part, "values" if of_counts else "all other values")
    return DataError(said, needed=_values_needed(part), remedy="; or ".join(remedies), about=topic_of(part))


def _values_needed(part: AttributePart) -> str:
    """Return what a column may hold, by the spec alone."""
    own = {part.other, part.missing} - {None}
    listed = ", ".join(value for value in part.values if value not in own)
    words = "".join(f", or '{word}'" for word in part.values if word in own)
    if part.bins:
        return f"whole numbers{'' if part.other else f' from {part.bins[0]}'}{words}"
    if part.date:
        among = "" if part.other else f", in one of: {listed}"
        return f"dates such as {part.form or ISO}{among}{words}"
    return f"one of: {', '.join(part.values)}"


def _readings(part: AttributePart, others: str) -> Iterator[str]:
    """Yield the keys of the spec that would have other values read, and no word of the confidential rows."""
    plain, texts = not (part.bins or part.date), [*part.values]
    if part.date and not part.form:
        yield 'say how the column writes dates: `form = "DD.MM.YYYY"`'
    if plain and not part.fold and any(map(str.isalpha, "".join(texts))):
        yield "have capitals and blanks make no difference: `fold = true`"
    if plain and all(text[:1].isdigit() for text in texts):
        yield "have numbers counted by ranges: `bins = [0, 15, 65]`"
    if plain and all(re.fullmatch(r"\d{4}(-\d\d)?", text) for text in texts):
        yield f'have dates such as {ISO} counted by `date = "month"` or "year"'
    if part.other is None:
        kind = "smaller numbers" if part.bins else f"dates of other {part.date}s" if part.date else others
        yield f'count {kind} together: `other = "other"`'


def refuse_twins(index: NDArray[np.int64], where: Where) -> None:
    """Refuse a table of counts in which two rows have the same number: they name the same cell or, in a wide one, place."""
    order = np.argsort(index, kind="stable")
    if (same := np.flatnonzero(np.diff(index[order]) == 0)).size:
        first, second = order[same[0] : same[0] + 2]
        raise DataError(
            f"{where(int(first))} and {where(int(second))} name the same cell",
            needed="one row for each cell of a table of counts",
            remedy="leave out what stands twice; if another column tells them apart, add them up or make it an attribute",
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
