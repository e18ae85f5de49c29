"""First section of a report: counts in order of size, with margins of error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Cells, Margin
from trueup.model.names import PERIOD
from trueup.model.nested import canonical
from trueup.model.records.expected_errors import read_confidence
from trueup.model.records.release import Release, unreadable_tables
from trueup.reporting.drawing import Block, Notice, Section, Text
from trueup.reporting.drawing.pictures import Figure, Mark, PictureAxis
from trueup.reporting.drawing.words import number, percent, plain
from trueup.reporting.sections.counts import names_with_parents

if TYPE_CHECKING:
    from trueup.model.records.posterior import Posterior

MOST_ROWS = 15
"""Bars of a picture."""
MOST_PICTURES, MOST_MEASURED = 5, 12
"""Pictures of the whole by one attribute each, and of measured tables."""
MOST_VALUES = 40
"""Values of attributes of the whole that are shown in their own order."""
LARGEST_TABLE = 30_000
"""Places of a level that are ranked: describing more takes long, and nobody reads their names."""
_OVERLAP = "Two bars whose lines overlap may in truth be equal, or the other way round."


@dataclass(frozen=True, eq=False)
class Known:
    """Values of `k` counts of a table with the ends of intervals; NaN if unknown."""

    values: NDArray
    low: NDArray
    high: NDArray

    def text(self, at: int) -> str:
        """Return a count with its margin of error, or with its interval if that is not symmetric."""
        value, low, high = (float(column[at]) for column in (self.values, self.low, self.high))
        if not np.isfinite(low) or low == high:
            return number(value)
        if abs((high - value) - (value - low)) < 1e-9:
            return f"{number(value)} ± {number(high - value)}"
        shown = number(round(value)) if value >= 10 else number(float(f"{value:.3g}"))
        return f"{shown} ({number(low)} to {number(high)})"


def released_results(release: Release, unit: str, level: float | str, more: Sequence[Block] = ()) -> Section:
    """Return the section with released counts by place and by attribute, with margins of error."""

    def known(margin: Margin) -> Known:
        counts, error = release.sums(margin), release.margin_of_error(margin, level)
        error = np.full(counts.size, np.nan) if error is None else error
        return Known(counts, counts - error, counts + error)

    line = f"Lines show the {read_confidence(level)} % margin of error, where one is known."
    tables = _tables(
        release.cells,
        [m.level for m in release.published if not m.attributes],
        [m for m in release.published if m.attributes],
    )
    notices = tuple(map(Notice, unreadable_tables(release)))
    blocks = _blocks(release.cells, tables, known, unit, line, more)
    return Section("results", "What the numbers say", (*notices, *blocks))


def posterior_results(posterior: Posterior, unit: str) -> Section:
    """Return the section with posterior means by place and by attribute, with intervals."""

    def known(margin: Margin) -> Known:
        found = posterior.summary(canonical(posterior.cells, margin))
        return Known(found["mean"], found["low"], found["high"])

    line = f"Bars are posterior means. {_interval_line(posterior)}"
    tables = _tables(posterior.cells, list(posterior.cells.tree.levels))
    return Section(
        "results",
        "What the true counts may be, largest first",
        _blocks(posterior.cells, tables, known, unit, line),
    )


def _interval_line(posterior: Posterior) -> str:
    """Return the sentence that says what the lines in the picture stand for."""
    what = f"Lines show {percent(posterior.level)} intervals of the posterior"
    return f"{what}, which the measurements contradict." if posterior.conflicts else f"{what}."


def asked_results(posterior: Posterior, unit: str, areas: Mapping[str, NDArray] | None) -> Section | None:
    """Return the section with requested areas and ratios; None if there are none."""
    line = _interval_line(posterior)
    figures = []
    if areas is not None:
        labels = list(areas)[: list(areas).index("mean")]
        names = [", ".join(map(str, each)) for each in zip(*(areas[name] for name in labels))]
        figures.append(_asked(areas, names, plain(labels[0]).capitalize(), unit, line))
    if posterior.ratios:
        columns = posterior.ratio_summary()
        for ratio in posterior.ratios:
            own = {name: column[columns["quantity"] == ratio.name] for name, column in columns.items()}
            if np.isfinite(own["mean"]).any():
                figures.append(_asked(own, own["place"].tolist(), ratio.name, "ratio", line))
    return Section("asked", "What was asked", tuple(figures)) if figures else None


def _asked(columns: Mapping[str, NDArray], names: list[str], what: str, unit: str, line: str) -> Figure:
    held = Known(columns["mean"], columns["low"], columns["high"])
    order = np.argsort(-np.nan_to_num(held.values, nan=-np.inf), kind="stable")
    order = order[np.isfinite(held.values[order])]
    return _figure(what, held, names, order[:MOST_ROWS], unit, line)


def _tables(cells: Cells, levels: list[str], measured: Sequence[Margin] = ()) -> list[Margin]:
    """Return the margins to show first: places of each level that is not too large, and values of attributes."""
    if any(not attribute.partition and attribute.name != PERIOD for attribute in cells.attributes):
        return [Margin(cells.tree.levels[0], tuple(a.name for a in cells.attributes))]
    kept = cells.coarsest.attributes
    sizes = dict(zip(cells.tree.levels, cells.tree.sizes))
    places = [Margin(name, kept) for name in sizes if name in levels and 1 < sizes[name] <= LARGEST_TABLE]
    by = [Margin(cells.tree.levels[0], (*kept, a.name)) for a in cells.attributes if a.partition]
    shown = [margin for margin in places if cells.holds(margin)]
    shown += [margin for margin in by if cells.holds(margin)][:MOST_PICTURES]
    own = [margin for margin in measured if margin not in shown and cells.size(margin) <= LARGEST_TABLE]
    return shown + own[:MOST_MEASURED]


def _blocks(
    cells: Cells,
    tables: list[Margin],
    known: Callable[[Margin], Known],
    unit: str,
    line: str,
    more: Sequence[Block] = (),
) -> tuple[Block, ...]:
    figures, said = [], []
    if cells.tree.sizes[0] == 1 and all(attribute.partition for attribute in cells.attributes):
        said.append(f"In all: {known(Margin(cells.tree.levels[0])).text(0)} {unit}.")
    for margin in tables:
        held = known(margin)
        names = _group_names(cells, margin)
        order = np.argsort(-held.values, kind="stable")
        shown = order[:MOST_ROWS]
        if cells.tree.sizes[cells.tree.level(margin.level)] == 1 and len(order) <= MOST_VALUES:
            shown = np.arange(len(order))  # in the order of the spec, as of age groups
        if not margin.attributes:
            most, least = order[0], order[-1]
            said.append(
                f"Of {len(order):,} places of level {plain(margin.level)}, {names[most]} has the largest number: "
                f"{held.text(most)}. {names[least]} has the smallest: {held.text(least)}."
            )
        about = line if np.isfinite(held.low).any() else "No margin of error of these sums is known."
        whole = "the whole" if cells.tree.sizes[cells.tree.level(margin.level)] == 1 else plain(margin.level)
        what = whole + "".join(f" by {plain(name)}" for name in margin.attributes) + margin.whose
        figures.append(_figure(what[:1].upper() + what[1:], held, names, shown, unit, about))
    return (Text(*said, _OVERLAP), *more, *figures)


def _figure(what: str, held: Known, names: list[str], shown: NDArray, unit: str, line: str) -> Figure:
    rows = tuple((names[at], tuple(_marks(held, at))) for at in shown.tolist())
    ends = [end for _, marks in rows for m in marks for end in (m.at, m.to)]
    axis = PictureAxis.around(
        [0.0, 1.25 * max(ends), min(0.0, *ends)], unit
    )  # room for the text at the longest bar
    few = f"the {len(rows)} largest of {len(names):,}" if len(rows) < len(names) else "all"
    most = int(shown[np.argmax(held.values[shown])])
    return Figure(
        f"Bars of {what}, {few}. The largest is {names[most]}: {held.text(most)} {unit}.",
        f"{what}: {few}. {line}",
        axis,
        rows,
    )


def _marks(held: Known, at: int) -> Iterator[Mark]:
    value, low, high = (float(column[at]) for column in (held.values, held.low, held.high))
    yield Mark("bar", 0.0, max(value, 0.0))
    if np.isfinite(low):
        yield Mark("join", max(low, 0.0), high)
    yield Mark("text", max(value, high) if np.isfinite(high) else value, text=held.text(at))


def _group_names(cells: Cells, margin: Margin) -> list[str]:
    """Return readable names of all groups of a margin."""
    level = cells.tree.level(margin.level)
    places = np.arange(cells.tree.sizes[level])
    labels = names_with_parents(cells, level, places) or cells.tree.labels(margin.level)
    if not margin.attributes:
        return labels
    values = [", ".join(each) for each in product(*(recode.values for recode in cells.kept(margin)))]
    return values if len(labels) == 1 else [f"{place}, {value}" for place in labels for value in values]
