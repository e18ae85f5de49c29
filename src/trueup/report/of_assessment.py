"""The report of an assessment: pictures first, tables beneath them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trueup.model.assessment import Assessment, Budget, Flag
from trueup.model.cells import Margin
from trueup.model.spec import Spec
from trueup.report.blocks import Block, Column, Facts, Notice, Page, Section, Table, Text
from trueup.report.charts import SERIES, WHISKER, Chart, Point, chart
from trueup.report.origin import Ledger
from trueup.report.pictures import strips
from trueup.report.words import number, percent, plain, plural, said, table_name
from trueup.version import __version__

_WHISKERS = (
    f"Thin upright lines reach {WHISKER:g} Monte Carlo errors to either side; where none is seen it is smaller than "
    "the mark."
)
_QUANTILES = tuple(f"quantile {p:g} of the error" for p in (0.05, 0.25, 0.5, 0.75, 0.95))


def assessment_page(record: Assessment, spec: Spec, ledger: Ledger) -> Page:
    """Lay out the report of an assessment; nothing was measured for publication, so no ledger is named."""
    view = _View(record, spec)
    return Page(
        record.title,
        "Assessment of methods and budgets on simulated noise",
        _warning(record),
        _summary(record),
        tuple(
            section
            for section in (
                _found(record),
                _methods(record),
                _by_size(view),
                _by_level(view),
                _residuals(view),
                _coverage(view),
                _budgets(view),
                _fairness(view),
                _decisions(view),
                _differences(view),
                _making(record),
            )
            if section is not None
        ),
    )


class _View:
    """A record seen at one budget, the one nearest to the spec's own."""

    def __init__(self, record: Assessment, spec: Spec) -> None:
        self.record, self.unit = record, plural(spec.table.counts)
        self.places = [level.name for level in spec.levels]
        self.budget: Budget = min(record.budgets, key=lambda b: abs(np.log(float(b.scale))))
        self.names = [method.label for method in record.methods]

    def points(self, statistic: str, *, by: str, level: str, units: Sequence[str], about: str | None = None):
        """For each method its points, one for every unit; None where it has none."""
        held = self._lookup(statistic, by, level, about)
        return {name: [held.get((name, unit)) for unit in units] for name in self.names}

    def _lookup(self, statistic: str, by: str, level: str, about: str | None) -> dict[tuple[str, str], Point]:
        wanted = {"statistic": statistic, "by": by, "level": level, "budget": self.budget.label}
        rows = self.record.rows(**wanted, **({} if about is None else {"about": about}))
        values = zip(rows["method"], rows["unit"], rows["value"], rows["mc_error"])
        return {(str(m), str(u)): (float(v), float(e)) for m, u, v, e in values}

    def classes(self, by: str, level: str) -> dict[str, int]:
        """Names of the classes of a level, and how many counts each holds."""
        rows = self.record.rows(
            statistic="bias", by=by, level=level, budget=self.budget.label, method=self.names[0]
        )
        return {str(unit): int(n) for unit, n in zip(rows["unit"], rows["units"])}

    def parent(self, margin: Margin) -> str:
        """The level above that of a margin."""
        return plain(self.places[self.places.index(margin.level) - 1])

    @property
    def at(self) -> str:
        """Which budget is shown, where there are several."""
        return f" Shown at {self.budget.label}." if len(self.record.budgets) > 1 else ""


def _warning(record: Assessment) -> str:
    if record.public:
        return ""
    return (
        "Confidential, not for publication: every figure on this page is a function of the true counts, and no noise "
        "protects it. Choosing the settings of a release by it spends privacy that no ledger charges."
    )


def _summary(record: Assessment) -> tuple[tuple[str, str], ...]:
    made = f"{record.replicates:,}"
    return (
        ("Truth", record.truth),
        ("Replicates", f"{made} of {record.asked:,} (interrupted)" if record.interrupted else made),
        ("Methods", f"{len(record.methods)}"),
        ("Budgets", "; ".join(b.label for b in record.budgets)),
        ("Contradicted claims", f"{len(record.flags)}" if record.flags else "none"),
    )


def _found(record: Assessment) -> Section:
    text = Text(
        (
            "Every replicate draws new noise, makes the counts anew and compares them with the truth. A method is "
            "flagged where its counts are off on average by more than is material and more than chance explains; an "
            "interval is flagged where it holds the true count less often than it claims. Counts within reach of zero "
            "are not flagged for coming out too high where they are kept from falling below zero: they must.",
        )
    )
    if not record.flags:
        return Section("found", "What was found", (text, Notice("No claim was contradicted.")))
    worst = {}
    for flag in record.flags:
        kin = (flag.what, flag.method, flag.about)
        worst[kin] = max(worst.get(kin, flag), flag, key=_excess)
    notices = (Notice(flag.sentence) for flag in worst.values())
    table = Table(
        "Every flag",
        (
            Column("Flag", [flag.sentence for flag in record.flags]),
            Column(
                "Monte Carlo errors beyond the limit",
                [number(_round(_excess(f))) for f in record.flags],
                True,
            ),
        ),
        summary=f"All {len(record.flags)} flags; the clearest of each kind stand above",
    )
    return Section("found", "What was found", (text, *notices, table))


def _excess(flag: Flag) -> float:
    """Monte Carlo errors by which a flag's figure is beyond its limit."""
    beyond = abs(flag.value) - flag.limit if flag.what == "bias" else flag.limit - flag.value
    return beyond / flag.mc_error


def _methods(record: Assessment) -> Section:
    rows = (
        (m.label, f"{m.title[:1].upper()}{m.title[1:]}. {_parameters(m.description)}") for m in record.methods
    )
    more = Text((f"Charts show the first {SERIES} methods; the tables hold all.",))
    blocks = (Facts(tuple(rows)), *([more] if len(record.methods) > SERIES else []))
    return Section("methods", "The methods compared", blocks)


def _by_size(view: _View) -> Section:
    blocks: list[Block] = [
        Text(
            (
                "Small and large counts fare differently. A method that keeps counts from falling below zero can only "
                "err upwards where the true count is zero; what is added there is missing elsewhere.",
            )
        )
    ]
    for margin in reversed(view.record.levels):
        blocks += _size_charts(view, margin)
    return Section("size", "Bias and error by true size", tuple(blocks))


def _size_charts(view: _View, margin: Margin) -> Iterator[Chart]:
    classes = view.classes("size", str(margin))
    if len(classes) < 2:
        return
    what, places = _counts(margin), _places(classes, margin)
    across = f"True count ({view.unit}), and how many {_named(margin, 2)} have it"
    found = {"by": "size", "level": str(margin), "units": list(classes)}
    bias = view.points("bias", **found)
    yield chart(
        bias,
        places,
        across,
        f"Bias of {what} ({view.unit}): above 0 is published too high, below 0 too low",
        f"Chart of the bias of {what} by true count: {_extreme(bias, list(classes), view.unit)}.",
        f"Average of published minus true count over all replicates, by size of the true count. {_WHISKERS}{view.at}",
    )
    rmse = view.points("rmse", **found)
    yield chart(
        rmse,
        places,
        across,
        f"Typical error of {what} (± {view.unit}): smaller is better",
        f"Chart of the typical error of {what} by true count: {_extreme(rmse, list(classes), view.unit)}.",
        "Typical error: the root of the mean squared difference between published and true count. "
        f"{_WHISKERS}{view.at}",
    )


def _by_level(view: _View) -> Section:
    levels = [str(m) for m in view.record.levels]
    found = [view.points("rmse", by="level", level=level, units=["all"]) for level in levels]
    series = {name: [row[name][0] for row in found] for name in view.names}
    sizes = [view.classes("level", level)["all"] for level in levels]
    places = [(table_name(m), f"{n:,} {_named(m, n)}") for m, n in zip(view.record.levels, sizes)]
    picture = chart(
        series,
        places,
        "Published table, and how many counts it has",
        f"Typical error (± {view.unit}): smaller is better",
        f"Chart of the typical error of every published table: {_extreme(series, levels, view.unit)}.",
        f"Typical error of the counts of each table. {_WHISKERS}{view.at}",
    )
    return Section("levels", "Error of each table", (picture, *_level_tables(view)))


def _level_tables(view: _View) -> Iterator[Table]:
    for margin in view.record.levels:
        rows = []
        for name in view.names:
            for budget in view.record.budgets:
                figures = (
                    view.record.rows(
                        statistic=s, by="level", level=str(margin), method=name, budget=budget.label
                    )
                    for s in ("bias", "variance", "rmse", "mean absolute error")
                )
                rows.append([name, budget.label, *map(_first, figures)])
        headings = ("Bias", "Variance", "Typical error", "Mean absolute error")
        yield Table(
            f"Error of {table_name(margin)} ({view.unit}; the variance in their squares), ± its Monte Carlo error",
            (
                Column("Method", [r[0] for r in rows]),
                Column("Budget", [r[1] for r in rows]),
                *(Column(h, [r[2 + i] for r in rows], numeric=True) for i, h in enumerate(headings)),
            ),
            summary=f"Figures of {table_name(margin)}",
        )


def _residuals(view: _View) -> Section:
    blocks: list[Block] = []
    for margin in reversed(view.record.levels):
        found = [view.points(q, by="level", level=str(margin), units=["all"]) for q in _QUANTILES]
        values = {name: [point[0] for row in found if (point := row[name][0])] for name in view.names}
        if not any(v for row in values.values() for v in row):
            continue
        what = _counts(margin)
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


def _coverage(view: _View) -> Section | None:
    charts = [
        drawn
        for rule, claim in view.record.intervals.items()
        for margin in reversed(view.record.levels)
        if (drawn := _coverage_chart(view, rule, claim, margin))
    ]
    if not charts:
        return None
    text = Text(
        (
            "An interval that claims 90 % should hold the true count in 90 % of all replicates, for small counts as "
            "well as for large ones. More often is no breach, but the interval is wider than it need be.",
        )
    )
    return Section("coverage", "Do intervals hold what they claim?", (text, *charts, _lengths(view)))


def _coverage_chart(view: _View, rule: str, claim: float, margin: Margin) -> Chart | None:
    classes = view.classes("size", str(margin))
    found = view.points("coverage", by="size", level=str(margin), units=list(classes), about=rule)
    if not any(point for row in found.values() for point in row):
        return None
    shares = {name: [_percent(p) for p in row] for name, row in found.items()}
    what = _counts(margin)
    return chart(
        shares,
        _places(classes, margin),
        f"True count ({view.unit}), and how many {_named(margin, 2)} have it",
        f"Intervals '{rule}' of {what} that hold the true count (%)",
        f"Chart of how often intervals '{rule}' of {what} hold the true count, beside the claim of {percent(claim)}.",
        f"Share of replicates in which the interval holds the true count, by its size. {_WHISKERS}{view.at}",
        from_zero=False,
        reference=(100 * claim, f"claimed: {percent(claim)}"),
    )


def _lengths(view: _View) -> Table:
    rows = view.record.rows(statistic="length", by="level", budget=view.budget.label)
    return Table(
        f"Average length of the intervals ({view.unit})",
        (
            Column("Table", [plain(str(level)) for level in rows["level"]]),
            Column("Interval", [str(a) for a in rows["about"]]),
            Column("Method", [str(m) for m in rows["method"]]),
            Column("Length", [number(float(v)) for v in rows["value"]], numeric=True),
        ),
        summary="Lengths of the intervals",
    )


def _budgets(view: _View) -> Section | None:
    budgets = sorted(view.record.budgets, key=lambda b: b.scale)
    if len(budgets) < 2:
        return None
    places = [(b.label, f"{b.scale} times the spec's") for b in budgets]
    charts = [_budget_chart(view, margin, budgets, places) for margin in reversed(view.record.levels)]
    text = Text(("More privacy loss buys less error. Every chart is one table; every line one method.",))
    return Section("budgets", "What a larger budget buys", (text, *charts))


def _budget_chart(
    view: _View, margin: Margin, budgets: Sequence[Budget], places: Sequence[tuple[str, str]]
) -> Chart:
    rows = view.record.rows(statistic="rmse", by="level", level=str(margin))
    held = {
        (str(m), str(b)): (float(v), float(e))
        for m, b, v, e in zip(rows["method"], rows["budget"], rows["value"], rows["mc_error"])
    }
    series = {name: [held.get((name, b.label)) for b in budgets] for name in view.names}
    what = _counts(margin)
    return chart(
        series,
        places,
        "Privacy loss in all",
        f"Typical error of {what} (± {view.unit}): smaller is better",
        f"Chart of the typical error of {what} at each budget: {_extreme(series, [b.label for b in budgets], view.unit)}.",
        f"Typical error of {what} at each budget, on the same random numbers. {_WHISKERS}",
    )


def _fairness(view: _View) -> Section | None:
    """Compare classes of places that have the same claim to accuracy."""
    rows = view.record.rows(budget=view.budget.label)
    kinds = dict.fromkeys((str(level), str(by)) for level, by in zip(rows["level"], rows["by"]))
    blocks = [
        drawn
        for margin in reversed(view.record.levels)
        for level, by in kinds
        if level == str(margin) and by not in ("level", "size")
        for drawn in _fairness_charts(view, margin, by)
    ]
    if not blocks:
        return None
    text = Text(
        (
            "Units that differ only in how many others share their parent, or in an attribute, may be published with "
            "different accuracy. Dots far apart in height mean that some of them are served worse than others.",
        )
    )
    return Section("fairness", "Fairness between groups", (text, *blocks, _dispersion(view)))


def _fairness_charts(view: _View, margin: Margin, by: str) -> Iterator[Chart]:
    classes = view.classes(by, str(margin))
    if len(classes) < 2 or len(classes) > 12:
        return
    what, places = _counts(margin), plural(plain(margin.level))
    siblings = f"How many {places} the {view.parent(margin)} has"
    across = siblings if by == "siblings" else plain(by).capitalize()
    for statistic, title in (("rmse", "Typical error"), ("bias", "Bias")):
        series = view.points(statistic, by=by, level=str(margin), units=list(classes))
        yield chart(
            series,
            _places(classes, margin),
            f"{across}, and how many {_named(margin, 2)} are in each group",
            f"{title} of {what} ({view.unit})",
            f"Dot plot of the {title.lower()} of {what} by {across.lower()}: {_extreme(series, list(classes), view.unit)}.",
            f"{title} of {what} in each group: equal heights would be equal treatment. {_WHISKERS}{view.at}",
            joined=False,
        )


def _dispersion(view: _View) -> Table:
    parts = [
        view.record.rows(statistic=f"dispersion of {of}", budget=view.budget.label)
        for of in ("bias", "variance")
    ]
    bias, variance = parts
    return Table(
        f"How far groups lie apart: standard deviation between groups, ± its Monte Carlo error ({view.unit}; of the "
        "variance in their squares)",
        (
            Column("Table", [plain(str(level)) for level in bias["level"]]),
            Column("Groups by", [plain(str(by)) for by in bias["by"]]),
            Column("Method", [str(m) for m in bias["method"]]),
            Column("Of the bias", _with_error(bias), numeric=True),
            Column("Of the variance", _with_error(variance), numeric=True),
        ),
        summary="Dispersion between groups",
    )


def _decisions(view: _View) -> Section | None:
    sides = view.record.rows(statistic="wrong side", by="level")
    ranks = view.record.rows(statistic="wrong rank", by="level")
    tables = []
    if len(sides["value"]):
        tables.append(_shares("How often a count lands on the wrong side of a threshold", sides, "Threshold"))
    if len(ranks["value"]):
        tables.append(_shares("How often a place has a wrong rank within its table", ranks, ""))
    return Section("decisions", "Wrong decisions", tuple(tables)) if tables else None


def _shares(caption: str, rows: dict, about: str) -> Table:
    shares = [f"{100 * v:.3g} ± {100 * e:.1g}" for v, e in zip(rows["value"], rows["mc_error"])]
    columns = [
        Column("Table", [plain(str(level)) for level in rows["level"]]),
        Column("Method", [str(m) for m in rows["method"]]),
        Column("Budget", [str(b) for b in rows["budget"]]),
        Column("Share of counts and replicates (%), ± its Monte Carlo error", shares, numeric=True),
    ]
    if about:
        columns.insert(1, Column(about, [str(a) for a in rows["about"]], numeric=True))
    return Table(caption, tuple(columns))


def _differences(view: _View) -> Section | None:
    if len(view.names) < 2:
        return None
    parts = [
        view.record.rows(statistic=s, by="level")
        for s in ("bias difference", "mean squared error difference")
    ]
    first, second = parts
    table = Table(
        f"Difference to '{view.names[0]}' on the same noise, ± its Monte Carlo error",
        (
            Column("Table", [plain(str(level)) for level in first["level"]]),
            Column("Method", [str(m) for m in first["method"]]),
            Column("Budget", [str(b) for b in first["budget"]]),
            Column(f"Bias ({view.unit})", _with_error(first), numeric=True),
            Column(f"Mean squared error ({view.unit} squared)", _with_error(second), numeric=True),
        ),
    )
    text = Text(
        (
            "All methods see the same noise, so that differences between them are known far better than the figures "
            "themselves. A negative difference in mean squared error is in favour of the method of the row.",
        )
    )
    return Section("differences", "Methods side by side", (text, table))


def _making(record: Assessment) -> Section:
    facts = (
        ("Software", f"trueup {__version__}"),
        ("Seed of the simulated noise", str(record.seed)),
        *((plain(str(k)).capitalize(), said(v)) for k, v in record.stats.items()),
    )
    words = (
        ("Bias", "The average of published minus true count over all replicates."),
        ("Variance", "How far published counts scatter about their own average, squared."),
        ("Typical error", "The root of the mean squared error (RMSE): bias and scatter together."),
        ("Coverage", "How often an interval holds the true count."),
        ("Monte Carlo error", "How far a figure would move if the replicates were drawn anew."),
    )
    return Section("making", "How it was made, and words used", (Facts(facts), Facts(words)))


def _parameters(description) -> str:
    own = {k: v for k, v in description.items() if k != "method"}
    return f"Parameters: {said(own)}." if own else "It has no parameters."


def _places(classes: dict[str, int], margin: Margin) -> list[tuple[str, str]]:
    return [(name.replace("-", "–"), f"{n:,} {_named(margin, n)}") for name, n in classes.items()]


def _counts(margin: Margin) -> str:
    """Name the counts of a table: `block counts`, `block counts by sex`."""
    return table_name(margin).replace(plain(margin.level), f"{plain(margin.level)} counts", 1)


def _named(margin: Margin, n: int) -> str:
    """Name the groups of a table: its places, or counts where attributes divide them."""
    one = "count" if margin.attributes else plain(margin.level)
    return one if n == 1 else plural(one)


def _percent(point: Point | None) -> Point | None:
    return None if point is None else (100 * point[0], 100 * point[1])


def _first(rows: dict) -> str:
    return _with_error(rows)[0] if len(rows["value"]) else "–"


def _with_error(rows: dict) -> list[str]:
    return [f"{number(_round(v))} ± {e:.1g}" for v, e in zip(rows["value"], rows["mc_error"])]


def _round(value: float) -> float:
    """Three digits are as many as Monte Carlo figures bear."""
    return float(f"{value:.3g}")


def _extreme(series: dict, places: Sequence[str], unit: str) -> str:
    """Say where a chart is highest in size."""
    every = [
        (abs(p[0]), p[0], name, place)
        for name, row in series.items()
        for place, p in zip(places, row)
        if p is not None
    ]
    _, value, name, place = max(every)
    return f"the largest is {number(_round(value))} {unit}, for method {name} at {place}"
