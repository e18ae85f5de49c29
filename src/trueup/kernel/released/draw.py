"""Posterior draws of true counts given a multinomial draw from noisy counts.

The release is k ~ Multinomial(m, a / sum a) with a_s = max(n_s, 0) (Wang 2020, Algorithm 2) or
with a_s drawn from the posterior of the count given n_s (Algorithm 1); the tables hold either law. So

    P(k | a)  ~  prod_s a_s^k_s / (sum a)^m  ~  prod_s a_s^k_s  int u^(m-1) e^{-u sum a} du.

Given the auxiliary u ~ Gamma(m, rate sum a) the parts are independent but for the total, and are
drawn exactly, by the tilted rejection of `trueup.kernel.released.exact`. Alternating the two is a Markov
chain whose only memory is u: consecutive draws are nearly independent.

Where all a_s are zero and the total was split evenly instead, P(k | a = 0) ~ S^-m. With u drawn from
Gamma(m, r) in that case, for any rate r, this event has the mass

    (r / S)^m u^(m-1) e^{-r u} prod_s P(a_s = 0 | N_s)

given u, beside the others: one more component, chosen with its exact probability; r = sum max(k_s, 1)
puts u where it is otherwise.

True counts given noisy ones, part by part, under a tilt.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.kernel.compiled import njit
from trueup.kernel.released import Tables, Total, log_total, noisy_mass, prior_mass

Integers = NDArray[np.int64]

_BURN = 50
_TRIES = 10**6


def gibbs(
    k: Integers,
    tables: Tables,
    total: Total,
    chains: int,
    draws: int,
    rng: np.random.Generator,
    uniform: bool = False,
) -> Integers:
    """Return Markov chains of true counts (chains, draws, n) from dispersed starts.

    `uniform` tells whether noisy counts that are all zero were split evenly (else nothing was released).
    """
    out = np.empty((chains, draws, k.size), np.int64)
    for chain in range(chains):
        scale = np.exp(0.5 * rng.standard_normal() / np.sqrt(k.sum() + 1.0))
        if not _gibbs(k, tables, total, scale, _BURN, uniform, rng, out[chain]):
            raise ConvergenceError(
                "these released counts are too unlikely under the laws of noise and the prior to draw true counts",
                remedy="give the method that released them, the laws of its noise, and a prior that allows such counts",
            )
    return out


def least_bound(k: Integers, tables: Tables, total: Total) -> float:
    """Return the smallest bound, over all tilts, on the log mass at a typical value of the auxiliary u."""
    u = k.sum() / np.maximum(k, 1).sum()
    t = _least_tilt(k, tables, total.ceiling, u, tables.tilt.size // 2)
    return float(_log_bound(k, tables, u, t) + total.ceiling[t])


@njit(cache=True)
def _gibbs(k, tables, total, scale, burn, uniform, rng, out):
    """Draw u and all counts in turn (Gibbs sampling); return False if too many proposals are rejected."""
    m, weight = k.sum(), 0.0
    for r in range(k.size):
        weight += max(k[r], 1)
    t = tables.tilt.size // 2
    noisy, true = np.empty(k.size, np.int64), np.empty(k.size, np.int64)
    u = m / (weight * scale)
    for iteration in range(-burn, out.shape[0]):
        t = _least_tilt(k, tables, total.ceiling, u, t)
        starts, running = _windows(k, tables, t, u)
        even = _even_share(k, tables, u, t, weight) if uniform else 0.0
        accepted = False
        for _ in range(_TRIES):
            if even > 0.0 and rng.random() < even:
                noisy[:] = 0
            else:
                _draw_noisy(k, tables, t, u, starts, running, rng, noisy)
            true_sum, noisy_sum = draw_true(tables, t, noisy, rng, true, total.radius >= 0)
            moved = noisy_sum if total.radius >= 0 else true_sum
            log = log_total(total, true_sum, noisy_sum, m) - tables.tilt[t] * (moved - m)
            if np.log(rng.random()) < log - total.ceiling[t]:
                accepted = True
                break
        if not accepted:
            return False
        rate = noisy.sum()
        u = rng.gamma(m, 1.0) / (rate if rate > 0 else weight)
        if iteration >= 0:
            out[iteration] = true
    return True


@njit(cache=True)
def draw_window(k, rate):
    """Return the window that contains all but about 1e-17 of the mass of `a^k e^{-rate a}`."""
    centre, spread = k / rate, np.sqrt(k) / rate
    low = max(int(centre - 9 * spread - 2), 1 if k > 0 else 0)
    return low, int(centre + 9 * spread + 45 / rate) + 1


@njit(cache=True)
def _log_weight(k, a, u, tilt):
    """Return the log of `a^k e^{-u a} e^{tilt (a - k)}`, relative to its untilted value at a = k."""
    if k == 0:
        return (tilt - u) * a
    return k * np.log(a / k) + (tilt - u) * (a - k)


@njit(cache=True)
def _least_tilt(k, tables, ceiling, u, t):
    """Return the index of the tilt with the smallest bound on the mass given the auxiliary u."""
    while tables.tilt[t] > 0.7 * u:
        t -= 1
    best = _log_bound(k, tables, u, t) + ceiling[t]
    for step in (1, -1):
        while 0 <= t + step < tables.tilt.size and tables.tilt[t + step] < 0.7 * u:
            bound = _log_bound(k, tables, u, t + step) + ceiling[t + step]
            if bound >= best:
                break
            t, best = t + step, bound
    return t


@njit(cache=True)
def _log_bound(k, tables, u, t):
    """Return the log of the tilted mass of all parts' noisy counts given the auxiliary u."""
    out, tilt = 0.0, tables.tilt[t]
    for r in range(k.size):
        low, high = draw_window(k[r], u - tilt)
        mass = 0.0
        for a in range(low, high + 1):
            mass += noisy_mass(tables, t, tables.kind[r], a) * np.exp(_log_weight(k[r], a, u, tilt))
        out += np.log(mass)
    return out


@njit(cache=True)
def _even_share(k, tables, u, t, rate):
    """Return the tilted probability that all noisy counts are zero, given the auxiliary u."""
    m = k.sum()
    log = m * math.log(rate / k.size) - rate * u - tables.tilt[t] * m
    for r in range(k.size):
        log += math.log(noisy_mass(tables, t, tables.kind[r], 0))
        if k[r] > 0:
            log += k[r] * (u - math.log(k[r]))
    odds = math.exp(min(log - _log_bound(k, tables, u, t), 700.0))
    return odds / (1.0 + odds)


@njit(cache=True)
def _windows(k, tables, t, u):
    """Return where each part's window starts, and the cumulative masses of its noisy counts given u."""
    tilt = tables.tilt[t]
    starts = np.zeros(k.size + 1, np.int64)
    for r in range(k.size):
        low, high = draw_window(k[r], u - tilt)
        starts[r + 1] = starts[r] + high - low + 1
    running = np.empty(starts[-1])
    for r in range(k.size):
        low, high = draw_window(k[r], u - tilt)
        mass = 0.0
        for a in range(low, high + 1):
            mass += noisy_mass(tables, t, tables.kind[r], a) * np.exp(_log_weight(k[r], a, u, tilt))
            running[starts[r] + a - low] = mass
    return starts, running


@njit(cache=True)
def _draw_noisy(k, tables, t, u, starts, running, rng, noisy):
    """Draw every part's noisy count from the cumulative masses given the auxiliary u."""
    for r in range(k.size):
        mine = running[starts[r] : starts[r + 1]]
        low, _ = draw_window(k[r], u - tables.tilt[t])
        noisy[r] = low + np.searchsorted(mine, rng.random() * mine[-1], side="right")


@njit(cache=True)
def draw_true(tables, t, noisy, rng, true, with_noisy):
    """Draw true counts given noisy ones; return the sums of true and (if requested) noisy counts."""
    true_sum = noisy_sum = 0
    for r in range(noisy.size):
        kind, n = tables.kind[r], noisy[r]
        if tables.noise.shape[1] > 0:
            n = _draw_between(tables, t, kind, n, rng)
            true[r] = _draw_behind(tables, t, kind, n, rng)
        else:
            true[r] = _draw_part(tables, t, kind, n, rng)
            if with_noisy and n == 0:
                n -= _draw_below_zero(tables, t, kind, true[r], rng)
        true_sum += true[r]
        noisy_sum += n
    return true_sum, noisy_sum


@njit(cache=True)
def _draw_part(tables, t, kind, a, rng):
    """Draw the true count of one part given the noisy count."""
    width = tables.zero.shape[2] - 1
    left = rng.random() * noisy_mass(tables, t, kind, a)
    best = 0
    if a == 0:
        for n in range(width + 1):
            share = tables.zero[t, kind, n] * prior_mass(tables.prior, kind, n)
            best = n if share > 0 else best
            left -= share
            if left < 0:
                break
        return best
    if a <= tables.small.shape[1]:
        for n in range(tables.small.shape[2]):
            share = (
                tables.small[kind, a - 1, n]
                * np.exp(tables.tilt[t] * (n - a))
                * prior_mass(tables.prior, kind, n)
            )
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
            share = tables.near[t, kind, n - a + width] * prior_mass(tables.prior, kind, n)
            best = n if share > 0 else best
            left -= share
            if left < 0:
                return best
    return best


@njit(cache=True)
def _draw_below_zero(tables, t, kind, true, rng):
    """Draw minus the noisy count, given that the noisy count is zero or less, under the tilt."""
    width = tables.zero.shape[2] - 1
    left, step, factor = rng.random() * tables.zero[t, kind, true], np.exp(-tables.tilt[t]), 1.0
    for below in range(width - true + 1):
        left -= tables.near[t, kind, width + true + below] * factor
        if left < 0:
            return below
        factor *= step
    return width - true


@njit(cache=True)
def _draw_between(tables, t, kind, a, rng):
    """Draw a noisy count given the weight `a`, which was drawn from the posterior of the true count."""
    width, last = tables.noise.shape[1] // 2, tables.middle.shape[2] - 1
    left, best = rng.random() * noisy_mass(tables, t, kind, a), 0
    for j in range(-width, width + 1):
        share = tables.noise[kind, j + width] * np.exp(tables.tilt[t] * j)
        share *= tables.middle[t, kind, min(a + j + width, last)]
        best = j if share > 0 else best
        left -= share
        if left < 0:
            break
    return a + best


@njit(cache=True)
def _draw_behind(tables, t, kind, n, rng):
    """Draw a true count given the noisy count of the part."""
    width = tables.noise.shape[1] // 2
    share = np.empty(2 * width + 1)
    for j in range(-width, width + 1):
        prior = prior_mass(tables.prior, kind, n + j) if n + j >= 0 else 0.0
        share[j + width] = tables.noise[kind, j + width] * np.exp(tables.lean[t] * j) * prior
    running = np.cumsum(share)
    return n - width + np.searchsorted(running, rng.random() * running[-1], side="right")
