"""Sums and maxima of products over trees of whole counts.

Here: splits of a parent's count by Dirichlet-multinomial laws: the factor of every node, and its derivative.

Given a count `x_v`, its children are Dirichlet-multinomial with parameters `alpha_c`:

    P(x_children | x_v) = prod_c w(x_c; alpha_c) / w(x_v; A_v),   w(x; a) = Gamma(x + a) / (Gamma(a) x!),
    A_v = sum_c alpha_c.

Collected by node, the node with parameter `alpha` among its siblings whose children sum to `A` carries

    w(x; alpha) / w(x; A) = Gamma(x + alpha) Gamma(A) / (Gamma(alpha) Gamma(x + A)).

A leaf has A = 1 and a root alpha = 1, as w(x; 1) = 1: neither is a special case, and alpha = 1 everywhere at the
leaves with A the number of leaves below is the flat prior's own split.

By Fisher's identity the derivative of the log evidence by `alpha_c` is the posterior mean

    E[psi(x_c + alpha_c) - psi(alpha_c)] - E[psi(x_v + A_v) - psi(A_v)].

*Pairs.* Families of a tree are split into pairs, so that sums over many children become convolutions of two.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit

NOTHING = -45.0
"""Log of what changes nothing where it is added to 1."""


@njit(cache=True, _nrt=False)
def log_ratio(low, alpha, total):
    """Return the log of `w(x; alpha) / w(x; total)` at a count x, or 0 if the count is 0 or less."""
    if low <= 0:
        return 0.0
    if low < 64:  # a running product is exact to rounding; differences of large log-gammas are not
        value, above, below = math.log(alpha / total), 1.0, 1.0
        for x in range(1, low):
            above *= x + alpha
            below *= x + total
            if x % 16 == 0:  # parameters up to 1e15 do not overflow
                value += math.log(above / below)
                above = below = 1.0
        return value + math.log(above / below)
    return math.lgamma(low + alpha) - math.lgamma(low + total) - math.lgamma(alpha) + math.lgamma(total)


@njit(cache=True, _nrt=False)
def add_split(out, low, alpha, total):
    """Add the log factor of a split at the counts from `low` on to `out`, unless they are negative."""
    log = log_ratio(low, alpha, total)
    for i in range(max(-low, 0), len(out)):
        x = low + i
        out[i] += log
        log += math.log((x + alpha) / (x + total))


@njit(cache=True, _nrt=False)
def add_second_kind(out, low, a, b, log_odds):
    """Add the log factor of splits with two kinds of parts at the counts from `low` on to `out`."""
    log = log_odds + log_ratio(low, b, a)
    for i in range(max(-low, 0), len(out)):
        if log < NOTHING:  # it falls
            return
        x = low + i
        out[i] += log_one_plus(log)
        log += math.log((x + b) / (x + a))


@njit(cache=True, _nrt=False)
def log_one_plus(log):
    """Return `log(1 + exp(log))`."""
    return log + math.log1p(math.exp(-log)) if log > 0.0 else math.log1p(math.exp(log))


@njit(cache=True)
def proper_splits(child_ptr, factors, floor, ceiling):
    """Return a mask of the nodes whose parts are nonnegative and have parameters of sum at most `total`."""
    out = np.zeros(len(floor), np.bool_)
    for v in range(len(floor)):
        alpha, least = 0.0, 0
        for c in range(child_ptr[v], child_ptr[v + 1]):
            alpha += factors.alpha[c] if ceiling[c] > 0 else 0.0
            least = min(least, floor[c])
        out[v] = least >= 0 and alpha <= (1.0 + 1e-12) * factors.total[v]
    return out


@njit(cache=True, _nrt=False)
def digamma(x):
    """Return the digamma function for x > 0, by recurrence and asymptotic series (Abramowitz and Stegun 6.3.18)."""
    value = 0.0
    while x < 8.0:
        value -= 1.0 / x
        x += 1.0
    y = 1.0 / (x * x)
    series = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y * (1 / 132 - y * 691 / 32760)))))
    return value + math.log(x) - 0.5 / x - series


@njit(cache=True)
def _mean_rise(masses, offset, a):
    """Return the posterior mean of `psi(x + a) - psi(a)` for one count x with given masses."""
    rise = digamma(offset + a) - digamma(a) if offset > 0 else 0.0
    mean = 0.0
    for i in range(len(masses)):
        mean += masses[i] * rise
        rise += 1.0 / (a + offset + i)
    return mean


@njit(cache=True)
def mean_rises(start, offset, masses, alpha):
    """Return, for every node, the posterior mean of `psi(x + alpha) - psi(alpha)`.

    Parameters
    ----------
    start, offset, masses
        Marginals of `n` counts, as `trueup.kernel.messages.solve.marginals` gives them.
    alpha
        (n,) parameters above 0.

    Examples
    --------
    >>> mean_rises(np.array([0, 1]), np.array([3]), np.ones(1), np.array([2.0])).round(4).tolist()
    [1.0833]
    """
    out = np.empty(len(offset))
    for v in range(len(offset)):
        out[v] = _mean_rise(masses[start[v] : start[v + 1]], offset[v], alpha[v])
    return out


Integers = NDArray[np.int64]


class PairPlan(NamedTuple):
    """A tree whose families are split into pairs, with auxiliary nodes for partial sums of children.

    `order` lists children before parents; `family[v]:family[v + 1]` are the auxiliary nodes of
    parent `v`, in the order they are summed.
    """

    left: Integers
    right: Integers
    order: Integers
    family: Integers


@njit(cache=True)
def plan_pairs(child_ptr):
    """Split each family into a balanced tree of pairs, so that windows grow as slowly as possible."""
    n = len(child_ptr) - 1
    children = np.diff(child_ptr)
    extra = np.maximum(children - 2, 0)
    family = np.empty(n + 1, np.int64)
    family[0] = n
    family[1:] = n + np.cumsum(extra)
    total = family[n]
    left, right = np.full(total, -1, np.int64), np.full(total, -1, np.int64)
    order = np.empty(total, np.int64)
    position = 0
    for v in range(n - 1, -1, -1):
        current = np.arange(child_ptr[v], child_ptr[v + 1])
        fresh = family[v]
        while len(current) > 2:
            # pair neighbours; stop pairing as soon as two sums are left
            upper = np.empty((len(current) + 1) // 2, np.int64)
            for k in range(len(upper)):
                if 2 * k + 1 == len(current):
                    upper[k] = current[2 * k]
                    continue
                left[fresh], right[fresh] = current[2 * k], current[2 * k + 1]
                order[position] = upper[k] = fresh
                fresh += 1
                position += 1
            current = upper
        if len(current) > 0:
            left[v] = current[0]
        if len(current) > 1:
            right[v] = current[1]
        order[position] = v
        position += 1
    return PairPlan(left, right, order, family)


@njit(cache=True)
def above(plan, passed, roots):
    """Return, for each node of the plan, the sum of `passed` over its ancestors."""
    out = np.zeros(len(passed))
    out[: len(roots)] = roots
    for place in range(len(plan.order) - 1, -1, -1):
        v = plan.order[place]
        for c in (plan.left[v], plan.right[v]):
            if c >= 0:
                out[c] = out[v] + passed[v]
    return out


@njit(cache=True)
def sums_below(plan, own):
    """Return, for each node of the plan, the sum over the node and all nodes below it."""
    out = own.copy()
    for v in plan.order:
        for c in (plan.left[v], plan.right[v]):
            if c >= 0:
                out[v] += out[c]
    return out


@njit(cache=True)
def below_marked(plan, marked):
    """Mark all nodes of the plan that lie below marked nodes."""
    out = np.zeros(len(marked), np.bool_)
    for place in range(len(plan.order) - 1, -1, -1):
        v = plan.order[place]
        for c in (plan.left[v], plan.right[v]):
            if c >= 0:
                out[c] = out[v] or marked[v]
    return out
