"""Factors of Dirichlet-multinomial splits at the points of grids, and their derivatives.

A node with parameter `alpha` among its siblings whose children sum to `A` has the factor

    Gamma(x + alpha) Gamma(A) / (Gamma(alpha) Gamma(x + A))

(`trueup.kernel.messages`); parts of two kinds have those of `trueup.kernel.messages.kinds`. Counts may be as large as
10^15, where differences of log-gammas lose all digits: Stirling's series is subtracted term by term.
"""

from __future__ import annotations

import math

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.messages import digamma, log_one_plus
from trueup.kernel.messages.kinds import divisors

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
    """Return the terms of Stirling's series that fall with z."""
    y = 1.0 / (z * z)
    return (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y / 1680))) / z


@njit(cache=True, _nrt=False)
def log_split(x, alpha, total):
    """Return the log factor of a count of 0 or more."""
    if x <= 0 or alpha == total:
        return 0.0
    return log_gamma_ratio(float(x), alpha, total) - log_gamma_ratio(0.0, alpha, total)


@njit(cache=True)
def add_splits(ptr, x, split, out):
    """Add the log factor of every node at its points.

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
    """Add the tables of every node (`trueup.kernel.messages.pmf.Factors`) at its points; counts beyond a table are impossible."""
    for v in range(len(factors.lower)):
        for row in range(factors.ptr[v], factors.ptr[v + 1]):
            first = factors.start[factors.table[row]]
            length = factors.start[factors.table[row] + 1] - first
            for k in range(ptr[v], ptr[v + 1]):
                at = x[k] - factors.base[row]
                out[k] += factors.log[first + at] if 0 <= at < length else -np.inf


@njit(cache=True)
def expected_slopes(ptr, x, p, split, free):
    """Return `(4, n)` posterior expectations of nodes with masses `p` at their points, as `Splits.scores` takes them.

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
