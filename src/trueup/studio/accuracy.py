"""The planner behind the page: it turns the positions of sliders into budgets, and budgets into risks."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import exp, inf, isfinite
from typing import Any, NamedTuple

from trueup import Planner, Problem, Spec, TrueupError, parse_spec
from trueup.arrays.losses import epsilon_of
from trueup.digits import rational, to_digits
from trueup.model.guarantee import Guarantee
from trueup.planning.allocation import Allocation
from trueup.planning.margins import normal_ratio
from trueup.releasing.by_size import MarginsBySize
from trueup.studio.project import Choices
from trueup.studio.rendering import PRECEDENTS

DELTA = Fraction(1, 10**10)
"""Probability with which the bound on the odds may fail, where the budget is in rho."""
BEFORE = (0.01, 0.1, 0.5)
"""Suspicions, of which the page says what may become of them."""


def problem_of(spec: Spec, choices: Choices) -> Problem:
    """Return the problem of a spec on its public places."""
    return Problem.of(spec, choices.places or None, data=choices.table or None)


def first_wishes(planner: Planner) -> dict[str, float]:
    """Return the first margins of error: 10 for totals, 30 for the most detailed table of each level."""
    measured = [name for name in planner.free if name in planner.measured]
    detailed = {
        name.partition(" x ")[0]: name for name in sorted(measured, key=lambda name: name.count(" x "))
    }
    totals = [name for name in measured if " x " not in name]
    return dict.fromkeys(detailed.values(), 30.0) | dict.fromkeys(totals, 10.0)


@dataclass(frozen=True)
class Plans:
    """The planner for one spec and one list of places, which is kept between requests."""

    text: str
    paths: tuple[str, str]
    planner: Planner
    guarantee: Guarantee
    lock: threading.Lock

    @classmethod
    def of(cls, text: str, choices: Choices) -> Plans:
        """Return the planner of a spec and its places, ready to answer sliders."""
        paths = choices.table, choices.places
        problem = problem_of(parse_spec(text), choices)
        return cls(text, paths, Planner(problem), problem.guarantee, threading.Lock())

    def fits(self, text: str, choices: Choices) -> bool:
        """Return True if the planner was made for the current spec and places."""
        return (self.text, self.paths) == (text, (choices.table, choices.places))

    def plan(self, wanted: Wishes, *, quick: bool) -> Allocation:
        """Return the smallest budget that meets the margins of error, or the division of a given total.

        Raises
        ------
        TrueupError
            If a wish or the total is out of range.
        """
        fixed = rational(wanted.total, "the budget") if wanted.total else None
        with self.lock:
            return self.planner.plan(wanted.targets(), total=fixed, quick=quick)


@dataclass(frozen=True)
class Wishes:
    """The margins of error, or the total budget, that the sliders ask for.

    Attributes
    ----------
    wishes
        Margins of error (counts) by table.
    sizes
        Margins of error (counts) of the counts of one size, by the least of them and their table: `10 county x sex`.
    confidence
        In per cent, of all of them.
    total
        A fixed budget, or empty.
    by_size
        Margins of error by size; None before they are simulated.
    """

    wishes: Mapping[str, float]
    sizes: Mapping[str, float]
    confidence: float
    total: str
    by_size: MarginsBySize | None = None

    def targets(self) -> list[str]:
        """Return the targets for the planner, the strictest one for each table.

        Raises
        ------
        TrueupError
            If a wish for a size of counts is out of range, or was not simulated.
        """
        found = dict(self.wishes)
        for key, counts in self.sizes.items():
            lowest, _, table = key.partition(" ")
            if self.by_size is None:
                raise TrueupError(
                    "margins of error by size are requested, but they are not yet simulated for this spec",
                    remedy="run the simulation, or clear the fields",
                )
            known = lowest.isdecimal() and lowest.isascii() and len(lowest) < 12
            number = int(lowest) if known else -1  # which no class begins with
            deviation = self.by_size.target(table, number, counts, f"{self.confidence!r}%")
            if isfinite(deviation):
                found[table] = min(found.get(table, inf), normal_ratio(self.confidence) * deviation)
        return [f"{table}={counts!r}@{self.confidence!r}%" for table, counts in found.items()]


def answer(planned: Allocation, wanted: Wishes, guarantee: Guarantee) -> dict[str, Any]:
    """Return the figures of a plan that the page shows: budgets, margins of error and risk."""
    ratio = normal_ratio(wanted.confidence)
    exact = {reached.target.table: reached.margin for reached in planned.targets}
    tables = [
        {
            "table": name,
            "margin": float(f"{margin:.5g}") if isfinite(margin) else None,
            "budget": to_digits(float(budget), 3) if budget else "",
            "share": float(budget / planned.total) if planned.total else 0.0,
            "sizes": _by_size(name, worst, wanted),
        }
        for name, worst, budget in zip(planned.levels, planned.worst, planned.budgets)
        for margin in (exact.get(name, ratio * worst),)
    ]
    return {
        "currency": planned.currency,
        "total": f"{float(planned.total):.4g}",
        "tables": tables,
        "risk": risk(planned.currency, planned.total, doubts(guarantee)),
        "certificate": [s for s in planned.certificate.sentences if "not known" not in s],
    }


def _by_size(table: str, worst: float, wanted: Wishes) -> dict[str, float]:
    """Return the margin of error (counts) for each size class of a table."""
    classes = wanted.by_size.of(table) if wanted.by_size else ()
    percent = f"{wanted.confidence!r}%"
    return {str(c.lowest): float(f"{c.margin(worst, percent):.4g}") for c in classes if 0 < worst < inf}


class Doubt(NamedTuple):
    """A suspicion about one unit, and its privacy loss as a multiple of the loss of one step."""

    about: str
    factor: Fraction


def doubts(guarantee: Guarantee) -> list[Doubt]:
    """Return the suspicions about one unit that a guarantee limits."""
    unit, change = guarantee.unit, guarantee.change
    told = f"what a {unit} answered, which is known to be in the table"
    if guarantee.kind != "invariant":
        there = Doubt(f"whether a {unit} is in the table at all", Fraction(1))
        return [*[there] * (guarantee.neighbours == "add-remove"), Doubt(told, _of_another_answer(guarantee))]
    if change is None:
        return []
    alone = (change.moved, change.norm) == (1, 2)
    power = 2 if guarantee.currency == "rho" else 1
    factor = _of_another_answer(guarantee) if alone else Fraction(change.steps**power)
    return [Doubt(f"a {unit}, where the exact counts leave a doubt", factor)]


def _of_another_answer(guarantee: Guarantee) -> Fraction:
    """Return the largest loss, over all tables, if one unit gives another answer, as a multiple of one step's loss."""
    prices = [dict(charge.prices)["replace"].amount / charge.amount for charge in guarantee.charges]
    return max(prices, default=Fraction(1))


def risk(currency: str, total: Fraction, kinds: Sequence[Doubt] = ()) -> dict[str, Any]:
    """Return bounds on how far the publication can raise an observer's suspicion about one unit."""
    losses = {kind.about: _epsilon(currency, total * kind.factor) for kind in kinds}
    return {
        "epsilon": to_digits(_epsilon(currency, total), 3),
        "delta": "" if currency == "epsilon" else "1e-10",
        "doubts": [
            {"about": about, "suspicions": [{"before": p, "after": after_at_most(p, loss)} for p in BEFORE]}
            for about, loss in losses.items()
        ],
    }


def _epsilon(currency: str, total: Fraction) -> float:
    return float(total if currency == "epsilon" else epsilon_of(total, DELTA))


def precedents() -> list[dict[str, str]]:
    """Return the budgets of earlier publications by other agencies, each also as an epsilon."""
    return [
        {**one._asdict(), "epsilon": str(risk(one.currency, Fraction(one.amount))["epsilon"])}
        for one in PRECEDENTS
    ]


def after_at_most(before: float, epsilon: float) -> float:
    """Return an upper bound on an observer's probability for a suspicion after the publication.

    Examples
    --------
    >>> round(after_at_most(0.1, 1.0), 3)
    0.232
    """
    odds = exp(min(epsilon, 700.0)) * before / (1 - before)
    return odds / (1 + odds)
