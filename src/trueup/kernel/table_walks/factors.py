"""Common factors of cells with one attribute value, varying between places above the lowest (Gibbs steps).

    theta_vj ~ Gamma(kappa_lj theta_parent,j + EVEN, rate kappa_lj / f_vj),   f_vj = prod_(k of cell j) exp(tau_lk z_vk)

The product is over the values k that cell j has of the attributes; z is standard normal, tau lognormal for each level and
value. Where few of one race live, both its minors and its adults are few; where nearly all are of one race, all others are few.
Were cells to differ one by one alone, all others together would differ too little: groups of blocks of whom two in a hundred
were not white were estimated at three, and their totals with them. A histogram of one attribute has no factors, as its cells
differ one by one. Lowest places have none, as noise hides them there.

Given a place's guests n and rates c (`compositions`), its composition integrated out, the factor of cell j is
`f^n / (kappa + f c)^(n + b)`. Scores z and the logs of the tau, both normal, are drawn by elliptical slices (Murray, Adams and
MacKay 2010). A tau is drawn twice: given scores, which moves where little is known of the factors, and given the factors, which
moves where much is (Yu and Meng 2011, "To center or not to center").
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit

EVEN = 0.02
TINY = 1e-100
"""Least share: below it a count of one more is as good as impossible."""
MIN_ARC_RADIANS = 1e-10
"""Arc of a slice (radians) at which it is empty."""
SCORE, SPREAD, CENTRED = 0, 1, 2
"""What is drawn: a place's score, a spread given scores, or a spread given factors."""


class Alike(NamedTuple):
    """Columns that have one value of an attribute: those of value k are `columns[ptr[k]:ptr[k + 1]]`."""

    ptr: NDArray[np.int64]
    columns: NDArray[np.int64]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _log_place(places, state, alike, room, level, v, k, move):
    """Return the log density of `exp(move)` times a place's factor of value k, its composition integrated out."""
    total, p, times = 0.0, places.parent[v], math.exp(move)
    for i in range(alike.ptr[k], alike.ptr[k + 1]):
        j = alike.columns[i]
        kappa, n = state.kappa[level, j], room[0, v, j]
        b = max(kappa * state.theta[p, j], TINY) + EVEN
        total += n * move - (n + b) * math.log1p(times * state.factor[v, j] * room[1, v, j] / kappa)
    return total


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _spread(hyper, normal):
    return hyper.factor * math.exp(hyper.factor_spread * normal)


@njit(cache=True, error_model="numpy")
def _density(places, state, alike, room, hyper, level, what, v, k, normal):
    """Return the log density, less the normal prior's, of a score of place v or of a spread, for value k."""
    tau, total = state.spread[level, k], 0.0
    if what == SCORE:
        return _log_place(places, state, alike, room, level, v, k, tau * (normal - state.score[v, k]))
    fresh = _spread(hyper, normal)
    for u in range(places.level_ptr[level], places.level_ptr[level + 1]):
        z = state.score[u, k]
        if what == SPREAD:
            total += _log_place(places, state, alike, room, level, u, k, (fresh - tau) * z)
        else:
            total -= math.log(fresh) + 0.5 * (tau * z / fresh) ** 2
    return total


@njit(cache=True, error_model="numpy")
def _ellipse(rng, places, state, alike, room, hyper, level, what, v, k, normal):
    """Draw a number of standard normal prior by an elliptical slice."""
    other = rng.normal()
    floor = _density(places, state, alike, room, hyper, level, what, v, k, normal) + math.log(
        1.0 - rng.random()
    )
    high = 2.0 * math.pi * rng.random()
    low, angle = high - 2.0 * math.pi, high
    while high - low > MIN_ARC_RADIANS:
        fresh = normal * math.cos(angle) + other * math.sin(angle)
        if _density(places, state, alike, room, hyper, level, what, v, k, fresh) > floor:
            return fresh
        low, high = (angle, high) if angle < 0.0 else (low, angle)
        angle = low + (high - low) * rng.random()
    return normal


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _multiply(state, alike, v, k, move):
    """Multiply a place's factors of the cells of value k by `exp(move)`."""
    for i in range(alike.ptr[k], alike.ptr[k + 1]):
        state.factor[v, alike.columns[i]] *= math.exp(move)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _set_factors(places, state, alike, level):
    """Set the factors of a level from scores and spreads, since repeated multiplication would drift."""
    for v in range(places.level_ptr[level], places.level_ptr[level + 1]):
        state.factor[v] = 1.0
        for k in range(alike.ptr.size - 1):
            _multiply(state, alike, v, k, state.spread[level, k] * state.score[v, k])


@njit(cache=True, error_model="numpy")
def draw_factors(rng, places, state, alike, room, hyper, level):
    """Draw the factors of a level's places and their spreads, given guests and rates; `state` is overwritten."""
    first, stop = places.level_ptr[level], places.level_ptr[level + 1]
    for v in range(first, stop):
        for k in range(alike.ptr.size - 1):
            z = _ellipse(rng, places, state, alike, room, hyper, level, SCORE, v, k, state.score[v, k])
            _multiply(state, alike, v, k, state.spread[level, k] * (z - state.score[v, k]))
            state.score[v, k] = z
    for k in range(alike.ptr.size - 1):
        for what in (SPREAD, CENTRED):
            tau = state.spread[level, k]
            normal = math.log(tau / hyper.factor) / hyper.factor_spread
            fresh = _spread(
                hyper, _ellipse(rng, places, state, alike, room, hyper, level, what, -1, k, normal)
            )
            for v in range(first, stop):
                if what == SPREAD:
                    _multiply(state, alike, v, k, (fresh - tau) * state.score[v, k])
                else:
                    state.score[v, k] *= tau / fresh
            state.spread[level, k] = fresh
    _set_factors(places, state, alike, level)
