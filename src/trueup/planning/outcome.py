"""Results of a plan for each table, with sentences on what is proved.

The bounds are lower ones, on the budget of any mechanism that adds Gaussian noise to linear queries, whichever queries they are.

Let H be the information of such a mechanism about the cells (its queries' `A'A / sigma^2`). Its rho is at least half of
any weighted mean of H's diagonal under `add-remove`, with weights u that sum to 1 over the cells; under `replace`, of
`(e_x - e_y)'H(e_x - e_y)` averaged over x and y, which leaves the sum of all cells out. Errors are
`tr(W H^-1)`, `W = sum_t lambda_t / limit_t sum_g w_tg 1_g 1_g'` for weights w_t over the groups g of target t's table:
a mean is at most the largest. With `w_tg = omega_t / u(g)`, the matrix `D W D`, `D = diag(u)^(1/2)`, is `sum_t
(omega_t / limit_t) Pi_t`, and the projections Pi_t on functions `sqrt(u) f(group)` commute wherever tables are built
from nested levels and nested recodes. So it has eigenvalues `theta_e` of multiplicity `m_e` for every
combination e of steps down these chains, and by Cauchy and Schwarz (Li and Miklau, 2013)

    2 rho >= (sum_e m_e sqrt(theta_e))^2,   under replace without the top e, and rho >= ....

What invariants fix is left out of the sum. It is a concave function of lambda, which is then made largest. On uniform
trees without recodes the bound is the one of the closed form in the ANOVA basis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from trueup.digits import to_digits
from trueup.kernel.histogram import Marginal, refines
from trueup.model.cells import Cells, Margin
from trueup.model.mechanism import contribution
from trueup.noise.law import Reals
from trueup.planning.allocation import Allocation, Certificate, Reached
from trueup.planning.optimum import Hyperbolic
from trueup.planning.task import PlanningTask, priced_table

MAX_ROUNDS = 300


@dataclass(frozen=True)
class NestedGroups:
    """Nested groupings of places or attribute values, from coarse to fine, with sizes and weights."""

    sizes: Reals
    inverse: Reals
    least: Reals

    @classmethod
    def of(cls, groupings: Sequence[NDArray[np.int64]], weights: Reals) -> NestedGroups:
        """Return nested groupings, given the group number and the weight of every element."""
        masses = [np.bincount(groups, weights) for groups in groupings]
        return cls(
            np.array([len(m) for m in masses]),
            np.array([(1 / m).sum() for m in masses]),
            np.array([m.min() for m in masses]),
        )

    @property
    def steps(self) -> Reals:
        """Return the number of groups that each grouping adds to the next coarser one."""
        return np.diff(self.sizes, prepend=0.0)


@dataclass(frozen=True)
class Wanted:
    """A table for which the largest or the mean error variance of the counts is limited."""

    level: int
    marginal: Marginal
    limit: float
    mean: bool = False


def least_rho(
    cells: Cells,
    wanted: Sequence[Wanted],
    invariants: Sequence[tuple[int, Marginal]],
    *,
    replace: bool,
    fixed: bool = False,
) -> float | None:
    """Return a lower bound on rho over all linear Gaussian mechanisms, or None if it cannot be computed.

    Parameters
    ----------
    fixed
        Keep the weights of the targets equal, as where their sum is what was made least.

    Examples
    --------
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> round(least_rho(cells, [Wanted(1, (), 1.0)], [], replace=False), 3)  # add noise of variance 1 to both counts
    0.5
    """
    chains = _nested_groupings(cells, [w.marginal for w in wanted] + [m for _, m in invariants])
    if chains is None:
        return None
    tree, last = cells.tree, len(cells.tree.levels) - 1
    places = [tree.ancestors(last, level) for level in range(last + 1)]
    at = [(w.level, *_position(chains, w.marginal)) for w in wanted]
    known = [(level, *_position(chains, m)) for level, m in invariants]
    bounds = []
    for even in (False, True):
        parts = [NestedGroups.of(groups, _weights(groups, even=even)) for groups in (places, *chains)]
        bounds.append(_rho_bound(parts, at, wanted, known, replace=replace, fixed=fixed))
    return max(bounds)


def _nested_groupings(cells: Cells, marginals: Sequence[Marginal]) -> list[list[NDArray[np.int64]]] | None:
    """Return the groupings of the values of every attribute, or None if some groupings are not nested."""
    chains = []
    for axis, attribute in enumerate(cells.attributes):
        groupings = {m[axis].tobytes(): m[axis] for m in marginals}
        whole = (np.zeros(attribute.size, np.int64), np.arange(attribute.size))
        groupings |= {g.tobytes(): g for g in whole}
        ordered = sorted(groupings.values(), key=lambda g: int(g.max()))
        if not all(refines((fine,), (coarse,)) for coarse, fine in pairwise(ordered)):
            return None
        chains.append(ordered)
    return chains


def _position(chains, marginal: Marginal) -> tuple[int, ...]:
    return tuple(
        next(i for i, g in enumerate(chain) if np.array_equal(g, groups))
        for chain, groups in zip(chains, marginal)
    )


def _weights(groupings: Sequence[NDArray[np.int64]], *, even: bool) -> Reals:
    n = len(groupings[-1])
    if even:
        return np.full(n, 1 / n)
    weights = np.ones(n)
    for coarse, fine in pairwise(groupings):
        first = np.unique(fine, return_index=True)[1]
        weights /= np.bincount(coarse[first])[coarse]
    return weights / weights.sum()


def _rho_bound(parts, at, wanted: Sequence[Wanted], known, *, replace: bool, fixed: bool) -> float:
    combinations = list(product(*(range(len(p.sizes)) for p in parts)))
    free = [
        not any(all(x <= y for x, y in zip(e, k)) for k in known) and not (replace and not any(e))
        for e in combinations
    ]
    kept = [e for e, is_free in zip(combinations, free) if is_free]
    if not kept:
        return 0.0
    times = np.array([np.prod([p.steps[i] for p, i in zip(parts, e)]) for e in kept])
    scale = [_scale(parts, position, w) for position, w in zip(at, wanted)]
    holds = np.array([[all(x <= y for x, y in zip(e, position)) for position in at] for e in kept], float)
    rows = holds * np.array([s / w.limit for s, w in zip(scale, wanted)])
    share = np.ones(len(wanted)) if fixed else np.full(len(wanted), 1 / len(wanted))
    best = 0.0
    for _ in range(1 if fixed else MAX_ROUNDS):
        roots = np.sqrt(rows @ share)
        best = max(best, float(times @ roots))
        share = share * (rows.T @ np.divide(times, roots, out=np.zeros_like(roots), where=roots > 0))
        share /= max(share.sum(), 1e-300)
    return best**2 / (1.0 if replace else 2.0)


def _scale(parts, position, wanted: Wanted) -> float:
    """Return the factor by which one target's limit enters the lower bound on rho."""
    if not wanted.mean:
        return float(1 / np.prod([p.inverse[i] for p, i in zip(parts, position)]))
    return float(np.prod([p.least[i] / p.sizes[i] for p, i in zip(parts, position)]))


MIN_BUDGET_SHARE = 2e-6
"""A table with a smaller share of the budget is not measured, unless it is needed to determine the finest cells."""

MUCH, MOST_NAMED = 2.0, 3
"""Growth of the error of a table without a target that is said, and the most tables that are named."""


def pruned(task: PlanningTask, costs: Reals) -> Reals:
    """Return the costs, with those that are negligible set to zero."""
    bought = task.prices.precision(costs)[0]
    little = (costs < MIN_BUDGET_SHARE * costs.sum()) | (bought < MIN_BUDGET_SHARE * bought.sum())
    return np.where(little & (task.floor == 0), 0.0, costs)


def about_discrete(task: PlanningTask, total: float) -> tuple[str, ...]:
    """Return a note if noise is so narrow that its variance is not its parameter; else an empty tuple."""
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
    """Return the smallest rho with which any Gaussian mechanism meets the targets; None if unknown."""
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
    """Return the result of a plan, given the exact amounts of budget for the measured tables."""
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
    """Return a note on tables without a target whose error increases much, or None if there are none."""
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
    """Return each target with its margins of error under the plan and under the present spec."""
    if not task.targets:
        return ()
    planned, places = task.expected.reached(precisions, task.targets)
    given = [task.given_variance(target) for target in task.targets]
    margins = zip(per_deviation * np.sqrt(planned), per_deviation * np.sqrt(given))
    return tuple(Reached(t, float(a), float(b), p) for t, (a, b), p in zip(task.targets, margins, places))
