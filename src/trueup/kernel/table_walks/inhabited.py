"""Lowest places of a histogram that nobody lives in, which splits of totals pass over (Gibbs steps).

Before totals are known, each of a place's C lowest parts is uninhabited with probability w, all of them never:
`w^(C - I) (1 - w)^I / (1 - w^C)`, I the number of inhabited ones. The place's total is split among these. Were all
inhabited, as many empty places as blocks have would ask for a small concentration, under which the others' totals spread
too far.

*Places.* Parts with persons are inhabited, m of them. Given the totals the others are alike, so that how many of them are
inhabited, k of n, is drawn in proportion to `C(n, k) (1 - w)^k w^(n - k) Gamma((m + k) a) / Gamma(T + (m + k) a)`, then which.

*Their rate.* With each place's attempts at which all parts would have been uninhabited, geometric of ratio w^C, w is beta. A
part that has no siblings is inhabited, and says nothing of w.
"""

from __future__ import annotations

import math

import numpy as np

from trueup.kernel.compiled import njit

RATE = (0.5, 1.0)
"""Beta hyperprior of the rate of uninhabited places: half its mass below a quarter, much near zero."""
LEAST = 1e-12
"""The rate lies within so much of 0 and 1, so that logs of odds are numbers."""


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def parts(places, inhabited, v):
    """How many parts a place's total is split among: all but those that are uninhabited."""
    first, stop, last = places.child_ptr[v], places.child_ptr[v + 1], places.level_ptr[-2]
    return stop - first if first < last else inhabited[first - last : stop - last].sum()


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _how_many(rng, weights, rate, a, total, lived, empty):
    """Draw how many of `empty` places are inhabited beside `lived` ones that hold `total`."""
    least, log, most = (0 if lived else 1), 0.0, -np.inf
    for k in range(least, empty + 1):
        alpha = (lived + k) * a
        weights[k] = log + math.lgamma(alpha) - math.lgamma(total + alpha)
        most = max(most, weights[k])
        log += math.log((empty - k) / (k + 1.0) * (1.0 - rate) / rate) if k < empty else 0.0
    whole = 0.0
    for k in range(least, empty + 1):
        weights[k] = math.exp(weights[k] - most)
        whole += weights[k]
    left, k = rng.random() * whole - weights[least], least
    while left >= 0.0 and k < empty:
        k += 1
        left -= weights[k]
    return k


@njit(cache=True, error_model="numpy")
def draw_inhabited(rng, places, state):
    """Draw which of the lowest places without persons are inhabited."""
    child_ptr, last, total = places.child_ptr, places.level_ptr[-2], state.total
    weights = np.empty(np.diff(child_ptr).max() + 1)
    for p in range(places.level_ptr[-3], last):
        first, stop = child_ptr[p], child_ptr[p + 1]
        lived = (total[first:stop] > 0).sum()
        left = empty = stop - first - lived
        if empty > 0 and stop - first > 1:
            left = _how_many(rng, weights, state.rate[0], state.a[-1], total[p], lived, empty)
        for v in range(first, stop):
            if total[v] == 0:  # so many of the rest, any alike
                state.inhabited[v - last] = rng.random() * empty < left
                left -= state.inhabited[v - last]
                empty -= 1
            else:
                state.inhabited[v - last] = True


@njit(cache=True, error_model="numpy")
def draw_rate(rng, places, state):
    """Draw the rate of uninhabited places given which they are."""
    shape, other = RATE
    for p in range(places.level_ptr[-3], places.level_ptr[-2]):
        children = places.child_ptr[p + 1] - places.child_ptr[p]
        if children > 1:
            lived = parts(places, state.inhabited, p)
            failed = math.floor(math.log(1.0 - rng.random()) / (children * math.log(state.rate[0])))
            shape += children - lived + failed * children
            other += lived
    state.rate[0] = min(max(rng.beta(shape, other), LEAST), 1.0 - LEAST)
