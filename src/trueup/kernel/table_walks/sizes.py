"""Sizes of the lowest places of a histogram, given which their cells are independent (a Gibbs step).

Given its total T, a place's cells are multinomial, their shares independent gamma numbers g_j of shapes b_j and rates kappa_j
divided by their sum S. One person more, of cell e, turns `S^-T` into `sum_e g_e S^-(T + 1)`, and a size s, Gamma(T + 1) of rate
S, turns that into a product over cells, the g integrated out. It holds where T = 0 too:

    p(x, s, e | T) = s^T prod_j kappa_j^b_j Gamma(x_j + e_j + b_j) / (Gamma(b_j) x_j! (kappa_j + s)^(x_j + e_j + b_j))

Given e the log of s has a log-concave law, drawn by a slice (Neal 2003); given s, e is one of the cells.
"""

from __future__ import annotations

import math

import numpy as np

from trueup.kernel.compiled import njit

WIDTH = 1.0
"""First width of a slice."""


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _log_size(held, kappa, power, log):
    """Log density of the log of a size."""
    total, s = power * log, math.exp(log)
    for j in range(held.size):
        total -= held[j] * math.log(kappa[j] + s)
    return total


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _draw_size(rng, held, kappa, power, s):
    """Draw a size by a slice of its log, whose law has one mode."""
    log = math.log(s)
    floor = _log_size(held, kappa, power, log) + math.log(1.0 - rng.random())
    low = log - WIDTH * rng.random()
    high = low + WIDTH
    while _log_size(held, kappa, power, low) > floor:
        low -= WIDTH
    while _log_size(held, kappa, power, high) > floor:
        high += WIDTH
    while True:
        fresh = low + (high - low) * rng.random()
        if _log_size(held, kappa, power, fresh) > floor:
            return math.exp(fresh)
        low, high = (fresh, high) if fresh < log else (low, fresh)


@njit(cache=True, error_model="numpy")
def draw_sizes(rng, places, state):
    """Draw the size of every lowest place, and the cell of its one person more."""
    last, first = places.level_ptr.size - 2, places.level_ptr[-2]
    x, theta, size, spare, kappa = state.x, state.theta, state.size, state.spare, state.kappa[last]
    held = np.empty(kappa.size)
    for row in range(size.size):
        p = places.parent[first + row]
        for j in range(held.size):
            held[j] = x[row, j] + kappa[j] * theta[p, j]
        held[spare[row]] += 1.0
        s = size[row] = _draw_size(rng, held, kappa, state.total[first + row] + 1.0, size[row])
        held[spare[row]] -= 1.0
        whole = 0.0
        for j in range(held.size):
            held[j] /= kappa[j] + s
            whole += held[j]
        left, at = rng.random() * whole, -1
        while left >= 0.0 and at < held.size - 1:
            at += 1
            left -= held[at]
        spare[row] = at
