"""Section with all counts: a table with a search field for each published margin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Cells, Margin
from trueup.model.nested import canonical
from trueup.model.records.expected_errors import read_confidence
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.reporting.drawing import Column, Section, Table, Text, numeric
from trueup.reporting.drawing.words import number, plain, table_name
from trueup.reporting.sections.error import noise_margin, of_margin

SHOWN_TABLE_ROWS = 4000
"""Rows shown of a table; all counties of the United States fit in."""

HIDDEN = "*"
"""Mark in a table where no number was published."""

MAX_UNFOLDED_ROWS = 60
"""A table of at most so many rows starts open."""


def released_counts(release: Release, unit: str, level: float | str = "90%") -> Section:
    """Return the section with the released counts of every published table, beside the noisy counts."""
    text = Text(
        "Each released count stands beside the noisy count that was measured, if any, and its margin of error: the "
        f"distance within which the true count lies in {read_confidence(level)} of 100 cases, by forecast."
    )
    tables = (_released(release, margin, unit, level) for margin in release.published)
    return Section("counts", "The released counts", (text, *tables))


def noisy_counts(measurements: Measurements, unit: str) -> Section:
    """Return the section with the noisy counts as they were drawn."""
    text = Text(
        "These counts carry the noise that protects the data. They may be negative, and the counts of the "
        "parts need not add up to the count of the whole: reconciliation sees to that."
    )
    cells = measurements.cells
    margins = dict.fromkeys(canonical(cells, h.margin) for h in measurements.headers if not h.exact)
    tables = (
        counts_table(
            cells, m, "noisy counts", "measurements", lambda at, m=m: _noisy(measurements, m, unit, at)
        )
        for m in margins
    )
    return Section("counts", "The noisy counts", (text, *tables))


def enumerated(measurements: Measurements) -> Section:
    """Return the section with the counts that are published exactly."""
    exact = [h for h in measurements.headers if h.exact]
    if not exact:
        text = Text("Nothing. Every published count comes from noisy counts.")
        return Section("enumerated", "What is published exactly as enumerated", (text,))
    cells = measurements.cells
    sizes = [cells.size(h.margin) if h.groups is None else len(h.groups) for h in exact]
    table = Table(
        "Tables published exactly as enumerated (invariants)",
        (
            Column("Table", [table_name(h.margin) for h in exact]),
            numeric("Number of counts", [number(size) for size in sizes]),
            Column("Status", ["published exactly as enumerated, not protected"] * len(exact)),
        ),
    )
    text = Text("These counts carry no noise, and neither do sums of them. They are true values of the data.")
    return Section("enumerated", "What is published exactly as enumerated", (text, table))


def _released(release: Release, margin: Margin, unit: str, level: float | str) -> Table:
    counts, errors = release.sums(margin), release.margin_of_error(margin, level)

    def columns(at: slice) -> list[Column]:
        found = [numeric(f"Released count ({unit})", counts[at])]
        found += _noisy(release.measurements, margin, unit, at, margins=False)
        if errors is not None:
            name = f"{read_confidence(level)} % margin of error (±\N{NO-BREAK SPACE}{unit})"
            found.append(numeric(name, errors[at]))
        return found

    return counts_table(release.cells, margin, "released counts", "counts", columns)


def counts_table(
    cells: Cells, margin: Margin, what: str, folder: str, columns: Callable[[slice], Sequence[Column]]
) -> Table:
    size = cells.size(margin)
    shown = slice(0, min(size, SHOWN_TABLE_ROWS))
    note = ""
    if size > SHOWN_TABLE_ROWS:
        note = (
            f"Shown are the first {SHOWN_TABLE_ROWS:,} of {size:,} rows; search and sorting reach these only. The whole "
            f"table is the Parquet file of '{margin}' in the folder '{folder}' beside this report."
        )
    name = table_name(margin)
    return Table(
        f"{what.capitalize()}: {name}",
        (*_place_columns(cells, margin, shown), *columns(shown)),
        note,
        summary=f"{name[:1].upper()}{name[1:]}: {size:,} {what if size > 1 else what.removesuffix('s')}",
        unfolded=size <= MAX_UNFOLDED_ROWS,
    )


def _place_columns(cells: Cells, margin: Margin, shown: slice) -> list[Column]:
    """Return the columns that name every group of a margin: place, code and attribute values."""
    shape = cells.margin_shape(margin)
    place, *values = np.unravel_index(np.arange(shown.stop), shape)
    level = cells.tree.level(margin.level)
    used, inverse = np.unique(place, return_inverse=True)
    codes = [cells.tree.label(margin.level, int(p)) for p in used]
    names = names_with_parents(cells, level, used)
    times = Counter(names)  # of several places with one name, each is followed by its code
    labels = [n if times[n] == 1 else f"{n} ({code})" for n, code in zip(names, codes)] if names else codes
    found = [Column(plain(margin.level).capitalize(), [labels[i] for i in inverse])]
    return found + [
        Column(plain(r.name).capitalize(), [r.values[v] for v in value])
        for r, value in zip(cells.kept(margin), values)
    ]


def names_with_parents(cells: Cells, level: int, places: NDArray) -> list[str] | None:
    """Return readable names of places, each followed by that of its parent if there is one; None without names."""
    tree = cells.tree
    if not tree.names or tree.names[level] is None:
        return None
    own = [str(name) for name in tree.names[level][places]]  # pyright: ignore[reportOptionalSubscript]
    above = tree.names[level - 1] if level else None
    if above is None:
        return own
    parents = above[tree.ancestors(level, level - 1)[places]]
    return [f"{name}, {parent}" for name, parent in zip(own, parents)]


def _noisy(
    measurements: Measurements, margin: Margin, unit: str, at: slice, *, margins: bool = True
) -> list[Column]:
    found = []
    measured = of_margin(measurements, margin)
    for header, values in measured:
        of = f", {plain(header.query)}" if len(measured) > 1 else ""
        if header.exact:
            found.append(
                Column(
                    "Status",
                    [
                        "noisy" if m else "published exactly as enumerated"
                        for m in np.ma.getmaskarray(values)[at]
                    ],
                )
            )
            continue
        found.append(numeric(f"Noisy count{of} ({unit})", values[at]))
        if margins:
            reach = [number(noise_margin(header.law))] * len(values[at])
            found.append(numeric(f"90 % noise margin{of} (±\N{NO-BREAK SPACE}{unit})", reach))
    return found
