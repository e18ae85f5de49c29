"""Tilts that bring every message of a tree to where the posterior is.

Multiplying each leaf's factor by `exp(s_i x_i)` and each inner node's by `exp(-lambda_a x_a)`, with
`s_i` the sum of `lambda_a` over the ancestors of `i`, changes nothing: a node is the sum of its
leaves. It changes where the messages live. Sums of parts that cannot be negative sit above a
precise total, often by many standard deviations; untilted windows would have to reach that far
into their tails, and below 1e-308. The best tilt minimises

    Phi(lambda) = sum_leaves log M_i(s_i) + sum_inner log M_a(-lambda_a),

M the moment generating function of a factor: convex, an upper bound on the log evidence, and the
saddlepoint of the sum. A Newton step is a least-squares problem on the tree, solved exactly by one
sweep up and one down. Any tilt gives the same posterior, so a few damped steps are enough.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from trueup.kernel.messages.pmf import log_factor, moments, uniform_moments

WIDEST_TABLE = 1 << 16
PIECE = 1 << 22
"""Entries of tables after which compiled code returns to Python: some tenths of a second."""


@njit(cache=True)
def bounds(child_ptr, lower, upper):
    """Return the windows that additivity leaves of `lower`, `upper`, in two sweeps.

    A window that comes out empty (low > high) shows that no counts fit.
    """
    low, high = lower.copy(), upper.copy()
    n = len(low)
    for v in range(n - 1, -1, -1):
        first, last = child_ptr[v], child_ptr[v + 1]
        if first < last:
            low[v] = max(low[v], _total(low, first, last))
            high[v] = min(high[v], _total(high, first, last))
    for v in range(n):
        first, last = child_ptr[v], child_ptr[v + 1]
        _tighten(low, high, v, first, last)
    return low, high


@njit(cache=True)
def _total(values, first, last):
    """Sum bounds; anything past `OPEN` is open."""
    total = 0
    for c in range(first, last):
        total += values[c]
        if abs(values[c]) >= np.int64(1) << 60:
            return values[c]
    return total


@njit(cache=True)
def _tighten(low, high, v, first, last):
    """Bound each child by its parent's bound less the other children's opposite bounds."""
    floor, ceiling, open_floor, open_ceiling = 0, 0, 0, 0
    wide = np.int64(1) << 60
    for c in range(first, last):
        open_floor += low[c] <= -wide
        open_ceiling += high[c] >= wide
        floor += low[c] if low[c] > -wide else 0
        ceiling += high[c] if high[c] < wide else 0
    for c in range(first, last):
        old_low, old_high = low[c], high[c]
        if open_floor - (old_low <= -wide) == 0 and high[v] < wide:
            others = floor - (old_low if old_low > -wide else 0)
            high[c] = min(old_high, high[v] - others)
        if open_ceiling - (old_high >= wide) == 0 and low[v] > -wide:
            others = ceiling - (old_high if old_high < wide else 0)
            low[c] = max(old_low, low[v] - others)


@njit(cache=True)
def factor_moments(factors, v, low, high, slope):
    """Return log sum, maximum, mean and variance of a node's tilted factor on `low..high`."""
    if factors.ptr[v] == factors.ptr[v + 1] and high - low > WIDEST_TABLE:
        return uniform_moments(slope, low, high)
    log_sum, top, mean, variance = moments(log_factor(factors, v, low, high - low + 1, slope))
    return log_sum, top, low + mean, variance


@njit(cache=True)
def has_factor(child_ptr, factors):
    """Mark the inner nodes that carry a factor of their own."""
    wide = np.int64(1) << 60
    inner = child_ptr[1:] > child_ptr[:-1]
    measured = factors.ptr[1:] > factors.ptr[:-1]
    return inner & (measured | (factors.lower > -wide) | (factors.upper < wide))


@njit(cache=True)
def _evaluate(child_ptr, factors, informs, low, high, tau, parent_tau, mean, variance, top, begin, end):
    """Fill moments and maxima of the tilted factors of nodes `begin..end - 1`; return their part of Phi."""
    phi = 0.0
    for v in range(begin, end):
        first, last = child_ptr[v], child_ptr[v + 1]
        slope = parent_tau[v] if first == last else parent_tau[v] - tau[v]
        if first == last or informs[v]:
            log_sum, top[v], mean[v], variance[v] = factor_moments(factors, v, low[v], high[v], slope)
            phi += log_sum
    return phi


@njit(cache=True)
def _inherit(child_ptr, tau):
    """Return, for each node, the tilt of its parent (0 for the root)."""
    parent_tau = np.zeros(len(tau))
    for v in range(len(tau)):
        for c in range(child_ptr[v], child_ptr[v + 1]):
            parent_tau[c] = tau[v]
    return parent_tau


@njit(cache=True)
def _newton(child_ptr, informs, tau, parent_tau, mean, variance):
    """Solve the tree's least-squares problem for the tilt below every inner node."""
    n = len(tau)
    value, spread = mean.copy(), variance.copy()
    below_mean, below_var, widest = np.zeros(n), np.zeros(n), np.zeros(n)
    for v in range(n - 1, -1, -1):
        first, last = child_ptr[v], child_ptr[v + 1]
        if first == last:
            value[v] = mean[v] - variance[v] * parent_tau[v]
            continue
        for c in range(first, last):
            below_mean[v] += value[c]
            below_var[v] += spread[c]
            widest[v] = max(widest[v], spread[c])
        if informs[v]:
            own = mean[v] + variance[v] * (tau[v] - parent_tau[v])
            weight = below_var[v] / max(below_var[v] + variance[v], 1e-300)
            value[v] = below_mean[v] + weight * (own - below_mean[v])
            spread[v] = weight * variance[v]
        else:
            value[v], spread[v] = below_mean[v], below_var[v]
    fresh, parent = np.zeros(n), np.zeros(n)
    for v in range(n):
        # the estimate of v given everything is value + spread * (tilt from above)
        estimate = value[v] + spread[v] * parent[v]
        informed = informs[v] and below_var[v] > 1e-9
        fresh[v] = (estimate - below_mean[v]) / below_var[v] if informed else parent[v]
        if informed:
            # A tilt by more than one standard deviation of a part leaves the range where the model holds: among many
            # nodes a few such steps would shorten the step of all.
            reach = 1.0 / np.sqrt(widest[v])
            fresh[v] = min(max(fresh[v], tau[v] - reach), tau[v] + reach)
        for c in range(child_ptr[v], child_ptr[v + 1]):
            parent[c] = fresh[v]
    return fresh


def find_tilts(child_ptr, factors, low, high, steps):
    """Return each node's tilt below it and above it, and the maxima of the tilted log factors.

    A tree of much work is worked on in pieces between which Python can be interrupted.
    """
    work = np.cumsum(np.minimum((high - low + 1).astype(float), WIDEST_TABLE))
    cuts = np.flatnonzero(np.diff(work // PIECE)) + 1
    edges = np.concatenate([[0], cuts, [len(low)]]).astype(np.int64)
    if len(edges) == 2:
        return _find_tilts(child_ptr, factors, low, high, steps, edges)
    # The same function as Python runs it: it comes back from each compiled piece.
    return _find_tilts.py_func(child_ptr, factors, low, high, steps, edges)


@njit(cache=True)
def _find_tilts(child_ptr, factors, low, high, steps, edges):
    """Damped Newton steps on the convex Phi of the module's note, from no tilt at all."""
    n = len(low)
    informs = has_factor(child_ptr, factors)
    tau, parent_tau, step = np.zeros(n), np.zeros(n), np.zeros(n)
    mean, variance, top = np.zeros(n), np.zeros(n), np.zeros(n)
    phi, size, taken, last = np.inf, 1.0, 0, False
    while True:
        trial = tau + size * step
        above = _inherit(child_ptr, trial)
        fresh = 0.0
        for k in range(len(edges) - 1):
            part = (mean, variance, top, edges[k], edges[k + 1])
            fresh += _evaluate(child_ptr, factors, informs, low, high, trial, above, *part)
        if last:
            break
        if fresh <= phi:
            gained = phi - fresh
            tau, parent_tau, phi = trial, above, fresh
            if gained < 0.05 or taken == steps:
                break
            step, size = _newton(child_ptr, informs, tau, parent_tau, mean, variance) - tau, 1.0
            taken += 1
        else:
            size *= 0.5
            if (
                size < 1e-9
            ):  # no step gains anything: what was filled in belongs to the last trial, so once more
                size, last = 0.0, True
    return tau, parent_tau, top
