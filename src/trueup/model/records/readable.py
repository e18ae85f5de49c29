"""Tables of which nothing can be read: the margin of error exceeds the number itself for most counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trueup.model.records.expected_errors import ExpectedErrors
from trueup.model.records.release import Release

MOST, NEARLY_ALL = 0.5, 0.9
"""Shares of the counts from which on a table is named, and from which on nothing of it can be read."""


def unreadable_tables(release: Release) -> Iterator[str]:
    """Yield a sentence for each published table of a release in memory whose margins exceed most counts, and their mean.

    The mean is asked for as well because a small margin exceeds a count of 0, which most counts of a sparse table are.
    """
    for margin in release.published if release.parts == 1 else ():
        counts, errors = release.sums(margin), release.margin_of_error(margin)
        if errors is not None and counts.size:
            exceeded = (errors > counts) & (errors > counts.mean())
            yield from _sentence(str(margin), float(exceeded.mean()), "")


def unreadable_forecast(expected: ExpectedErrors | None) -> Iterator[str]:
    """Yield the same for the tables of a made-up population, by classes of size: before a release its counts are not known."""
    for margin, classes in (expected.tables if expected else {}).items():
        times = np.array([c.simulated for c in classes])
        ends = [*(c.lowest for c in classes[1:]), 10 * classes[-1].lowest]
        middles = np.array(
            [np.sqrt(max(c.lowest, 1) * end) if end > 1 else 0.0 for c, end in zip(classes, ends)]
        )
        if len(classes) > 1 and times.any():
            errors, mean = np.array([c.margin(90) for c in classes]), np.average(middles, weights=times)
            exceeded = (errors > middles) & (errors > mean)
            yield from _sentence(
                str(margin), float(times[exceeded].sum() / times.sum()), " of a made-up population"
            )


def _sentence(table: str, share: float, whose: str) -> Iterator[str]:
    if share > MOST:
        read = "no number and no order" if share >= NEARLY_ALL else "neither most numbers nor their order"
        yield (
            f"From the table '{table}' {read} can be read: for {np.floor(100 * share):.0f} % of its counts{whose} the "
            "90 % margin of error exceeds both the number itself and the average one. A larger budget, or fewer and "
            "coarser tables, would help."
        )
