"""Expected errors of released counts by table and size, and margins of error from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import ceil
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.cells import Margin
from trueup.model.tables import probability_of

SIZES = tuple(10**k for k in range(10))
"""Lower ends of the size classes after the class of zero: 1, 10, 100, .."""
CONFIDENCES = (50, 80, 90, 95, 99)
"""Percentages at which margins of error are kept."""
MIN_CLASS_ERRORS = 100
"""Simulated errors that a class needs; with fewer it is joined with its neighbour."""
COARSE_MARGIN_COUNTS = 5
"""Margins below are the least whole ones that reach their percentage: one count less would fall far short."""

CERTAIN, UNCERTAIN = 0.1, 90
"""Root mean squared error (counts) up to which a forecast may say 0, and percentage from which on it may not above that."""


@dataclass(frozen=True)
class ErrorClass:
    """The simulated errors of a table's counts whose released values lie in one range.

    Attributes
    ----------
    table
        The table.
    lowest
        Least released count; the range ends where the table's next class begins.
    simulated
        Number of simulated errors on which this is based; 0 if they are standard errors of least squares.
    bias, rmse
        Mean and root mean square of released minus true count (counts).
    margins
        Margin of error (counts) at each of `CONFIDENCES`.
    """

    table: Margin
    lowest: int
    simulated: int
    bias: float
    rmse: float
    margins: tuple[float, ...]

    @classmethod
    def of(cls, table: Margin, lowest: int, errors: NDArray, *, whole: bool) -> ErrorClass:
        """Return the class of simulated errors (e,); `whole` states that released counts are whole numbers.

        Examples
        --------
        >>> ErrorClass.of(Margin("county"), 10, np.array([0, 0, 1, -2]), whole=True).margins
        (0, 2, 2, 2, 2)
        """
        size = np.sort(np.abs(errors))
        margin = whole_margin if whole else reached_margin
        return cls(
            table,
            lowest,
            len(errors),
            float(errors.mean()),
            float(np.sqrt(np.square(errors, dtype=np.float64).mean())),
            tuple(margin(size, percent / 100) for percent in CONFIDENCES),
        )

    @classmethod
    def normal(cls, table: Margin, error: float) -> ErrorClass:
        """Return a single error class for counts of all sizes: unbiased normal errors with a given standard deviation (counts).

        Examples
        --------
        >>> ErrorClass.normal(Margin("county"), 2.0).margins
        (1, 3, 3, 4, 5)
        """
        quantiles = (NormalDist().inv_cdf(0.5 + p / 200) * error for p in CONFIDENCES)
        return cls(table, 0, 0, 0.0, error, tuple(max(ceil(q - 0.5), 0) for q in quantiles))

    def as_forecast(self) -> ErrorClass:
        """Return the class with a margin of at least 1 at 90 % or more, because a forecast cannot know which counts are zero.

        Classes that hardly err (root mean squared error up to `CERTAIN`) stay as they are.

        Examples
        --------
        >>> ErrorClass(Margin("county"), 0, 500, 0.0, 0.3, (0, 0, 0, 1, 2)).as_forecast().margins
        (0, 0, 1, 1, 2)
        """
        if self.rmse <= CERTAIN:
            return self
        raised = (max(m, int(p >= UNCERTAIN)) for m, p in zip(self.margins, CONFIDENCES, strict=True))
        return replace(self, margins=tuple(raised))

    def margin(self, confidence: float) -> float:
        """Return the margin of error (counts) at one of `CONFIDENCES`."""
        return self.margins[CONFIDENCES.index(confidence)]


def reached_margin(size: NDArray, share: float) -> float:
    """Return the smallest margin that at least a given share of sorted absolute errors (e,) does not exceed."""
    return float(size[max(int(np.ceil(share * len(size) - 1e-9)), 1) - 1])


def whole_margin(size: NDArray, share: float) -> int:
    """Return the whole margin of error for a given share of sorted absolute errors (e,).

    The least that reaches the share; from `COARSE_MARGIN_COUNTS` on the one below it where that is nearer to the share and misses
    it by at most a fifth of the remainder (88 % for 90 %).

    Examples
    --------
    >>> size = np.repeat([0, 6, 7, 20], [500, 394, 60, 46])
    >>> whole_margin(size, 0.9), whole_margin(size, 0.95)
    (6, 7)
    """
    least = int(reached_margin(size, share))
    if least <= COARSE_MARGIN_COUNTS:
        return least
    below, at = (np.searchsorted(size, m, side="right") / len(size) for m in (least - 1, least))
    return least - int(share - below < min(at - share, (1 - share) / 5))


@dataclass(frozen=True)
class ExpectedErrors:
    """The expected errors of released counts, simulated from public information alone.

    Attributes
    ----------
    classes
        Every table's classes, in the order of size; none where nothing could be simulated.
    note
        A sentence on what was simulated, or why nothing was.

    Examples
    --------
    >>> rows = [ErrorClass(Margin("county"), low, 500, 0.0, 1.0, (1, 2, m, 4, 6)) for low, m in ((0, 2), (100, 3))]
    >>> ExpectedErrors(tuple(rows), "").margin_of_error(Margin("county"), np.array([0, 99, 100, 5000]))
    array([2., 2., 3., 3.])
    """

    classes: tuple[ErrorClass, ...]
    note: str

    @cached_property
    def tables(self) -> dict[Margin, tuple[ErrorClass, ...]]:
        """Return the error classes of each table."""
        names = dict.fromkeys(c.table for c in self.classes)
        return {table: tuple(c for c in self.classes if c.table == table) for table in names}

    def at(self, errors: Mapping[Margin, NDArray]) -> ExpectedErrors:
        """Return the record with normal errors in place of the simulated ones for some tables."""
        root = {table: float(np.sqrt(np.square(e).mean())) for table, e in errors.items()}
        rows = (
            (ErrorClass.normal(table, root[table]),) if table in root else classes
            for table, classes in self.tables.items()
        )
        return replace(self, classes=tuple(c for row in rows for c in row))

    def as_forecast(self) -> ExpectedErrors:
        """Return the errors of a release that is yet to be made; see `ErrorClass.as_forecast`."""
        return replace(self, classes=tuple(c.as_forecast() for c in self.classes))

    def labelled(self) -> list[tuple[ErrorClass, str]]:
        """Return every class, with its range of released counts as text.

        Examples
        --------
        >>> rows = [ErrorClass(Margin("county"), low, 500, 0.0, 1.0, (1, 2, 2, 4, 6)) for low in (0, 1, 100)]
        >>> [label for _, label in ExpectedErrors(tuple(rows), "").labelled()]
        ['0', '1-99', '100 and more']
        """
        found = []
        for classes in self.tables.values():
            ends = [*(c.lowest for c in classes[1:]), None]
            found += [(c, _range(c.lowest, end)) for c, end in zip(classes, ends)]
        return found

    def margin_of_error(self, table: Margin, counts: NDArray, level: str | float = "90%") -> NDArray | None:
        """Return the margin of error (counts) of each released count (groups,); None if the table has no figures.

        Raises
        ------
        SpecError
            If the level is none of the percentages that are kept.
        """
        confidence = read_confidence(level)
        if not (classes := self.tables.get(table)):
            return None
        ends = [c.lowest for c in classes]
        at = np.maximum(np.searchsorted(ends, np.maximum(counts, 0), side="right") - 1, 0)
        return np.array([c.margin(confidence) for c in classes], dtype=np.float64)[at]

    def written(self) -> dict[str, Any]:
        """Return the record as plain numbers and text for a manifest."""
        tables = [{"level": c.table.level, "attributes": list(c.table.attributes)} for c in self.classes]
        rows = [asdict(c) | {"table": table} for c, table in zip(self.classes, tables)]
        return {"note": self.note, "confidences": list(CONFIDENCES), "classes": rows}

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> ExpectedErrors:
        """Return the record that `written` turned into plain numbers and text.

        Examples
        --------
        >>> row = ErrorClass(Margin("county", ("sex",)), 0, 500, 0.0, 1.0, (1, 2, 2, 4, 6))
        >>> ExpectedErrors.read(ExpectedErrors((row,), "").written()) == ExpectedErrors((row,), "")
        True
        """
        at = [written["confidences"].index(percent) for percent in CONFIDENCES]
        rows = (
            ErrorClass(
                **{
                    **row,
                    "table": Margin(row["table"]["level"], tuple(row["table"]["attributes"])),
                    "margins": tuple(row["margins"][i] for i in at),
                }
            )
            for row in written["classes"]
        )
        return cls(tuple(rows), written["note"])


def _range(low: int, end: int | None) -> str:
    if end is None:
        return f"{low:,} and more" if low else "any"
    return f"{low:,}" if end == low + 1 else f"{low:,}-{end - 1:,}"


def read_confidence(level: str | float) -> int:
    """Read a probability such as `"90%"` or 0.9 as a percentage for which margins of error are kept.

    Examples
    --------
    >>> read_confidence("95%"), read_confidence(0.9)
    (95, 90)
    """
    percent = 100 * probability_of(level)
    if (nearest := round(percent)) in CONFIDENCES and abs(percent - nearest) < 1e-9:
        return nearest
    raise SpecError(
        f"margins of error are not kept at the probability {level}",
        needed=f"one of: {', '.join(f'{percent}%' for percent in CONFIDENCES)}",
    )


def error_classes(table: Margin, released: NDArray, errors: NDArray, *, whole: bool) -> list[ErrorClass]:
    """Sort simulated errors (e,) into classes by the size of the released count (e,); small classes are joined.

    Examples
    --------
    >>> released = np.repeat([0, 5, 50, 500], [200, 50, 60, 10])
    >>> [(c.lowest, c.simulated) for c in error_classes(Margin("county"), released, np.ones(320), whole=True)]
    [(0, 200), (1, 120)]
    """
    at = np.searchsorted(SIZES, released, side="right")
    classes = _joined_ranges(np.bincount(at, minlength=len(SIZES) + 1))
    lowest = (0, *SIZES)
    held = [(lowest[first], errors[(at >= first) & (at < last)]) for first, last in classes]
    return [ErrorClass.of(table, low, some, whole=whole) for low, some in held]


def _joined_ranges(counts: Sequence[int] | NDArray) -> list[tuple[int, int]]:
    """Return ranges of size classes that together hold enough counts; a small rest joins the last range."""
    ranges, first, held = [], 0, 0
    for k, count in enumerate(counts):
        first, held = (k, count) if not held else (first, held + count)
        if held >= MIN_CLASS_ERRORS:
            ranges.append((first, k + 1))
            held = 0
    if held and ranges:
        return [*ranges[:-1], (ranges[-1][0], len(counts))]
    return [(first, len(counts))] if held else ranges
