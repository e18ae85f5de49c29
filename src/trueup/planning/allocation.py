"""Dividing a budget between levels, or tables, so that the error after reconciliation is least.

The error meant is that of weighted least squares on all of them together, in closed form
(`kernel.tree.posterior_variances` for nested tables, `reconcile.expected` for crossing ones); nonnegativity and
rounding come after it and are left out.

Gaussian noise makes every precision linear in rho (the discrete law's too, from a variance of one
on), so a weighted sum of variances is convex in the budgets (an A-optimal design; Pukelsheim, 2006,
ch. 9) and one solve finds the optimum. The gap that is reported then bounds what is lost: for convex
f on the simplex, f(x) - min f is at most f'(x).x - min_l f'_l(x) (Frank and Wolfe, 1956). Precision
under Laplace noise grows with the *square* of epsilon, concentrating the budget may pay, and there
are local optima: the solve then starts from every choice of levels that are (almost) left out (of at most
one, where there are more than eight), and says how many of the solves agree on the best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, SpecError
from trueup.noise.law import Law

SMALLEST = 1e-6
"""Smallest share of the budget that the solver tries; a level below half a grain is not measured."""

MANY = 8
"""Above so many priced levels, not every choice of levels to leave out is tried."""

Errors = Callable[[Sequence[float]], tuple[NDArray[np.float64], NDArray[np.float64]]]
"""From noise variances, one per level, to mean and largest error variance on every level (counts squared)."""

MARGIN_90 = 1.6448536269514722
"""Margin of error per standard deviation (90 %, normal approximation)."""


@dataclass(frozen=True)
class Priced:
    """A level of the tree: its noise and what that costs.

    Attributes
    ----------
    name
        Its name.
    law
        The noise at cost `cost`; None if the level is not measured.
    cost
        What the noise costs; zero for an exact level or one that costs nothing.
    """

    name: str
    law: Law | None
    cost: Fraction

    def variance(self, cost: Fraction | float) -> float:
        """Variance of the noise (counts squared) if the level is given another `cost`."""
        if self.law is None or (self.cost and not cost):
            return np.inf
        return self.law.variance if not self.cost else scaled(self.law, Fraction(cost) / self.cost).variance


@dataclass(frozen=True)
class Allocation:
    """A division of a budget, in exact amounts, and the error to expect of it.

    Attributes
    ----------
    levels
        Names of the levels, root first.
    currency, total
        What is divided.
    budgets
        One exact amount per level (zero: not measured, or free); they sum to `total` exactly.
    given
        The amounts before planning.
    noise, error, worst
        Standard deviation of the noise, root mean square error after least squares and its largest
        value on the level, all in counts.
    given_error
        The same root mean square error for the amounts `given`, scaled to `total`.
    target
        The largest margin of error (90 %, counts) that was asked for, per level, or None.
    stats
        Objective, gap, starts: how sure the optimum is.
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
    target: tuple[float | None, ...]
    stats: Mapping[str, Any]


def scaled(law: Law, factor: Fraction) -> Law:
    """Return the same noise at `factor` times the cost.

    Raises
    ------
    SpecError
        For a law whose cost does not scale so.

    Examples
    --------
    >>> from trueup.noise import law_named
    >>> scaled(law_named("discrete-laplace")(Fraction(1, 2)), Fraction(2)).epsilon
    Fraction(1, 1)
    """
    law_fields: Any = law
    if law.name == "discrete-laplace":
        return replace(law_fields, epsilon=law_fields.epsilon * factor)
    if law.name == "discrete-gaussian":
        return replace(law_fields, sigma2=law_fields.sigma2 / factor)
    raise SpecError(
        f"the noise '{law.name}' cannot be planned", needed="discrete-laplace or discrete-gaussian"
    )


def allocate(
    child_ptr: NDArray[np.int64],
    level_ptr: NDArray[np.int64],
    levels: Sequence[Priced],
    currency: str,
    total: Fraction,
    **wishes: Any,
) -> Allocation:
    """Divide a budget between the levels of a tree.

    Parameters
    ----------
    child_ptr, level_ptr
        The tree: children of node `v`, nodes of level `l`.
    levels
        Every level, root first.
    currency, total, wishes
        As in `divide`.

    Raises
    ------
    SpecError, ConvergenceError
        As `divide`.

    Examples
    --------
    >>> from trueup.noise import law_named
    >>> noise = law_named("discrete-gaussian")(Fraction(1))
    >>> tree, sizes = np.array([1, 5, 5, 5, 5, 5]), np.array([0, 1, 5])
    >>> plan = allocate(tree, sizes, [Priced(n, noise, Fraction(1, 2)) for n in ("all", "area")], "rho", Fraction(1))
    >>> sum(plan.budgets) == 1, plan.budgets[1] > plan.budgets[0]
    (True, True)
    """
    return divide(tree_errors(child_ptr, level_ptr), levels, currency, total, **wishes)


def tree_errors(child_ptr: NDArray[np.int64], level_ptr: NDArray[np.int64]) -> Errors:
    """Closed form of the errors of nested levels.

    Examples
    --------
    >>> mean, largest = tree_errors(np.array([1, 3, 3, 3]), np.array([0, 1, 3]))([2.0, 1.0])
    >>> mean
    array([1.  , 0.75])
    """
    from trueup.kernel.tree.least_squares import messages, posterior_variances

    sizes, starts = np.diff(level_ptr), level_ptr[:-1]

    def errors(variances: Sequence[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        _, below = messages(child_ptr, np.repeat(variances, sizes))
        error = posterior_variances(child_ptr, below)
        return np.add.reduceat(error, starts) / sizes, np.maximum.reduceat(error, starts)

    return errors


def divide(
    errors: Errors,
    levels: Sequence[Priced],
    currency: str,
    total: Fraction,
    *,
    weights: Mapping[str, float] | None = None,
    targets: Mapping[str, float] | None = None,
    grains: int = 1000,
) -> Allocation:
    """Divide a budget between levels, or tables, whose errors have a closed form.

    Parameters
    ----------
    errors
        Error after reconciliation, from the noise: see `tree_errors`.
    levels
        Every level that `errors` knows, in its order, coarse before fine.
    currency, total
        What is divided: epsilon or rho, exact.
    weights
        What one count squared of mean error variance on a level is worth, 1 where not named.
        The weighted sum is made least.
    targets
        Largest wanted margin of error (90 %, counts) for some levels. Instead of the weighted sum,
        the largest ratio of margin to target is made least: at most 1 means that all are met.
    grains
        Budgets are whole multiples of `total / grains`.

    Raises
    ------
    SpecError
        If nothing is left to plan, a name is unknown, or both weights and targets are given.
    ConvergenceError
        If no solve succeeded.

    Examples
    --------
    >>> from trueup.noise import law_named
    >>> noise = law_named("discrete-gaussian")(Fraction(1))
    >>> alone = lambda variances: (np.array(variances), np.array(variances))  # levels that do not inform each other
    >>> plan = divide(alone, [Priced(n, noise, Fraction(1, 2)) for n in "ab"], "rho", Fraction(1), weights={"b": 4.0})
    >>> [str(b) for b in plan.budgets]
    ['333/1000', '667/1000']
    """
    problem = _Problem(errors, tuple(levels), total, *_objective(levels, weights, targets))
    solutions = [found for start in problem.starts() if (found := problem.solve(start)) is not None]
    if not solutions:
        raise ConvergenceError("no division of the budget was found", remedy="give other weights or targets")
    solutions.sort(key=problem.objective)
    counts = _whole(solutions[0], grains, problem.needed())
    if not problem.determined(
        np.array(counts) / grains
    ):  # each could be left out alone, but not these together
        counts = _whole(solutions[0], grains, set(range(len(counts))))
    shares = np.array(counts) / grains
    budgets = problem.spread([total * count / grains for count in counts], Fraction(0))
    mean, worst = problem.expected(shares)
    return Allocation(
        tuple(level.name for level in levels),
        currency,
        total,
        tuple(budgets),
        tuple(level.cost for level in levels),
        tuple(float(np.sqrt(v)) for v in problem.variances(shares)),
        tuple(float(e) for e in np.sqrt(mean)),
        tuple(float(e) for e in np.sqrt(worst)),
        tuple(float(e) for e in np.sqrt(problem.expected(problem.given())[0])),
        tuple((targets or {}).get(level.name) for level in levels),
        problem.stats(shares, solutions),
    )


@dataclass(frozen=True, eq=False)
class _Problem:
    """Shares of the budget on the priced levels, and the error they lead to."""

    errors: Errors
    levels: tuple[Priced, ...]
    total: Fraction
    weights: NDArray[np.float64]
    targets: NDArray[np.float64] | None

    @property
    def priced(self) -> list[int]:
        return [i for i, level in enumerate(self.levels) if level.cost]

    def spread(self, amounts: Sequence[Any], rest: Any) -> list[Any]:
        """One amount per level, `rest` for those that are not priced."""
        given = dict(zip(self.priced, amounts))
        return [given.get(i, rest) for i in range(len(self.levels))]

    def given(self) -> NDArray[np.float64]:
        costs = np.array([float(self.levels[i].cost) for i in self.priced])
        return costs / costs.sum()

    def variances(self, shares: NDArray) -> list[float]:
        costs = self.spread([float(self.total) * float(share) for share in shares], 0.0)
        return [level.variance(cost) for level, cost in zip(self.levels, costs)]

    def expected(self, shares: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and largest error variance on every level (counts squared)."""
        return self.errors(self.variances(shares))

    def objective(self, shares: NDArray) -> float:
        """Log of the weighted sum of mean variances, or of the largest squared ratio to a target."""
        terms = self._terms(shares)
        value = terms.max() if self.targets is not None else terms.sum()
        return float(np.log(max(value, np.finfo(float).tiny)))

    def _terms(self, shares: NDArray) -> NDArray[np.float64]:
        mean, _ = self.expected(shares)
        if self.targets is None:
            return self.weights * mean
        return MARGIN_90**2 * mean[self.weights > 0] / self.targets[self.weights > 0] ** 2

    def needed(self) -> set[int]:
        """Which priced levels cannot be left out alone: without them some count is not determined."""
        count = len(self.priced)
        return {i for i in range(count) if count == 1 or not self.determined(_even(count, (i,), left=0.0))}

    def determined(self, shares: NDArray) -> bool:
        """Whether every count has a finite error."""
        return bool(np.isfinite(self.expected(shares)[0]).all())

    def starts(self) -> list[NDArray[np.float64]]:
        """Even shares; under Laplace noise also with every choice of levels almost left out."""
        count = len(self.priced)
        some = range(1 if self.convex else count if count <= MANY else 2)
        free = [i for i in range(count) if i not in self.needed()]
        left_out = [out for size in some for out in combinations(free, size)]
        return [_even(count, out) for out in left_out]

    @property
    def convex(self) -> bool:
        return all(self.levels[i].law.name == "discrete-gaussian" for i in self.priced)  # type: ignore[union-attr]

    def solve(self, start: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Minimise from one start; None if the solver gave up or its answer is no division."""
        if len(start) == 1:
            return start
        found = self._solve_targets(start) if self.targets is not None else self._solve_sum(start)
        shares = np.maximum(found.x[: len(start)], SMALLEST)
        shares /= shares.sum()
        return shares if found.success and np.isfinite(self.objective(shares)) else None

    def _solve_sum(self, start: NDArray) -> Any:
        from scipy.optimize import minimize

        whole = {"type": "eq", "fun": lambda s: s.sum() - 1}
        bounds = [(SMALLEST, 1.0)] * len(start)
        options = {"maxiter": 300, "ftol": 1e-12}
        return minimize(
            self.objective, start, method="SLSQP", bounds=bounds, constraints=whole, options=options
        )

    def _solve_targets(self, start: NDArray) -> Any:
        """The largest ratio as a variable of its own, bounded by every ratio: a smooth problem."""
        from scipy.optimize import minimize

        whole = {"type": "eq", "fun": lambda x: x[:-1].sum() - 1}
        below = {"type": "ineq", "fun": lambda x: x[-1] - np.log(self._terms(x[:-1]))}
        bounds = [*[(SMALLEST, 1.0)] * len(start), (None, None)]
        first = np.append(start, self.objective(start))
        options = {"maxiter": 300, "ftol": 1e-12}
        return minimize(
            lambda x: x[-1], first, method="SLSQP", bounds=bounds, constraints=[whole, below], options=options
        )

    def stats(self, shares: NDArray, solutions: list[NDArray]) -> dict[str, Any]:
        """What is known about how good the division is."""
        best = self.objective(solutions[0])
        stats = {
            "objective": "largest ratio of margin to target"
            if self.targets is not None
            else "weighted mean variance",
            "value": float(np.exp(self.objective(shares) * (0.5 if self.targets is not None else 1))),
            "local solves": len(solutions),
            "solves that agree": sum(self.objective(found) - best < 1e-3 for found in solutions),
            "lost by rounding": float(np.exp(self.objective(shares) - best) - 1),
        }
        # Below a variance of about one the discrete law's precision bends, and convexity is lost.
        if self.targets is None and self.convex and min(self.variances(shares)) >= 1:
            stats["gap"] = self._gap(solutions[0])
        return stats

    def _gap(self, shares: NDArray) -> float:
        """Bound on (f - min f) / f for a convex f, from central differences."""
        slopes = np.array([self._slope(shares, i) for i in range(len(shares))])
        return float(slopes @ shares - slopes.min())

    def _slope(self, shares: NDArray, i: int) -> float:
        step = np.zeros(len(shares))
        step[i] = 1e-5 * shares[i]
        return (self.objective(shares + step) - self.objective(shares - step)) / (2 * step[i])


def _objective(levels: Sequence[Priced], weights, targets) -> tuple[NDArray, NDArray | None]:
    """Weights, and targets or None, as arrays over the levels."""
    names = [level.name for level in levels]
    if not any(level.cost for level in levels):
        raise SpecError("no level has a budget to plan")
    if weights and targets:
        raise SpecError("both weights and targets are given", needed="one of them")
    for name, value in {**(weights or {}), **(targets or {})}.items():
        if name not in names:
            raise SpecError(f"there is no level '{name}' to plan", needed=f"one of {', '.join(names)}")
        if not (0 < value < np.inf or (weights and value == 0)):
            raise SpecError(
                f"the weight or target of level '{name}' is out of range", needed="a finite positive number"
            )
    if not targets:
        return np.array([float((weights or {}).get(name, 1.0)) for name in names]), None
    return np.array([float(name in targets) for name in names]), np.array(
        [targets.get(n, np.inf) for n in names]
    )


def _even(count: int, left_out: Sequence[int], left: float = 1e-3) -> NDArray[np.float64]:
    shares = np.ones(count)
    shares[list(left_out)] = left
    return shares / shares.sum()


def _whole(shares: NDArray[np.float64], grains: int, needed: set[int]) -> list[int]:
    """Whole numbers of grains that sum exactly: floors, then the largest remainders."""
    counts = np.floor(shares * grains).astype(int)
    counts[list(needed)] = np.maximum(counts[list(needed)], 1)
    remainders = shares * grains - counts
    for _ in range(grains - counts.sum()):
        i = int(np.argmax(remainders))
        counts[i] += 1
        remainders[i] -= 1
    return [int(c) for c in counts]
