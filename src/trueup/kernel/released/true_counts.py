"""True counts given noisy ones, part by part, under a tilt."""

from __future__ import annotations

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.released.tables import noisy_mass, prior_mass


@njit(cache=True)
def draw_true(tables, t, noisy, rng, true, with_noisy):
    """Draw true counts given noisy ones; return the sums of true and (if asked for) noisy counts."""
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
    """Draw a true count given a noisy one, from its centre outwards."""
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
def _draw_between(tables, t, kind, a, rng):
    """Draw the noisy count from whose posterior `a` was drawn."""
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
    """Draw the true count behind a noisy one under the tilt `lean`."""
    width = tables.noise.shape[1] // 2
    share = np.empty(2 * width + 1)
    for j in range(-width, width + 1):
        prior = prior_mass(tables.prior, kind, n + j) if n + j >= 0 else 0.0
        share[j + width] = tables.noise[kind, j + width] * np.exp(tables.lean[t] * j) * prior
    running = np.cumsum(share)
    return n - width + np.searchsorted(running, rng.random() * running[-1], side="right")
