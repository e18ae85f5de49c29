"""The budgets and methods that an assessment compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from trueup import inferring as inference
from trueup.assessing.comparators import IMPLIED, Comparator, named_entry
from trueup.assessing.estimators import POSTERIOR, RULES, Estimator, Inferrer, IntervalRule, Reconciler
from trueup.digits import rational
from trueup.errors import SpecError
from trueup.inferring.method import InferenceMethod as InferMethod
from trueup.model.cells import Cells
from trueup.model.constraints import Constraints
from trueup.model.guarantee import Guarantee
from trueup.model.header import Measured
from trueup.model.mechanism import plan_measurements
from trueup.model.records.assessment import Assessed, Budget
from trueup.model.records.measurements import Measurements
from trueup.model.spec import Spec
from trueup.model.verb import describe, refuse_method
from trueup.reconciling import Prepared, build, choose
from trueup.reconciling.method import Method


@dataclass(frozen=True, eq=False)
class Scenario:
    """A budget to compare, with the measurements and the privacy guarantee that it gives."""

    budget: Budget
    headers: tuple[Measured, ...]
    guarantee: Guarantee


def scenarios(spec: Spec, constraints: Constraints, scales: Iterable[Any]) -> tuple[Scenario, ...]:
    """Return the measurements that each multiple of the spec's budgets gives."""
    exact = [rational(scale, "the budget scale") for scale in scales]
    _refuse_twins("budget scale", [str(scale) for scale in exact])
    if not exact:
        raise SpecError(
            "no multiple of the budget is given",
            needed="at least one multiple of the spec's budgets, such as 1",
        )
    return tuple(_scenario(spec, constraints, scale) for scale in exact)


def _scenario(spec: Spec, constraints: Constraints, scale: Fraction) -> Scenario:
    headers, guarantee = plan_measurements(scaled_budgets(spec, scale), constraints.cells, constraints)
    label = f"{guarantee.currency} = {guarantee.amount}"
    return Scenario(Budget(label, scale, guarantee.currency, guarantee.amount), headers, guarantee)


def scaled_budgets(spec: Spec, scale: Fraction) -> Spec:
    """Return the spec with every privacy budget multiplied by a factor.

    Examples
    --------
    >>> from trueup.demo import AREAS
    >>> str(scaled_budgets(AREAS, Fraction(1, 3)).queries[0].budgets["area"])
    '1/6'
    """
    queries = [
        query.model_copy(
            update={query.currency: {at: b * scale for at, b in query.budgets.items()}, "levels": ()}
        )
        for query in spec.queries
    ]
    return spec.model_copy(update={"queries": tuple(queries)})


def reconcilers(spec: Spec, constraints: Constraints, methods: Sequence[Any]) -> list[Method]:
    """Return the reconciliation methods that are given by name or as objects, by default the spec's own."""
    needed = "a name, a name with its parameters, or a method"
    made = (m if isinstance(m, Method) else build(*named_entry(m, "method", needed)) for m in methods)
    return [*made] or [choose(spec.reconcile, constraints)]


def inferrers(spec: Spec, constraints: Constraints, scenario: Scenario, wanted: Any) -> list[InferMethod]:
    """Return the inference method in a list: the spec's own, a named or a given one. Empty for none."""
    if wanted is None or wanted is False:
        return []
    if isinstance(wanted, InferMethod):
        chosen = wanted
    else:
        entry = {k: v for k, v in spec.infer.items() if k != "quantity"}
        entry = {"method": wanted} if isinstance(wanted, str) and wanted != entry.get("method") else entry
        chosen = inference.choose_inference(entry, constraints, _header_only(constraints.cells, scenario))
    if chosen.released:
        raise SpecError(
            f"inference method '{chosen.name}' works on released counts",
            needed="a method that works on noisy counts; `trueup methods` lists them",
        )
    return [chosen]


def _header_only(cells: Cells, scenario: Scenario):
    """Return measurements of zeros, which suffice to choose a method by laws and margins."""
    zeros = tuple(header.sums(cells, np.zeros(cells.n, np.int64)) for header in scenario.headers)
    return Measurements(cells, scenario.headers, zeros, scenario.guarantee, simulation=True)


def interval_rules(wanted: Sequence[Any], level: float) -> list[IntervalRule]:
    """Return the interval rules with the given names. A rule given as an object is returned unchanged.

    Raises
    ------
    SpecError
        If a name is unknown or given twice.
    """
    made = [rule if isinstance(rule, IntervalRule) else _rule(rule, level) for rule in wanted]
    _refuse_twins("interval rule", [rule.name for rule in made])
    return made


def _rule(name: Any, level: float) -> IntervalRule:
    known = {rule.name: rule for rule in RULES}
    if not isinstance(name, str) or name not in known:
        raise SpecError(
            f"interval rule '{name}' is unknown",
            needed=f"one of: {', '.join(known)}, or an object that makes intervals",
        )
    return known[name](level)


@dataclass(frozen=True, eq=False)
class Compared:
    """The budgets, methods and comparators that an assessment compares.

    Attributes
    ----------
    scenarios
        The budgets.
    methods
        The methods, then those of inference, then what others do.
    estimators
        For each budget, every method prepared.
    intervals
        Claim of each interval rule.
    """

    scenarios: tuple[Scenario, ...]
    methods: tuple[Assessed, ...]
    estimators: tuple[tuple[Estimator | Comparator, ...], ...]
    intervals: dict[str, float]


def compare(
    spec: Spec,
    constraints: Constraints,
    methods: Sequence[Any],
    budgets: Iterable[Any],
    intervals: Sequence[Any],
    infer: Any,
    *,
    draws: int,
    level: float,
    others: Sequence[tuple[Assessed, Comparator]] = (),
) -> Compared:
    """Return the budgets, methods and comparators that an assessment compares, prepared for simulation.

    Raises
    ------
    SpecError
        If a name is unknown or given twice, or a method does not fit the constraints or the noise.
    """
    every = scenarios(spec, constraints, budgets)
    chosen = reconcilers(spec, constraints, methods)
    inferring = inferrers(spec, constraints, every[0], infer)
    asked = interval_rules(intervals, level)
    estimators = tuple(
        (
            *(_reconciler(method, constraints, scenario, asked) for method in chosen),
            *(_inferrer(method, constraints, scenario, draws, level) for method in inferring),
            *(comparator for _, comparator in others),
        )
        for scenario in every
    )
    claims = {rule.name: rule.level for rule in asked} | ({POSTERIOR: level} if inferring else {})
    claims |= {IMPLIED: level} if others else {}
    methods = (*assessed(chosen, inferring), *(named for named, _ in others))
    _refuse_twins("method", [named.label for named in methods])
    return Compared(every, methods, estimators, claims)


def _reconciler(
    method: Method, constraints: Constraints, scenario: Scenario, rules: Sequence[IntervalRule]
) -> Reconciler:
    ready = Prepared.of(constraints, scenario.headers, method)
    errors = method.errors(ready.state)
    return Reconciler(method, ready.state, scenario.headers, rules, errors, ready.simulation)


def _inferrer(
    method: InferMethod, constraints: Constraints, scenario: Scenario, draws: int, level: float
) -> Inferrer:
    refuse_method(
        method, inference.inference_misfit(method, constraints, _header_only(constraints.cells, scenario))
    )
    return Inferrer(method, method.prepare(constraints, scenario.headers), draws, level)


def assessed(methods: Sequence[Method], inferring: Sequence[InferMethod]) -> tuple[Assessed, ...]:
    """Return the labels of the methods, with their parameters where a name occurs more than once."""
    every = [("reconcile", m, m.nonnegative) for m in methods] + [("infer", m, True) for m in inferring]
    names = Counter(method.name for _, method, _ in every)
    found = [
        Assessed(_label(m, names[m.name] > 1), describe(m), m.title, verb, kept) for verb, m, kept in every
    ]
    _refuse_twins("method", [a.label for a in found])
    return tuple(found)


def _label(method: Method | InferMethod, more: bool) -> str:
    if not more:
        return method.name
    plain = type(method)()
    own = {k: v for k, v in describe(method).items() if v != describe(plain)[k]}
    return method.name + "".join(f", {name} {value}" for name, value in own.items())


def _refuse_twins(what: str, names: list[str]) -> None:
    if twice := [name for name in names if names.count(name) > 1]:
        raise SpecError(f"{what} '{twice[0]}' is given twice", remedy="give it once")
