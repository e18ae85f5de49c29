"""The report of a planned budget."""

from __future__ import annotations

import math

from trueup.model.spec import Spec
from trueup.model.toml import amount_text
from trueup.planning.allocation import Allocation
from trueup.planning.margins import normal_ratio
from trueup.reporting.drawing.blocks import Column, Page, Section, Table, Text
from trueup.reporting.drawing.pictures import Figure, before_after
from trueup.reporting.drawing.words import number, plural
from trueup.reporting.sections.origin import Ledger


def plan_page(plan: Allocation, spec: Spec, ledger: Ledger) -> Page:
    """Lay out the report of a planned budget; nothing was spent, so no ledger is named."""
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
        Column("Confidence (%)", [f"{r.target.confidence:g}" for r in plan.targets], numeric=True),
        Column(f"Wanted {margin}", _counts(r.target.counts for r in plan.targets), numeric=True),
        Column(f"Planned {margin}", _counts(r.margin for r in plan.targets), numeric=True),
        Column("With the spec's budgets", _counts(r.given for r in plan.targets), numeric=True),
        Column("Largest at", [r.place or "-" for r in plan.targets]),
    )
    return Table("Margins of error that were asked for", columns)


def _plan_table(plan: Allocation, unit: str) -> Table:
    margin, per_deviation = f"90 % margin (±\N{NO-BREAK SPACE}{unit})", normal_ratio(90)
    columns = (
        Column("Table", plan.levels),
        Column(
            f"Planned {plan.currency}", [amount_text(b) if b else "-" for b in plan.budgets], numeric=True
        ),
        Column(
            f"{plan.currency} in the spec", [amount_text(b) if b else "-" for b in plan.given], numeric=True
        ),
        Column(f"Standard deviation of the noise ({unit})", _counts(plan.noise), numeric=True),
        Column(
            f"{margin} with the spec's budgets",
            _counts(per_deviation * e for e in plan.given_error),
            numeric=True,
        ),
        Column(f"{margin} as planned", _counts(per_deviation * e for e in plan.error), numeric=True),
        Column(f"{margin} as planned, largest", _counts(per_deviation * e for e in plan.worst), numeric=True),
    )
    return Table("Budget and expected error of each table", columns)
