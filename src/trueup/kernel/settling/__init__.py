"""Nonnegative whole-number tables of a hierarchy, made from the top down near their estimates.

Here: laws of how parents' totals are split among their children, given noisy estimates and a prior of the split.

A total X is split among C children by a Dirichlet-multinomial law of concentration `a`, the same for all parents that are
given together; child c has an estimate `z_c` of variance `V_c`. Up to what holds the sum, its law is

    f_c(T) = Gamma(T + a) / (Gamma(a) T!)  N(T; z_c, V_c)  exp(l T),    T = 0, 1, ..., X within the bounds,

with one multiplier `l` for each parent, at which the means add up to X. By a saddle point in l, the evidence of a is
`Gamma(C a) X! / Gamma(X + C a)` times `exp(-l X) prod_c sum_T f_c(T)` times the density of the sum at its mean. That is
the density of a gamma law with the sum's variance and skewness: for wide estimates the sum is as skewed as the prior's,
which is negative binomial, and a normal law would favour the smallest a. On a few values of a, with a lognormal prior, that
is the posterior of a, so that doubt about it is in the draws.

Estimates that are as wide as the total say so little that the saddle point's error, small as it is, would decide. For them
the evidence is that of a normal law with the split's mean `X / C` and covariance `X (X + C a) / (C (1 + C a)) (I - 1 1' / C)`,
plus the estimates' variances.

Laws are summed at every count below `UNIT` and in steps of a fiftieth above, as no law here is narrower: one far from zero
beside its spread is taken as normal.

One file: the laws, their sums on a grid, and the evidence that is read off both.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trueup.kernel.compiled import njit

UNIT, RATIO = 64, 1.02
NORMAL_FROM_DEVIATIONS = 20.0  # spreads from zero from which on a law is taken as normal
SUMMED_DEVIATIONS = 7.0  # standard deviations on either side over which a law is summed
MAX_RELATIVE_SPREAD = 1e3  # spread of an estimate, in totals of the parent: wider ones say nothing more
FIRST_STEPS = 20  # Newton's, for the multipliers
MAX_MISS_DEVIATIONS = 1e-3  # standard deviations of a sum by which means may miss it
WEAK = (
    0.5  # totals of the parent from which on a spread of all its children's estimates is as wide as the total
)
MAX_RELATIVE_TOTAL = (
    5.0  # totals of the parent up to which laws are summed where the concentration is estimated
)


@njit(cache=True)
def grid(most):
    """Return grid points of counts, and the number of counts that each point represents."""
    size = UNIT
    x = float(UNIT)
    while x < most:
        x = x * RATIO
        size += 1
    counts, weights = np.empty(size), np.ones(size)
    x = float(UNIT)
    for i in range(size):
        if i < UNIT:
            counts[i] = i
        else:
            weights[i] = x * (RATIO - 1.0)
            counts[i] = x + 0.5 * weights[i] - 0.5
            x += weights[i]
    return counts, weights


@njit(cache=True)
def log_prior(counts, weights, a):
    """Return the log prior mass of each grid point T, `Gamma(T + a) / (Gamma(a) T!)` times its weight."""
    out = np.empty(counts.size)
    for i in range(counts.size):
        t = counts[i]
        out[i] = math.lgamma(t + a) - math.lgamma(t + 1.0) - math.lgamma(a) + math.log(weights[i])
    return out


@njit(cache=True)
def _modes(a, z, v, price):
    """Return an interval of counts that contains every mode of a child's law.

    Where its slope `log((T + a) / (T + 1)) + price - (T - z) / v` is zero: the logarithm is between those of a and of 1, and
    if a is above 1 it falls, so that there is one mode.
    """
    center = z + v * price
    if a <= 1.0:
        return max(center + v * math.log(a), 0.0), max(center, 0.0)
    least, most = max(center, 0.0), max(center + v * math.log(a), 0.0)
    for _ in range(40):
        if most - least < 0.5:
            break
        middle = 0.5 * (least + most)
        if math.log((middle + a) / (middle + 1.0)) + price > (middle - z) / v:
            least = middle
        else:
            most = middle
    return least, most


@njit(cache=True)
def _child_law(counts, weights, prior, a, z, v, price, low, high, u):
    """Return mean, variance, third cumulant and log sum of a child's law, and its quantile at u."""
    if low >= high:
        return low, 0.0, 0.0, 0.0, low
    s = math.sqrt(v)
    if z > NORMAL_FROM_DEVIATIONS * s + UNIT and low == 0.0 and high > z + SUMMED_DEVIATIONS * s:
        shift = price + (a - 1.0) / z
        mean = z + v * shift
        if mean > 0.5 * z and mean < 1.5 * z:
            total = (a - 1.0) * math.log(z) - math.lgamma(a) + price * z + 0.5 * v * shift * shift
            return mean, v, 0.0, total, max(mean + s * _normal_quantile(u), 0.0) if u >= 0.0 else mean
    first, second = _modes(a, z, v, price)
    least, most = (
        max(low, first - SUMMED_DEVIATIONS * s - 1.0),
        min(high, second + SUMMED_DEVIATIONS * s + 1.0),
    )
    if least > most:  # far outside: at the nearer end
        least, most = (max(low, high - 8.0 * s), high) if first > high else (low, min(high, low + 8.0 * s))
    i = max(int(np.searchsorted(counts, least)) - 1, 0)
    last = min(int(np.searchsorted(counts, most)) + 1, counts.size)
    while i < last - 1 and counts[i] < low:
        i += 1
    top = -math.inf
    for k in range(i, last):
        d = counts[k] - z
        top = max(top, prior[k] - 0.5 * d * d / v + price * counts[k])
    mass, one, two, three, zero = 0.0, 0.0, 0.0, 0.0, min(max(second, counts[i]), counts[last - 1])
    for k in range(i, last):
        t = counts[k]
        if t > high and mass > 0.0:
            break
        d = t - z
        p = math.exp(prior[k] - 0.5 * d * d / v + price * t - top)
        e = t - zero
        mass += p
        one += p * e
        two += p * e * e
        three += p * e * e * e
    one, two, three = one / mass, two / mass, three / mass
    mean = zero + one
    draw = mean
    if u >= 0.0:
        aim, run = u * mass, 0.0
        for k in range(i, last):
            t = counts[k]
            d = t - z
            p = math.exp(prior[k] - 0.5 * d * d / v + price * t - top)
            if run + p >= aim or k == last - 1:
                part = min(max((aim - run) / p, 0.0), 1.0) - 0.5 if p > 0.0 else 0.0
                draw = t + part * (weights[k] - 1.0)
                break
            run += p
        draw = min(max(draw, low), high)
    skew = three - 3.0 * one * two + 2.0 * one**3
    return min(max(mean, low), high), max(two - one * one, 0.0), skew, math.log(mass) + top, draw


@njit(cache=True)
def _normal_quantile(u):
    """Return a quantile of the standard normal law to three digits (Abramowitz and Stegun 26.2.23)."""
    u = min(max(u, 1e-12), 1.0 - 1e-12)
    q = min(u, 1.0 - u)
    t = math.sqrt(-2.0 * math.log(q))
    x = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (
        1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))
    )
    return -x if u < 0.5 else x


@njit(cache=True)
def _log_density_at_mean(variance, third):
    """Return the log density at its mean of a gamma law with given variance and third cumulant."""
    k = 4.0 * variance**3 / (third * third) if third != 0.0 else math.inf
    if k > 1e4:
        return -0.5 * math.log(variance)
    return (
        (k - 0.5) * math.log(k)
        - k
        + 0.5 * math.log(2.0 * math.pi)
        - math.lgamma(k)
        - 0.5 * math.log(variance)
    )


@njit(cache=True)
def _normal_evidence(x, z, v, a):
    """Return the log evidence of `a` for one parent, up to a constant, if its children were normal."""
    children = z.size
    factor = x / children * (x + children * a) / (1.0 + children * a)
    logs, squares, inverse, gap = 0.0, 0.0, 0.0, 0.0
    for c in range(children):
        d, r = v[c] + factor, z[c] - x / children
        logs += math.log(d)
        squares += r * r / d
        inverse += 1.0 / d
        gap += r / d
    left = 1.0 - factor / children * inverse
    return -0.5 * (logs + math.log(left) + squares + factor / children * gap * gap / left)


class Children(NamedTuple):
    """The children of all parents: estimates, variances and bounds, in the order of parents."""

    first: np.ndarray
    z: np.ndarray
    v: np.ndarray
    low: np.ndarray
    high: np.ndarray


class GridPrior(NamedTuple):
    """Grid points of counts, the number of counts of each point, and log prior masses at a concentration."""

    counts: np.ndarray
    weights: np.ndarray
    prior: np.ndarray


class ChildLaws(NamedTuple):
    """Means, variances and draws of the counts of children `(children,)`, written in place."""

    means: np.ndarray
    spreads: np.ndarray
    draws: np.ndarray


@njit(cache=True)
def write_laws(children_of, totals, a, points, prices, steps, u, beyond, laws):
    """Write the laws of all children given their parents' totals; return the log evidence of `a`.

    Parameters
    ----------
    children_of, points, laws
        `Children`, `GridPrior` and `ChildLaws`.
    prices
        `(parents,)` the multipliers, from which the search begins.
    u
        `(children,)` uniform numbers by which draws are made; empty for none.
    beyond
        Largest ratio of a count to its parent's total.
    """
    first, z, v, low, high = children_of
    counts, weights, prior = points
    means, spreads, draws = laws
    evidence = 0.0
    for p in range(first.size - 1):
        begin, end = first[p], first[p + 1]
        x, children = totals[p], end - begin
        if x <= 0.0 or children == 1:
            for c in range(begin, end):
                means[c] = draws[c] = x if children == 1 else 0.0
                spreads[c] = 0.0
            continue
        base = math.log(x / (x + children * a))  # of a law whose estimates say nothing
        variance, skew, logs, free = 0.0, 0.0, 0.0, 0
        for step in range(steps):
            total, variance, skew, logs, free = 0.0, 0.0, 0.0, 0.0, 0
            for c in range(begin, end):
                wide = min(v[c], (MAX_RELATIVE_SPREAD * x) ** 2)
                means[c], spreads[c], third, log, draws[c] = _child_law(
                    counts,
                    weights,
                    prior,
                    a,
                    z[c],
                    wide,
                    base + prices[p],
                    low[c],
                    min(high[c], beyond * x),
                    -1.0,
                )
                total += means[c]
                variance += spreads[c]
                skew += third
                logs += log
                free += low[c] < min(high[c], beyond * x)
            if variance <= 0.0 or abs(x - total) < MAX_MISS_DEVIATIONS * math.sqrt(variance):
                break
            if step < steps - 1:
                limit = 5.0 / max(math.sqrt(variance), 1.0)
                prices[p] += min(max((x - total) / variance, -limit), limit)
        if u.size:
            for c in range(begin, end):
                wide = min(v[c], (MAX_RELATIVE_SPREAD * x) ** 2)
                draws[c] = _child_law(
                    counts,
                    weights,
                    prior,
                    a,
                    z[c],
                    wide,
                    base + prices[p],
                    low[c],
                    min(high[c], beyond * x),
                    u[c],
                )[4]
        if variance > 0.0:
            evidence += logs - (base + prices[p]) * x + _log_density_at_mean(variance, skew)
            evidence += math.lgamma(free * a) - math.lgamma(x + free * a) + math.lgamma(x + 1.0)
    return evidence


@njit(cache=True)
def evidence(children_of, totals, a, counts, weights, prices):
    """Return the log evidence of the concentration `a`, summed over all parents."""
    first, z, v, low, high = children_of
    none, means, spreads, draws = np.empty(0), np.empty(z.size), np.empty(z.size), np.empty(z.size)
    total, prior = 0.0, log_prior(counts, weights, a)
    for p in range(first.size - 1):
        some = slice(first[p], first[p + 1])
        x = totals[p]
        if x > 0.0 and z[some].size > 1:
            if v[some].min() >= (WEAK * x) ** 2 and low[some].max() <= 0.0 and high[some].min() >= x:
                total += _normal_evidence(x, z[some], np.minimum(v[some], (MAX_RELATIVE_SPREAD * x) ** 2), a)
            else:
                total += write_laws(
                    Children(np.array([0, z[some].size]), z[some], v[some], low[some], high[some]),
                    totals[p : p + 1],
                    a,
                    GridPrior(counts, weights, prior),
                    prices[p : p + 1],
                    FIRST_STEPS,
                    none,
                    MAX_RELATIVE_TOTAL,
                    ChildLaws(means[some], spreads[some], draws[some]),
                )
    return total
