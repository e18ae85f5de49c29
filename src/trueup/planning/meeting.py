"""Smallest budgets that meet targets, and divisions of a given budget that come nearest to targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from trueup.errors import SpecError
from trueup.model.cells import Margin
from trueup.model.problem import Problem
from trueup.model.spec import Spec
from trueup.noise.law import Reals
from trueup.planning import Target, read_targets
from trueup.planning.allocation import Allocation, Certificate, exact_amounts
from trueup.planning.margins import margin_ratio, normal_ratio
from trueup.planning.optimum import MAX_COST_GAP, Hyperbolic, Optimum, least_hyperbolic
from trueup.planning.outcome import (
    about_discrete,
    about_local_optima,
    about_mechanisms,
    allocation_of,
    in_percent,
    least_of_mechanisms,
    pruned,
)
from trueup.planning.task import PlanningTask


def meet(task: PlanningTask, total: Fraction | None, gap: float | None = None) -> Allocation:
    """Return the smallest budget that meets the targets, or else the best division of a given total.

    With a `gap` the budget may be larger than the least by that share, and no bound over other mechanisms is sought.
    """
    per_deviation = np.array([normal_ratio(t.confidence) for t in task.targets])
    if isinstance(task.prices, Hyperbolic):
        _refuse_areas(task)
        task.prices.refuse(total or 0)
        return _meet_pure(task, total, per_deviation, quick=gap is not None)
    found = task.limits(per_deviation).least(task.prices.price, task.found.precisions, gap or MAX_COST_GAP)
    task.found.precisions = found.precisions
    costs = pruned(task, task.prices.cost(found.precisions))
    if total is None:
        costs = costs * _needed_factor(task, costs, per_deviation)
    amounts = exact_amounts(costs, total)
    spent = sum(amounts, Fraction(0))
    bound = found.bound
    mechanisms = (
        None
        if gap
        else least_of_mechanisms(
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
        f"No division between these tables meets the targets at less than {in_percent(gap)} below this budget.",
        about_mechanisms(ratio),
        *about_discrete(task, found.cost),
    )
    return allocation_of(task, amounts, per_deviation, Certificate(gap, bound, ratio, sentences), stats)


def _refuse_areas(task: PlanningTask) -> None:
    if of_areas := [t for t in task.targets if task.expected.of_areas(t.margin)]:
        raise SpecError(
            f"the target '{of_areas[0]}' concerns areas that cut across the levels, whose errors under Laplace noise "
            "are not known",
            needed="discrete-gaussian noise, or targets for levels",
            remedy='write noise = "discrete-gaussian", or leave the target out',
        )


def _meet_pure(
    task: PlanningTask, total: Fraction | None, per_deviation: Reals, *, quick: bool = False
) -> Allocation:
    """Return the smallest epsilon that meets the targets by Laplace noise, or a total's best division."""
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
    costs = pruned(task, task.prices.cost(found.precisions))
    if total is None:
        costs = _scaled_to_meet(task, costs)
    amounts = exact_amounts(costs, total)
    bound, per_deviation = _pure_bound(task, np.array([float(a) for a in amounts]))
    gap = float(sum(amounts)) / bound - 1
    sentences = (
        about_local_optima(solves, agree),
        f"No division of these tables with the same margins per standard deviation needs less than {bound:.4g}: "
        f"this budget is at most {in_percent(gap)} above the least.",
    )
    objective = "total" if total is None else "largest ratio of margin to target"
    stats = {
        "objective": objective,
        "evaluations": found.evaluations,
        "local solves": solves,
        "solves that agree": agree,
    }
    return allocation_of(task, amounts, per_deviation, Certificate(gap, bound, None, sentences), stats)


def _kind(target: Target) -> tuple[Margin, bool, float]:
    return target.margin, target.mean, target.confidence


def _pure_bound(task: PlanningTask, costs: Reals) -> tuple[float, Reals]:
    """Return a lower bound on the cost of any division whose errors are as small as those of a given one."""
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
    """Return the factor by which all targets have to grow for the smallest budget to equal a total."""
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
    """Return the costs, multiplied by the smallest factor for which every target is met."""
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
    """Return the margin of error (j,) of each target's estimate, in standard deviations."""
    p = task.precisions(of_priced)
    return np.array([margin_ratio(task.expected, p, target) for target in task.targets])


def _variances(task: PlanningTask, of_priced: Reals) -> Reals:
    return task.expected.reached(task.precisions(of_priced), task.targets)[0]


def _needed_factor(task: PlanningTask, costs: Reals, per_deviation: Reals) -> float:
    """Return the largest factor, over targets, by which an error variance exceeds its limit."""
    p = task.prices.precision(costs)[0]
    limits = np.array([t.counts for t in task.targets]) ** 2 / per_deviation**2
    return float((_variances(task, p) / limits).max())


MAX_QUICK_PLAN_GAP = 5e-2
"""A quick plan may cost more than the least by this share."""


class Planner:
    """A spec that is prepared once for several plans with different targets.

    Parameters
    ----------
    spec, geography
        The parameters of `plan`; a `Problem` needs no geography.

    Raises
    ------
    TrueupError
        For everything that `plan` refuses.

    Notes
    -----
    The inequalities that one plan finds hold for every division (`trueup.planning.optimum`); only their right-hand sides
    depend on the targets. So the next plan begins with them and with the last division, and mostly needs two or three
    evaluations in place of twenty.

    Examples
    --------
    >>> import pandas
    >>> from trueup.demo import AREAS_RHO
    >>> planner = Planner(AREAS_RHO, pandas.DataFrame({"area": ["a", "b"]}))
    >>> [round(float(planner.plan({"area": f"{counts}@95%"}).total), 4) for counts in (20, 10)]
    [0.0048, 0.0192]
    """

    def __init__(self, spec: Spec | Problem | str | Path, geography: Any = None) -> None:
        self._problem = Problem.of(spec, geography)
        self._task = PlanningTask.of(self._problem, None, None, None, "equal")

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the names of the tables whose errors a plan states, from coarse to fine."""
        return tuple(map(str, self._task.tables))

    @property
    def free(self) -> tuple[str, ...]:
        """Return the names of the tables that no invariant fixes, for which targets are possible."""
        return tuple(str(margin) for margin in self._task.tables if not self._task.fixed(margin))

    @property
    def measured(self) -> tuple[str, ...]:
        """Return the names of the tables that the spec measures with noise."""
        return tuple(map(str, self._task.noise))

    def plan(
        self,
        targets: Mapping[str, object] | Iterable[str],
        *,
        total: Fraction | None = None,
        quick: bool = False,
    ) -> Allocation:
        """Return a plan for the given targets and total, as `trueup.plan` does.

        Parameters
        ----------
        targets, total
            The parameters of `plan`; at least one target.
        quick
            True if a budget within 5 % of the least is enough, and no bound over other mechanisms is needed.

        Raises
        ------
        SpecError
            If a target is out of range, names no table, or one that the invariants fix.
        ConvergenceError
            If no division was found.
        """
        texts = [f"{k}={v}" for k, v in targets.items()] if isinstance(targets, Mapping) else list(targets)
        wanted = read_targets(texts, self._task.constraints)
        if any(target.margin not in self._task.tables for target in wanted):
            self._task = PlanningTask.of(self._problem, None, texts, None, "equal")
        return meet(self._task.aimed_at(wanted), total, gap=MAX_QUICK_PLAN_GAP if quick else None)
