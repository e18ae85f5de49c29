"""Sizes of the lowest places of a histogram, which make its cells independent (a Gibbs step).

Given its total T, a place's cells are multinomial, their shares independent gamma numbers g_j of shapes b_j and rates kappa_j
divided by their sum S. One person more, of cell e, turns `S^-T` into `sum_e g_e S^-(T + 1)`, and a size s, Gamma(T + 1) of rate
S, turns that into a product over cells, the g integrated out. It holds where T = 0 too:

    p(x, s, e | T) = s^T prod_j kappa_j^b_j Gamma(x_j + e_j + b_j) / (Gamma(b_j) x_j! (kappa_j + s)^(x_j + e_j + b_j))

Given e a size is drawn from a law near its own, that does not depend on the present size, and refused with the ratio of both
(an independence sampler). Were all kappa_j equal, s / kappa would be Gamma(T + 1) / Gamma(sum_j b_j), a beta prime law; where
they are not, it is one with the mode and the curvature of the log of s, the second shape at most sum_j b_j, so that its tails
are not lighter. The mode solves `sum_j h_j kappa_j / (kappa_j + s) = sum_j b_j`, h_j = x_j + e_j + b_j: one divided by the left
side is concave, so that Newton's steps rise to it from 0. Given s, e is one of the cells.
"""

from __future__ import annotations

import math

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.place_masses import AT_ONCE

NEWTON_STEPS = 2
"""Of Newton's, towards a mode: that of the law which is proposed need not be exact."""
LARGEST_SIZE = 1e300
"""Sizes beyond the largest are drawn as the largest: a size is so with probability `10^(-300 sum_j b_j)`, next to nothing but
where all shares of the place above are."""


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True, fastmath=AT_ONCE)
def _weighted_sums(held, kappa, s):
    """Return sums over cells of `h v`, `h v (1 - v)` and `h (1 - v)^2`, where v is `kappa / (kappa + s)`."""
    above, slope, rest = 0.0, 0.0, 0.0
    for j in range(held.size):
        v = kappa[j] / (kappa[j] + s)
        w = 1.0 - v
        above += held[j] * v
        slope += held[j] * v * w
        rest += held[j] * w * w
    return above, slope, rest


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _fitted(held, kappa, power, around):
    """Return scale and second shape of a beta prime law near that of a size."""
    s = 0.0
    for j in range(held.size):
        s += held[j] / kappa[j]
    s = power / around * (power + around) / s
    for _ in range(NEWTON_STEPS):
        above, slope, _ = _weighted_sums(held, kappa, s)
        s += s * above * (above - around) / (around * slope)
    _, slope, rest = _weighted_sums(held, kappa, s)
    shape = slope * (slope + rest) / rest
    return s * shape / power, shape


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _draw_size(rng, held, kappa, power, around, s):
    """Draw a size from a beta prime law near its own, or keep it."""
    scale, shape = _fitted(held, kappa, power, around)
    if not 0.0 < shape < np.inf:
        return s
    fresh = scale * rng.standard_gamma(power) / rng.standard_gamma(shape)
    if not fresh > 0.0:
        return s
    fresh = min(fresh, LARGEST_SIZE)
    log = (power + shape) * math.log((scale + fresh) / (scale + s))
    for j in range(held.size):
        log -= held[j] * math.log((kappa[j] + fresh) / (kappa[j] + s))
    return fresh if math.log(1.0 - rng.random()) < log else s


@njit(cache=True, error_model="numpy")
def draw_sizes(rng, places, state):
    """Draw the size of every lowest place, and the cell of its extra person."""
    last, first = places.level_ptr.size - 2, places.level_ptr[-2]
    x, theta, size, spare, kappa = state.x, state.theta, state.size, state.spare, state.kappa[last]
    held = np.empty(kappa.size)
    for row in range(size.size):
        p, around = places.parent[first + row], 0.0
        for j in range(held.size):
            b = kappa[j] * theta[p, j]
            held[j] = x[row, j] + b
            around += b
        held[spare[row]] += 1.0
        s = size[row] = _draw_size(rng, held, kappa, state.total[first + row] + 1.0, around, size[row])
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
