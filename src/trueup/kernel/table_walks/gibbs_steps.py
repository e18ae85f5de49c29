"""Gibbs steps of auxiliary variables of the hierarchical prior.

*Tables of a Chinese restaurant* are auxiliary counts that make concentrations and shares conjugate:
`Gamma(n + b) / Gamma(b)` is a sum over numbers m of tables of `b^m` times what does not depend on b (Antoniak 1974).

*Uninhabited lowest places*, which splits of totals pass over.
Before totals are known, each of a place's C lowest parts is uninhabited with probability w, all of them never:
`w^(C - I) (1 - w)^I / (1 - w^C)`, I the number of inhabited ones. The place's total is split among these. Were all
inhabited, as many empty places as blocks have would ask for a small concentration, under which the others' totals spread
too far. A group of blocks in a town has few uninhabited ones, one with a park many: w has a beta law of mean m and strength s
(the sum of its parameters) over places, and both are drawn. Parts with persons are inhabited, l of them. Given the totals the
others are alike, so that how many of them are inhabited, k of n, is drawn in proportion to
`C(n, k) (1 - w)^k w^(n - k) Gamma((l + k) a) / Gamma(T + (l + k) a)`, then which.

*Their rates.* With each place's attempts at which all parts would have been uninhabited, geometric of ratio w^C, w is beta, and
can be integrated out: with E uninhabited parts and those of the attempts, `B(m s + E, (1 - m) s + I) / B(m s, (1 - m) s)`. Given
tables of restaurants with E and I guests and a beta number of parameters s and E + I, m is beta and s gamma. A
part that has no siblings is inhabited, and says nothing of w.

*Common factors* of cells with one attribute value, varying between places above the lowest:

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
from trueup.kernel.table_walks.weights import TINY, draw_each

MIN_SEATED_GUESTS, SEATED_PER_CONCENTRATION = 12, 25.0
"""Guests of a restaurant who are seated one by one: so many, or this times the concentration, until few take new tables."""
MIN_NORMAL_CONCENTRATION, MIN_NORMAL_GUESTS = 10.0, 1_000
"""Concentration and guests above which tables are drawn by a normal law: one by one they would take most of a sweep."""


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _by_normal_law(rng, guests, alpha):
    """Draw a number of restaurant tables from a rounded normal law with its third cumulant."""
    # With p = alpha / (alpha + i) cumulants are the sums of p, of p - p^2 and of p - 3 p^2 + 2 p^3, by Euler and Maclaurin.
    near, far = 1.0 / alpha, 1.0 / (alpha + guests)
    mean = alpha * (math.log1p(guests / alpha) + 0.5 * (near - far))
    squares = alpha * alpha * (near - far + 0.5 * (near * near - far * far))
    cubes = 0.5 * alpha**3 * (near * near - far * far + near**3 - far**3)
    z, variance = rng.normal(), max(mean - squares, 1e-9)
    skew = min(max((mean - 3.0 * squares + 2.0 * cubes) / variance, -1.0), 1.0)
    drawn = mean + math.sqrt(variance) * z + skew / 6.0 * (z * z - 1.0)
    return min(max(math.floor(drawn + 0.5), 1), guests)


@njit(cache=True, error_model="numpy")
def occupied(rng, guests, alpha):
    """Draw how many tables `guests` occupy in a Chinese restaurant process with parameter `alpha`.

    Beyond the first few, new tables come as points of rate `log(1 + alpha / i)` on [i, i + 1), at most one each, thinned
    from the rate alpha / (s - 1), so that the time is that of the tables, not of the guests.
    """
    if alpha > MIN_NORMAL_CONCENTRATION and guests > MIN_NORMAL_GUESTS:
        return _by_normal_law(rng, guests, alpha)
    count, i = min(guests, 1), 1
    few = min(float(guests), max(MIN_SEATED_GUESTS, SEATED_PER_CONCENTRATION * alpha))
    while i < few:
        if rng.random() * (alpha + i) < alpha:
            count += 1
        i += 1
    s = float(i)
    while i < guests:
        s = 1.0 + (s - 1.0) * math.exp(min(-math.log(1.0 - rng.random()) / alpha, 700.0))
        if not s < guests:
            return count
        k = math.floor(s)
        if rng.random() * alpha < math.log1p(alpha / k) * (s - 1.0):
            count += 1
            s = k + 1.0
    return count


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def left_after(rng, count, share):
    """Draw the number left of `count` objects if each is removed with probability `share`."""
    left, at, step = count, 0.0, math.log1p(-share)
    while True:
        at += math.floor(math.log(1.0 - rng.random()) / step) + 1.0
        if at > count:
            return left
        left -= 1


MEAN, STRENGTH = (0.5, 1.0), (2.0, 0.1)
"""Hyperpriors of the beta law of rates of uninhabited places: of its mean, beta, half below a quarter, much near zero; of the
sum of its parameters, gamma (shape and rate)."""
MIN_RATE = 1e-12
"""Rates lie within so much of 0 and 1, so that logs of odds are numbers."""


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _how_many(rng, weights, rate, a, total, lived, empty):
    """Draw how many of the `empty` places are inhabited, given `lived` places with `total` persons."""
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
    """Draw, for all lowest places without persons, whether they are inhabited."""
    child_ptr, last, total = places.child_ptr, places.level_ptr[-2], state.total
    most = 0
    for p in range(child_ptr.size - 1):
        most = max(most, child_ptr[p + 1] - child_ptr[p])
    weights = np.empty(most + 1)
    for p in range(places.level_ptr[-3], last):
        first, stop, rate = child_ptr[p], child_ptr[p + 1], state.rate[p - places.level_ptr[-3]]
        if places.log_share.size > 0:
            draw_each(rng, places, state, p, rate)
            continue
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
    """Draw the beta law of the shares of uninhabited places, and then the shares themselves."""
    first, count = places.level_ptr[-3], state.rate.size
    empty, lived = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for p in range(count):
        children = places.child_ptr[first + p + 1] - places.child_ptr[first + p]
        if children > 1:
            below = places.child_ptr[first + p] - places.level_ptr[-2]
            lived[p] = state.inhabited[below : below + children].sum()
            failed = math.floor(math.log(1.0 - rng.random()) / (children * math.log(state.rate[p])))
            empty[p] = children - lived[p] + failed * children
    _draw_law(rng, empty, lived, state.rates_law)
    mean, strength = state.rates_law
    for p in range(count):
        rate = rng.beta(mean * strength + empty[p], (1.0 - mean) * strength + lived[p])
        state.rate[p] = min(max(rate, MIN_RATE), 1.0 - MIN_RATE)


@njit(cache=True, error_model="numpy")
def _draw_law(rng, empty, lived, law):
    """Draw mean and strength of the beta law of the shares of uninhabited places."""
    mean, strength = law
    ones, others, wide = 0, 0, 0.0
    for p in range(empty.size):
        if empty[p] + lived[p] > 0:
            ones += occupied(rng, empty[p], mean * strength)
            others += occupied(rng, lived[p], (1.0 - mean) * strength)
            wide -= math.log(max(rng.beta(strength, float(empty[p] + lived[p])), MIN_RATE))
    law[0] = min(max(rng.beta(MEAN[0] + ones, MEAN[1] + others), MIN_RATE), 1.0 - MIN_RATE)
    law[1] = rng.standard_gamma(STRENGTH[0] + ones + others) / (STRENGTH[1] + wide)


EVEN = 0.02
MIN_ARC_RADIANS = 1e-10
"""Arc of a slice (radians) at which it is empty."""
SCORE, SPREAD, CENTRED = 0, 1, 2
"""Codes of the drawn quantity: a place's score, a spread given scores, a spread given factors."""


class Alike(NamedTuple):
    """The columns that belong to each value of an attribute."""

    ptr: NDArray[np.int64]
    columns: NDArray[np.int64]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _log_place(places, state, alike, room, level, v, k, move):
    """Return the log density of multiplying a place's factor of value k by `exp(move)`."""
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
    """Return the log likelihood of a score or a spread of value k."""
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
def _ellipse(rng, given, level, what, v, k, normal):
    """Draw a parameter with a standard normal prior by elliptical slice sampling."""
    other = rng.normal()
    floor = _density(*given, level, what, v, k, normal) + math.log(1.0 - rng.random())
    high = 2.0 * math.pi * rng.random()
    low, angle = high - 2.0 * math.pi, high
    while high - low > MIN_ARC_RADIANS:
        fresh = normal * math.cos(angle) + other * math.sin(angle)
        if _density(*given, level, what, v, k, fresh) > floor:
            return fresh
        low, high = (angle, high) if angle < 0.0 else (low, angle)
        angle = low + (high - low) * rng.random()
    return normal


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _multiply(state, alike, v, k, move):
    """Multiply a place's factors by `exp(move)` at the cells of value k."""
    for i in range(alike.ptr[k], alike.ptr[k + 1]):
        state.factor[v, alike.columns[i]] *= math.exp(move)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _set_factors(places, state, alike, level):
    """Compute the factors of all places of a level from the places' scores and the level's spreads."""
    for v in range(places.level_ptr[level], places.level_ptr[level + 1]):
        state.factor[v] = 1.0
        for k in range(alike.ptr.size - 1):
            _multiply(state, alike, v, k, state.spread[level, k] * state.score[v, k])


@njit(cache=True, error_model="numpy")
def draw_factors(rng, places, state, alike, room, hyper, level):
    """Draw the factors of the places of a level, and the spreads of these factors."""
    first, stop = places.level_ptr[level], places.level_ptr[level + 1]
    given = places, state, alike, room, hyper
    for v in range(first, stop):
        for k in range(alike.ptr.size - 1):
            z = _ellipse(rng, given, level, SCORE, v, k, state.score[v, k])
            _multiply(state, alike, v, k, state.spread[level, k] * (z - state.score[v, k]))
            state.score[v, k] = z
    for k in range(alike.ptr.size - 1):
        for what in (SPREAD, CENTRED):
            tau = state.spread[level, k]
            normal = math.log(tau / hyper.factor) / hyper.factor_spread
            fresh = _spread(hyper, _ellipse(rng, given, level, what, -1, k, normal))
            for v in range(first, stop):
                if what == SPREAD:
                    _multiply(state, alike, v, k, (fresh - tau) * state.score[v, k])
                else:
                    state.score[v, k] *= tau / fresh
            state.spread[level, k] = fresh
    _set_factors(places, state, alike, level)
