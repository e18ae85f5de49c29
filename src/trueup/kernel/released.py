"""Exact posterior draws of true counts when only a multinomial mode of noisy ones was released.

Parts have true counts N_s and noisy counts n_s = N_s + noise; a_s = max(n_s, 0); `k` is the mode of
Multinomial(m, a / sum a) and the only thing published (Wang & Reiter 2021, section 4).

**Events.** `k` is a mode iff there is a multiplier c with `k_s <= c a_s <= k_s + 1` for all s. The
smallest such c of a vector `a` is `max k_s / a_s`: the last part to *enter*. So the vectors split
by their enter event (s, a_s), and given the event the others lie in intervals, independently:
one term per event, all positive, nothing counted twice. Ties are broken as Finucan's algorithm
does (see `trueup.kernel.apportion`) by moving equal multipliers apart in the order of the index,
upwards where trials are added (order 0), downwards where they are removed (order 1). A vector
without ties is an event of both orders and is kept in order 0; a tied one in the order of its phase.

**Draws.** For any tilt t, with T the likelihood (times prior) of the total N = sum N_s,

    posterior(event, a, N)  ~  prod_s [prior(N_s) p(a_s | N_s) e^{t (N_s - k_s)}] . T(N) e^{-t (N - m)}.

Given the event and t the bracket is a product, its sum B(t) is a product of one-dimensional sums,
and the last factor is at most M(t) = max_N T(N) e^{-t (N - m)}. So: draw an event with probability
proportional to `min_t B(t) M(t)`, draw a and N part by part, accept with probability
`T(N) e^{-t (N - m)} / M(t)`. Draws are independent and exact, for any number of parts; the tilt
only decides how many are accepted.

**Summed totals.** Where the total is estimated from the parts' sum n* as well, a two-sided
geometric n and a symmetric log-concave law of n* give `m = n` clipped to `n* - K .. n* + K`, with
K the distance at which the slope of the log mass of n* reaches epsilon. Then T depends on n* as
well, and the tilt is put on n* instead of N.
"""

# pyright: reportCallIssue=false
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, InfeasibleError
from trueup.kernel.multinomial import multinomial_mode
from trueup.kernel.wide import product_exceeds, products_equal

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

_DROP = 40.0  # events this far (log mass) below the largest are left out, and counted
_TILTS = 32  # on either side of none
_BLOCK = 2**12


class Tables(NamedTuple):
    """Tilted masses of one part, for each tilt and each kind of part (law and prior).

    Attributes
    ----------
    tilt, step
        (tilts,) per count, and its exponential.
    near
        (tilts, kinds, 2 w + 1) mass of `N - a` for a positive noisy count a.
    zero
        (tilts, kinds, w + 1) mass of N for a noisy count of zero or less.
    total
        (tilts, kinds, A) sums of these over N >= 0; constant from the last entry on if the prior is flat.
    prior
        (kinds, P) prior masses; an empty axis for flat.
    kind
        (n,) kind of each part.
    """

    tilt: Reals
    step: Reals
    near: Reals
    zero: Reals
    total: Reals
    prior: Reals
    kind: Integers


class Total(NamedTuple):
    """What the published total says of the true one.

    `log[i]` is the log likelihood (plus log prior) at `low, low + 1, ...`: row 0 where n = m, rows
    1 and 2 where n is at least, at most m. `radius` is K, or -1 where the total ignores n*.
    `ceiling` is log M for each tilt.
    """

    log: Reals
    low: int
    radius: int
    ceiling: Reals


class Events(NamedTuple):
    """Enter events: part, its noisy count, order of ties, tilt index, log mass bound."""

    part: Integers
    count: Integers
    order: Integers
    tilt: Integers
    log_mass: Reals
    left_out: float


def tilts(spread: float, slowest: float) -> Reals:
    """Return tilts for a total of standard deviation `spread` and laws that fall at least at `slowest`."""
    largest = min(0.5 * slowest, 8.0 / spread)
    return np.linspace(-largest, largest, 2 * _TILTS + 1)


def tabulate(
    pmfs: list[Reals], kind: Integers, tilt: Reals, prior: Reals | None, largest: int, on_sum: bool
) -> Tables:
    """Tabulate tilted masses of parts.

    Parameters
    ----------
    pmfs
        For each kind of part the masses of its noise at 0, 1, ..., w (symmetric).
    kind
        (n,) kind of each part.
    tilt
        (tilts,) per count.
    prior
        Prior masses of every part at 0, 1, ...; None for flat.
    largest
        Largest noisy count that is asked for (counts).
    on_sum
        Put the tilt on the noisy counts instead of the true ones.
    """
    width = max(len(p) for p in pmfs) - 1
    padded = np.array([np.pad(p, (0, width + 1 - len(p))) for p in pmfs])
    both = np.concatenate([padded[:, :0:-1], padded], axis=1)
    j = np.arange(-width, width + 1)
    tail = np.cumsum(padded[:, ::-1], axis=1)[:, ::-1]
    n = np.arange(width + 1)
    if on_sum:
        near = np.broadcast_to(both, (tilt.size, *both.shape)).copy()
        zero = np.array([[_tilted_tail(p, t) for p in padded] for t in tilt])
    else:
        near = both * np.exp(np.multiply.outer(tilt, j))[:, None, :]
        zero = tail * np.exp(np.multiply.outer(tilt, n))[:, None, :]
    masses = np.zeros((len(pmfs), 0)) if prior is None else np.tile(prior, (len(pmfs), 1))
    total = _sums(near, zero, masses, width + 1 if prior is None else largest + 1)
    return Tables(tilt, np.exp(tilt), near, zero, total, masses, kind)


def _tilted_tail(pmf: Reals, tilt: float) -> Reals:
    """Sum over n <= 0 of `e^{tilt n} p(N - n)`, for N = 0..w."""
    out, running = np.empty_like(pmf), 0.0
    for count in range(pmf.size - 1, -1, -1):
        running = pmf[count] + np.exp(-tilt) * running
        out[count] = running
    return out


@njit(cache=True)
def _sums(near, zero, prior, size):
    """Sum tilted masses (times the prior) over N >= 0 for noisy counts 0..size - 1."""
    tilts, kinds, width = zero.shape
    width -= 1
    out = np.zeros((tilts, kinds, size))
    for t in range(tilts):
        for g in range(kinds):
            for n in range(width + 1):
                out[t, g, 0] += zero[t, g, n] * _prior(prior, g, n)
            for a in range(1, size):
                for j in range(max(-a, -width), width + 1):
                    out[t, g, a] += near[t, g, j + width] * _prior(prior, g, a + j)
    return out


@njit(cache=True, inline="always")
def _prior(prior, kind, count):
    """Prior mass of a count; 1 everywhere for a flat prior."""
    if prior.shape[1] == 0:
        return 1.0
    return prior[kind, count] if count < prior.shape[1] else 0.0


# --- events -----------------------------------------------------------------------------------


@njit(cache=True, inline="always")
def _interval(k, part, count, order, r):
    """Noisy counts of part r that go with the event: `k_r <= c a <= k_r + 1` with c = k[part] / count."""
    p = k[part]
    if r == part:
        return count, count
    low, high = k[r] * count, (k[r] + 1) * count
    passed = r < part if order == 0 else r > part
    if passed:  # has entered at c, and has not left
        return -(-low // p), -(-high // p) - 1
    first = low // p + 1 if k[r] > 0 else 0
    return first, high // p


@njit(cache=True)
def _log_sum(tables, t, kind, k, low, high):
    """Log of the sum over noisy counts low..high of tilted masses, relative to `e^{tilt k}`."""
    mass = _sum(tables, t, kind, low, high)
    return np.log(mass) + tables.tilt[t] * (low - k) if mass > 0 else -np.inf


@njit(cache=True)
def _sum(tables, t, kind, low, high):
    """Sum over noisy counts low..high of tilted masses, relative to `e^{tilt low}`."""
    mass, step, factor = 0.0, tables.step[t], 1.0
    for a in range(low, high + 1):
        mass += noisy_mass(tables, t, kind, a) * factor
        factor *= step
    return mass


@njit(cache=True, inline="always")
def noisy_mass(tables, t, kind, a):
    """Tilted mass of a noisy count, relative to `e^{tilt a}`."""
    size = tables.total.shape[2]
    if a < size:
        return tables.total[t, kind, a]
    return tables.total[t, kind, size - 1] if tables.prior.shape[1] == 0 else 0.0


@njit(cache=True)
def _log_event(k, tables, part, count, order, t):
    """Log of B: the tilted mass of an event."""
    out = 0.0
    for r in range(k.size):
        low, high = _interval(k, part, count, order, r)
        if high < low:
            return -np.inf
        out += _log_sum(tables, t, tables.kind[r], k[r], low, high)
        if out == -np.inf:
            return out
    return out


@njit(cache=True)
def _log_relaxed(k, tables, c, t):
    """Upper bound on the log mass of events at multiplier c: intervals one wider at either end."""
    out = 0.0
    for r in range(k.size):
        out += _log_sum(tables, t, tables.kind[r], k[r], int(k[r] / c), int((k[r] + 1) / c) + 1)
    return out


@njit(cache=True)
def _least_tilt(k, tables, ceiling, part, count, order, t):
    """Slide the tilt, from t, to the least bound (the bound is convex in the tilt)."""
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
def _weigh(k, tables, ceiling, part, count, order):
    """Bounds of all events, in the order of their multipliers."""
    tilt, log_mass = np.empty(part.size, np.int64), np.empty(part.size)
    t = tables.tilt.size // 2
    for e in range(part.size):
        tilt[e], log_mass[e] = _least_tilt(k, tables, ceiling, part[e], count[e], order[e], t)
        if log_mass[e] > -np.inf:
            t = tilt[e]
    return tilt, log_mass


@njit(cache=True)
def _scan(k, tables, ceiling, multipliers):
    """Relaxed bounds, minimised over the tilt, on a grid of multipliers."""
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
    """Which events can tie with another part's leaving (only these matter in order 1)."""
    out = np.zeros(part.size, np.bool_)
    for e in range(part.size):
        p = k[part[e]]
        for r in range(k.size):
            if ((k[r] + 1) * count[e]) % p == 0:
                out[e] = True
                break
    return out


def find_events(k: Integers, tables: Tables, total: Total, reach: float, uniform: bool) -> Events:
    """List the events that carry the posterior, with their bounds.

    Parameters
    ----------
    k
        (n,) released counts, positive sum.
    tables, total
        What is known of parts and total.
    reach
        How far the noisy counts' sum can be from the released total (counts).
    uniform
        Whether noisy counts that are all zero were split evenly (else nothing was released).

    Raises
    ------
    InfeasibleError
        No noisy counts can have produced `k`.
    """
    part, count, cut = _near_events(k, tables, total.ceiling, reach)
    near = _core(k, tables, total.ceiling, part, count)
    cut = (cut[0] or near.start > 0, cut[1] or near.stop < part.size)
    part, count = part[near], count[near]
    tied = _ties_possible(k, part, count)
    parts, counts = np.concatenate([part, part[tied]]), np.concatenate([count, count[tied]])
    orders = np.repeat([0, 1], [part.size, tied.sum()])
    tilt, log_mass = _weigh(k, tables, total.ceiling, parts, counts, orders)
    if uniform and np.array_equal(multinomial_mode(np.ones_like(k), int(k.sum())), k):
        t, bound = _all_zero(k, tables, total.ceiling)
        parts, counts = np.append(parts, -1), np.append(counts, 0)
        orders, tilt, log_mass = np.append(orders, 0), np.append(tilt, t), np.append(log_mass, bound)
    possible = log_mass > -np.inf
    if not possible.any():
        raise _impossible()
    left_out = _left_out(log_mass[: part.size], cut, log_mass.max())
    return Events(*(x[possible] for x in (parts, counts, orders, tilt, log_mass)), left_out)


def _impossible() -> InfeasibleError:
    return InfeasibleError(
        "no noisy counts have these released counts as their multinomial mode",
        needed="counts as multinomial-mode released them, and a prior that allows them",
        remedy="check the method, the laws and the prior",
    )


def _left_out(log_mass: Reals, cut: tuple[bool, bool], top: float) -> float:
    """Estimate the share of events beyond the ends that were cut off, from those nearest to them.

    Bounds fall off at either end at least as fast as they do over the last twentieth.
    """
    near = max(log_mass.size // 20, 1)
    ends = (log_mass[:near], log_mass[log_mass.size - near :])
    return float(sum(np.exp(end - top).sum() for end, is_cut in zip(ends, cut) if is_cut))


def _near_events(
    k: Integers, tables: Tables, ceiling: Reals, reach: float
) -> tuple[Integers, Integers, tuple[bool, bool]]:
    """Enter events (part, noisy count) by multiplier, where they matter, and which ends were cut off."""
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


def _core(k: Integers, tables: Tables, ceiling: Reals, part: Integers, count: Integers) -> slice:
    """Narrow the events, in the order of their multipliers, by the bounds of a few hundred of them."""
    some = np.unique(np.linspace(0, part.size - 1, 400).astype(np.int64))
    _, bound = _weigh(k, tables, ceiling, part[some], count[some], np.zeros_like(some))
    near = np.flatnonzero(bound > bound.max() - _DROP)
    if some.size < 400 or not np.isfinite(bound).any():
        return slice(0, part.size)
    return slice(int(some[max(near[0] - 1, 0)]), int(some[min(near[-1] + 1, some.size - 1)]) + 1)


def _all_zero(k: Integers, tables: Tables, ceiling: Reals) -> tuple[int, float]:
    """Bound of the event that every noisy count is zero or less."""
    bounds = [
        np.log(tables.total[t, tables.kind, 0]).sum() - tables.tilt[t] * k.sum() + ceiling[t]
        for t in range(tables.tilt.size)
    ]
    return int(np.argmin(bounds)), float(min(bounds))


# --- draws ------------------------------------------------------------------------------------


def draw(
    k: Integers, tables: Tables, total: Total, events: Events, draws: int, rng: np.random.Generator
) -> tuple[Integers, float]:
    """Draw true counts (draws, n), independently; also return the share of proposals accepted.

    Raises
    ------
    ConvergenceError
        Fewer than one in a million proposals is accepted.
    """
    running = np.cumsum(np.exp(events.log_mass - events.log_mass.max()))
    out = np.empty((draws, k.size), np.int64)
    done = tries = 0
    while done < draws:
        done, tried = _draw(k, tables, total, events[:4], running, rng, out, done, _BLOCK)
        tries += tried
        if tries > 1e6 * (done + 1):
            raise ConvergenceError(
                "fewer than one proposal in a million is accepted for these released counts"
            )
    return out, done / tries


@njit(cache=True)
def _draw(k, tables, total, events, running, rng, out, done, tries):
    """Try `tries` proposals; returns how many draws are done, and how many were tried."""
    part, count, order, tilt = events
    noisy = np.empty(k.size, np.int64)
    m = k.sum()
    for tried in range(tries):
        if done == out.shape[0]:
            return done, tried
        e = np.searchsorted(running, rng.random() * running[-1], side="right")
        t = tilt[e]
        _draw_noisy(k, tables, part[e], count[e], order[e], t, rng, noisy)
        if part[e] >= 0 and not _is_ours(noisy, k, order[e]):
            continue
        true_sum, noisy_sum = draw_true(tables, t, noisy, rng, out[done], total.radius >= 0)
        log = log_total(total, true_sum, noisy_sum, m)
        moved = noisy_sum if total.radius >= 0 else true_sum
        if np.log(rng.random()) < log - tables.tilt[t] * (moved - m) - total.ceiling[t]:
            done += 1
    return done, tries


@njit(cache=True)
def _draw_noisy(k, tables, part, count, order, t, rng, noisy):
    """Draw noisy counts given the event."""
    for r in range(k.size):
        if part < 0:
            noisy[r] = 0
            continue
        low, high = _interval(k, part, count, order, r)
        noisy[r] = low
        if low < high:
            noisy[r] = _draw_between(tables, t, tables.kind[r], low, high, rng)


@njit(cache=True)
def _draw_between(tables, t, kind, low, high, rng):
    """Draw a noisy count from low..high."""
    left, step, factor, drawn = rng.random() * _sum(tables, t, kind, low, high), tables.step[t], 1.0, low
    for a in range(low, high + 1):
        share = noisy_mass(tables, t, kind, a) * factor
        drawn = a if share > 0 else drawn
        left -= share
        if left < 0:
            break
        factor *= step
    return drawn


@njit(cache=True)
def draw_true(tables, t, noisy, rng, true, with_noisy):
    """Draw true counts given noisy ones; returns the sums of true and (if asked for) noisy counts."""
    true_sum = noisy_sum = 0
    for r in range(noisy.size):
        true[r] = _draw_part(tables, t, tables.kind[r], noisy[r], rng)
        true_sum += true[r]
        noisy_sum += noisy[r]
        if with_noisy and noisy[r] == 0:
            noisy_sum -= _draw_below_zero(tables, t, tables.kind[r], true[r], rng)
    return true_sum, noisy_sum


@njit(cache=True)
def _draw_part(tables, t, kind, a, rng):
    """Draw a true count given a noisy one, from its centre outwards."""
    width = tables.zero.shape[2] - 1
    left = rng.random() * noisy_mass(tables, t, kind, a)
    best = 0
    if a == 0:
        for n in range(width + 1):
            share = tables.zero[t, kind, n] * _prior(tables.prior, kind, n)
            best = n if share > 0 else best
            left -= share
            if left < 0:
                break
        return best
    best = a
    for distance in range(width + 1):
        for sign in (1, -1):
            n = a + sign * distance
            if n < 0 or (distance == 0 and sign < 0):
                continue
            share = tables.near[t, kind, n - a + width] * _prior(tables.prior, kind, n)
            best = n if share > 0 else best
            left -= share
            if left < 0:
                return best
    return best


@njit(cache=True)
def _draw_below_zero(tables, t, kind, true, rng):
    """Draw minus the noisy count, given that it is zero or less, with the tilt on it."""
    width = tables.zero.shape[2] - 1
    left, step, factor = rng.random() * tables.zero[t, kind, true], np.exp(-tables.tilt[t]), 1.0
    for below in range(width - true + 1):
        left -= tables.near[t, kind, width + true + below] * factor
        if left < 0:
            return below
        factor *= step
    return width - true


@njit(cache=True)
def log_total(total, true_sum, noisy_sum, m):
    """Log likelihood of the published total."""
    row = 0
    if total.radius >= 0:
        if abs(noisy_sum - m) > total.radius:
            return -np.inf
        if total.radius == 0:
            row = 3
        elif noisy_sum == m - total.radius:
            row = 1
        elif noisy_sum == m + total.radius:
            row = 2
    at = true_sum - total.low
    return total.log[row, at] if 0 <= at < total.log.shape[1] else -np.inf


@njit(cache=True)
def _is_ours(noisy, k, order):
    """Does Finucan's algorithm return k for these noisy counts, and is this the order to keep them in?"""
    enter, leave = -1, -1
    total = trials = 0
    for r in range(k.size):
        total += noisy[r]
        trials += k[r]
        if k[r] > 0 and (enter < 0 or product_exceeds(k[r], noisy[enter], k[enter], noisy[r])):
            enter = r
        if noisy[r] > 0 and (leave < 0 or product_exceeds(k[leave] + 1, noisy[r], k[r] + 1, noisy[leave])):
            leave = r
    if not products_equal(k[enter], noisy[leave], k[leave] + 1, noisy[enter]):
        return order == 0
    adds = product_exceeds(2 * total, k[enter], 2 * trials + k.size, noisy[enter])
    return order == (0 if adds else 1)
