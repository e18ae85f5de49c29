"""Exact posterior draws of true counts when only a multinomial mode of noisy ones was released.

Parts have true counts N_s and noisy counts n_s = N_s + noise; a_s = max(n_s, 0); `k` is the mode of
Multinomial(m, a / sum a) and the only thing published (Wang & Reiter 2021, section 4).

**Events.** `k` is a mode iff there is a multiplier c with `k_s <= c a_s <= k_s + 1` for all s. The
smallest such c of a vector `a` is `max k_s / a_s`: the last part to *enter*. So the vectors split
by their enter event (s, a_s), and given the event the others lie in intervals, independently:
one term per event, all positive, nothing counted twice. Ties are broken as Finucan's algorithm
does (see `trueup.kernel.multinomial.apportion`) by moving equal multipliers apart in the order of the index,
upwards where trials are added (order 0), downwards where they are removed (order 1). A vector
without ties is an event of both orders and is kept in order 0; a tied one in the order of its phase.
Where a random order of the parts settled ties, of d parts that tie those e that have entered are a
random subset: the vector is an event of order 2, and counts with the probability 1 / C(d, e).

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

import math

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.kernel.compiled import njit
from trueup.kernel.multinomial.int128 import product_exceeds, products_equal
from trueup.kernel.released.draw import draw_true
from trueup.kernel.released.events import Events, interval, log_choose
from trueup.kernel.released.tables import Tables, Total, log_total, mass_between, noisy_mass

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

_BLOCK = 2**12


def draw_near_mode(
    k: Integers, tables: Tables, total: Total, events: Events, draws: int, rng: np.random.Generator
) -> tuple[Integers, float]:
    """Draw true counts (draws, n), independently; also return the share of proposals accepted."""
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
    """Try `tries` proposals; return how many draws are done, and how many were tried."""
    part, count, order, tilt = events
    noisy = np.empty(k.size, np.int64)
    m = k.sum()
    for tried in range(tries):
        if done == out.shape[0]:
            return done, tried
        e = np.searchsorted(running, rng.random() * running[-1], side="right")
        t = tilt[e]
        _draw_noisy(k, tables, part[e], count[e], order[e], t, rng, noisy)
        if part[e] >= 0:
            share = share_of_order(noisy, k, order[e])
            if share < 1.0 and rng.random() >= share:
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
        low, high = interval(k, part, count, order, r)
        noisy[r] = low
        if low < high:
            noisy[r] = _draw_between(tables, t, tables.kind[r], low, high, rng)


@njit(cache=True)
def _draw_between(tables, t, kind, low, high, rng):
    """Draw a noisy count from low..high."""
    left, step, factor, drawn = (
        rng.random() * mass_between(tables, t, kind, low, high),
        tables.step[t],
        1.0,
        low,
    )
    for a in range(low, high + 1):
        share = noisy_mass(tables, t, kind, a) * factor
        drawn = a if share > 0 else drawn
        left -= share
        if left < 0:
            break
        factor *= step
    return drawn


@njit(cache=True)
def share_of_order(noisy, k, order):
    """Return the probability that the release is k for these noisy counts, if this is the order to keep them in; else 0."""
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
        return 0.0 if order == 1 else 1.0
    if order == 2:
        return _share_of_ties(noisy, k, enter)
    adds = product_exceeds(2 * total, k[enter], 2 * trials + k.size, noisy[enter])
    return 1.0 if order == (0 if adds else 1) else 0.0


@njit(cache=True)
def _share_of_ties(noisy, k, enter):
    """Return the probability that those parts of a tie that have entered are the ones drawn to enter."""
    inside = tied = 0
    for r in range(k.size):
        entered = k[r] > 0 and products_equal(k[r], noisy[enter], k[enter], noisy[r])
        inside += entered
        tied += entered or products_equal(k[r] + 1, noisy[enter], k[enter], noisy[r])
    return math.exp(-log_choose(tied, inside))
