"""The events of noisy counts by which a multinomial mode was released, with bounds on their mass.

The derivation is in `trueup.kernel.released.exact`.
"""

# pyright: reportCallIssue=false
from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import InfeasibleError
from trueup.kernel.compiled import njit
from trueup.kernel.multinomial.mode import multinomial_mode
from trueup.kernel.released import Tables, Total, mass_between

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

_DROP = 40.0  # events this far (log mass) below the largest are left out, and counted


class Events(NamedTuple):
    """Events that lead to a released mode, each named by the part that got the last trial."""

    part: Integers
    count: Integers
    order: Integers
    tilt: Integers
    log_mass: Reals
    left_out: float


@njit(cache=True)
def log_choose(n, r):
    """Return the log of the number of ways to choose `r` of `n`."""
    return math.lgamma(n + 1.0) - math.lgamma(r + 1.0) - math.lgamma(n - r + 1.0)


@njit(cache=True, inline="always")
def interval(k, part, count, order, r):
    """Return the smallest and largest noisy count of part r: `k_r <= c a <= k_r + 1`, `c = k[part]/count`."""
    p = k[part]
    if r == part:
        return count, count
    low, high = k[r] * count, (k[r] + 1) * count
    if order == 2:  # who leaves is drawn among those that tie
        first = -(-low // p) if r < part else low // p + 1
        return (first if k[r] > 0 else 0), high // p
    passed = r < part if order == 0 else r > part
    if passed:  # has entered at c, and has not left
        return -(-low // p), -(-high // p) - 1
    first = low // p + 1 if k[r] > 0 else 0
    return first, high // p


@njit(cache=True)
def log_sum(tables, t, kind, k, low, high):
    """Return the log of the sum of tilted masses of noisy counts `low..high`, relative to `e^{tilt k}`."""
    mass = mass_between(tables, t, kind, low, high)
    return np.log(mass) + tables.tilt[t] * (low - k) if mass > 0 else -np.inf


@njit(cache=True)
def entering(k, least, most):
    """Return the first and last weight at which each part may get the last trial."""
    lowest, highest = 0.0, np.inf
    for r in range(k.size):
        lowest = max(lowest, k[r] / max(most[r], 1))
        if least[r] > 0:
            highest = min(highest, (k[r] + 1) / least[r])
    first, last = np.zeros(k.size, np.int64), np.full(k.size, -1)
    for s in range(k.size):
        if k[s] > 0:
            first[s] = max(least[s], math.ceil(k[s] / highest * (1 - 1e-12)), 1)
            last[s] = min(most[s], math.floor(k[s] / lowest * (1 + 1e-12)))
    return first, last


@njit(cache=True)
def enter_events(k, least, most):
    """Return all events with weights in `least..most`: the weights of each part, and the last part.

    Events are `(events, parts)`, in either order of ties in turn; count and weight of the part that enters are `(events, 2)`.
    """
    first, last = entering(k, least, most)
    events = 2 * np.maximum(last - first + 1, 0).sum()
    low, high = np.empty((events, k.size), np.int64), np.empty((events, k.size), np.int64)
    enter, e = np.empty((events, 2), np.int64), 0
    for s in range(k.size):
        for a in range(first[s], last[s] + 1):
            for order in range(2):
                for r in range(k.size):
                    low[e, r], high[e, r] = interval(k, s, a, order, r)
                enter[e, 0], enter[e, 1] = k[s], a
                e += 1
    return low, high, enter


@njit(cache=True)
def _log_event(k, tables, part, count, order, t):
    """Return the log of the tilted mass of an event."""
    out = 0.0
    for r in range(k.size):
        low, high = interval(k, part, count, order, r)
        if high < low:
            return -np.inf
        out += log_sum(tables, t, tables.kind[r], k[r], low, high)
        if out == -np.inf:
            return out
    return out


@njit(cache=True)
def _log_relaxed(k, tables, c, t):
    """Return an upper bound on the log tilted mass of all events with multiplier c."""
    out = 0.0
    for r in range(k.size):
        out += log_sum(tables, t, tables.kind[r], k[r], int(k[r] / c), int((k[r] + 1) / c) + 1)
    return out


@njit(cache=True)
def _least_tilt(k, tables, ceiling, part, count, order, t):
    """Return the tilt with the smallest bound on an event's mass, and this bound."""
    best = _log_event(k, tables, part, count, order, t) + ceiling[t]
    if best == -np.inf:
        return t, best
    for step in (1, -1):
        while 0 <= t + step < tables.tilt.size:
            bound = _log_event(k, tables, part, count, order, t + step) + ceiling[t + step]
            if bound >= best:
                break
            t, best = t + step, bound
    return t, best


@njit(cache=True)
def _event_bounds(k, tables, ceiling, part, count, order):
    """Return, for each event, the tilt with the smallest bound on its log mass, and this bound."""
    tilt, log_mass = np.empty(part.size, np.int64), np.empty(part.size)
    t = tables.tilt.size // 2
    for e in range(part.size):
        tilt[e], log_mass[e] = _least_tilt(k, tables, ceiling, part[e], count[e], order[e], t)
        if log_mass[e] > -np.inf:
            t = tilt[e]
    return tilt, log_mass


@njit(cache=True)
def _scan(k, tables, ceiling, multipliers):
    """Return approximate bounds on the log mass at given multipliers, each minimised over the tilt."""
    out = np.empty(multipliers.size)
    t = tables.tilt.size // 2
    for i in range(multipliers.size):
        out[i] = _log_relaxed(k, tables, multipliers[i], t) + ceiling[t]
        for step in (1, -1):
            while 0 <= t + step < tables.tilt.size:
                bound = _log_relaxed(k, tables, multipliers[i], t + step) + ceiling[t + step]
                if bound >= out[i]:
                    break
                t, out[i] = t + step, bound
    return out


@njit(cache=True)
def _ties_possible(k, part, count):
    """Return a mask of the events in which the entering part can tie with another part."""
    out = np.zeros(part.size, np.bool_)
    for e in range(part.size):
        p = k[part[e]]
        for r in range(k.size):
            if ((k[r] + 1) * count[e]) % p == 0:
                out[e] = True
                break
    return out


def find_events(
    k: Integers, tables: Tables, total: Total, reach: float, uniform: bool, shuffled: bool = False
) -> Events:
    """List the events that have most of the posterior mass, with their bounds.

    Parameters
    ----------
    k
        (n,) released counts, positive sum.
    tables, total
        Tilted masses of the parts, and the likelihood of the total.
    reach
        Largest distance of the noisy counts' sum from the released total (counts).
    uniform
        True if the total was split evenly over noisy counts that are all zero (else nothing was released).
    shuffled
        True if ties were resolved by a random order of the parts (else by their own order).

    Raises
    ------
    InfeasibleError
        No noisy counts can have produced `k`.
    """
    part, count, cut = _near_events(k, tables, total.ceiling, reach)
    order = 2 if shuffled else 0
    near = _core(k, tables, total.ceiling, part, count, order)
    cut = (cut[0] or near.start > 0, cut[1] or near.stop < part.size)
    part, count = part[near], count[near]
    tied = _ties_possible(k, part, count) & (not shuffled)
    parts, counts = np.concatenate([part, part[tied]]), np.concatenate([count, count[tied]])
    orders = np.repeat([order, 1], [part.size, tied.sum()])
    tilt, log_mass = _event_bounds(k, tables, total.ceiling, parts, counts, orders)
    if (chance := log_even(k, shuffled) if uniform else -np.inf) > -np.inf:
        t, bound = _all_zero(k, tables, total.ceiling)
        parts, counts = np.append(parts, -1), np.append(counts, 0)
        orders, tilt = np.append(orders, 0), np.append(tilt, t)
        log_mass = np.append(log_mass, bound + chance)
    possible = log_mass > -np.inf
    if not possible.any():
        raise _impossible()
    left_out = _left_out(log_mass[: part.size], cut, log_mass.max())
    return Events(*(x[possible] for x in (parts, counts, orders, tilt, log_mass)), left_out)


def log_even(k: Integers, shuffled: bool) -> float:
    """Return the log probability that `k` is the result of an even split of its total."""
    if not shuffled:
        return 0.0 if np.array_equal(multinomial_mode(np.ones_like(k), int(k.sum())), k) else -np.inf
    if k.max() - k.min() > 1:
        return -np.inf
    extra = int(k.sum()) % k.size
    return -log_choose(k.size, extra)


def _impossible() -> InfeasibleError:
    return InfeasibleError(
        "multinomial-mode cannot have released these counts under the given prior",
        needed="counts that multinomial-mode released, and a prior that allows them",
        remedy="give the method that released them, the laws of its noise, and a prior that allows such counts",
    )


def _left_out(log_mass: Reals, cut: tuple[bool, bool], top: float) -> float:
    """Return an estimate of the share of events left out at both ends, from the events near them.

    Bounds fall off at either end at least as fast as they do over the last twentieth.
    """
    near = max(log_mass.size // 20, 1)
    ends = (log_mass[:near], log_mass[log_mass.size - near :])
    return float(sum(np.exp(end - top).sum() for end, is_cut in zip(ends, cut) if is_cut))


def _near_events(
    k: Integers, tables: Tables, ceiling: Reals, reach: float
) -> tuple[Integers, Integers, tuple[bool, bool]]:
    """Return the events with multipliers near the mode, in order, and which ends were cut off."""
    m, cells = float(k.sum()), k.size
    highest = float((k[k > 0] + 1).min())
    low, high = m / (m + cells + reach), min((m + cells) / max(m - reach, 1.0), highest)
    grid = np.geomspace(low, high, 201)
    bound = _scan(k, tables, ceiling, grid)
    near = np.flatnonzero(bound > bound.max() - _DROP - np.sqrt(cells))
    if not near.size:
        raise _impossible()
    low, high = grid[max(near[0] - 1, 0)], grid[min(near[-1] + 1, grid.size - 1)]
    active = np.flatnonzero(k > 0)
    first = np.maximum(np.ceil(k[active] / high), 1).astype(np.int64)
    sizes = np.maximum(np.floor(k[active] / low).astype(np.int64) - first + 1, 0)
    part = np.repeat(active, sizes)
    count = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(first, sizes)
    by_multiplier = np.argsort(k[part] / count, kind="stable")
    return part[by_multiplier], count[by_multiplier], (True, bool(high < highest))


def _core(k: Integers, tables: Tables, ceiling: Reals, part: Integers, count: Integers, order: int) -> slice:
    """Return the slice of the events with relevant mass, found from bounds of a few hundred of them."""
    some = np.unique(np.linspace(0, part.size - 1, 400).astype(np.int64))
    _, bound = _event_bounds(k, tables, ceiling, part[some], count[some], np.full_like(some, order))
    near = np.flatnonzero(bound > bound.max() - _DROP)
    if some.size < 400 or not np.isfinite(bound).any():
        return slice(0, part.size)
    return slice(int(some[max(near[0] - 1, 0)]), int(some[min(near[-1] + 1, some.size - 1)]) + 1)


def _all_zero(k: Integers, tables: Tables, ceiling: Reals) -> tuple[int, float]:
    """Return the tilt that best bounds the log mass of no positive noisy count, and the bound."""
    bounds = [
        np.log(tables.total[t, tables.kind, 0]).sum() - tables.tilt[t] * k.sum() + ceiling[t]
        for t in range(tables.tilt.size)
    ]
    return int(np.argmin(bounds)), float(min(bounds))
