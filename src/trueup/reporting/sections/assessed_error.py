"""Sections of an assessment's report on bias and error, by true size, table and budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trueup.digits import error_digit
from trueup.model.cells import Margin
from trueup.model.records.assessment import Assessment, Budget, Columns
from trueup.model.spec import Spec
from trueup.reporting.drawing import (
    WHISKER_ERRORS,
    Block,
    Chart,
    Column,
    Point,
    Section,
    Table,
    Text,
    chart,
    numeric,
)
from trueup.reporting.drawing.pictures import strips
from trueup.reporting.drawing.words import number, plain, plural, table_name

_QUANTILES = tuple(f"quantile {p:g} of the error" for p in (0.05, 0.25, 0.5, 0.75, 0.95))


def by_size(view: AssessmentView) -> Section:
    """Return the section on bias and error by size of the true count, for each table."""
    blocks: list[Block] = [
        Text(
            "Small and large counts fare differently. A method that keeps counts from falling below zero can only "
            "err upwards where the true count is zero; what is added there is missing elsewhere."
        )
    ]
    for margin in reversed(view.drawn):
        blocks += _size_charts(view, margin)
    return Section("size", "Bias and error by true size", tuple(blocks))


def _size_charts(view: AssessmentView, margin: Margin) -> Iterator[Chart]:
    classes = view.classes("size", str(margin))
    if len(classes) < 2:
        return
    what, places = counts_of(margin), places_of(classes, margin)
    across = f"True count ({view.unit}), and how many {named(margin, 2)} have it"
    found = {"by": "size", "level": str(margin), "units": list(classes)}
    bias = view.points("bias", **found)
    yield chart(
        bias,
        places,
        across,
        f"Bias of {what} ({view.unit}): above 0 is published too high, below 0 too low",
        f"Chart of the bias of {what} by true count: {extreme(bias, list(classes), view.unit)}.",
        f"Average of published minus true count over all replicates, by size of the true count. {WHISKERS}{view.at}",
    )
    rmse = view.points("rmse", **found)
    yield chart(
        rmse,
        places,
        across,
        f"Typical error of {what} (± {view.unit}): smaller is better",
        f"Chart of the typical error of {what} by true count: {extreme(rmse, list(classes), view.unit)}.",
        "Typical error: the root of the mean squared difference between published and true count. "
        f"{WHISKERS}{view.at}",
    )


def by_level(view: AssessmentView) -> Section:
    """Return the section that compares the errors of the tables."""
    levels = [str(m) for m in view.drawn]
    found = [view.points("rmse", by="level", level=level, units=["all"]) for level in levels]
    series = {name: [row[name][0] for row in found] for name in view.names}
    sizes = [view.classes("level", level)["all"] for level in levels]
    places = [(table_name(m), f"{n:,} {named(m, n)}") for m, n in zip(view.drawn, sizes)]
    picture = chart(
        series,
        places,
        "Published table, and how many counts it has",
        f"Typical error (± {view.unit}): smaller is better",
        f"Chart of the typical error of every published table: {extreme(series, levels, view.unit)}.",
        f"Typical error of the counts of each table. {WHISKERS}{view.at}",
    )
    return Section("levels", "Error of each table", (picture, *_level_tables(view)))


_STATISTICS = {
    "bias": "Bias",
    "variance": "Variance",
    "rmse": "Typical error",
    "mean absolute error": "Mean absolute error",
}


def _level_tables(view: AssessmentView) -> Iterator[Table]:
    for margin in view.record.levels:
        rows = []
        for name in view.names:
            for budget in view.record.budgets:
                of = {"by": "level", "level": str(margin), "method": name, "budget": budget.label}
                figures = (with_error(view.record.rows(statistic=s, **of)) for s in _STATISTICS)
                rows.append([name, budget.label, *(next(iter(texts), "–") for texts in figures)])
        yield Table(
            f"Error of {table_name(margin)} ({view.unit}; the variance in their squares), ± its Monte Carlo error",
            (
                Column("Method", [r[0] for r in rows]),
                Column("Budget", view.record.shown_budgets(*zip(*(r[:2] for r in rows)))),
                *(numeric(h, [r[2 + i] for r in rows]) for i, h in enumerate(_STATISTICS.values())),
            ),
            summary=f"Figures of {table_name(margin)}",
        )


def residuals(view: AssessmentView) -> Section:
    """Return the section on the distribution of errors in each table."""
    blocks: list[Block] = []
    for margin in reversed(view.drawn):
        found = [view.points(q, by="level", level=str(margin), units=["all"]) for q in _QUANTILES]
        values = {name: [point[0] for row in found if (point := row[name][0])] for name in view.names}
        if not any(v for row in values.values() for v in row):
            continue
        what = counts_of(margin)
        wide = max(values, key=lambda name: values[name][-1] - values[name][0])
        blocks.append(
            strips(
                values,
                f"published minus true count of {what} ({view.unit})",
                f"Picture of how the errors of {what} are distributed: they spread widest for {wide}, from "
                f"{number(values[wide][0])} to {number(values[wide][-1])} {view.unit} in 90 % of cases.",
                f"Errors of {what} over all replicates: half of them lie within the dark bar, 90 % within the "
                f"pale one.{view.at}",
            )
        )
    return Section("residuals", "How errors are distributed", tuple(blocks))


def budgets(view: AssessmentView) -> Section | None:
    """Return the section on the effect of a larger budget; None if there is only one budget."""
    budgets = sorted(view.record.budgets, key=lambda b: b.scale)
    if len(budgets) < 2:
        return None
    places = [(b.label, f"{b.scale} times the spec's") for b in budgets]
    charts = [_budget_chart(view, margin, budgets, places) for margin in reversed(view.drawn)]
    text = Text("More privacy loss buys less error. Every chart is one table; every line one method.")
    return Section("budgets", "What a larger budget buys", (text, *charts))


def _budget_chart(
    view: AssessmentView, margin: Margin, budgets: Sequence[Budget], places: Sequence[tuple[str, str]]
) -> Chart:
    rows = view.record.rows(statistic="rmse", by="level", level=str(margin))
    held = _figures(rows, "budget")
    series = {name: [held.get((name, b.label)) for b in budgets] for name in view.names}
    what = counts_of(margin)
    return chart(
        series,
        places,
        "Privacy loss in all",
        f"Typical error of {what} (± {view.unit}): smaller is better",
        f"Chart of the typical error of {what} at each budget: {extreme(series, [b.label for b in budgets], view.unit)}.",
        f"Typical error of {what} at each budget, on the same random numbers. {WHISKERS}",
    )


WHISKERS = (
    f"Thin upright lines reach {WHISKER_ERRORS:g} Monte Carlo errors to either side; where none is seen it is smaller than "
    "the mark."
)
"""Explanation of the lines through the marks."""


class AssessmentView:
    """An assessment as a report shows it: at one budget, the one nearest to the spec's."""

    def __init__(self, record: Assessment, spec: Spec) -> None:
        self.record, self.unit = record, plural(spec.table.counts)
        self.places = [level.name for level in spec.levels]
        self.budget: Budget = min(record.budgets, key=lambda b: abs(np.log(float(b.scale))))
        self.names = [method.label for method in record.methods]

    def points(self, statistic: str, *, by: str, level: str, units: Sequence[str], about: str | None = None):
        """Return for each method one point per class or group in `units`; None where there is no figure."""
        wanted = {"statistic": statistic, "by": by, "level": level, "budget": self.budget.label}
        held = _figures(self.record.rows(**wanted, **({} if about is None else {"about": about})), "unit")
        return {name: [held.get((name, unit)) for unit in units] for name in self.names}

    def classes(self, by: str, level: str) -> dict[str, int]:
        """Return the names of a level's classes, and the number of counts in each."""
        rows = self.record.rows(
            statistic="bias", by=by, level=level, budget=self.budget.label, method=self.names[0]
        )
        return {str(unit): int(n) for unit, n in zip(rows["unit"], rows["units"])}

    @property
    def drawn(self) -> list[Margin]:
        """Return the tables that charts show: totals on every level, and the finest table."""
        finest = self.record.levels[-1]
        return [m for m in self.record.levels if not m.attributes or m == finest]

    def parent(self, margin: Margin) -> str:
        """Return the name of the level above that of a margin."""
        return plain(self.places[self.places.index(margin.level) - 1])

    @property
    def at(self) -> str:
        """Return a sentence that names the budget shown, if there are several."""
        return f" Shown at {self.budget.label}." if len(self.record.budgets) > 1 else ""


def _figures(rows: Columns, by: str) -> dict[tuple[str, str], Point]:
    """Return figures with their Monte Carlo errors, by method and another column."""
    keys = zip(rows["method"], rows[by])
    return {
        (str(m), str(k)): (float(v), float(e)) for (m, k), v, e in zip(keys, rows["value"], rows["mc_error"])
    }


def places_of(classes: dict[str, int], margin: Margin) -> list[tuple[str, str]]:
    """Return the name of each class for a chart, with the number of groups in it."""
    return [(name.replace("-", "–"), f"{n:,} {named(margin, n)}") for name, n in classes.items()]


def counts_of(margin: Margin) -> str:
    """Return words for the counts of a table, such as `block counts` or `block counts by sex`."""
    return table_name(margin).replace(plain(margin.level), f"{plain(margin.level)} counts", 1)


def named(margin: Margin, n: int) -> str:
    """Return a noun for n groups of a table: counts, or places of a level."""
    one = "count" if margin.attributes else plain(margin.level)
    return one if n == 1 else plural(one)


def with_error(rows: Columns) -> list[str]:
    """Return figures as texts with Monte Carlo errors."""
    return [
        f"{number(three_digits(v))} ± {error_digit(e, v)}" for v, e in zip(rows["value"], rows["mc_error"])
    ]


def three_digits(value: float) -> float:
    """Return a value rounded to three digits, which is the precision of Monte Carlo figures."""
    return float(f"{value:.3g}")


def extreme(series: dict, places: Sequence[str], unit: str) -> str:
    """Return words for the value of largest size in a chart, and where it stands."""
    every = [
        (abs(p[0]), p[0], name, place)
        for name, row in series.items()
        for place, p in zip(places, row)
        if p is not None
    ]
    _, value, name, place = max(every)
    return f"the largest is {number(three_digits(value))} {unit}, for method {name} at {place}"
