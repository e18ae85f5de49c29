"""Sections of an assessment's report on intervals, fairness, decisions and comparisons."""

from __future__ import annotations

from collections.abc import Iterator

from trueup.digits import error_digit, to_digits
from trueup.model.cells import Margin
from trueup.model.records.assessment import Columns
from trueup.reporting.drawing import Chart, Column, Section, Table, Text, chart, numeric
from trueup.reporting.drawing.words import number, percent, plain, plural
from trueup.reporting.sections.assessed_error import (
    WHISKERS,
    AssessmentView,
    counts_of,
    extreme,
    named,
    places_of,
    with_error,
)

MAX_PLOTTED_GROUPS = 12
"""Most groups that a dot plot holds."""


def coverage(view: AssessmentView) -> Section | None:
    """Return the section on how often intervals contain the true count; None without interval rules."""
    charts = [
        drawn
        for rule, claim in view.record.intervals.items()
        for margin in reversed(view.drawn)
        if (drawn := _coverage_chart(view, rule, claim, margin))
    ]
    if not charts:
        return None
    text = Text(
        "An interval that claims 90 % should hold the true count in 90 % of all replicates, for small counts as "
        "well as for large ones. More often is no breach, but the interval is wider than it need be."
    )
    return Section("coverage", "Do intervals hold what they claim?", (text, *charts, _lengths(view)))


def _coverage_chart(view: AssessmentView, rule: str, claim: float, margin: Margin) -> Chart | None:
    classes = view.classes("size", str(margin))
    found = view.points("coverage", by="size", level=str(margin), units=list(classes), about=rule)
    if not any(point for row in found.values() for point in row):
        return None
    shares = {name: [p and (100 * p[0], 100 * p[1]) for p in row] for name, row in found.items()}
    what = counts_of(margin)
    return chart(
        shares,
        places_of(classes, margin),
        f"True count ({view.unit}), and how many {named(margin, 2)} have it",
        f"Intervals '{rule}' of {what} that hold the true count (%)",
        f"Chart of how often intervals '{rule}' of {what} hold the true count, beside the claim of {percent(claim)}.",
        f"Share of replicates in which the interval holds the true count, by its size. {WHISKERS}{view.at}",
        from_zero=False,
        reference=(100 * claim, f"claimed: {percent(claim)}"),
    )


def _lengths(view: AssessmentView) -> Table:
    rows = view.record.rows(statistic="length", by="level", budget=view.budget.label)
    columns = (
        *_named(rows, Column("Interval", [str(a) for a in rows["about"]])),
        numeric("Length", [number(float(v)) for v in rows["value"]]),
    )
    summary = "Lengths of the intervals"
    return Table(f"Average length of the intervals ({view.unit})", columns, summary=summary)


def _named(rows: Columns, *more: Column, view: AssessmentView | None = None) -> list[Column]:
    """Return the columns that say what rows are about; with a view also their budgets."""
    found = [Column("Table", [plain(str(level)) for level in rows["level"]]), *more]
    found.append(Column("Method", [str(m) for m in rows["method"]]))
    if view is not None:
        found.append(Column("Budget", view.record.shown_budgets(rows["method"], rows["budget"])))
    return found


def fairness(view: AssessmentView) -> Section | None:
    """Return the section that compares groups which should be equally accurate; None without groups."""
    rows = view.record.rows(budget=view.budget.label)
    kinds = dict.fromkeys((str(level), str(by)) for level, by in zip(rows["level"], rows["by"]))
    groups = [(level, by) for level, by in kinds if by not in ("level", "size")]
    if not groups:
        return None
    blocks = [
        drawn
        for margin in reversed(view.drawn)
        for level, by in groups
        if level == str(margin)
        for drawn in _fairness_charts(view, margin, by)
    ]
    text = Text(
        "Units that differ only in how many others share their parent, or in an attribute, may be published with "
        "different accuracy. Dots far apart in height mean that some of them are served worse than others. "
        f"Drawn are attributes of at most {MAX_PLOTTED_GROUPS} values; the others are in the table below and in summary.parquet."
    )
    return Section("fairness", "Fairness between groups", (text, *blocks, _dispersion(view)))


def _fairness_charts(view: AssessmentView, margin: Margin, by: str) -> Iterator[Chart]:
    classes = view.classes(by, str(margin))
    if not 2 <= len(classes) <= MAX_PLOTTED_GROUPS:
        return
    what, places = counts_of(margin), plural(plain(margin.level))
    siblings = f"How many {places} the {view.parent(margin)} has"
    across = siblings if by == "siblings" else plain(by).capitalize()
    for statistic, title in (("rmse", "Typical error"), ("bias", "Bias")):
        series = view.points(statistic, by=by, level=str(margin), units=list(classes))
        yield chart(
            series,
            places_of(classes, margin),
            f"{across}, and how many {named(margin, 2)} are in each group",
            f"{title} of {what} ({view.unit})",
            f"Dot plot of the {title.lower()} of {what} by {across.lower()}: {extreme(series, list(classes), view.unit)}.",
            f"{title} of {what} in each group: equal heights would be equal treatment. {WHISKERS}{view.at}",
            joined=False,
        )


def _dispersion(view: AssessmentView) -> Table:
    bias, variance = (
        view.record.rows(statistic=f"dispersion of {of}", budget=view.budget.label)
        for of in ("bias", "variance")
    )
    return Table(
        f"How far groups lie apart: standard deviation between groups, ± its Monte Carlo error ({view.unit}; of the "
        "variance in their squares)",
        (
            *_named(bias, Column("Groups by", [plain(str(by)) for by in bias["by"]])),
            numeric("Of the bias", with_error(bias)),
            numeric("Of the variance", with_error(variance)),
        ),
        summary="Dispersion between groups",
    )


def decisions(view: AssessmentView) -> Section | None:
    """Return the section on wrong decisions by thresholds and ranks; None if neither was assessed."""
    sides = view.record.rows(statistic="wrong side", by="level")
    ranks = view.record.rows(statistic="wrong rank", by="level")
    tables = []
    if len(sides["value"]):
        tables.append(
            _share_table(view, "How often a count lands on the wrong side of a threshold", sides, "Threshold")
        )
    if len(ranks["value"]):
        tables.append(_share_table(view, "How often a place has a wrong rank within its table", ranks, ""))
    return Section("decisions", "Wrong decisions", tuple(tables)) if tables else None


def _share_table(view: AssessmentView, caption: str, rows: Columns, about: str) -> Table:
    shares = [
        f"{to_digits(100 * v, 3)} ± {error_digit(100 * e, 100 * v)}"
        for v, e in zip(rows["value"], rows["mc_error"])
    ]
    more = [numeric(about, [str(a) for a in rows["about"]])] if about else []
    share = numeric("Share of counts and replicates (%), ± its Monte Carlo error", shares)
    return Table(caption, (*_named(rows, *more, view=view), share))


def additivity(view: AssessmentView) -> Section | None:
    """Return the section on distances between a count and the sum of its published parts; None if not computed."""
    rows = view.record.rows(statistic="missed by parts", by="size")
    if not len(rows["value"]):
        return None
    table = Table(
        f"Mean distance of a count from the sum of its published parts ({view.unit}), ± its Monte Carlo error",
        (
            *_named(
                rows,
                Column("Parts", [plain(str(parts)) for parts in rows["about"]]),
                numeric("True count", [str(unit) for unit in rows["unit"]]),
                view=view,
            ),
            numeric("Distance", with_error(rows)),
        ),
        summary="Additivity, by size of the true count",
    )
    text = Text(
        "Reconciled counts and posterior means add up. What is labelled 'no formal guarantee' stands here for "
        "comparison alone: it makes every table apart, and nothing bounds what its values give away."
    )
    return Section("additivity", "Do parts add up?", (text, table))


def errors_of_ratios(view: AssessmentView) -> Section | None:
    """Return the section on errors of the ratio of two linked tables; None if the spec has one table."""
    bias = view.record.rows(statistic="bias of the ratio", by="level")
    if not len(bias["value"]):
        return None
    distance = view.record.rows(statistic="mean absolute error of the ratio", by="level")
    (name,) = set(bias["about"])
    table = Table(
        f"Errors of {name}, averaged over the places that have any, ± their Monte Carlo errors",
        (
            *_named(bias, view=view),
            numeric("Bias", with_error(bias)),
            numeric("Mean absolute error", with_error(distance)),
        ),
    )
    return Section("ratios", "Ratios of the two tables", (table,))


def differences(view: AssessmentView) -> Section | None:
    """Return the section that compares every method with the first on the same noise; None for one method."""
    if len(view.names) < 2:
        return None
    first, second = (
        view.record.rows(statistic=f"{what} difference", by="level")
        for what in ("bias", "mean squared error")
    )
    table = Table(
        f"Difference to '{view.names[0]}' on the same noise, ± its Monte Carlo error",
        (
            *_named(first, view=view),
            numeric(f"Bias ({view.unit})", with_error(first)),
            numeric(f"Mean squared error ({view.unit} squared)", with_error(second)),
        ),
    )
    text = Text(
        "All methods see the same noise, so that differences between them are known far better than the figures "
        "themselves. A negative difference in mean squared error is in favour of the method of the row."
    )
    return Section("differences", "Methods side by side", (text, table))
