"""Weights of the parts among which totals are split, computed from public numbers.

The parameter of a part is its level's concentration a times its weight: 1, or of C siblings, m their public shares and z their
covariates, `w_c = C m_c exp(z_c . slope) / sum_d m_d exp(z_d . slope)`, whichever of them are inhabited. So empty places are
not alike, and each is drawn given the others: with A the sum of the parameters of the inhabited ones beside it, b its own and w
the rate of uninhabited places, the odds that it is inhabited are
`(1 - w) / w Gamma(A + b) Gamma(T + A) / (Gamma(A) Gamma(T + A + b))`.

A slope is normal about 0. Given the totals of all levels, and their concentrations, its density is the splits' own.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit

TINY = 1e-100
"""Least share: below it a count of one more is as good as impossible."""
SLOPE_SD = 2.5
"""Standard deviation of the normal hyperprior of a covariate's coefficient, per standard deviation of the covariate."""
PRODUCT = 32
"""Factors of a ratio of gamma functions that are multiplied up: fewer take less time than their logs."""
MAX_PRODUCT = 1e120
"""Products beyond it, or below one divided by it, become logs: one more ratio, of which `TINY` is a factor, must fit."""


class Places(NamedTuple):
    """A tree in level order, all leaves on the last level.

    Attributes
    ----------
    child_ptr, level_ptr, parent
        Children of node v are `child_ptr[v]:child_ptr[v + 1]`; nodes of a level; `(nodes,)`, -1 at the root.
    log_share, covariates
        `(nodes,)` and `(nodes, p)` public numbers that weights of parts follow; `(0,)` and `(0, 0)` where all weigh 1.
    """

    child_ptr: NDArray[np.int64]
    level_ptr: NDArray[np.int64]
    parent: NDArray[np.int64]
    log_share: NDArray[np.float64]
    covariates: NDArray[np.float64]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def parts(places, state, v):
    """Return the total weight of the inhabited parts among which a place's total is split."""
    first, stop, last = places.child_ptr[v], places.child_ptr[v + 1], places.level_ptr[-2]
    if first < last:
        return float(stop - first)
    whole = 0.0
    for c in range(first, stop):
        whole += state.weight[c] if state.inhabited[c - last] else 0.0
    return whole


@njit(cache=True, error_model="numpy")
def weigh_parts(places, state):
    """Compute the weights of all parts from public shares and covariates."""
    weight, first = state.weight, 1
    while first < weight.size:
        stop, top, whole = first, -np.inf, 0.0
        while stop < weight.size and places.parent[stop] == places.parent[first]:
            weight[stop] = places.log_share[stop]
            for k in range(state.slope.size):
                weight[stop] += places.covariates[stop, k] * state.slope[k]
            top = max(top, weight[stop])
            stop += 1
        for c in range(first, stop):
            weight[c] = math.exp(weight[c] - top)
            whole += weight[c]
        for c in range(first, stop):
            weight[c] = max(weight[c] * (stop - first) / whole, TINY)
        first = stop


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def draw_each(rng, places, state, p, rate):
    """Draw in turn which of those parts of place p that have no persons are inhabited."""
    first, stop, last, lived = places.child_ptr[p], places.child_ptr[p + 1], places.level_ptr[-2], 0
    for v in range(first, stop):
        lived += state.inhabited[v - last]
    for v in range(first, stop):
        lived -= state.inhabited[v - last]
        if state.total[v] == 0 and lived > 0:
            state.inhabited[v - last] = False
            a, t, b = state.a[-1] * parts(places, state, p), state.total[p], state.a[-1] * state.weight[v]
            log = math.lgamma(a + b) - math.lgamma(a) + math.lgamma(t + a) - math.lgamma(t + a + b)
            odds = (1.0 - rate) / rate * math.exp(log)
            state.inhabited[v - last] = rng.random() * (1.0 + odds) < odds
        lived += state.inhabited[v - last]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def log_rise(x, b):
    """Return the log of `Gamma(x + b) / Gamma(b)`."""
    total, product = risen(x, b, 0.0, 1.0)
    return total + math.log(product)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def risen(x, b, total, product):
    """Return `total, product` after the factor `Gamma(x + b) / Gamma(b)` on `exp(total) product`."""
    if x >= PRODUCT:
        return total + math.lgamma(x + b) - math.lgamma(b), product
    for i in range(x):
        product *= b + i
    if MAX_PRODUCT > product > 1.0 / MAX_PRODUCT:
        return total, product
    return total + math.log(product), 1.0


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def log_totals(places, state, level, a):
    """Return the log density of the concentration `a` of the splits of a level's totals."""
    total, product, known, less = 0.0, 1.0, 0.0, 0.0
    for v in range(places.level_ptr[level], places.level_ptr[level + 1]):
        own = a * state.weight[v]
        if state.total[v] < PRODUCT:
            total, product = risen(state.total[v], own, total, product)
        else:
            if own != known:  # mostly all weights are 1
                known, less = own, math.lgamma(own)
            total += math.lgamma(state.total[v] + own) - less
    total += math.log(product)
    for p in range(places.level_ptr[level - 1], places.level_ptr[level]):
        total -= log_rise(state.total[p], a * parts(places, state, p))
    return total


@njit(cache=True, error_model="numpy")
def log_of_slope(places, state, which, slope):
    """Return the log density of a covariate's slope given the totals of all levels."""
    state.slope[which] = slope
    weigh_parts(places, state)
    total = -0.5 * (slope / SLOPE_SD) ** 2
    for level in range(1, places.level_ptr.size - 1):
        total += log_totals(places, state, level, state.a[level])
    return total
