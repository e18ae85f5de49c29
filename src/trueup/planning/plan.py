"""Planning of a privacy budget: what each table costs, before any budget is spent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from trueup.digits import rational
from trueup.errors import ConvergenceError, SpecError
from trueup.model.mechanism import noise_parts
from trueup.model.problem import Problem
from trueup.model.spec import Spec
from trueup.model.verb import takes_records
from trueup.noise.law import Reals
from trueup.planning.allocation import Allocation, Certificate, exact_amounts, planned_spec
from trueup.planning.meeting import meet
from trueup.planning.optimum import Hyperbolic, least_error, local_errors
from trueup.planning.outcome import (
    about_discrete,
    about_local_optima,
    about_mechanisms,
    allocation_of,
    in_percent,
    least_of_mechanisms,
    pruned,
)
from trueup.planning.task import PlanningTask, Preset
from trueup.privacy import NoisePart, outward, tight_epsilon


@takes_records
def plan(
    spec: Spec | Problem | str | Path,
    geography: Any = None,
    *,
    total: Fraction | str | None = None,
    weights: Mapping[str, float] | None = None,
    targets: Mapping[str, object] | Iterable[str] | None = None,
    preset: Preset = "equal",
    areas: Any = None,
    column: str = "area",
) -> Allocation:
    """Find the smallest budget that meets error targets, or a budget's division with the smallest errors.

    Parameters
    ----------
    spec
        The spec, the path of one, or a Problem; its own budgets say which tables may be measured, and by which noise.
    geography
        The public list of places; confidential counts are never read.
    total
        The budget. By default with targets the least that meets them, with weights what the spec spends. As text an
        epsilon at a delta, such as `"8@1e-10"`: the largest total whose exact privacy loss is within it.
    weights
        Value of one count squared of a table's mean error variance, 1 where not named.
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
        If no division was found, or no total with that epsilon.

    Notes
    -----
    Errors are those of weighted least squares on all tables together, structural zeros held (where they tie together
    more than 12 combinations of values they are left out, which only makes errors larger), before nonnegativity and
    rounding. See `trueup.planning.optimum` for how the least is found and proved, and
    `trueup.planning.outcome` for the bound over all mechanisms.

    Examples
    --------
    >>> import pandas
    >>> from trueup.demo import AREAS_RHO
    >>> planned = plan(AREAS_RHO, pandas.DataFrame({"area": ["a", "b"]}), targets=["area=10@95%", "all=12@95%"])
    >>> planned.levels, sum(planned.budgets) == planned.total, round(float(planned.total), 4)
    (('all', 'area'), True, 0.0208)
    """
    task = PlanningTask.of(spec, geography, targets, weights, preset, areas, column)

    def planned(amount: Fraction | None) -> Allocation:
        if task.targets:
            return meet(task, amount)
        return divide(task, task.spent if amount is None else amount)

    if isinstance(total, str):
        return plan_at_delta(task.problem, EpsilonAtDelta.read(total), task.spent, planned)
    return planned(total)


def divide(task: PlanningTask, total: Fraction) -> Allocation:
    """Return the division of a budget that has the smallest weighted sum of mean error variances."""

    def evaluate(p: Reals) -> tuple[Reals, Reals]:
        value, slopes = task.expected.weighted(task.precisions(p), task.weights)
        return value, slopes[:, task.priced]

    if isinstance(task.prices, Hyperbolic):
        task.prices.refuse(total)
        costs, found = local_errors(float(total), task.prices, evaluate, task.starts())
        value, agree = float(found[0]), int((found < found[0] * 1.001).sum())
        certificate = Certificate(None, None, None, (about_local_optima(len(found), agree),))
        stats = {"local solves": len(found), "solves that agree": agree}
    else:
        shares, value, gap = least_error(task.prices.price, evaluate)
        costs, value = float(total) * shares, value / float(total)
        certificate, stats = _certified_error(task, float(total), value, gap), {}
    amounts = exact_amounts(pruned(task, costs), total)
    stats = {"objective": "weighted mean variance", "value": value, **stats}
    return allocation_of(task, amounts, np.zeros(0), certificate, stats)


def _certified_error(task: PlanningTask, total: float, value: float, gap: float) -> Certificate:
    mechanisms = least_of_mechanisms(
        task, [(m, 1 / w, True) for m, w in task.weights.items() if w], fixed=True
    )
    ratio = None if mechanisms is None else value * total / mechanisms
    sentence = f"No division between these tables has less than {in_percent(gap)} below this error."
    return Certificate(gap, None, ratio, (sentence, about_mechanisms(ratio), *about_discrete(task, total)))


NEEDED = "EPSILON@DELTA, such as 8@1e-10, with a delta between 0 and 1"
CLOSE, FURTHEST, TRIES, ROUNDS = 1e-7, 2.0, 40, 8
"""Relative tolerance of epsilon, largest step of a log budget, and most evaluations of a loss and most plans."""


@dataclass(frozen=True)
class EpsilonAtDelta:
    """A total privacy loss that is given as an epsilon at a delta.

    Examples
    --------
    >>> EpsilonAtDelta.read("8@1e-10").epsilon
    Fraction(8, 1)
    """

    epsilon: Fraction
    delta: Fraction

    @classmethod
    def read(cls, text: str) -> EpsilonAtDelta:
        """Read a total such as `8@1e-10`, or raise SpecError if it is malformed."""
        epsilon, at, delta = text.partition("@")
        if not at:
            raise SpecError(f"the total '{text}' has no delta, as in 8@1e-10", needed=NEEDED)
        found = cls(rational(epsilon, "the epsilon of the total"), rational(delta, "the delta of the total"))
        if found.delta >= 1:
            raise SpecError(f"the delta of the total '{text}' is 1 or more", needed="a delta below 1")
        return found

    def factor(self, parts: Sequence[NoisePart]) -> Fraction:
        """Return almost the largest factor by which all costs can grow within the epsilon at the delta.

        Epsilon grows about like a power of the cost, between a square root and the cost itself; the power is that of the
        last two steps.
        """

        def loss(factor: Fraction) -> tuple[Fraction, float]:
            epsilon = tight_epsilon([part.scaled(factor) for part in parts], self.delta)
            return epsilon, _log(epsilon)

        aim, at, power = _log(self.epsilon), Fraction(1), 1.5
        epsilon, found = loss(at)
        for _ in range(TRIES):
            if epsilon <= self.epsilon and aim - found <= CLOSE:
                return at
            step = min(max(power * (aim - CLOSE / 2 - found), -FURTHEST), FURTHEST)
            new = Fraction(float(at) * exp(step))
            epsilon, reached = loss(new)
            power = min(max(step / (reached - found), 0.25), 4.0) if reached != found else 1.5
            at, found = new, reached
        raise ConvergenceError(
            "no budget was found that has this epsilon with this delta",
            needed="a larger epsilon, or a larger delta",
            remedy="raise one of them until the total is reached",
        )


def _log(epsilon: Fraction) -> float:
    """Return the logarithm of an epsilon, or a large negative number for an epsilon of zero."""
    return log(max(float(epsilon), 1e-300))


def plan_at_delta(
    problem: Problem, wanted: EpsilonAtDelta, total: Fraction, plan: Callable[[Fraction], Allocation]
) -> Allocation:
    """Plan with the largest total whose privacy loss is at most a given epsilon at a given delta.

    Parameters
    ----------
    problem
        The problem whose spec is planned.
    wanted
        The epsilon and the delta.
    total
        Total from which the search begins, in the currency of the spec.
    plan
        Divides a total.

    Raises
    ------
    SpecError, ConvergenceError
        If there is no such total.
    """
    for _ in range(ROUNDS):
        planned = plan(total)
        spec = planned_spec(problem, planned)
        made = Problem(spec, problem.cells)
        parts = noise_parts(spec, made.constraints, made.headers)
        factor = wanted.factor(parts)
        if 0 <= factor - 1 <= 20 * CLOSE:  # what was planned is within it
            cost = f"epsilon = {outward(wanted.epsilon)} at delta = {outward(wanted.delta)}"
            sentence = (
                f"One step costs at most {cost} with these budgets, by the exact losses of their noise."
            )
            told = replace(planned.certificate, sentences=(*planned.certificate.sentences, sentence))
            return replace(planned, certificate=told)
        total = Fraction(f"{float(total * factor) * (1 - 4 * CLOSE):.12g}")
    raise ConvergenceError(
        "the best division changes with the total epsilon, and none was found that has the total exactly",
        remedy="give the total in rho or epsilon, as the spec gives its budgets",
    )
