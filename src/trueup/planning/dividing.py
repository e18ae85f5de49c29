"""Division of a given budget with the least weighted mean error variance."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from trueup.planning.allocation import Allocation, Certificate, exact_amounts
from trueup.planning.optimum import Hyperbolic, least_error, local_error
from trueup.planning.outcome import (
    about_discrete,
    about_local_optima,
    about_mechanisms,
    allocation_of,
    in_percent,
    least_of_mechanisms,
    pruned,
)
from trueup.planning.task import PlanningTask, Reals


def divide(task: PlanningTask, total: Fraction) -> Allocation:
    """Return the division of a budget with the least weighted sum of mean error variances."""

    def evaluate(p: Reals) -> tuple[Reals, Reals]:
        value, slopes = task.expected.weighted(task.precisions(p), task.weights)
        return value, slopes[:, task.priced]

    if isinstance(task.prices, Hyperbolic):
        task.prices.refuse(total)
        found = [local_error(float(total), task.prices, evaluate, start) for start in task.starts()]
        costs, value = min(found, key=lambda one: one[1])
        agree = sum(other < value * 1.001 for _, other in found)
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
