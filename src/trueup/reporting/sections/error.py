"""Section on the errors to expect: from the noise alone, and after least squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isnan, nan

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Margin
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.model.records.expected_errors import CONFIDENCES, ExpectedErrors
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.noise.law import Law
from trueup.reporting.drawing import Column, Section, Table, Text, numeric
from trueup.reporting.drawing.pictures import Figure, before_after
from trueup.reporting.drawing.words import number, plain, table_name

NORMAL_90 = 1.6448536269514722
"""95 % quantile of the normal law: 90 % of it lies within plus or minus this many standard errors."""

_BEFORE = "noisy count alone"
_AFTER = "least squares with all levels"


def noise_margin(law: Law) -> float:
    """Return the smallest `m` with at least 90 % of the noise within plus or minus `m` (counts)."""
    return float(law.quantile(0.95)) if law.factors else nan


def of_margin(measurements: Measurements, margin: Margin) -> list[tuple[Measured, NDArray]]:
    """Return the header and the values of every measurement of a margin; groups that were not measured are masked."""
    pairs = zip(measurements.headers, measurements.values)
    same = ((h, v) for h, v in pairs if canonical(measurements.cells, h.margin) == margin)
    return [(header, _spread(header, values, measurements.cells.size(margin))) for header, values in same]


def noise_error(measurements: Measurements, unit: str) -> Section:
    """Return the section with the margins of error of the noise alone."""
    noisy = [h for h in measurements.headers if not h.exact]
    deviations = [
        np.sqrt(h.law.variance) if h.law.factors else nan for h in noisy
    ]  # NaN: a law of several counts
    columns = (
        Column("Noisy table", [f"{plain(h.query)}, {table_name(h.margin)}" for h in noisy]),
        _sizes(measurements, [h.margin for h in noisy]),
        numeric(f"Standard deviation of the noise ({unit})", np.array(deviations)),
        numeric(
            f"90 % noise margin (±\N{NO-BREAK SPACE}{unit})", [number(noise_margin(h.law)) for h in noisy]
        ),
    )
    text = Text(
        "The noise was drawn at random from known laws. The 90 % noise margin is the distance within which "
        "the noise of a single count lies with a probability of at least 90 %."
    )
    return Section("error", "Expected error", (text, Table("Noise of each table", columns)))


def release_error(release: Release, unit: str) -> Section:
    """Return the section on the expected error of every published table."""
    section, expected = _closed_form(release, unit), release.expected
    if expected is not None:
        published = tuple(c for c in expected.classes if c.table in release.published)
        expected = replace(expected, classes=published)
    return replace(section, blocks=(*expected_blocks(expected, unit), *section.blocks))


def expected_blocks(expected: ExpectedErrors | None, unit: str) -> tuple[Text | Table, ...]:
    """Return blocks with the expected errors by table and size of the released count; empty if not simulated."""
    if expected is None:
        return ()
    if not expected.classes:
        return (Text(expected.note),)
    rows = expected.labelled()
    margins = [
        numeric(
            f"{percent} % margin (±\N{NO-BREAK SPACE}{unit})",
            [f"{row.margin(percent):,g}" for row, _ in rows],
        )
        for percent in CONFIDENCES
    ]
    columns = (
        Column("Published table", [table_name(row.table) for row, _ in rows]),
        Column("Released count", [label for _, label in rows]),
        numeric(f"Mean error ({unit})", np.array([row.bias for row, _ in rows])),
        numeric(f"Root mean square error ({unit})", np.array([row.rmse for row, _ in rows])),
        *margins,
    )
    text = Text(
        "What errors released counts have, by the size of the released count. The 90 % margin is the distance "
        "within which about 90 % of the counts of that size lie from the true ones (between 88 and 92 % from 6 "
        "on; below, the least whole distance that holds at least 90 %). It was found by simulation from public "
        f"values alone: no confidential count was used. {expected.note}"
    )
    return (text, Table("Errors to expect, by size of the released count", columns))


def _closed_form(release: Release, unit: str) -> Section:
    """Return the section on least-squares errors or, if the method has no formula, on the noise alone."""
    if not release.errors:
        section = noise_error(release.measurements, unit)
        text = Text(
            "This method has no closed formula for the error of the released counts. What is known exactly "
            "is the noise of each noisy count they were made from."
        )
        return replace(section, blocks=(text, *section.blocks))
    text = Text(
        "Combining the noisy counts of all levels makes each more accurate. The standard errors below are "
        "those of weighted least squares, before nonnegativity and rounding, which change small counts "
        "most. They follow from the laws of the noise alone, not from the counts. The 90 % margin is "
        "1.645 standard errors (normal approximation)."
    )
    margins = [m for m in release.published if m in release.errors]
    return Section(
        "error", "Expected error", (text, _picture(release, margins, unit), _table(release, margins, unit))
    )


def _table(release: Release, margins: Sequence[Margin], unit: str) -> Table:
    alone = [_noise(release.measurements, m) for m in margins]
    spread = [np.quantile(release.errors[m], [0, 0.5, 1]) for m in margins]
    smallest, median, largest = np.array(spread).T
    columns = (
        Column("Published table", [table_name(m) for m in margins]),
        _sizes(release.measurements, margins),
        numeric(
            f"90 % margin of the noisy count alone (±\N{NO-BREAK SPACE}{unit})",
            ["not measured" if noise is None else number(noise) if noise else "exact" for noise in alone],
        ),
        numeric(f"Standard error, smallest ({unit})", smallest),
        numeric(f"Standard error, median ({unit})", median),
        numeric(f"Standard error, largest ({unit})", largest),
        numeric(f"90 % margin, median (±\N{NO-BREAK SPACE}{unit})", NORMAL_90 * median),
    )
    return Table("Expected error of each published table, by weighted least squares", columns)


def _picture(release: Release, margins: Sequence[Margin], unit: str) -> Figure:
    before = {m: _noise(release.measurements, m) for m in margins}
    rows = {
        table_name(m): (
            None if noise is None or isnan(noise) else noise,
            NORMAL_90 * float(np.median(release.errors[m])),
        )
        for m, noise in before.items()
    }
    worst = max(rows, key=lambda name: rows[name][1])
    message = (
        f"Picture of the 90 % margins before and after least squares: after it, the median margin is largest "
        f"for the table {worst}, ± {number(rows[worst][1])} {unit}."
    )
    caption = f"90 % margin of a count at each level, in {unit}: smaller is better."
    return before_after(rows, (_BEFORE, _AFTER), f"90 % margin (±\N{NO-BREAK SPACE}{unit})", message, caption)


def _noise(measurements: Measurements, margin: Margin) -> float | None:
    """Return the smallest margin of error (counts) among the measurements of a margin; None if it was not measured."""
    found = [noise_margin(header.law) for header, _ in of_margin(measurements, margin)]
    return min(found, default=None)


def _sizes(measurements: Measurements, margins: Sequence[Margin]) -> Column:
    cells = measurements.cells
    return numeric("Number of counts", [number(cells.size(m)) for m in margins])


def _spread(header: Measured, values: NDArray, size: int) -> NDArray:
    if header.groups is None:
        return values
    table = np.ma.masked_array(np.zeros(size, values.dtype), mask=True)
    table[header.groups] = values
    return table
