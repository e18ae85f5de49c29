"""Results of a plan, laid out by table, with the sentences that state what is proved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from trueup.digits import to_digits
from trueup.model.cells import Margin
from trueup.model.mechanism import contribution
from trueup.planning.allocation import Allocation, Certificate, Reached
from trueup.planning.bound import Wanted, least_rho
from trueup.planning.optimum import Hyperbolic
from trueup.planning.task import PlanningTask, Reals, priced_table

MIN_BUDGET_SHARE = 2e-6
"""A table with a smaller share of the budget is not measured, unless it is needed to determine the finest cells."""

MUCH, MOST_NAMED = 2.0, 3
"""Growth of the error of a table without a target that is said, and the most tables that are named."""


def pruned(task: PlanningTask, costs: Reals) -> Reals:
    """Return costs without those that are, or buy, next to nothing."""
    bought = task.prices.precision(costs)[0]
    little = (costs < MIN_BUDGET_SHARE * costs.sum()) | (bought < MIN_BUDGET_SHARE * bought.sum())
    return np.where(little & (task.floor == 0), 0.0, costs)


def about_discrete(task: PlanningTask, total: float) -> tuple[str, ...]:
    """Return what the proof leaves out if a table's noise is so narrow that its variance differs from its parameter."""
    from trueup.noise import DiscreteGaussian

    assert not isinstance(task.prices, Hyperbolic)
    sigma2 = Fraction(float(task.prices.price.min()) / total).limit_denominator(10**6)
    excess = float(sigma2) / DiscreteGaussian(sigma2).variance - 1
    if excess < 1e-6:
        return ()
    return (
        f"Proved for noise whose variance is sigma2; a table given the whole budget would have one {in_percent(excess)} smaller.",
    )


def about_local_optima(solves: int, agree: int) -> str:
    agreeing = "no other agrees" if agree == 1 else f"{agree} of them agree"
    return f"The objective may have local optima: this is the best of {solves} solves, and {agreeing} on it."


def least_of_mechanisms(
    task: PlanningTask, wanted: Sequence[tuple[Margin, float, bool]], *, fixed: bool = False
) -> float | None:
    """Return the least rho of any Gaussian mechanism, in the currency of the spec; None if it is not known."""
    expected, spec = task.expected, task.spec
    zeros = expected.fold is not None and not expected.fold.trivial
    if zeros or any(not contribution(spec, q).exact for q in spec.queries):
        return None  # for mechanisms that use the structural zeros no bound is known
    held = [(m, limit, mean) for m, limit, mean in wanted if not expected.of_areas(m)]
    rows = [Wanted(expected.level(m), expected.marginal(m), limit, mean) for m, limit, mean in held]
    if not rows:
        return None
    known = [(expected.level(m), expected.marginal(m)) for m in task.constraints.invariants]
    replaces = spec.privacy.neighbours == "replace"
    return least_rho(expected.cells, rows, known, replace=replaces, fixed=fixed) or None


def in_percent(share: float) -> str:
    return f"{to_digits(100 * share, 2)} %"


def about_mechanisms(ratio: float | None) -> str:
    if ratio is None:
        return "How far it is from the best of all mechanisms is not known for these tables."
    return f"Any mechanism that adds Gaussian noise to linear queries needs at least 1/{ratio:.4g} of this budget."


def allocation_of(
    task: PlanningTask, amounts: Sequence[Fraction], per_deviation: Reals, certificate: Certificate, stats
) -> Allocation:
    """Lay the result out by table."""
    planned = dict(zip([m for m, p in zip(task.expected.measured, task.priced) if p], amounts))
    given = {m: charge.amount for m, (_, charge) in task.noise.items() if charge is not None}
    priced = [priced_table(m, task.noise) for m in task.tables]
    budgets = tuple(planned.get(m, Fraction(0)) for m in task.tables)
    variances = [one.variance(b) for one, b in zip(priced, budgets)]
    at = dict(zip(task.tables, variances))
    precisions = task.precisions(np.array([1 / at[m] for m in planned]))
    mean, worst = task.errors(precisions)
    given_mean, given_worst = task.given_errors
    if said := _about_others(task, np.sqrt(mean), np.sqrt(given_mean)):
        certificate = replace(certificate, sentences=(said, *certificate.sentences))
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
        problem=task.problem,
    )


def _about_others(task: PlanningTask, planned: Reals, given: Reals) -> str | None:
    """Return which tables have no target and a much larger error than with the spec's own budgets, or None."""
    aimed = {target.margin for target in task.targets}
    worse = [
        (float(then / now), f"'{margin}' {now:.3g} to {then:.3g}")
        for margin, then, now in zip(task.tables, planned, given)
        if aimed and margin not in aimed and then > MUCH * now > 0
    ]
    if not worse:
        return None
    named = [text for _, text in sorted(worse, reverse=True)[:MOST_NAMED]]
    more = f" and of {len(worse) - len(named)} more" if len(worse) > len(named) else ""
    return (
        f"Tables without a target get only what the targets leave: the error (counts) of {', '.join(named)}{more} grows by more "
        f"than {MUCH:g} times. Give a target for each table that is to be used."
    )


def _reached(task: PlanningTask, per_deviation: Reals, precisions: Reals) -> tuple[Reached, ...]:
    """Return every target with the margins of error of the plan and of the spec as it stands."""
    if not task.targets:
        return ()
    planned, places = task.expected.reached(precisions, task.targets)
    given = [task.given_variance(target) for target in task.targets]
    margins = zip(per_deviation * np.sqrt(planned), per_deviation * np.sqrt(given))
    return tuple(Reached(t, float(a), float(b), p) for t, (a, b), p in zip(task.targets, margins, places))
