"""Smallest budgets under limits on errors, and smallest errors under a budget, with proved bounds.

Let p be the precisions of the tables and V_j(p) the error variance of a functional under least squares, with slopes
`g_j = -dV_j/dp`. V_j is homogeneous of degree -1, so `g_j.p = V_j`, and for any p and q

    V_j(q) = max over z of 2 c'z - z'H(q) z  >=  V_j(p)^2 / g_j(p).q        (z = a multiple of H(p)^-1 c)

(H the information, linear in p; Pukelsheim, 2006, ch. 3). So `1 / V_j` is concave and lies below every plane
`g_j(p).q / V_j(p)^2`. Three things follow.

- A plan that keeps `V_j <= limit_j` satisfies the linear inequality `(limit_j / V_j(p)^2) g_j(p).q >= 1` for every p.
  The least cost under those found so far is a linear program, and a lower bound of every plan's cost; the best plan
  found, scaled so that it just keeps all limits, is an upper bound. New inequalities are taken half-way between
  the two solutions until the bounds meet (Kelley, 1960; Ben-Ameur and Neto, 2007, for the half-way).
- The program's dual solution is the certificate: weights of the inequalities whose sum nowhere exceeds the prices.
- For a weighted sum f of variances, no plan of the same cost has less than `f^2 / (cost max_i g_i / price_i)`.

Under Laplace noise the cost of a precision is concave (`arccosh(1 + p)`), so that there are local optima: each is found
by solving with the prices at the last solution. The inequalities do not depend on prices, so they serve all solves. Since
`cosh(a) - 1 + cosh(b) - 1 <= cosh(a + b) - 1`, precisions that sum to P cost at least `arccosh(1 + P)`.

One file: the two kinds of prices, and the solves that share one set of inequalities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, SpecError
from trueup.noise.law import Reals

Evaluate = Callable[[Reals], tuple[Reals, Reals]]
"""From precisions (k,) to variances as shares of their limits (j,), and minus their derivatives (j, k)."""

MAX_COST_GAP = 2e-5
"""Solves stop when no plan can be cheaper by more than this share."""
ROUNDS, IDLE = 200, 8
"""Rounds of a solve, and those after which it stops if its bounds no longer approach each other."""
CYCLE, SLOWEST_RATE = 8, 0.03
"""Steps of a Chebyshev cycle, and the slowest rate of convergence that it is made for."""
MOST_EPSILON = 300.0
"""Epsilon of one query, for each unit of its sensitivity, beyond which a variance is no floating-point number."""
MAX_PRECISION_DIFFERENCE = 0.01
"""Largest difference of precisions, as a share of their sum, between a solution and the optimum that it leads to."""
SLACK, TAKEN = 1e-9, 10
"""By how much a solution may miss an inequality (relative), and how many missed ones a program takes at a time."""
NEAR = 1e-4
"""Slope of the logarithm of an error in those of the shares below which a local minimum is near enough to be compared."""
TRUSTED = 1e-6
"""Slopes whose product with the precisions misses the variance by more (relative) are no bound."""


@dataclass(frozen=True, eq=False)
class LinearPrices:
    """Privacy costs that are proportional to precision, as under Gaussian noise."""

    price: Reals

    def cost(self, precisions: Reals) -> Reals:
        """Return the privacy cost of noise at each precision."""
        return self.price * precisions

    def precision(self, costs: Reals) -> tuple[Reals, Reals]:
        """Return the precision of the noise that each privacy cost buys, and its derivative by the cost."""
        return costs / self.price, 1 / self.price


@dataclass(frozen=True, eq=False)
class Hyperbolic:
    """Privacy costs of discrete Laplace noise: the sensitivity times the epsilon of a given precision."""

    sensitivity: Reals

    def refuse(self, total: Fraction | int) -> None:
        """Refuse a total epsilon so large that the noise is almost surely zero."""
        most = MOST_EPSILON * float(self.sensitivity.min())
        if total > most:
            raise SpecError(
                "the total epsilon is so large that the noise would practically vanish",
                needed=f"an epsilon of at most {most:,.6g}",
            )

    def cost(self, precisions: Reals) -> Reals:
        """Return the privacy cost of noise at each precision."""
        return self.sensitivity * epsilon_at(precisions)

    def precision(self, costs: Reals) -> tuple[Reals, Reals]:
        """Return the precision of the noise that each privacy cost buys, and its derivative by the cost."""
        epsilon = costs / self.sensitivity
        return 2 * np.sinh(epsilon / 2) ** 2, np.sinh(epsilon) / self.sensitivity

    def least(self, total: float) -> float:
        """Return a lower bound on the cost of any precisions that have a given sum."""
        return float(self.sensitivity.min() * epsilon_at(total))

    def slope(self, precisions: Reals) -> Reals:
        """Return the derivative of the cost by each precision, bounded near precision zero."""
        p = np.maximum(precisions, 1e-4 * precisions.sum())
        return self.sensitivity / np.sqrt(p * (p + 2))


def epsilon_at(precisions: Any) -> Any:
    """Return the epsilon of discrete Laplace noise with sensitivity 1 at given precisions: `arccosh(1 + p)`."""
    return 2 * np.arcsinh(np.sqrt(precisions / 2))


Prices = LinearPrices | Hyperbolic


@dataclass(frozen=True, eq=False)
class Optimum:
    """The precisions (k,) of least cost that were found, with a lower bound on the least cost."""

    precisions: Reals
    cost: float
    bound: float
    evaluations: int

    @property
    def gap(self) -> float:
        """Return the largest share by which the cost may exceed the least possible cost."""
        return self.cost / self.bound - 1


@dataclass
class Limits:
    """Limits on error variances, with the linear inequalities on precisions that they are known to imply.

    Parameters
    ----------
    evaluate
        Function of precisions: variances divided by the limits, and derivatives with opposite sign.
    floor
        (k,) shares: tables that have to be measured get at least this share of the precision.
    rows
        Inequalities that are known before, (r, k) each.
    learn
        Called with every new inequality: the positions (r,) of the limits that it is about, and its rows (r, k).

    Examples
    --------
    >>> def evaluate(p):  # two counts, each measured by a table of its own and by a common one
    ...     v = 1 / (p[:2] + p[2])
    ...     return v, v[:, None] ** 2 * np.array([[1, 0, 1], [0, 1, 1]])
    >>> best = Limits(evaluate, np.zeros(3)).least(np.array([1.0, 1.0, 1.5]))
    >>> best.precisions.round(3), best.gap < 1e-4
    (array([0., 0., 1.]), True)
    """

    evaluate: Evaluate
    floor: Reals
    rows: list[Reals] = field(default_factory=list)
    learn: Callable[[NDArray[np.intp], Reals], None] | None = None
    evaluations: int = 0
    binding: set[int] = field(default_factory=set)

    def least(self, price: Reals, start: Reals | None = None, gap: float = MAX_COST_GAP) -> Optimum:
        """Return precisions that satisfy every limit at the least cost, up to a relative `gap`."""
        if (
            start is not None and self.rows
        ):  # half-way between an earlier solution and the least that is known to be needed
            outer = self._program(price)
            start = start * (price @ outer) / (price @ start) + outer
        best = self._kept(np.ones(len(price)) / price if start is None else start)
        bound, least, idle = 0.0, np.inf, 0
        for _ in range(ROUNDS):
            outer = self._program(price)
            higher, cost = float(price @ outer), float(price @ best)
            still = higher < bound * (1 + gap / 20) and cost > least * (1 - gap / 20)
            idle = idle + 1 if still else 0  # what has to be measured may keep the bounds apart
            bound, least = max(bound, higher), cost
            if cost <= (1 + gap) * bound or idle > IDLE:
                break
            other = self._kept((best * (bound / cost) + outer) / 2)
            best = min(best, other, key=lambda p: float(price @ p))
        return Optimum(best, float(price @ best), bound, self.evaluations)

    def _kept(self, p: Reals) -> Reals:
        """Return the smallest multiple of precisions that meets every limit, and store its inequalities."""
        p = np.maximum(p, self.floor * p.sum())
        shares, slopes = self.evaluate(p)
        self.evaluations += 1
        right = np.abs(slopes @ p / shares - 1) < TRUSTED
        if not np.isfinite(shares).all() or (len(self.rows) == 0 and not right.any()):
            raise ConvergenceError(
                "the errors cannot be computed to the accuracy that planning needs",
                remedy="plan some of the tables in a spec of their own",
            )
        self.rows.append((slopes / shares[:, None] ** 2)[right])
        if self.learn:
            self.learn(np.flatnonzero(right), self.rows[-1])
        return p * shares.max()

    def _program(self, price: Reals) -> Reals:
        """Return precisions that satisfy every inequality found so far, at the least cost."""
        from scipy.optimize import linprog

        rows = np.vstack(self.rows)
        unit = 1 / np.maximum(rows.max(axis=0), 1e-300)  # a table's precision that would do alone
        scaled = rows * unit
        # Those to try first: the newest, and those active last.
        newest = range(max(len(scaled) - 2 * scaled.shape[1], 0), len(scaled))
        used = np.array(sorted(self.binding | set(newest)), np.intp)
        while True:  # most inequalities are idle: the program takes those that its solution would violate
            found = linprog(
                price * unit,
                A_ub=-scaled[used],
                b_ub=-np.ones(len(used)),
                bounds=(0, None),
                method="highs-ds",
                options={"presolve": False},
            )
            if found.status:
                raise ConvergenceError(
                    "no division of the budget that meets the targets was found",
                    remedy="give targets that differ less between tables",
                )
            missed = scaled @ found.x
            missed[used] = 1.0
            if missed.min() >= 1 - SLACK:
                break
            used = np.union1d(
                used, np.argsort(missed, kind="stable")[:TAKEN][np.sort(missed)[:TAKEN] < 1 - SLACK]
            )
        tight = scaled[used] @ found.x < 1 + 1e-6
        self.binding = set(used[tight].tolist())
        return found.x * unit


def least_hyperbolic(limits: Limits, prices: Hyperbolic, starts: Sequence[Reals]) -> tuple[Optimum, int]:
    """Return the best of several local optima under concave costs, and how many are equally good.

    Its bound holds for every plan: total precision is bounded by the linear program with equal prices.
    """
    found: list[Optimum] = []
    for start in starts:
        found.append(_linearised(limits, prices, start, found))
    best = min(found, key=lambda o: o.cost)
    total = limits.least(np.ones(len(best.precisions))).bound
    bound = prices.least(total)
    agree = sum(o.cost <= best.cost * 1.001 for o in found)
    return Optimum(best.precisions, best.cost, bound, limits.evaluations), agree


def _linearised(limits: Limits, prices: Hyperbolic, start: Reals, known: Sequence[Optimum]) -> Optimum:
    """Return a local optimum under concave costs, found by repeated linearisation of the costs.

    A solution that comes as near as `MAX_PRECISION_DIFFERENCE` to an optimum that is known leads there, and is not followed.
    """
    best: Optimum | None = None
    price = prices.slope(start)
    for _ in range(8):
        found = limits.least(price, start, gap=1e-3)
        cost = float(prices.cost(found.precisions).sum())
        if best is not None and cost >= best.cost * (1 - 1e-4):
            break
        for one in known:
            if (
                np.abs(found.precisions - one.precisions).max()
                <= MAX_PRECISION_DIFFERENCE * one.precisions.sum()
            ):
                return one
        best = Optimum(found.precisions, cost, 0.0, limits.evaluations)
        start, price = found.precisions, prices.slope(found.precisions)
    assert best is not None
    return best


def least_error(price: Reals, evaluate: Evaluate) -> tuple[Reals, float, float]:
    """Return costs (k,) that sum to 1 and minimise a weighted sum of variances under Gaussian noise.

    Costs are multiplied by powers of `g_i / (price_i f)` until the bound is near. The power 1/2 never makes f
    larger, and near the optimum powers in Chebyshev's order converge as the square root of its rate does (Yu, 2010;
    Varga, 1962, ch. 5).

    Parameters
    ----------
    evaluate
        Function of precisions (k,) that returns the sum (1,), and its derivatives with opposite sign (1, k).

    Returns
    -------
    costs, value, gap
    """
    roots = (1 + SLOWEST_RATE) / 2 + (1 - SLOWEST_RATE) / 2 * np.cos(np.pi * (np.arange(CYCLE) + 0.5) / CYCLE)
    costs, best = np.full(len(price), 1 / len(price)), (np.inf, np.inf, np.zeros(0))
    for step in range(ROUNDS):
        value, slopes = evaluate(costs / price)
        ratio = slopes[0] / price / value[0]
        best = min(best, (float(ratio.max() - 1), float(value[0]), costs), key=lambda one: one[:2])
        if best[0] < MAX_COST_GAP:
            break
        power = 0.9 if step < 6 else 0.5 / roots[(step - 6) % CYCLE]
        costs = np.maximum(costs * np.clip(ratio**power, 0.01, 100), 1e-12)
        costs /= costs.sum()
    if not np.isfinite(best[1]):
        raise ConvergenceError(
            "no division of the budget that minimises the weighted error was found",
            remedy="give weights that differ less between levels",
        )
    return best[2], best[1], best[0]


def local_errors(
    total: float, prices: Hyperbolic, evaluate: Evaluate, starts: Sequence[Reals]
) -> tuple[Reals, Reals]:
    """Return costs of a given sum that minimise weighted variances under Laplace noise, and all minima.

    One minimum is sought near each start, to `NEAR`, and the best of them followed until it stays.
    """
    from scipy.optimize import minimize

    def objective(logs: Reals) -> tuple[float, Reals]:
        shares = _shares(logs)
        precisions, derivatives = prices.precision(total * shares)
        value, slopes = evaluate(precisions)
        pull = slopes[0] * derivatives * total / value[0]
        return float(np.log(value[0])), -shares * (pull - shares @ pull)

    near = {"maxiter": 300, "gtol": NEAR}
    found = [minimize(objective, np.log(s), jac=True, method="BFGS", options=near) for s in starts]
    best = min(found, key=lambda one: one.fun)
    last = minimize(objective, best.x, jac=True, method="L-BFGS-B", options={"maxiter": 300, "ftol": 1e-12})
    return total * _shares(last.x), np.exp([last.fun, *(one.fun for one in found if one is not best)])


def _shares(logs: Reals) -> Reals:
    shares = np.maximum(np.exp(logs - logs.max()), 1e-7)
    return shares / shares.sum()
