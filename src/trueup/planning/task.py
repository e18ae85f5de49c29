"""A spec prepared for planning: its tables, their privacy costs, and targets or weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.guarantee import Charge
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.model.problem import Problem
from trueup.model.records.places_asked import AreaTable
from trueup.model.spec import Spec
from trueup.noise.law import Reals
from trueup.planning import Target, read_table, read_targets
from trueup.planning.allocation import Priced, prices
from trueup.planning.expected import Expected
from trueup.planning.margins import normal_ratio
from trueup.planning.optimum import Limits

Noise = dict[Margin, tuple[Measured, Charge | None]]
Preset = Literal["equal", "relative", "no-worse"]

INEQUALITIES_PER_TARGET = 4
"""So many inequalities about each target serve the next plan."""

MAX_TABLES_LEFT_OUT = 6
"""Above so many priced tables, under Laplace noise, not every choice of tables to leave out is tried."""


@dataclass(eq=False)
class Findings:
    """Results of earlier plans that stay valid when targets change.

    Attributes
    ----------
    rows
        For each target, inequalities (k,) that all sufficient precisions q satisfy: `row @ q >= 1 / limit`.
    precisions
        Precisions of the last plan, from which the next search begins.
    ratios
        For each target the margin of error per standard deviation in the last plan.
    given
        For each target the error variance with the spec as it stands.
    """

    rows: dict[tuple[Margin, bool], list[Reals]] = field(default_factory=dict)
    precisions: Reals | None = None
    ratios: dict[tuple[Margin, bool, float], float] = field(default_factory=dict)
    given: dict[tuple[Margin, bool], float] = field(default_factory=dict)

    def known(self, targets: Sequence[Target], limits: Reals) -> list[Reals]:
        """Return the newest linear inequalities known for each target, scaled to the given limits."""
        held = [(self.rows.get((t.margin, t.mean)), limit) for t, limit in zip(targets, limits)]
        return [np.stack(rows[-INEQUALITIES_PER_TARGET:]) * limit for rows, limit in held if rows]

    def learn(self, targets: Sequence[Target], limits: Reals, at: NDArray[np.intp], rows: Reals) -> None:
        """Store new linear inequalities of some targets for later plans."""
        for j, row in zip(at, rows):
            self.rows.setdefault((targets[j].margin, targets[j].mean), []).append(row / limits[j])


@dataclass(frozen=True, eq=False)
class PlanningTask:
    """A spec prepared for planning: tables, privacy costs, and targets or weights."""

    problem: Problem
    expected: Expected
    tables: tuple[Margin, ...]
    noise: Noise
    currency: str
    targets: tuple[Target, ...]
    weights: Mapping[Margin, float]
    found: Findings = field(default_factory=Findings)

    @classmethod
    def of(
        cls,
        spec: Spec | Problem | str | Path,
        geography: Any,
        targets,
        weights,
        preset: Preset,
        areas: Any = None,
        column: str = "area",
    ) -> PlanningTask:
        """Return the planning task of a spec. Refuse specs without formulas for expected errors."""
        problem = Problem.of(spec, geography)
        cells, constraints = problem.cells, problem.constraints
        if constraints.structure() == "general":
            raise SpecError(
                f"the spec has {'linear rules' if constraints.linear else 'cells that do not count each unit once'}, so "
                "that its expected errors have no formula",
                needed="a spec without linear rules, whose nested or crossing tables count each unit once",
            )
        headers, guarantee = problem.headers, problem.guarantee
        currencies = {charge.currency for charge in guarantee.charges}
        if len(currencies) != 1:
            raise SpecError(
                "some budgets are given in epsilon and others in rho",
                remedy="give all of them in one currency",
            )
        noise = _charged_headers(cells, headers, guarantee.charges)
        if targets and weights:
            raise SpecError("both weights and targets are given", needed="either weights or targets")
        table = None if areas is None else AreaTable.read(areas, column, cells)
        wanted = read_targets(targets or (), constraints, table and table.column)
        named = {read_table(name, cells): value for name, value in (weights or {}).items()}
        _refuse_weights(weights or {})
        measured = [m for m, (_, charge) in noise.items() if charge is None or charge.amount]
        of_levels = (t.margin for t in wanted if t.margin.level in cells.tree.levels)
        others = {*(constraints.chain or ()), *named, *of_levels, *noise}
        of_areas = tuple(t.margin for t in wanted if t.margin.level not in cells.tree.levels)
        for margin in (*others, *(Margin(cells.tree.levels[-1], m.attributes) for m in of_areas)):
            cells.refuse_unheld(margin)
        expected = Expected.of(cells, measured, (*others, *of_areas), table, constraints.zeros)
        tables = tuple(sorted(others, key=lambda m: (cells.tree.level(m.level), len(m.attributes), str(m))))
        task = cls(problem, expected, tables, noise, currencies.pop(), wanted, {})
        if not any(task.priced):
            raise SpecError(
                "no level has a budget, so that there is nothing to plan",
                needed="a budget for at least one level",
                remedy='give a query a budget, such as rho = "1/100"',
            )
        return task.wishing(named, preset, unnamed=not (targets or weights))

    @property
    def spec(self) -> Spec:
        """Return the spec as it is before planning."""
        return self.problem.spec

    @property
    def constraints(self) -> Constraints:
        """Return the constraints on the counts that are planned."""
        return self.problem.constraints

    def wishing(self, named: Mapping[Margin, float], preset: Preset, *, unnamed: bool) -> PlanningTask:
        """Return the task with the given weights of tables, or with the targets of a preset."""
        base = self.constraints.chain or tuple(self.noise)
        weights = {m: named.get(m, 1.0) for m in dict.fromkeys((*base, *named)) if not self.fixed(m)}
        if unnamed and preset != "equal":
            mean, worst = self.given_errors
            errors = {m: (a, b) for m, a, b in zip(self.tables, mean, worst)}
            if preset == "no-worse":
                wanted = tuple(Target(m, normal_ratio(90) * float(np.sqrt(errors[m][1]))) for m in weights)
                return replace(self, targets=wanted, weights=weights)
            weights = {m: 1 / errors[m][0] for m in weights}
        return replace(self, weights=weights)

    def aimed_at(self, targets: tuple[Target, ...]) -> PlanningTask:
        """Return the task with other targets, keeping results that do not depend on targets."""
        if not targets:
            raise SpecError("no target is given", needed="a margin of error for at least one table")
        aimed = replace(self, targets=targets)
        _ = self.given_errors, self.floor, self.prices
        aimed.__dict__.update(
            {name: self.__dict__[name] for name in self.__dict__.keys() - self.__dataclass_fields__.keys()}
        )
        return aimed

    def fixed(self, margin: Margin) -> bool:
        """Return True if the invariants fix every count of a table."""
        return any(self.constraints.cells.contains(margin, i) for i in self.constraints.invariants)

    @cached_property
    def priced(self) -> NDArray[np.bool_]:
        """Return a mask (k,) of the measured tables that cost budget."""
        return np.array([self.noise[m][1] is not None for m in self.expected.measured])

    @cached_property
    def levels(self) -> list[Priced]:
        """Return the tables that cost budget, each with its noise law and its cost in the present spec."""
        return [priced_table(m, self.noise) for m, p in zip(self.expected.measured, self.priced) if p]

    @cached_property
    def prices(self):
        """Return the privacy cost of the tables that cost budget, as a function of precisions."""
        return prices(self.levels, self.currency)

    @property
    def spent(self) -> Fraction:
        """Return the budget that the present spec spends on tables."""
        return sum((level.cost for level in self.levels), Fraction(0))

    @cached_property
    def floor(self) -> Reals:
        """Return the smallest allowed share of the total precision for each table that costs budget."""
        return np.where(self.expected.needed[self.priced], 1e-5, 0.0)

    def precisions(self, of_priced: Reals) -> Reals:
        """Return the precisions of all measured tables, given those of the tables that cost budget."""
        p = np.full(len(self.priced), np.inf)
        p[self.priced] = of_priced
        return p

    @cached_property
    def given_precisions(self) -> Reals:
        """Return the precision of every measured table under the present spec."""
        return self.precisions(np.array([1 / level.variance(level.cost) for level in self.levels]))

    @cached_property
    def given_errors(self) -> tuple[Reals, Reals]:
        """Return the mean and the largest error variance of every table under the present spec."""
        return self.errors(self.given_precisions)

    def given_variance(self, target: Target) -> float:
        """Return the error variance of a target under the present spec."""
        known, kind = self.found.given, (target.margin, target.mean)
        if kind not in known:
            known[kind] = float(self.expected.reached(self.given_precisions, [target])[0][0])
        return known[kind]

    def errors(self, precisions: Reals) -> tuple[Reals, Reals]:
        """Return the mean and the largest error variance of every table; 0 for tables that invariants fix."""
        free = np.array([not self.fixed(m) for m in self.tables])
        return tuple(np.where(free, v, 0.0) for v in self.expected.errors(precisions, self.tables))  # pyright: ignore

    def limits(self, per_deviation: Reals, factor: float = 1.0) -> Limits:
        """Return the targets as limits on error variances; a margin of error is `per_deviation` standard deviations."""
        wanted = np.array([t.counts for t in self.targets])
        limits = (factor * wanted / per_deviation) ** 2

        def evaluate(p: Reals) -> tuple[Reals, Reals]:
            shares, slopes = self.expected.largest(self.precisions(p), self.targets, limits)
            return shares, slopes[:, self.priced]

        def learn(at: NDArray[np.intp], rows: Reals) -> None:
            self.found.learn(self.targets, limits, at, rows)

        return Limits(evaluate, self.floor, self.found.known(self.targets, limits), learn)

    def _alike(self) -> list[set[int]]:
        """Return the positions of the tables that cost budget, by level and by set of attributes."""
        found: dict[object, set[int]] = {}
        tables = [margin for margin, priced in zip(self.expected.measured, self.priced) if priced]
        for at, table in enumerate(tables):
            for key in (table.level, table.attributes):
                found.setdefault(key, set()).add(at)
        return list(found.values())

    def starts(self) -> list[Reals]:
        """Return starting shares of the budget, from which local optima under Laplace noise are sought.

        Of still more tables all of a level are left out, or those of the same attributes at every level.
        """
        count = len(self.levels)
        left_out = range(count) if count <= MAX_TABLES_LEFT_OUT and not self.targets else (0, 1)
        choices = [set(c) for size in left_out for c in combinations(range(count), size)]
        if count > 2 * MAX_TABLES_LEFT_OUT:
            choices = [set(), *self._alike()]
        shares = [np.array([1e-3 if i in c else 1.0 for i in range(count)]) for c in choices]
        return [s / s.sum() for s in shares]


def _charged_headers(cells: Cells, headers: tuple[Measured, ...], charges: tuple[Charge, ...]) -> Noise:
    """Return header and privacy charge of every measured margin, with no charge for invariants."""
    noise: Noise = {}
    noisy = iter(charges)
    for header in headers:
        margin = canonical(cells, header.margin)
        if margin in noise:
            raise SpecError(f"several queries measure '{margin}'", needed="one query for each table to plan")
        noise[margin] = (header, None if header.exact else next(noisy))
    return noise


def priced_table(margin: Margin, noise: Noise) -> Priced:
    if margin not in noise:
        return Priced(str(margin), None, Fraction(0))
    header, charge = noise[margin]
    return Priced(str(margin), header.law, charge.amount if charge else Fraction(0))


def _refuse_weights(weights: Mapping[str, float]) -> None:
    for name, value in weights.items():
        if not 0 <= value < np.inf:
            raise SpecError(
                f"the weight of level '{name}' is out of range", needed="a finite number, 0 or more"
            )
