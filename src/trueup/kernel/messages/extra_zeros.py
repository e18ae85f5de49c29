"""Splits whose parts are zero more often than a Dirichlet-multinomial law says: their divisor, and its derivatives.

Each of the `k` parts of a node has the factor `f(x) = w(x; a) + q 1{x = 0}` in place of `w(x; a)` of the note in
`trueup.kernel.messages.splits`: given the parts that are zero by the second term, which has odds `q`, the others are
Dirichlet-multinomial. Their sum `t` is divided by

    Z(t) = sum_j C(k, j) q^(k - j) w(t; j a)        (j parts are not zero by the second term; w(t; 0) = 1{t = 0})

in place of `w(t; k a)`. The ratio `w(t; k a) / Z(t)` is a factor of the node, at most 1, and tends to 1: a table on the
node's window. With `p_j` the share of a term in `Z(t)`, the derivatives by the logs of `q` and `a` are

    sum_j p_j (k - j)        and        sum_j p_j j a (psi(t + j a) - psi(j a)).

From one count to the next the terms, as multiples of `w(t; k a)`, change by `(t + j a) / (t + k a)`: sums over runs of
counts need no logarithm but where a run begins.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.messages.pmf import FALLING, Factors
from trueup.kernel.messages.splits import digamma, log_one_plus, log_ratio

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
NEGLIGIBLE = 45.0
"""Nats below the largest term at which terms are left out."""
DRIFT = 300.0
"""Nats by which terms may move against each other within a run."""


@njit(cache=True)
def divisors(k, a, log_odds, low, size, derived):
    """Return, at the counts `low, low + 1, ...`, the log of `Z(t) / w(t; k a)` and, where `derived`, its derivatives.

    Parameters
    ----------
    k, a, log_odds
        Number of parts, their parameter, and the log of `q`.
    low, size
        Counts from 0 on.
    derived
        Whether the derivatives by the logs of `q` and of `a` are wanted: of `Z(t)` itself.

    Returns
    -------
    values
        `(3, size)`; zeros where they are not wanted.

    Examples
    --------
    Two parts of which none is split, `a = 1`, `q = 1`: `Z(3) = 2 + 4`, `w(3; 2) = 4`.

    >>> float(np.exp(divisors(2, 1.0, 0.0, 3, 1, False)[0, 0]).round(12))
    1.5
    """
    out = np.zeros((3, size))
    at = 0
    if low == 0 and size > 0:
        out[0, 0] = k * log_one_plus(log_odds)
        out[1, 0] = k * math.exp(log_odds - log_one_plus(log_odds))
        at = 1
    while at < size:
        at += _run(k, a, log_odds, low + at, out[:, at:], derived)
    return out


@njit(cache=True)
def _run(k, a, log_odds, count, out, derived):
    """Work out as many counts, from `count` of 1 or more on, as one scale of the terms serves; return how many."""
    total = k * a
    step = math.log((count + total) / (count + a))
    length = min(out.shape[1], max(1, np.int64(DRIFT / max(step, 1e-6))))
    logs = _log_terms(k, a, log_odds, count)
    top = logs.max()
    first, last = 0, k
    while logs[first] < top - NEGLIGIBLE:
        first += 1
    while logs[last - 1] < top - NEGLIGIBLE - length * step:
        last -= 1
    terms = np.exp(logs[first:last] - top)
    own = a * np.arange(first + 1, last + 1)
    rises = np.zeros(len(own))
    if derived:
        for j in range(len(own)):
            rises[j] = digamma(count + own[j]) - digamma(own[j])
    for i in range(length):
        whole = terms.sum()
        out[0, i] = top + math.log(whole)
        t = count + i
        if derived:
            empty = slope = 0.0
            for j in range(len(terms)):
                empty += terms[j] * (k - first - 1 - j)
                slope += terms[j] * own[j] * rises[j]
                rises[j] += 1.0 / (t + own[j])
            out[1, i], out[2, i] = empty / whole, slope / whole
        inverse = 1.0 / (t + total)
        for j in range(len(terms)):
            terms[j] *= (t + own[j]) * inverse
    return length


@njit(cache=True)
def _log_terms(k, a, log_odds, count):
    """Return the logs of the terms of `1, ..., k` parts that are not zero by the second term, over `w(count; k a)`."""
    logs = np.empty(k)
    choose = 0.0
    for j in range(k, 0, -1):
        logs[j - 1] = choose + (k - j) * log_odds + log_ratio(count, j * a, k * a)
        choose += math.log(j / (k - j + 1.0))
    return logs


def with_divisors(factors: Factors, low: Integers, high: Integers) -> Factors:
    """Return the factors with a further table of each node whose parts have extra zeros, on its window `low..high`.

    Nodes with equally many parts whose windows overlap share one.
    """
    nodes = np.flatnonzero((factors.parts > 0) & (low <= high))
    if not len(nodes):
        return factors
    nodes = nodes[np.lexsort((low[nodes], factors.parts[nodes]))]
    run, first, last = _overlapping(factors.parts[nodes], low[nodes], high[nodes])
    one = nodes[np.unique(run, return_index=True)[1]]
    logs = [
        -divisors(factors.parts[v], factors.total[v] / factors.parts[v], factors.zeros[v], a, b - a + 1, False)[0]
        for v, a, b in zip(one, first, last)
    ]  # fmt: skip
    rows = np.append(np.repeat(np.arange(len(low)), np.diff(factors.ptr)), nodes)
    order = np.argsort(rows, kind="stable")
    return factors._replace(
        ptr=np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(low)))]),
        base=np.append(factors.base, first[run])[order],
        table=np.append(factors.table, len(factors.open_ended) + run)[order],
        start=np.append(factors.start, factors.start[-1] + np.cumsum(last - first + 1)),
        log=np.concatenate([factors.log, *logs]),
        open_ended=np.append(factors.open_ended, np.full(len(one), FALLING)),
    )


@njit(cache=True)
def _overlapping(parts, low, high):
    """Return, of windows in order of parts and lower ends, which run of overlapping ones each is in, and the runs' ends."""
    run = np.zeros(len(low), np.int64)
    first, last = low[:1].copy(), high[:1].copy()
    for i in range(1, len(low)):
        run[i] = run[i - 1]
        if parts[i] != parts[i - 1] or low[i] > last[-1] + 1:
            run[i] += 1
            first, last = np.append(first, low[i]), np.append(last, high[i])
        last[-1] = max(last[-1], high[i])
    return run, first, last


@njit(cache=True)
def mean_zeros(start, offset, masses, factors):
    """Return, for every node, posterior means of derivatives of its factor, if it has extra zeros or parts with such.

    Returns
    -------
    zeros
        (n,) by the log of `q`: of a part's factor, and minus that of the divisor of a sum of such parts.
    rises
        (n,) of the log of a sum's divisor by the log of `a`, over `total`; NaN of other nodes.
    """
    zeros, rises = np.zeros(len(offset)), np.full(len(offset), np.nan)
    for v in range(len(offset)):
        own = masses[start[v] : start[v + 1]]
        if factors.parts[v] > 0:
            k, total = factors.parts[v], factors.total[v]
            found = divisors(k, total / k, factors.zeros[v], offset[v], len(own), True)
            zeros[v], rises[v] = -(found[1] * own).sum(), (found[2] * own).sum() / total
        elif factors.zeros[v] > -np.inf and offset[v] == 0:
            zeros[v] = own[0] * math.exp(factors.zeros[v] - log_one_plus(factors.zeros[v]))
    return zeros, rises
