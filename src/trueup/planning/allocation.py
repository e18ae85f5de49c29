"""Divisions of a privacy budget between tables, in exact amounts, with certificates of optimality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from trueup.digits import ThreeLines
from trueup.model.cells import Margin
from trueup.model.problem import Problem, spec_and_text
from trueup.model.spec import Spec
from trueup.model.spec_queries import Query
from trueup.noise.law import Law, Reals
from trueup.planning import Target
from trueup.planning.optimum import Hyperbolic, LinearPrices, Prices

DIGITS = 7
"""Budgets are whole multiples of about a ten-millionth of the total."""


@dataclass(frozen=True)
class Priced:
    """A measured table with its noise law and its privacy cost.

    Attributes
    ----------
    name
        Its name.
    law
        The noise at cost `cost`; None if the table is not measured.
    cost
        Privacy cost of the noise; zero for an exact table or one that costs nothing.
    """

    name: str
    law: Law | None
    cost: Fraction

    def variance(self, cost: Fraction) -> float:
        """Return the noise variance (counts squared) that the table would have at a given privacy cost."""
        if self.law is None or (self.cost and not cost):
            return np.inf
        return self.law.variance if not self.cost else self.law.scaled(cost / self.cost).variance


@dataclass(frozen=True)
class Reached:
    """A target, with the margin of error that is expected under a plan.

    Attributes
    ----------
    target
        The target.
    margin
        The margin of error to expect, in counts, at the target's confidence; the largest of the table, or the root
        mean square where a mean was asked for.
    given
        The same with the spec's own budgets.
    place
        Place at which the margin of error is largest.
    """

    target: Target
    margin: float
    given: float
    place: str

    @property
    def ratio(self) -> float:
        """Return the expected margin of error divided by the required margin of error."""
        return self.margin / self.target.counts


@dataclass(frozen=True)
class Certificate:
    """A proved statement on how far a division of a privacy budget may be from the best one.

    Attributes
    ----------
    gap
        Largest share by which any other division of these tables could be better (cheaper, or more accurate with
        weights); None if that is not known.
    least
        A lower bound of the budget that meets the targets with these tables; None without targets.
    mechanisms
        Upper bound on this budget divided by the least of *any* mechanism that adds Gaussian noise to linear queries;
        None if that is not known.
    sentences
        The same in words, with what it rests on.
    """

    gap: float | None
    least: float | None
    mechanisms: float | None
    sentences: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Allocation(ThreeLines):
    """A division of a privacy budget between tables in exact amounts, with the expected errors.

    Attributes
    ----------
    levels
        Names of the tables, coarse first.
    currency, total
        The unit of the budget (epsilon or rho), and its total.
    budgets
        One exact amount per table (zero: not measured, or free); they sum to `total` exactly.
    given
        The amounts before planning, those of the spec.
    noise, error, worst
        Standard deviation of the noise, root mean square error after least squares and its largest
        value on the table, all in counts.
    given_error, given_worst
        The same errors with the spec's own amounts.
    targets
        Every target with the margin of error to expect.
    certificate
        Statement on how good the division is, and how that is known.
    stats
        Name and value of the figure that was minimised, and the amount of work.
    problem
        Problem for which the plan was made, if known.
    """

    levels: tuple[str, ...]
    currency: str
    total: Fraction
    budgets: tuple[Fraction, ...]
    given: tuple[Fraction, ...]
    noise: tuple[float, ...]
    error: tuple[float, ...]
    worst: tuple[float, ...]
    given_error: tuple[float, ...]
    given_worst: tuple[float, ...]
    targets: tuple[Reached, ...]
    certificate: Certificate
    stats: Mapping[str, Any]
    problem: Problem | None = field(default=None, kw_only=True, compare=False)

    @property
    def spec(self) -> Spec | None:
        """Return the spec with the planned budgets in place of its own."""
        return self.problem.spec if self.problem else None

    def _lines(self) -> tuple[str, str, str]:
        spent = (f"{name} {amount}" for name, amount in zip(self.levels, self.budgets) if amount)
        met = f"{sum(each.ratio <= 1 for each in self.targets)} of {len(self.targets)} targets met"
        return (
            f"Allocation: {self.spec.title if self.spec else 'spec not known'}",
            f"{self.currency} = {self.total}: {', '.join(spent)}",
            met if self.targets else f"made least: {self.stats['objective']}",
        )


def prices(tables: Sequence[Priced], currency: str) -> Prices:
    """Return the privacy cost of tables as a function of the precisions of their noise."""
    laws: list[Any] = [table.law.scaled(Fraction(1)) for table in tables if table.law]
    costs = np.array([float(table.cost) for table in tables])
    if currency == "rho":
        return LinearPrices(costs * np.array([float(law.sigma2) for law in laws]))
    return Hyperbolic(costs / np.array([float(law.epsilon) for law in laws]))


def exact_amounts(costs: Reals, total: Fraction | None) -> list[Fraction]:
    """Round costs `(k,)` to exact fractions: upwards, or to amounts that add up to a given total.

    Examples
    --------
    >>> exact_amounts(np.array([0.1, 0.2]), None)
    [Fraction(1, 10), Fraction(1, 5)]
    >>> sum(exact_amounts(np.array([1.0, 1.0, 1.0]), Fraction(1)))
    Fraction(1, 1)
    """
    if total is None:
        grain = Fraction(Decimal(1).scaleb(int(np.floor(np.log10(costs.sum()))) - DIGITS))
        return [int(np.ceil(c / float(grain) - 1e-9)) * grain for c in costs]
    grains = 10**DIGITS
    shares = costs / costs.sum() * grains
    counts = np.floor(shares).astype(np.int64)
    counts = np.where(costs > 0, np.maximum(counts, 1), counts)
    order = np.argsort(np.where(costs > 0, counts - shares, np.inf))
    missing = grains - int(counts.sum())
    if missing > 0:
        counts[order[:missing]] += 1
    else:  # more small amounts were raised to one than others were rounded down
        counts[np.argmax(counts)] += missing
    return [total * int(c) / grains for c in counts]


def planned_spec(spec: Spec | Problem | str | Path, plan: Allocation) -> Spec:
    """Return the spec with planned budgets, without the tables that get no budget.

    Budgets that cost nothing, as that of a total that replacing a unit leaves alone, stay as they are.

    Examples
    --------
    >>> import pandas
    >>> from trueup.demo import AREAS
    >>> from trueup.planning.plan import plan
    >>> found = plan(AREAS, pandas.DataFrame({"area": ["a", "b"]}), targets=["area=10@95%"])
    >>> sum(planned_spec(AREAS, found).queries[0].budgets.values()) == found.total
    True
    """
    budgets = dict(zip(map(_unordered, plan.levels), plan.budgets))
    free = {_unordered(name) for name, given in zip(plan.levels, plan.given) if not given}
    stated, _ = spec_and_text(spec)
    queries = tuple(_planned(query, budgets, free) for query in stated.queries)
    return stated.model_copy(update={"queries": tuple(q for q in queries if q is not None)})


def _unordered(table: str) -> tuple[str, frozenset[str]]:
    level, *attributes = table.split(" x ")
    return level, frozenset(attributes)


def _planned(query: Query, budgets: Mapping, free: set) -> Query | None:
    amounts: dict[str, Fraction] = {}
    for level, given in query.budgets.items():
        table = _unordered(str(Margin(level, query.attributes)))
        amounts[level] = given if table in free else budgets[table]
    kept = {level: amount for level, amount in amounts.items() if amount}
    return query.model_copy(update={query.currency: kept, "levels": ()}) if kept else None
