"""Inputs of grids: an approximate posterior of the counts, and the factors of splits at grid points.

*Rough posterior* of a tree's counts before any grid: least squares up, then nonnegative counts down.

*Factors of Dirichlet-multinomial splits* at the points of grids, and their derivatives.
A node with parameter `alpha` among its siblings whose children sum to `A` has the factor

    Gamma(x + alpha) Gamma(A) / (Gamma(alpha) Gamma(x + A))

(`trueup.kernel.messages`); parts of two kinds have those of `trueup.kernel.messages.kinds`. Counts may be as large as
10^15, where differences of log-gammas lose all digits: Stirling's series is subtracted term by term.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.messages import digamma, log_one_plus
from trueup.kernel.messages.kinds import divisors
from trueup.kernel.tree import sweep_up

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

NODES = 96
"""Points of the quadrature of one count."""
SHARES = 3
"""Rounds of sharing out what a sum lacks: parts that would fall below 0 leave the rest to the others."""
MAX_INTEGRATED_MEAN = 40.0
"""Prior means and standard deviations up to which a count is integrated over."""


def rough_posterior(
    child_ptr: Integers, variance: Reals, values: Reals, gain: Reals, spread: Reals
) -> tuple[Reals, Reals]:
    """Return rough posterior means and standard deviations of all nodes.

    Given its parent's, a count has a gamma law with the mean and the variance of a uniform split (concentration 1), times a
    normal law for what its own subtree's values say of it.

    Parameters
    ----------
    variance, values
        `(n,)` of measurements: 0 exact, infinite unmeasured.
    gain, spread
        `trueup.kernel.tree.messages`.
    """
    below = np.where(np.isfinite(values), values, 0.0)
    sweep_up(child_ptr, gain, below)
    return _down(child_ptr, below, spread)


@njit(cache=True)
def _down(child_ptr, below, spread):
    middle, width = np.zeros(len(below)), np.zeros(len(below))
    middle[0], width[0] = _mean_and_sd(below[0], spread[0], np.inf, np.inf)
    for v in range(len(child_ptr) - 1):
        children = child_ptr[v + 1] - child_ptr[v]
        for c in range(child_ptr[v], child_ptr[v + 1]):
            total = max(middle[v], 0.5)
            mean = total / children
            split = mean * (1.0 - 1.0 / children) * (total + children) / (1.0 + children)
            prior = split + (width[v] / children) ** 2
            middle[c], width[c] = _mean_and_sd(below[c], spread[c], mean, np.sqrt(prior))
        if children > 0:
            _add_up(
                middle[child_ptr[v] : child_ptr[v + 1]],
                width[child_ptr[v] : child_ptr[v + 1]],
                middle[v],
                width[v],
            )
    return middle, width


@njit(cache=True)
def _add_up(middle, width, total, doubt):
    """Move the means of parts so that they sum to the total, in proportion to their variances, none below 0."""
    for _ in range(SHARES):
        lacks = total - middle.sum()
        free = 0.0
        for c in range(len(middle)):
            free += width[c] ** 2 if middle[c] > 0.0 or lacks > 0.0 else 0.0
        if not free > 0.0:
            return
        gain = lacks / (free + doubt**2)
        for c in range(len(middle)):
            if middle[c] > 0.0 or lacks > 0.0:
                middle[c] = max(middle[c] + gain * width[c] ** 2, 0.0)


@njit(cache=True)
def _mean_and_sd(value, variance, mean, sd):
    """Return mean and standard deviation of a gamma-distributed count given a value with normal noise."""
    if variance == 0.0:
        return value, 0.0
    if mean == np.inf or sd == np.inf:
        return max(value, 0.0), np.sqrt(variance)
    noise = np.sqrt(variance)
    if noise == np.inf or sd == 0.0:
        return mean, sd
    low = max(0.0, value - 8.0 * noise)
    high = value + 8.0 * noise
    if low > mean + MAX_INTEGRATED_MEAN * sd or high <= low:
        return max(value, 0.0), noise
    high = max(min(high, mean + MAX_INTEGRATED_MEAN * sd), low + 1.0)
    shape, rate = (mean / sd) ** 2, mean / sd**2
    x, logs = np.empty(NODES), np.empty(NODES)
    for k in range(NODES):  # closer together near the lower end, where the gamma law may have its mass
        x[k] = low + (high - low) * ((k + 0.5) / NODES) ** 2
        logs[k] = (shape - 1.0) * np.log(x[k] + 0.5) - rate * x[k] - 0.5 * ((x[k] - value) / noise) ** 2
        logs[k] += np.log((k + 0.5) / NODES)
    p = np.exp(logs - logs.max())
    p /= p.sum()
    found = (p * x).sum()
    return found, np.sqrt((p * (x - found) ** 2).sum()) + 0.1 * min(noise, sd)


MIN_STIRLING_ARGUMENT = 32.0
"""Argument from which on four terms of Stirling's series are exact to rounding."""


@njit(cache=True, _nrt=False)
def log_gamma_ratio(x, a, b):
    """Return `log Gamma(x + a) - log Gamma(x + b)` for `x + a`, `x + b` above 0."""
    value, low = 0.0, min(a, b)
    while x + low < MIN_STIRLING_ARGUMENT:
        value -= math.log((x + a) / (x + b))
        x += 1.0
    y, z = x + a, x + b
    more = a - b
    value += (y - 0.5) * math.log1p(more / z) + more * (math.log(z) - 1.0)
    return value + _stirling(y) - _stirling(z)


@njit(cache=True, _nrt=False)
def _stirling(z):
    """Return the terms of Stirling's series that vanish as z grows."""
    y = 1.0 / (z * z)
    return (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y / 1680))) / z


@njit(cache=True, _nrt=False)
def log_split(x, alpha, total):
    """Return the log factor that the split of a node's count among its parts gives the count x, 0 or more."""
    if x <= 0 or alpha == total:
        return 0.0
    return log_gamma_ratio(float(x), alpha, total) - log_gamma_ratio(0.0, alpha, total)


@njit(cache=True)
def add_splits(ptr, x, split, out):
    """Add the log factor of every node's split among its parts, at the node's grid points.

    Parameters
    ----------
    ptr, x
        Points of node `v` are `x[ptr[v]:ptr[v + 1]]`.
    split
        The fields `trueup.kernel.messages.pmf.SPLIT` of the first nodes; sums of some of a node's parts, the others, have none.
    """
    alpha, total, second, odds, parts = split
    for v in range(min(len(alpha), len(ptr) - 1)):
        for k in range(ptr[v], ptr[v + 1]):
            out[k] += log_split(x[k], alpha[v], total[v])
            if parts[v] > 0:
                out[k] -= divisors(parts[v], total[v] / parts[v], second[v], odds[v], x[k], 1, False)[0, 0]
            elif odds[v] > -np.inf:
                out[k] += log_one_plus(odds[v] + log_split(x[k], second[v], alpha[v]))


@njit(cache=True)
def add_tables(ptr, x, factors, out):
    """Add the log values of each node's tables at its grid points, minus infinity beyond a table."""
    for v in range(len(factors.lower)):
        for row in range(factors.ptr[v], factors.ptr[v + 1]):
            first = factors.start[factors.table[row]]
            length = factors.start[factors.table[row] + 1] - first
            for k in range(ptr[v], ptr[v + 1]):
                at = x[k] - factors.base[row]
                out[k] += factors.log[first + at] if 0 <= at < length else -np.inf


@njit(cache=True)
def expected_slopes(ptr, x, p, split, free):
    """Return posterior means `(4, n)` of the derivatives of each node's split, given masses at grid points.

    `free` marks nodes whose count may be other than zero: of others all are 0.
    """
    alpha, total, second, odds, parts = split
    out = np.zeros((4, len(alpha)))
    for v in range(len(alpha)):
        if not free[v]:
            continue
        base, whole = digamma(alpha[v]), digamma(total[v])
        for k in range(ptr[v], ptr[v + 1]):
            mass, count = p[k], float(x[k])
            if mass < 1e-14:
                continue
            if parts[v] > 0:
                found = divisors(parts[v], total[v] / parts[v], second[v], odds[v], x[k], 1, True)[:, 0]
                out[1, v] += mass * found[2] / total[v]
                out[2, v] -= mass * found[1]
                out[3, v] -= mass * found[3]
            else:
                out[1, v] += mass * (digamma(count + total[v]) - whole)
            rise = digamma(count + alpha[v]) - base
            if parts[v] == 0 and odds[v] > -np.inf:
                log = odds[v] + log_split(x[k], second[v], alpha[v])
                share = math.exp(log - log_one_plus(log))
                out[0, v] += mass * (1.0 - share) * rise
                out[2, v] += mass * share
                out[3, v] += mass * share * second[v] * (digamma(count + second[v]) - digamma(second[v]))
            else:
                out[0, v] += mass * rise
    return out
