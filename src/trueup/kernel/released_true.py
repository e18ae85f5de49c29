"""True counts given noisy ones, part by part, under a tilt."""

from __future__ import annotations

import numpy as np
from numba import njit

from trueup.kernel.released_tables import noisy_mass, prior_mass


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
