"""The report pages of an assessment and of a plan."""

from __future__ import annotations

import math

from trueup.model.records.assessment import Assessment, Flag
from trueup.model.spec import Spec
from trueup.model.toml import amount_text
from trueup.planning.allocation import Allocation
from trueup.planning.margins import normal_ratio
from trueup.reporting.drawing import (
    MAX_SERIES,
    Column,
    Facts,
    Notice,
    Page,
    Section,
    Table,
    Text,
    numeric,
    present,
)
from trueup.reporting.drawing.pictures import Figure, before_after
from trueup.reporting.drawing.words import number, plain, plural, said
from trueup.reporting.sections.assessed_claims import (
    additivity,
    coverage,
    decisions,
    differences,
    errors_of_ratios,
    fairness,
)
from trueup.reporting.sections.assessed_error import (
    AssessmentView,
    budgets,
    by_level,
    by_size,
    residuals,
    three_digits,
)
from trueup.reporting.sections.origin import Ledger
from trueup.version import __version__


def plan_page(plan: Allocation, spec: Spec, ledger: Ledger) -> Page:
    """Return the report page of a plan."""
    unit = plural(spec.table.counts)
    targets = (_targets(plan, unit),) if plan.targets else ()
    return Page(
        spec.title,
        "Plan of a privacy budget: nothing was measured and nothing was spent",
        "",
        (
            ("Budget", f"{plan.currency} = {amount_text(plan.total)}"),
            ("Made least", str(plan.stats["objective"])),
        ),
        (
            Section(
                "plan",
                "Budget and expected error of each table",
                (_method(plan), *targets, _picture(plan, unit), _plan_table(plan, unit)),
            ),
        ),
    )


def _method(plan: Allocation) -> Text:
    return Text(
        "The errors are those of weighted least squares on all tables together, before structural zeros (which only "
        "make them smaller), nonnegativity and rounding. They follow from the tree and the noise; no count was read.",
        *plan.certificate.sentences,
    )


def _picture(plan: Allocation, unit: str) -> Figure:
    per_deviation = normal_ratio(90)
    rows = {
        level: (per_deviation * given if math.isfinite(given) else None, per_deviation * error)
        for level, given, error in zip(plan.levels, plan.given_error, plan.error)
    }
    worst = max(rows, key=lambda level: rows[level][1])
    return before_after(
        rows,
        ("budgets of the spec", "planned budgets"),
        f"90 % margin (±\N{NO-BREAK SPACE}{unit})",
        f"Picture of the 90 % margins with the spec's budgets and as planned: the planned margin is largest for "
        f"{worst}, ± {number(rows[worst][1])} {unit}.",
        f"90 % margin after reconciliation of each table (root mean square), in {unit}: smaller is better.",
    )


def _counts(values) -> list[str]:
    return [number(v) if v is not None and math.isfinite(v) else "-" for v in values]


def _targets(plan: Allocation, unit: str) -> Table:
    margin = f"margin of error (±\N{NO-BREAK SPACE}{unit})"
    columns = (
        Column("Table", [r.target.table for r in plan.targets]),
        numeric("Confidence (%)", [f"{r.target.confidence:g}" for r in plan.targets]),
        numeric(f"Wanted {margin}", _counts(r.target.counts for r in plan.targets)),
        numeric(f"Planned {margin}", _counts(r.margin for r in plan.targets)),
        numeric("With the spec's budgets", _counts(r.given for r in plan.targets)),
        Column("Largest at", [r.place or "-" for r in plan.targets]),
    )
    return Table("Margins of error that were asked for", columns)


def _plan_table(plan: Allocation, unit: str) -> Table:
    margin, per_deviation = f"90 % margin (±\N{NO-BREAK SPACE}{unit})", normal_ratio(90)
    columns = (
        Column("Table", plan.levels),
        numeric(f"Planned {plan.currency}", [amount_text(b) if b else "-" for b in plan.budgets]),
        numeric(f"{plan.currency} in the spec", [amount_text(b) if b else "-" for b in plan.given]),
        numeric(f"Standard deviation of the noise ({unit})", _counts(plan.noise)),
        numeric(f"{margin} with the spec's budgets", _counts(per_deviation * e for e in plan.given_error)),
        numeric(f"{margin} as planned", _counts(per_deviation * e for e in plan.error)),
        numeric(f"{margin} as planned, largest", _counts(per_deviation * e for e in plan.worst)),
    )
    return Table("Budget and expected error of each table", columns)


def assessment_page(record: Assessment, spec: Spec, ledger: Ledger) -> Page:
    """Return the report page of an assessment."""
    view = AssessmentView(record, spec)
    return Page(
        record.title,
        "Assessment of methods and budgets on simulated noise",
        _warning(record),
        _assessment_facts(record),
        present(
            _found(record),
            _methods(view),
            by_size(view),
            by_level(view),
            residuals(view),
            coverage(view),
            budgets(view),
            fairness(view),
            decisions(view),
            additivity(view),
            errors_of_ratios(view),
            differences(view),
            _making(record),
        ),
    )


def _warning(record: Assessment) -> str:
    if record.public:
        return ""
    return (
        "Confidential, not for publication: every figure on this page is a function of the true counts, and no noise "
        "protects it. Choosing the settings of a release by it spends privacy that no ledger charges."
    )


def _assessment_facts(record: Assessment) -> tuple[tuple[str, str], ...]:
    made = f"{record.replicates:,}"
    return (
        ("Truth", record.truth),
        *_truncation(record),
        ("Replicates", f"{made} of {record.asked:,} (interrupted)" if record.interrupted else made),
        ("Methods", f"{len(record.methods)}"),
        ("Budgets", "; ".join(b.label for b in record.budgets)),
        ("Contradicted claims", f"{len(record.flags)}" if record.flags else "none"),
    )


def _truncation(record: Assessment) -> tuple[tuple[str, str], ...]:
    """Return a row of text on the records dropped by the limit of each unit; empty if there is no limit."""
    if "records dropped" not in record.stats:
        return ()
    most, dropped = record.stats["records of a unit, at most"], record.stats["records dropped"]
    return (
        (
            "Truncation",
            f"{dropped:,} records dropped, none beyond {most:,} of a unit is kept; errors below are of those kept",
        ),
        *_other_bounds(record),
    )


def _other_bounds(record: Assessment) -> tuple[tuple[str, str], ...]:
    """Return a row of text on the number of records that each other limit would drop; empty if unknown."""
    found = record.stats.get("records that bounds drop")
    if not found:
        return ()
    said = "; ".join(f"at most {bound}: {dropped:,}" for bound, dropped in found.items())
    return (
        (
            "Records that each bound on those of a unit drops",
            f"{said}. Noise grows in proportion to the bound",
        ),
    )


def _found(record: Assessment) -> Section:
    text = Text(
        "Every replicate draws new noise, makes the counts anew and compares them with the truth. A method is "
        "flagged where its counts are off on average by more than is material and more than chance explains; an "
        "interval is flagged where it holds the true count less often than it claims. Counts within reach of zero "
        "are not flagged for coming out too high where they are kept from falling below zero: they must."
    )
    if not record.flags:
        return Section("found", "What was found", (text, Notice("No claim was contradicted.")))
    worst = {}
    for flag in record.flags:
        kin = (flag.what, flag.method, flag.about)
        worst[kin] = max(worst.get(kin, flag), flag, key=_beyond)
    notices = (Notice(flag.sentence) for flag in worst.values())
    table = Table(
        "Every flag",
        (
            Column("Flag", [flag.sentence for flag in record.flags]),
            numeric(
                "Beyond what is allowed, in Monte Carlo errors",
                [number(three_digits(_beyond(f) / f.mc_error)) for f in record.flags],
            ),
        ),
        summary=f"All {len(record.flags)} flags; the worst of each kind stand above",
    )
    return Section("found", "What was found", (text, *notices, table))


def _beyond(flag: Flag) -> float:
    """Return the amount by which the figure of a flag exceeds its limit."""
    return abs(flag.value) - flag.limit if flag.what == "bias" else flag.limit - flag.value


def _methods(view: AssessmentView) -> Section:
    rows = []
    for m in view.record.methods:
        own = {k: v for k, v in m.description.items() if k != "method"}
        parameters = f"Parameters: {said(own)}." if own else "It has no parameters."
        rows.append((m.label, f"{m.title[:1].upper()}{m.title[1:]}. {parameters}"))
    shown = Text(*_not_drawn(view))
    blocks = (Facts(tuple(rows)), *([shown] if shown.paragraphs else []))
    return Section("methods", "The methods compared", blocks)


def _not_drawn(view: AssessmentView) -> tuple[str, ...]:
    """Return sentences on methods and tables that the charts leave out."""
    found = []
    if len(view.names) > MAX_SERIES:
        found.append(f"Charts show the first {MAX_SERIES} methods; the tables hold all.")
    if len(view.drawn) < len(view.record.levels):
        found.append(
            "Charts show totals and the finest table; the others are in the tables and in summary.parquet."
        )
    return tuple(found)


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
