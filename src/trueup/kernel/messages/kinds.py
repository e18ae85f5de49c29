"""Splits with two kinds of parts, such as inhabited and uninhabited blocks: normalising factors and derivatives.

Each of the `k` parts of a node has the factor `f(x) = w(x; a) + q w(x; b)`, `b < a`, in place of `w(x; a)` of the note in
`trueup.kernel.messages`: `q` are the odds of the second kind, and given which parts are of it all are
Dirichlet-multinomial. As `b` tends to 0, parts of the second kind are zero. The sum `t` of the parts is divided by

    Z(t) = sum_j C(k, j) q^(k - j) w(t; A_j),        A_j = j a + (k - j) b        (j parts are of the first kind)

in place of `w(t; k a)`. The ratio `w(t; k a) / Z(t)` is a factor of the node, at most 1, and tends to 1: a table on the
node's window. With `p_j` the share of a term in `Z(t)`, the derivatives by the logs of `q`, `a` and `b` are

    sum_j p_j (k - j),   sum_j p_j j a (psi(t + A_j) - psi(A_j)),   sum_j p_j (k - j) b (psi(t + A_j) - psi(A_j)).

From one count to the next the terms, as multiples of `w(t; k a)`, change by `(t + A_j) / (t + k a)`: sums over runs of
counts need no logarithm but where a run begins.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.messages import digamma, log_one_plus, log_ratio
from trueup.kernel.messages.pmf import FALLING, Factors

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
NEGLIGIBLE_NATS = 45.0
"""Nats below the largest term at which terms are left out."""
DRIFT = 300.0
"""Nats by which terms may move against each other within a run."""


@njit(cache=True)
def divisors(k, a, b, log_odds, low, size, derived):
    """Return logs of the normalising factors `Z(t) / w(t; k a)` and, if `derived`, their derivatives.

    Parameters
    ----------
    k, a, b, log_odds
        Number of parts, their parameters, and the log of `q`.
    low, size
        Counts from 0 on.
    derived
        True to compute the derivatives by the logs of `q`, `a` and `b`.

    Returns
    -------
    values
        `(4, size)`; zeros where they are not wanted.

    Examples
    --------
    Two parts, next to nothing in one of the second kind, `a = 1`, `q = 1`: `Z(3) = 2 + 4`, `w(3; 2) = 4`.

    >>> float(np.exp(divisors(2, 1.0, 1e-15, 0.0, 3, 1, False)[0, 0]).round(12))
    1.5
    """
    out = np.zeros((4, size))
    at = 0
    if low == 0 and size > 0:
        out[0, 0] = k * log_one_plus(log_odds)
        out[1, 0] = k * math.exp(log_odds - log_one_plus(log_odds))
        at = 1
    while at < size:
        at += _run(k, a, b, log_odds, low + at, out[:, at:], derived)
    return out


@njit(cache=True)
def _run(k, a, b, log_odds, count, out, derived):
    """Compute normalising factors from `count` on until they need another scale; return how many."""
    total = k * a
    step = math.log((count + total) / (count + k * b))
    length = min(out.shape[1], max(1, np.int64(DRIFT / max(step, 1e-6))))
    logs = _log_terms(k, a, b, log_odds, count)
    top = logs.max()
    first, last = 0, k + 1
    while logs[first] < top - NEGLIGIBLE_NATS:
        first += 1
    while logs[last - 1] < top - NEGLIGIBLE_NATS - length * step:
        last -= 1
    terms = np.exp(logs[first:last] - top)
    own = np.arange(first, last) * a + np.arange(k - first, k - last, -1) * b
    rises = np.zeros(len(own))
    if derived:
        for j in range(len(own)):
            rises[j] = digamma(count + own[j]) - digamma(own[j])
    for i in range(length):
        whole = terms.sum()
        out[0, i] = top + math.log(whole)
        t = count + i
        if derived:
            seconds = by_a = by_b = 0.0
            for j in range(len(terms)):
                seconds += terms[j] * (k - first - j)
                by_a += terms[j] * (first + j) * rises[j]
                by_b += terms[j] * (k - first - j) * rises[j]
                rises[j] += 1.0 / (t + own[j])
            out[1, i], out[2, i], out[3, i] = seconds / whole, by_a * a / whole, by_b * b / whole
        inverse = 1.0 / (t + total)
        for j in range(len(terms)):
            terms[j] *= (t + own[j]) * inverse
    return length


@njit(cache=True)
def _log_terms(k, a, b, log_odds, count):
    """Return the logs of the terms of `Z / w(count; k a)`, by the number of parts of the first kind."""
    logs = np.empty(k + 1)
    choose = 0.0
    for j in range(k, -1, -1):
        logs[j] = choose + (k - j) * log_odds + log_ratio(count, j * a + (k - j) * b, k * a)
        choose += math.log(j / (k - j + 1.0)) if j > 0 else 0.0
    return logs


def with_divisors(factors: Factors, low: Integers, high: Integers) -> Factors:
    """Return factors with one more table for each node whose parts are of two kinds.

    Nodes with equally many parts whose windows overlap share one.
    """
    nodes = np.flatnonzero((factors.parts > 0) & (low <= high))
    if not len(nodes):
        return factors
    nodes = nodes[np.lexsort((low[nodes], factors.parts[nodes]))]
    run, first, last = _overlapping(factors.parts[nodes], low[nodes], high[nodes])
    one = nodes[np.unique(run, return_index=True)[1]]
    logs = [
        -divisors(*kinds(factors, v), low, high - low + 1, False)[0] for v, low, high in zip(one, first, last)
    ]
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
    """Return the number of the merged window that contains each window, and the merged windows."""
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
def kinds(factors, v):
    """Return the number of a node's parts, the parameters of both kinds, and the log odds of the second."""
    k = factors.parts[v]
    return k, factors.total[v] / k, factors.second[v], factors.odds[v]


@njit(cache=True)
def mean_slopes(start, offset, masses, factors):
    """Return posterior means `(3, n)` of the derivatives of every node's factor by the logs of `q`, `a` and `b`."""
    out = np.zeros((3, len(offset)))
    for v in range(len(offset)):
        own = masses[start[v] : start[v + 1]]
        if factors.parts[v] > 0:
            found = divisors(*kinds(factors, v), offset[v], len(own), True)
            for i in range(3):
                out[i, v] = -(found[i + 1] * own).sum()
        elif factors.odds[v] > -np.inf:
            out[:, v] = _slopes_of_part(own, offset[v], factors.alpha[v], factors.second[v], factors.odds[v])
    return out


@njit(cache=True)
def _slopes_of_part(masses, offset, a, b, log_odds):
    """Return the posterior means of the derivatives of a part's log weight, `log(w(x; a) + q w(x; b))`."""
    out = np.zeros(3)
    log = log_odds + log_ratio(offset, b, a)
    by_a, by_b = digamma(offset + a) - digamma(a), digamma(offset + b) - digamma(b)
    if offset == 0:
        by_a = by_b = 0.0
    for i in range(len(masses)):
        second = math.exp(log - log_one_plus(log))
        out[0] += masses[i] * second
        out[1] += masses[i] * (1.0 - second) * a * by_a
        out[2] += masses[i] * second * b * by_b
        x = offset + i
        by_a += 1.0 / (x + a)
        by_b += 1.0 / (x + b)
        log += math.log((x + b) / (x + a))
    return out
