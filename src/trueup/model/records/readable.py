"""Tables of which nothing can be read: the margin of error exceeds the number itself for most counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trueup.model.cells import Cells
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


def unreadable_forecast(expected: ExpectedErrors | None, cells: Cells, units: int) -> Iterator[str]:
    """Yield the same for the tables of made-up populations of `units` in all, by classes of size."""
    if expected is None or not all(attribute.partition for attribute in cells.attributes):
        return
    for margin, classes in expected.tables.items():
        mean, ends = units / cells.size(margin), [c.lowest for c in classes[1:]]
        middles = [(max(c.lowest, 1) * end) ** 0.5 if end > 1 else 0.0 for c, end in zip(classes, ends)]
        exceeded = [c.margin(90) > max(m, mean) for c, m in zip(classes, [*middles, classes[-1].lowest])]
        times = [c.simulated or 1 for c in classes]
        yield from _sentence(
            str(margin), float(np.average(exceeded, weights=times)), " in made-up populations"
        )


def _sentence(table: str, share: float, whose: str) -> Iterator[str]:
    if share > MOST:
        read = "no number and no order" if share >= NEARLY_ALL else "neither most numbers nor their order"
        yield (
            f"From the table '{table}' {read} can be read: for {np.floor(100 * share):.0f} % of its counts{whose} the "
            "90 % margin of error exceeds both the number itself and the average one. A larger budget, or fewer and "
            "coarser tables, would help."
        )
