"""Gibbs steps for the compositions and concentrations of the hierarchical prior, given the tables.

    theta_root,j ~ Gamma(r, rate n r),  theta_vj ~ Gamma(kappa_lj theta_parent,j + EVEN, rate kappa_lj / f_vj)
    g_vj ~ Gamma(kappa_j theta_parent,j, rate kappa_j),  x_v | T_v ~ Multinomial(T_v, g_v / sum_j g_vj)   at the lowest places

Cell j varies around the place above with a concentration kappa_j of its own: some groups live apart, others do not. Were all
alike, x_v would be Dirichlet-multinomial around theta_parent. Cells of one value of an attribute vary together besides, by the
factors f_vj (`gibbs_steps`; 1 at the root). `EVEN`, a fiftieth of a table for each column, keeps shares of columns that are empty
above from sinking to 10^-100, where chains would stick for long. It adds up over places: with a tenth, groups of three persons
in a county of 38 groups of blocks came out as 10 to 30 where noise was wide.

At the root r is 1 / sqrt(n), n the number of columns, but no less than `EVEN`: shares have the weight of sqrt(n) counts. Under
r = 1, the weight of n, groups of a few persons were far too large where noise was wide, and the total with them. Under 1 / n,
the weight of one (Perks 1947), groups of some standard deviations of the noise were drawn towards none: of 20 to 50 persons by
1 to 4 where the deviation was 6.5, which made squared errors larger than the default release's.

Given each place's size s_v and cell of one person more (`sizes`), cells are independent: with b_vj = kappa_j theta_parent,j
the factor of cell j is `kappa_j^b_vj Gamma(x_vj + e_vj + b_vj) / (Gamma(b_vj) x_vj! (kappa_j + s_v)^(x_vj + e_vj + b_vj))`.

*Compositions.* Given auxiliary counts m_vj, the number of tables of a Chinese restaurant with x_vj + e_vj guests and
concentration b_vj, theta above has its own Gamma law times `theta_j^(m_j) exp(-c_j theta_j)`, with m_j = sum_v m_vj and
c_j = sum_v kappa_j log(1 + s_v / kappa_j): Gamma again. One level up, m is in the place of x and c f in that of s (Teh,
Jordan, Beal and Blei 2006, "Hierarchical Dirichlet processes", section 5.2; with gamma laws, Zhou and Carin 2015, "Negative
binomial process count and mixture modeling").

*Concentrations.* Given a level's guests and rates the density of its kappa_j is negative binomial, that level's own
compositions integrated out: given these as well it would move in steps far shorter than its posterior is wide. For the same
reason all kappa_j of the lowest level and their sizes are scaled together in a step of its own, which changes the b_j alone.
The density of a is the splits' own. All have lognormal priors, that of the kappa_j around a median `common`, and are drawn by
slices of their logs (Neal 2003).
"""

from __future__ import annotations

import math

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.gibbs_steps import (
    EVEN,
    TINY,
    draw_factors,
    draw_rates,
    left_after,
    occupied,
)
from trueup.kernel.table_walks.rates import LARGEST_SIZE
from trueup.kernel.table_walks.weights import (
    MAX_PRODUCT,
    PRODUCT,
    log_of_slope,
    log_totals,
    risen,
    weigh_parts,
)

MIN_RATE_FACTOR = 1e-2
"""Factor of rates beyond which its powers are logs, for the same reason."""
WIDTH, OUT, MIN_SLICE_WIDTH = 1.0, 20, 1e-12
"""First width of a slice, steps out of it at most, and the width at which it is empty."""
MAX_LOG_CONCENTRATION = 12.0
"""A concentration's log lies within so much of 0."""
TOTALS, CELL, SCALE, SLOPE = 0, 1, 2, 3
"""Codes of the quantity a slice draws: a concentration of totals, a cell's, the lowest level's factor, a covariate's slope."""


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _seated(places, state, room, level, v, j):
    """Return the guests (Chinese restaurant process) at a cell of a place, and the rate of the cell."""
    first, last = places.level_ptr[level], places.level_ptr.size - 2
    if level == last:
        return state.x[v - first, j] + (state.spare[v - first] == j), state.size[v - first]
    return int(room[0, v, j]), room[1, v, j] * state.factor[v, j]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _rates(places, state, room, level):
    """Add up the rates of the cells of a level's places, for the level above."""
    room[1, places.level_ptr[level - 1] : places.level_ptr[level]] = 0.0
    for v in range(places.level_ptr[level], places.level_ptr[level + 1]):
        for j in range(state.theta.shape[1]):
            _, rate = _seated(places, state, room, level, v, j)
            room[1, places.parent[v], j] += state.kappa[level, j] * math.log1p(rate / state.kappa[level, j])


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _seat(rng, places, state, room, level):
    """Draw the number of tables of each place in the Chinese restaurant process.

    The tables of one level are the guests of the level above.
    """
    even = 0.0 if level == places.level_ptr.size - 2 else EVEN
    room[0, places.level_ptr[level - 1] : places.level_ptr[level]] = 0.0
    for v in range(places.level_ptr[level], places.level_ptr[level + 1]):
        p = places.parent[v]
        for j in range(state.theta.shape[1]):
            n, _ = _seated(places, state, room, level, v, j)
            if n > 0:
                around = max(state.kappa[level, j] * state.theta[p, j], TINY)
                seated = occupied(rng, n, around + even)
                room[0, p, j] += seated if even == 0.0 else left_after(rng, seated, even / (around + even))


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def log_cell_concentration(places, state, room, level, j, kappa):
    """Return the log density of a cell's concentration at a level, with compositions integrated out.

    With h = kappa / (kappa + s) a place's factor is `Gamma(n + b) / Gamma(b) h^(b + n) / kappa^n`, and siblings have one b.
    """
    total, product, guests, even = 0.0, 1.0, 0.0, 0.0 if level == places.level_ptr.size - 2 else EVEN
    for p in range(places.level_ptr[level - 1], places.level_ptr[level]):
        b, passed = max(kappa * state.theta[p, j], TINY) + even, 1.0
        for v in range(places.child_ptr[p], places.child_ptr[p + 1]):
            n, rate = _seated(places, state, room, level, v, j)
            h = kappa / (kappa + rate)
            guests += n
            if h > MIN_RATE_FACTOR:
                passed *= h
            else:  # where shares are near zero sizes have no end, and products of two would vanish
                total += b * math.log(h)
            if passed < 1.0 / MAX_PRODUCT:
                total, passed = total + b * math.log(passed), 1.0
            if n < PRODUCT and h > MIN_RATE_FACTOR:
                for i in range(n):
                    product *= (b + i) * h
                if not MAX_PRODUCT > product > 1.0 / MAX_PRODUCT:
                    total, product = total + math.log(product), 1.0
            else:
                total += math.lgamma(n + b) - math.lgamma(b) + n * math.log(h)
        total += b * math.log(passed)
    return total + math.log(product) - guests * math.log(kappa)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def log_common_factor(places, state, room, factor):
    """Return the log density of a factor common to all concentrations and sizes on the lowest level."""
    total, product, last = 0.0, 1.0, places.level_ptr.size - 2
    for v in range(places.level_ptr[last - 1], places.level_ptr[last]):
        for j in range(state.theta.shape[1]):
            total -= factor * state.theta[v, j] * room[1, v, j]
    for v in range(places.level_ptr[last], places.level_ptr[last + 1]):
        p = places.parent[v]
        for j in range(state.theta.shape[1]):
            n, _ = _seated(places, state, room, last, v, j)
            around = max(factor * state.kappa[last, j] * state.theta[p, j], TINY)
            total, product = risen(n, around, total, product)
    return total + math.log(product)


@njit(cache=True, error_model="numpy")
def _density(places, state, room, hyper, what, level, which, log):
    """Return the log density of the log of one parameter (`what`) of a level, a cell or a place."""
    if what == SLOPE:
        return log_of_slope(places, state, which, log)
    value = math.exp(log)
    if abs(log) > MAX_LOG_CONCENTRATION:
        return -np.inf
    if what == TOTALS:
        apart = (log - math.log(hyper.a)) / hyper.a_spread
        return log_totals(places, state, level, value) - 0.5 * apart * apart
    if what == CELL:
        apart = (log - math.log(state.common[level])) / hyper.cell_spread
        return log_cell_concentration(places, state, room, level, which, value) - 0.5 * apart * apart
    if (
        math.log(state.kappa[level].max()) + log > MAX_LOG_CONCENTRATION
        or math.log(state.kappa[level].min()) + log < -MAX_LOG_CONCENTRATION
    ):
        return -np.inf
    apart = (log + math.log(state.common[level] / hyper.kappa)) / hyper.kappa_spread
    return log_common_factor(places, state, room, value) - 0.5 * apart * apart


@njit(cache=True, error_model="numpy")
def slice_sample(rng, places, state, room, hyper, what, level, which, value):
    """Draw a positive parameter by slice sampling of its log, or return it if its density is undefined."""
    log = math.log(value)
    floor = _density(places, state, room, hyper, what, level, which, log) + math.log(1.0 - rng.random())
    low = log - WIDTH * rng.random()
    high = low + WIDTH
    for _ in range(OUT):
        if _density(places, state, room, hyper, what, level, which, low) <= floor:
            break
        low -= WIDTH
    for _ in range(OUT):
        if _density(places, state, room, hyper, what, level, which, high) <= floor:
            break
        high += WIDTH
    while high - low > MIN_SLICE_WIDTH:
        fresh = low + (high - low) * rng.random()
        if _density(places, state, room, hyper, what, level, which, fresh) > floor:
            return math.exp(fresh)
        low, high = (fresh, high) if fresh < log else (low, fresh)
    return value


@njit(cache=True, error_model="numpy")
def _learn(rng, places, state, open_, room, hyper, level):
    """Draw the concentrations of all cells at a level, and their common median."""
    held, apart, wide = 1.0 / hyper.kappa_spread**2, 1.0 / hyper.cell_spread**2, 0.0
    mean = held * math.log(hyper.kappa)
    state.a[level] = slice_sample(rng, places, state, room, hyper, TOTALS, level, 0, state.a[level])
    for j in range(open_.size):
        if open_[j] > 0.0:
            state.kappa[level, j] = slice_sample(
                rng, places, state, room, hyper, CELL, level, j, state.kappa[level, j]
            )
            mean += apart * math.log(state.kappa[level, j])
            wide += apart
    state.common[level] = math.exp(mean / (held + wide) + rng.normal() / math.sqrt(held + wide))


@njit(cache=True, error_model="numpy")
def _draw_slopes(rng, places, state, room, hyper):
    """Draw the slopes of the covariates, and update the weights of the parts of places."""
    for k in range(state.slope.size):
        given = math.exp(state.slope[k])
        state.slope[k] = math.log(slice_sample(rng, places, state, room, hyper, SLOPE, 0, k, given))
        weigh_parts(places, state)


@njit(cache=True, error_model="numpy")
def _scale(rng, places, state, open_, room, hyper):
    """Scale the concentrations and sizes on the lowest level by a common random factor."""
    last = places.level_ptr.size - 2
    factor = slice_sample(rng, places, state, room, hyper, SCALE, last, 0, 1.0)
    state.common[last] *= factor
    for i in range(state.size.size):
        state.size[i] = min(state.size[i] * factor, LARGEST_SIZE)
    for j in range(open_.size):
        if open_[j] > 0.0:
            state.kappa[last, j] *= factor
        for p in range(places.level_ptr[last - 1], places.level_ptr[last]):
            room[1, p, j] *= factor


@njit(cache=True, error_model="numpy")
def draw_prior(rng, places, state, open_, alike, room, hyper, learn):
    """Draw the compositions of places and, if requested, the estimated parameters of the prior.

    Parameters
    ----------
    open_
        `(n,)` 1 for columns that may be other than zero.
    alike
        Columns of one value of an attribute.
    room
        Guests and rates `(2, places above the lowest, n)`.
    hyper
        Lognormal hyperprior: medians, and standard deviations of logs.
    learn
        True to draw factors, concentrations and rates as well.
    """
    last = places.level_ptr.size - 2
    if learn:
        draw_rates(rng, places, state)
        _draw_slopes(rng, places, state, room, hyper)
    for level in range(last, 0, -1):
        if learn and level < last:
            draw_factors(rng, places, state, alike, room, hyper, level)
        if learn:
            _learn(rng, places, state, open_, room, hyper, level)
        _rates(places, state, room, level)
        if learn and level == last:
            _scale(rng, places, state, open_, room, hyper)
        _seat(rng, places, state, room, level)
    for v in range(places.level_ptr[last]):
        for j in range(open_.size):
            shape = max(1.0 / math.sqrt(open_.sum()), EVEN)
            rate = open_.sum() * shape
            if v > 0:
                level = _level_of(places, v)
                rate = state.kappa[level, j] / state.factor[v, j]
                shape = state.kappa[level, j] * state.theta[places.parent[v], j] + EVEN
            fresh = rng.standard_gamma(shape + room[0, v, j]) / (rate + room[1, v, j])
            state.theta[v, j] = max(fresh, TINY) * open_[j]


@njit(cache=True, error_model="numpy")
def _level_of(places, v):
    level = 0
    while places.level_ptr[level + 1] <= v:
        level += 1
    return level
