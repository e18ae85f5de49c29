"""The report of a planned budget."""

from __future__ import annotations

import math

from trueup.model.spec import Spec
from trueup.planning.allocation import MARGIN_90, Allocation
from trueup.reporting.drawing.blocks import Column, Page, Section, Table, Text
from trueup.reporting.drawing.pictures import Figure, before_after
from trueup.reporting.drawing.words import number, plural
from trueup.reporting.sections.origin import Ledger


def plan_page(plan: Allocation, spec: Spec, ledger: Ledger) -> Page:
    """Lay out the report of a planned budget; nothing was spent, so there is no ledger to name."""
    unit = plural(spec.table.counts)
    return Page(
        spec.title,
        "Plan of a privacy budget: nothing was measured and nothing was spent",
        "",
        (
            ("To divide", f"{plan.currency} = {plan.total}"),
            ("Made least", str(plan.stats["objective"])),
        ),
        (
            Section(
                "plan",
                "Budget and expected error of each level",
                (_method(plan), _picture(plan, unit), _table(plan, unit)),
            ),
        ),
    )


def _method(plan: Allocation) -> Text:
    sure = (
        f"The objective is convex: no division is better by more than a fraction of {_lost(plan):.1g}."
        if "gap" in plan.stats
        else f"The objective may have local optima: this is the best of {plan.stats['local solves']} solves, and "
        f"{plan.stats['solves that agree']} of them agree on it."
    )
    return Text(
        (
            "The errors are those of weighted least squares on all levels together, in closed form, before "
            "nonnegativity and rounding. They follow from the tree and the laws of the noise; no count was read.",
            sure,
        )
    )


def _lost(plan: Allocation) -> float:
    return plan.stats["gap"] + max(plan.stats["lost by rounding"], 0.0)


def _picture(plan: Allocation, unit: str) -> Figure:
    rows = {
        level: (MARGIN_90 * given if math.isfinite(given) else None, MARGIN_90 * error)
        for level, given, error in zip(plan.levels, plan.given_error, plan.error)
    }
    worst = max(rows, key=lambda level: rows[level][1])
    return before_after(
        rows,
        ("budgets of the spec", "planned budgets"),
        f"90 % margin (±\N{NO-BREAK SPACE}{unit})",
        f"Picture of the 90 % margins with the spec's budgets and as planned: the planned margin is largest for "
        f"{worst}, ± {number(rows[worst][1])} {unit}.",
        f"90 % margin after reconciliation at each level (root mean square), in {unit}: smaller is better.",
    )


def _table(plan: Allocation, unit: str) -> Table:
    def counts(values) -> list[str]:
        return [number(v) if v is not None and math.isfinite(v) else "-" for v in values]

    margin = f"90 % margin (±\N{NO-BREAK SPACE}{unit})"
    columns = [
        Column("Level", plan.levels),
        Column(f"Planned {plan.currency}", [str(b) if b else "-" for b in plan.budgets], numeric=True),
        Column(f"{plan.currency} in the spec", [str(b) if b else "-" for b in plan.given], numeric=True),
        Column(f"Standard deviation of the noise ({unit})", counts(plan.noise), numeric=True),
        Column(
            f"{margin} with the spec's budgets", counts(MARGIN_90 * e for e in plan.given_error), numeric=True
        ),
        Column(f"{margin} as planned", counts(MARGIN_90 * e for e in plan.error), numeric=True),
        Column(f"{margin} as planned, largest", counts(MARGIN_90 * e for e in plan.worst), numeric=True),
    ]
    if any(plan.target):
        columns.append(Column(f"{margin}, target", counts(plan.target), numeric=True))
    return Table("Budget and expected error of each level", tuple(columns))
