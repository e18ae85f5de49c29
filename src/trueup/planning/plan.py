"""Plan a budget: what each table should cost, before anything is spent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.guarantee import Charge
from trueup.model.header import Measured
from trueup.model.mechanism import contribution
from trueup.model.nested import canonical
from trueup.model.problem import Problem
from trueup.model.spec import Spec
from trueup.planning.allocation import (
    Allocation,
    Certificate,
    Priced,
    Reached,
    exact_amounts,
    prices,
)
from trueup.planning.areas import AreaTable
from trueup.planning.bound import Wanted, least_rho
from trueup.planning.expected import Expected
from trueup.planning.margins import margin_ratio, normal_ratio
from trueup.planning.optimum import (
    GAP,
    Hyperbolic,
    Limits,
    Optimum,
    least_error,
    least_hyperbolic,
    local_error,
)
from trueup.planning.targets import Target, read_table, read_targets

Reals = NDArray[np.float64]
Noise = dict[Margin, tuple[Measured, Charge | None]]
Preset = Literal["equal", "relative", "no-worse"]

SMALLEST = 2e-6
"""A table with a smaller share of the budget is not measured, unless it is needed to determine the finest cells."""

NEWEST = 4
"""So many inequalities about each target serve the next plan."""

MANY = 6
"""Above so many priced tables, under Laplace noise, not every choice of tables to leave out is tried."""


def plan(
    spec: Spec,
    geography: Any = None,
    *,
    total: Fraction | None = None,
    weights: Mapping[str, float] | None = None,
    targets: Mapping[str, object] | Iterable[str] | None = None,
    preset: Preset = "equal",
    areas: Any = None,
    column: str = "area",
) -> Allocation:
    """Find the least budget whose errors meet targets, or the division of a budget with the least error.

    Parameters
    ----------
    spec
        The spec; its own budgets say which tables may be measured, and by which noise.
    geography
        The public list of places; confidential counts are never read.
    total
        What is divided. By default with targets the least that meets them, with weights what the spec spends.
    weights
        What one count squared of mean error variance of a table is worth, 1 where not named.
    targets
        Margins of error (counts) that tables may have, as `"county=10@95%"` or `{"county": "10@95%"}`: of
        every count of the table (`"mean:county=10"`: of their root mean square), at 90 % where no percentage is given.
    preset
        Without weights and targets: `"equal"` weights, `"relative"` to the errors of the spec's own budgets
        (weights are one over their variances), or `"no-worse"`: those errors as targets.
    areas, column
        A table with a row for each place of each area off the hierarchy (the `column` of areas, and the keys of the
        last level), whose areas targets may name: `"area=25@95%"`, `"area x sex=10"`.

    Raises
    ------
    SpecError
        If there are linear rules, several queries measure one table, budgets are in different currencies, or a
        target is out of range, names no table, or one that the invariants fix.
    ConvergenceError
        If no division was found.

    Notes
    -----
    Errors are those of weighted least squares on all tables together, structural zeros held (where they tie together
    more than 12 combinations of values they are left out, which only makes errors larger), before nonnegativity and
    rounding. See `trueup.planning.optimum` for how the least is found and proved, and
    `trueup.planning.bound` for the bound over all mechanisms.

    Examples
    --------
    >>> import pandas
    >>> from trueup.model.spec import parse_spec
    >>> spec = parse_spec('''
    ... format = 1
    ... title = "Two areas"
    ... table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
    ... privacy = { unit = "person", neighbours = "add-remove" }
    ... level = [{ name = "all" }, { name = "area", column = "area" }]
    ... query = [{ name = "total", noise = "discrete-gaussian", rho = { all = "1/2", area = "1/2" } }]
    ... ''')
    >>> planned = plan(spec, pandas.DataFrame({"area": ["a", "b"]}), targets=["area=10@95%", "all=12@95%"])
    >>> planned.levels, sum(planned.budgets) == planned.total, round(float(planned.total), 4)
    (('all', 'area'), True, 0.0208)
    """
    task = PlanningTask.of(spec, geography, targets, weights, preset, areas, column)
    if task.targets:
        return meet(task, total)
    return _least_error(task, task.spent if total is None else total)


@dataclass(eq=False)
class Findings:
    """What the plans of one set of tables have found, for the next plan: it holds whatever the targets are.

    Attributes
    ----------
    rows
        For each target, inequalities (k,) that all sufficient precisions q satisfy: `row @ q >= 1 / limit`.
    precisions
        Those of the last plan, where to begin.
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
        """The newest inequalities about targets, at their limits."""
        held = [(self.rows.get((t.margin, t.mean)), limit) for t, limit in zip(targets, limits)]
        return [np.stack(rows[-NEWEST:]) * limit for rows, limit in held if rows]

    def learn(self, targets: Sequence[Target], limits: Reals, at: NDArray[np.intp], rows: Reals) -> None:
        """Remember new inequalities."""
        for j, row in zip(at, rows):
            self.rows.setdefault((targets[j].margin, targets[j].mean), []).append(row / limits[j])


@dataclass(frozen=True, eq=False)
class PlanningTask:
    """A spec laid out for planning: tables, prices, and what is wanted."""

    spec: Spec
    constraints: Constraints
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
        spec: Spec | Problem,
        geography: Any,
        targets,
        weights,
        preset: Preset,
        areas: Any = None,
        column: str = "area",
    ) -> PlanningTask:
        """Read the spec and the places, and refuse what has no closed form."""
        problem = Problem.of(spec, geography)
        cells, constraints = problem.cells, problem.constraints
        if constraints.structure() == "general":
            raise SpecError(
                "linear rules, or cells that are no partition, have no closed form of the error",
                needed="nested or crossing tables of one partition",
            )
        headers, guarantee = problem.headers, problem.guarantee
        currencies = {charge.currency for charge in guarantee.charges}
        if len(currencies) != 1:
            raise SpecError("budgets are given in epsilon and in rho", remedy="state them in one currency")
        noise = _noise(cells, headers, guarantee.charges)
        if targets and weights:
            raise SpecError("both weights and targets are given", needed="one of them")
        table = None if areas is None else AreaTable.read(areas, column, cells)
        wanted = read_targets(targets or (), constraints, table and table.column)
        named = {read_table(name, cells): value for name, value in (weights or {}).items()}
        _refuse_weights(weights or {})
        measured = [m for m, (_, charge) in noise.items() if charge is None or charge.amount]
        of_levels = (t.margin for t in wanted if t.margin.level in cells.tree.levels)
        others = {*(constraints.chain or ()), *named, *of_levels, *noise}
        of_areas = tuple(t.margin for t in wanted if t.margin.level not in cells.tree.levels)
        expected = Expected.of(cells, measured, (*others, *of_areas), table, constraints.zeros)
        tables = tuple(sorted(others, key=lambda m: (cells.tree.level(m.level), len(m.attributes), str(m))))
        task = cls(problem.spec, constraints, expected, tables, noise, currencies.pop(), wanted, {})
        if not any(task.priced):
            raise SpecError("no level has a budget to plan")
        return task.wishing(named, preset, unnamed=not (targets or weights))

    def wishing(self, named: Mapping[Margin, float], preset: Preset, *, unnamed: bool) -> PlanningTask:
        """The same with weights, or with the targets of a preset."""
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
        """The same tables with other targets; what was computed or found before is kept."""
        if not targets:
            raise SpecError("no target is given", needed="the margin of error of one table at least")
        aimed = replace(self, targets=targets)
        _ = self.given_errors, self.floor, self.prices
        aimed.__dict__.update({name: self.__dict__[name] for name in self.__dict__.keys() - _fields(self)})
        return aimed

    def fixed(self, margin: Margin) -> bool:
        """Whether the invariants fix a table."""
        return any(self.constraints.cells.contains(margin, i) for i in self.constraints.invariants)

    @cached_property
    def priced(self) -> NDArray[np.bool_]:
        """Which measured tables (k,) have a price."""
        return np.array([self.noise[m][1] is not None for m in self.expected.measured])

    @cached_property
    def levels(self) -> list[Priced]:
        """The priced tables with the spec's noise and cost."""
        return [_priced(m, self.noise) for m, p in zip(self.expected.measured, self.priced) if p]

    @cached_property
    def prices(self):
        """What their precisions cost."""
        return prices(self.levels, self.currency)

    @property
    def spent(self) -> Fraction:
        """What the spec spends on them."""
        return sum((level.cost for level in self.levels), Fraction(0))

    @cached_property
    def floor(self) -> Reals:
        """Least shares of the priced tables: what determines the finest cells is measured."""
        return np.where(self.expected.needed[self.priced], 1e-5, 0.0)

    def precisions(self, of_priced: Reals) -> Reals:
        """Precisions of all measured tables: exact ones are infinite."""
        p = np.full(len(self.priced), np.inf)
        p[self.priced] = of_priced
        return p

    @cached_property
    def given_precisions(self) -> Reals:
        """Those of the spec as it stands."""
        return self.precisions(np.array([1 / level.variance(level.cost) for level in self.levels]))

    @cached_property
    def given_errors(self) -> tuple[Reals, Reals]:
        """Mean and largest error variance of every table with the spec as it stands."""
        return self.errors(self.given_precisions)

    def given_variance(self, target: Target) -> float:
        """Error variance of a target with the spec as it stands."""
        known, kind = self.found.given, (target.margin, target.mean)
        if kind not in known:
            known[kind] = float(self.expected.reached(self.given_precisions, [target])[0][0])
        return known[kind]

    def errors(self, precisions: Reals) -> tuple[Reals, Reals]:
        """Mean and largest error variance of every table; none where invariants fix it."""
        free = np.array([not self.fixed(m) for m in self.tables])
        return tuple(np.where(free, v, 0.0) for v in self.expected.errors(precisions, self.tables))  # pyright: ignore

    def limits(self, per_deviation: Reals, factor: float = 1.0) -> Limits:
        """The targets as limits on variances; `per_deviation` are margins per standard deviation."""
        wanted = np.array([t.counts for t in self.targets])
        limits = (factor * wanted / per_deviation) ** 2

        def evaluate(p: Reals) -> tuple[Reals, Reals]:
            shares, slopes = self.expected.largest(self.precisions(p), self.targets, limits)
            return shares, slopes[:, self.priced]

        def learn(at: NDArray[np.intp], rows: Reals) -> None:
            self.found.learn(self.targets, limits, at, rows)

        return Limits(evaluate, self.floor, self.found.known(self.targets, limits), learn)

    def starts(self) -> list[Reals]:
        """Shares to start from under Laplace noise: every choice of tables left out, or of one where they are many."""
        count = len(self.levels)
        left_out = range(count) if count <= MANY and not self.targets else (0, 1)
        choices = [set(c) for size in left_out for c in combinations(range(count), size)]
        shares = [np.array([1e-3 if i in c else 1.0 for i in range(count)]) for c in choices]
        return [s / s.sum() for s in shares]


def _fields(task: PlanningTask) -> set[str]:
    return set(task.__dataclass_fields__)


def meet(task: PlanningTask, total: Fraction | None, gap: float | None = None) -> Allocation:
    """The least budget that meets the targets; of a given total, the division that misses or exceeds them alike.

    With a `gap` the budget may be larger than the least by that share, and no bound over other mechanisms is sought.
    """
    per_deviation = np.array([normal_ratio(t.confidence) for t in task.targets])
    if isinstance(task.prices, Hyperbolic):
        _refuse_areas(task)
        return _meet_pure(task, total, per_deviation, quick=gap is not None)
    found = task.limits(per_deviation).least(task.prices.price, task.found.precisions, gap or GAP)
    task.found.precisions = found.precisions
    costs = _pruned(task, task.prices.cost(found.precisions))
    if total is None:
        costs = costs * _needed_factor(task, costs, per_deviation)
    amounts = exact_amounts(costs, total)
    spent = sum(amounts, Fraction(0))
    bound = found.bound
    mechanisms = (
        None
        if gap
        else _mechanisms(
            task, [(t.margin, (t.counts / z) ** 2, t.mean) for t, z in zip(task.targets, per_deviation)]
        )
    )
    gap = found.gap if total is not None else float(spent) / bound - 1
    ratio = None if mechanisms is None else bound * (1 + gap) / mechanisms
    stats = {
        "objective": "total" if total is None else "largest ratio of margin to target",
        "evaluations": found.evaluations,
    }
    sentences = (
        f"No division between these tables meets the targets at less than {_share(gap)} below this budget.",
        _about_mechanisms(ratio),
        *_about_discrete(task, found.cost),
    )
    return _allocation(task, amounts, per_deviation, Certificate(gap, bound, ratio, sentences), stats)


def _refuse_areas(task: PlanningTask) -> None:
    if of_areas := [t for t in task.targets if task.expected.of_areas(t.margin)]:
        raise SpecError(
            f"the target '{of_areas[0]}' is about areas off the hierarchy, whose errors have no known law under Laplace noise",
            needed="discrete-gaussian noise, or targets on levels",
        )


def _meet_pure(
    task: PlanningTask, total: Fraction | None, per_deviation: Reals, *, quick: bool = False
) -> Allocation:
    """Under Laplace noise: margins per deviation follow from the plan's own errors, to be found together with it."""
    last = task.found.precisions if quick else None
    if last is not None:
        per_deviation = np.array(
            [task.found.ratios.get(_kind(t), z) for t, z in zip(task.targets, per_deviation)]
        )
    starts = task.starts() if last is None else [last / last.sum()]
    found, agree, solves = _least_pure(task, per_deviation, 1.0, starts)
    factor = 1.0
    for _ in range(8 if last is None else 1):
        near = [found.precisions / found.precisions.sum()]
        if total is not None:
            factor = _factor_for(task, per_deviation, float(total), factor, near)
        found = _least_pure(task, per_deviation, factor, near)[0]
        now = _ratios(task, found.precisions)
        settled = np.abs(now / per_deviation - 1).max() < 1e-3
        per_deviation = now
        if settled:
            break
    task.found.precisions = found.precisions
    task.found.ratios.update(zip(map(_kind, task.targets), per_deviation.tolist()))
    costs = _pruned(task, task.prices.cost(found.precisions))
    if total is None:
        costs = _scaled_to_meet(task, costs)
    amounts = exact_amounts(costs, total)
    bound, per_deviation = _pure_bound(task, np.array([float(a) for a in amounts]))
    gap = float(sum(amounts)) / bound - 1
    sentences = (
        _local_optima(solves, agree),
        f"No division of these tables with the same margins per standard deviation needs less than {bound:.4g}: "
        f"this budget is at most {_share(gap)} above the least.",
    )
    objective = "total" if total is None else "largest ratio of margin to target"
    stats = {
        "objective": objective,
        "evaluations": found.evaluations,
        "local solves": solves,
        "solves that agree": agree,
    }
    return _allocation(task, amounts, per_deviation, Certificate(gap, bound, None, sentences), stats)


def _kind(target: Target) -> tuple[Margin, bool, float]:
    return target.margin, target.mean, target.confidence


def _pure_bound(task: PlanningTask, costs: Reals) -> tuple[float, Reals]:
    """Lower bound of the cost of errors as small as those of a division, and its margins per standard deviation."""
    assert isinstance(task.prices, Hyperbolic)
    p = task.prices.precision(costs)[0]
    per_deviation = _ratios(task, p)
    margins = per_deviation * np.sqrt(_variances(task, p))
    factor = float((margins / [t.counts for t in task.targets]).max())
    total = task.limits(per_deviation, factor).least(np.ones(len(costs))).bound
    return task.prices.least(total), per_deviation


def _least_pure(
    task: PlanningTask, per_deviation: Reals, factor: float, starts: Sequence[Reals]
) -> tuple[Optimum, int, int]:
    assert isinstance(task.prices, Hyperbolic)
    limits = task.limits(per_deviation, factor)
    first = limits.least(np.ones(len(task.levels)))
    every = [first.precisions, *(first.precisions.sum() * share for share in starts)]
    found, agree = least_hyperbolic(limits, task.prices, every)
    return found, agree, len(every)


def _factor_for(
    task: PlanningTask, per_deviation: Reals, total: float, start: float, near: Sequence[Reals]
) -> float:
    """The factor of all targets at which the least budget is the given total (secant steps in logarithms)."""
    log, slope = float(np.log(start)), -1.0
    before = None
    for _ in range(8):
        excess = float(np.log(_least_pure(task, per_deviation, float(np.exp(log)), near)[0].cost / total))
        if abs(excess) < 1e-4:
            break
        if before is not None and abs(log - before[0]) > 1e-9:
            slope = min((excess - before[1]) / (log - before[0]), -0.1)
        before = log, excess
        log -= excess / slope
    return float(np.exp(log))


def _scaled_to_meet(task: PlanningTask, costs: Reals) -> Reals:
    """Costs times the least factor (within .0005) at which margins meet the targets, noise laws as they are."""
    wanted = np.array([t.counts for t in task.targets])

    def met(factor: float) -> bool:
        p = task.prices.precision(costs * factor)[0]
        deviations = np.sqrt(_variances(task, p))
        return bool((_ratios(task, p) * deviations <= wanted).all())

    low, high = 0.97, 1.0
    while not met(high):
        low, high = high, high * 1.01
    while high - low > 5e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if met(middle) else (middle, high)
    return costs * high


def _ratios(task: PlanningTask, of_priced: Reals) -> Reals:
    """Margin per standard deviation (j,) of every target's error law."""
    p = task.precisions(of_priced)
    return np.array([margin_ratio(task.expected, p, target) for target in task.targets])


def _variances(task: PlanningTask, of_priced: Reals) -> Reals:
    return task.expected.reached(task.precisions(of_priced), task.targets)[0]


def _pruned(task: PlanningTask, costs: Reals) -> Reals:
    """Costs without those that are, or buy, next to nothing."""
    bought = task.prices.precision(costs)[0]
    little = (costs < SMALLEST * costs.sum()) | (bought < SMALLEST * bought.sum())
    return np.where(little & (task.floor == 0), 0.0, costs)


def _needed_factor(task: PlanningTask, costs: Reals, per_deviation: Reals) -> float:
    """By what factor costs have to grow to meet the targets exactly."""
    p = task.prices.precision(costs)[0]
    limits = np.array([t.counts for t in task.targets]) ** 2 / per_deviation**2
    return float((_variances(task, p) / limits).max())


def _about_discrete(task: PlanningTask, total: float) -> tuple[str, ...]:
    """What the proof leaves out where a table could have noise so narrow that its variance is not its parameter."""
    from trueup.noise import DiscreteGaussian

    assert not isinstance(task.prices, Hyperbolic)
    sigma2 = Fraction(float(task.prices.price.min()) / total).limit_denominator(10**6)
    excess = float(sigma2) / DiscreteGaussian(sigma2).variance - 1
    if excess < 1e-6:
        return ()
    return (
        f"Proved for noise whose variance is sigma2; a table given the whole budget would have one {_share(excess)} smaller.",
    )


def _least_error(task: PlanningTask, total: Fraction) -> Allocation:
    """The division of a budget that makes the weighted sum of mean error variances least."""

    def evaluate(p: Reals) -> tuple[Reals, Reals]:
        value, slopes = task.expected.weighted(task.precisions(p), task.weights)
        return value, slopes[:, task.priced]

    if isinstance(task.prices, Hyperbolic):
        found = [local_error(float(total), task.prices, evaluate, start) for start in task.starts()]
        costs, value = min(found, key=lambda one: one[1])
        agree = sum(other < value * 1.001 for _, other in found)
        certificate = Certificate(None, None, None, (_local_optima(len(found), agree),))
        stats = {"local solves": len(found), "solves that agree": agree}
    else:
        shares, value, gap = least_error(task.prices.price, evaluate)
        costs, value = float(total) * shares, value / float(total)
        certificate, stats = _certified_error(task, float(total), value, gap), {}
    amounts = exact_amounts(_pruned(task, costs), total)
    stats = {"objective": "weighted mean variance", "value": value, **stats}
    return _allocation(task, amounts, np.zeros(0), certificate, stats)


def _certified_error(task: PlanningTask, total: float, value: float, gap: float) -> Certificate:
    mechanisms = _mechanisms(task, [(m, 1 / w, True) for m, w in task.weights.items() if w], fixed=True)
    ratio = None if mechanisms is None else value * total / mechanisms
    sentence = f"No division between these tables has less than {_share(gap)} below this error."
    return Certificate(gap, None, ratio, (sentence, _about_mechanisms(ratio), *_about_discrete(task, total)))


def _local_optima(solves: int, agree: int) -> str:
    return f"The objective may have local optima: this is the best of {solves} solves, and {agree} of them agree on it."


def _mechanisms(
    task: PlanningTask, wanted: Sequence[tuple[Margin, float, bool]], *, fixed: bool = False
) -> float | None:
    """Least rho of any Gaussian mechanism, in the currency of the spec; None if it is not known."""
    expected, spec = task.expected, task.spec
    zeros = expected.fold is not None and not expected.fold.trivial
    if zeros or any(not contribution(spec, q).exact for q in spec.queries):
        return None  # of mechanisms that know the structural zeros there is no bound
    held = [(m, limit, mean) for m, limit, mean in wanted if not expected.of_areas(m)]
    rows = [Wanted(expected.level(m), expected.marginal(m), limit, mean) for m, limit, mean in held]
    if not rows:
        return None
    known = [(expected.level(m), expected.marginal(m)) for m in task.constraints.invariants]
    replaces = spec.privacy.neighbours == "replace"
    return least_rho(expected.cells, rows, known, replace=replaces, fixed=fixed) or None


def _share(share: float) -> str:
    return f"{100 * share:.2g} %"


def _about_mechanisms(ratio: float | None) -> str:
    if ratio is None:
        return "How far it is from the best of all mechanisms is not known for these tables."
    return f"Any mechanism that adds Gaussian noise to linear queries needs at least 1/{ratio:.4g} of this budget."


def _allocation(
    task: PlanningTask, amounts: Sequence[Fraction], per_deviation: Reals, certificate: Certificate, stats
) -> Allocation:
    """Lay the result out by table."""
    planned = dict(zip([m for m, p in zip(task.expected.measured, task.priced) if p], amounts))
    given = {m: charge.amount for m, (_, charge) in task.noise.items() if charge is not None}
    priced = [_priced(m, task.noise) for m in task.tables]
    budgets = tuple(planned.get(m, Fraction(0)) for m in task.tables)
    variances = [one.variance(b) for one, b in zip(priced, budgets)]
    at = dict(zip(task.tables, variances))
    precisions = task.precisions(np.array([1 / at[m] for m in planned]))
    mean, worst = task.errors(precisions)
    given_mean, given_worst = task.given_errors
    return Allocation(
        tuple(map(str, task.tables)),
        task.currency,
        sum(budgets, Fraction(0)),
        budgets,
        tuple(given.get(m, Fraction(0)) for m in task.tables),
        *(
            tuple(float(v) for v in np.sqrt(part))
            for part in (variances, mean, worst, given_mean, given_worst)
        ),
        targets=_reached(task, per_deviation, precisions),
        certificate=certificate,
        stats=stats,
    )


def _reached(task: PlanningTask, per_deviation: Reals, precisions: Reals) -> tuple[Reached, ...]:
    """Every target with the margins of error of the plan and of the spec as it stands."""
    if not task.targets:
        return ()
    planned, places = task.expected.reached(precisions, task.targets)
    given = [task.given_variance(target) for target in task.targets]
    margins = zip(per_deviation * np.sqrt(planned), per_deviation * np.sqrt(given))
    return tuple(Reached(t, float(a), float(b), p) for t, (a, b), p in zip(task.targets, margins, places))


def _noise(cells: Cells, headers: tuple[Measured, ...], charges: tuple[Charge, ...]) -> Noise:
    """Header and charge of every measured margin; invariants carry no charge."""
    noise: Noise = {}
    noisy = iter(charges)
    for header in headers:
        margin = canonical(cells, header.margin)
        if margin in noise:
            raise SpecError(f"several queries measure '{margin}'", needed="one query for each table to plan")
        noise[margin] = (header, None if header.exact else next(noisy))
    return noise


def _priced(margin: Margin, noise: Noise) -> Priced:
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
