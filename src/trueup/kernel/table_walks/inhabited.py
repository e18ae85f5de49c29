"""Uninhabited lowest places of a histogram, which splits of totals pass over (Gibbs steps).

Before totals are known, each of a place's C lowest parts is uninhabited with probability w, all of them never:
`w^(C - I) (1 - w)^I / (1 - w^C)`, I the number of inhabited ones. The place's total is split among these. Were all
inhabited, as many empty places as blocks have would ask for a small concentration, under which the others' totals spread
too far. A group of blocks in a town has few uninhabited ones, one with a park many: w has a beta law of mean m and strength s
(the sum of its parameters) over places, and both are drawn.

*Places.* Parts with persons are inhabited, l of them. Given the totals the others are alike, so that how many of them are
inhabited, k of n, is drawn in proportion to `C(n, k) (1 - w)^k w^(n - k) Gamma((l + k) a) / Gamma(T + (l + k) a)`, then which.

*Their rates.* With each place's attempts at which all parts would have been uninhabited, geometric of ratio w^C, w is beta, and
can be integrated out: with E uninhabited parts and those of the attempts, `B(m s + E, (1 - m) s + I) / B(m s, (1 - m) s)`. Given
tables of restaurants with E and I guests (`restaurants`) and a beta number of parameters s and E + I, m is beta and s gamma. A
part that has no siblings is inhabited, and says nothing of w.
"""

from __future__ import annotations

import math

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.restaurants import occupied

MEAN, STRENGTH = (0.5, 1.0), (2.0, 0.1)
"""Hyperpriors of the beta law of rates of uninhabited places: of its mean, beta, half below a quarter, much near zero; of the
sum of its parameters, gamma (shape and rate)."""
MIN_RATE = 1e-12
"""Rates lie within so much of 0 and 1, so that logs of odds are numbers."""


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def parts(places, inhabited, v):
    """Return how many parts a place's total is split among: all but the uninhabited ones."""
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
    most = 0
    for p in range(child_ptr.size - 1):
        most = max(most, child_ptr[p + 1] - child_ptr[p])
    weights = np.empty(most + 1)
    for p in range(places.level_ptr[-3], last):
        first, stop, rate = child_ptr[p], child_ptr[p + 1], state.rate[p - places.level_ptr[-3]]
        lived = 0
        for v in range(first, stop):
            lived += total[v] > 0
        left = empty = stop - first - lived
        if empty > 0 and stop - first > 1:
            left = _how_many(rng, weights, rate, state.a[-1], total[p], lived, empty)
        for v in range(first, stop):
            if total[v] == 0:  # so many of the rest, any alike
                state.inhabited[v - last] = rng.random() * empty < left
                left -= state.inhabited[v - last]
                empty -= 1
            else:
                state.inhabited[v - last] = True


@njit(cache=True, error_model="numpy")
def draw_rates(rng, places, state):
    """Draw the law of the rates of uninhabited places given which they are, then the rates."""
    first, count = places.level_ptr[-3], state.rate.size
    empty, lived = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for p in range(count):
        children = places.child_ptr[first + p + 1] - places.child_ptr[first + p]
        if children > 1:
            lived[p] = parts(places, state.inhabited, first + p)
            failed = math.floor(math.log(1.0 - rng.random()) / (children * math.log(state.rate[p])))
            empty[p] = children - lived[p] + failed * children
    _draw_law(rng, empty, lived, state.rates_law)
    mean, strength = state.rates_law
    for p in range(count):
        rate = rng.beta(mean * strength + empty[p], (1.0 - mean) * strength + lived[p])
        state.rate[p] = min(max(rate, MIN_RATE), 1.0 - MIN_RATE)


@njit(cache=True, error_model="numpy")
def _draw_law(rng, empty, lived, law):
    """Draw mean and strength of the beta law of rates, with the rates integrated out."""
    mean, strength = law
    ones, others, wide = 0, 0, 0.0
    for p in range(empty.size):
        if empty[p] + lived[p] > 0:
            ones += occupied(rng, empty[p], mean * strength)
            others += occupied(rng, lived[p], (1.0 - mean) * strength)
            wide -= math.log(max(rng.beta(strength, float(empty[p] + lived[p])), MIN_RATE))
    law[0] = min(max(rng.beta(MEAN[0] + ones, MEAN[1] + others), MIN_RATE), 1.0 - MIN_RATE)
    law[1] = rng.standard_gamma(STRENGTH[0] + ones + others) / (STRENGTH[1] + wide)
