"""Gibbs steps, by slice sampling, of compositions and concentrations of the prior of linked tables.

    theta_root ~ Dirichlet(1, .., 1),  theta_v ~ Dirichlet(kappa_l theta_parent + EVEN)                 in every pool
    x_v | D_v, theta_parent ~ Dirichlet-multinomial(kappa theta_parent)                                 at the lowest places

Two shares of a composition are drawn at a time given their sum, by a slice of the log of their ratio (Neal 2003). Unlike the
tables of Chinese restaurants of `compositions`, whose number grows with the concentration, this takes the same time
whatever the counts: a million persons around a share that is known to a thousandth are no exception here.

Laplace noise as a mixture of normal laws with drawn variances.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.compositions import MAX_LOG_CONCENTRATION, OUT, TINY, WIDTH
from trueup.kernel.table_walks.linked import LinkedValues, log_gamma
from trueup.kernel.table_walks.weights import SLOPE_SD, weigh_parts

EVEN_TABLES = 0.1
"""Of a table for each column: slices of shares stick where these are next to nothing, sooner than the draws of `compositions`."""
MIN_FIRST_WIDTH = 0.1
"""First width of a slice of a concentration that many places tell of, at least."""
TOTALS, KAPPA, SHARES, SLOPE = 0, 1, 2, 3
"""Codes of the quantity a slice draws: a concentration of totals or of compositions, two shares, a covariate's slope."""


@njit(cache=True, error_model="numpy", _nrt=False)
def _climbs(counts, b):
    """Return the sum over counts x of `log(Gamma(x + b) / Gamma(b))`."""
    total, base = 0.0, log_gamma(b)
    for x in counts:
        if x > 0:
            total += log_gamma(x + b) - base
    return total


@njit(cache=True, error_model="numpy", _nrt=False)
def _log_totals(places, state, level, log, hyper):
    """Return the log density of the log concentration by which a level's totals are split."""
    a, total, known, base = math.exp(log), 0.0, 0.0, 0.0
    for v in range(places.level_ptr[level], places.level_ptr[level + 1]):
        own = a * state.weight[v]
        if own != known:  # mostly all weights are 1
            known, base = own, log_gamma(own)
        if state.total[v] > 0:
            total += log_gamma(state.total[v] + own) - base
    for p in range(places.level_ptr[level - 1], places.level_ptr[level]):
        total -= _climbs(state.total[p : p + 1], a * (places.child_ptr[p + 1] - places.child_ptr[p]))
    return total - 0.5 * ((log - math.log(hyper[0])) / hyper[1]) ** 2


@njit(cache=True, error_model="numpy", _nrt=False)
def _log_children(places, state, level, v, c, around):
    """Return the log density of column c at the children of place v, given the column's concentration."""
    first, last = places.child_ptr[v], places.child_ptr[v + 1]
    if level + 1 == places.level_ptr.size - 2:
        first, last = first - places.level_ptr[level + 1], last - places.level_ptr[level + 1]
        return _climbs(state.x[first:last, c], around)
    total = -(last - first) * log_gamma(around + EVEN_TABLES)
    for u in range(first, last):
        total += (around + EVEN_TABLES - 1.0) * math.log(state.theta[u, c])
    return total


@njit(cache=True, error_model="numpy", _nrt=False)
def _log_kappa(places, state, columns, g, level, log, hyper):
    """Return the log posterior density of a group of columns' log concentration at one level."""
    kappa, total = math.exp(log), -0.5 * ((log - math.log(hyper[2])) / hyper[3]) ** 2
    for p in range(places.level_ptr[level - 1], places.level_ptr[level]):
        for c in columns:
            total += _log_children(places, state, level - 1, p, c, max(kappa * state.theta[p, c], TINY))
    first, last = places.level_ptr[level], places.level_ptr[level + 1]
    if level < places.level_ptr.size - 2:
        return total + (last - first) * log_gamma(kappa + EVEN_TABLES * columns.size)
    return total - _climbs(state.total[first:last] if g == 0 else state.sums[:, g], kappa)


@njit(cache=True, error_model="numpy", _nrt=False)
def _log_shares(places, state, g, level, v, i, j, whole, log):
    """Return the log density of the log ratio of two shares of a place, given the sum of the shares."""
    share, total = whole / (1.0 + math.exp(-log)), 0.0
    kappa = state.kappa[level + 1, g]
    for c, theta in ((i, max(share, TINY)), (j, max(whole - share, TINY))):
        alpha = 1.0 if level == 0 else state.kappa[level, g] * state.theta[places.parent[v], c] + EVEN_TABLES
        total += alpha * math.log(theta)
        total += _log_children(places, state, level, v, c, max(kappa * theta, TINY))
    return total


@njit(cache=True, error_model="numpy", _nrt=False)
def _log_slope(places, state, k, slope, hyper):
    """Return the log density of a covariate's slope given the totals of all levels."""
    state.slope[k] = slope
    weigh_parts(places, state)
    total = -0.5 * (slope / SLOPE_SD) ** 2
    for level in range(1, places.level_ptr.size - 1):
        total += _log_totals(places, state, level, math.log(state.a[level]), hyper)
    return total


@njit(cache=True, error_model="numpy", _nrt=False)
def _density(given, log):
    """Return the log density, up to a constant, of the log parameter that `_slice` draws."""
    places, state, columns, hyper, which, g, level, v, i, j, whole = given
    if abs(log) > (MAX_LOG_CONCENTRATION if which < SHARES else 200.0):
        return -np.inf
    if which == TOTALS:
        return _log_totals(places, state, level, log, hyper)
    if which == KAPPA:
        return _log_kappa(places, state, columns, g, level, log, hyper)
    if which == SLOPE:
        return _log_slope(places, state, v, log, hyper)
    return _log_shares(places, state, g, level, v, i, j, whole, log)


@njit(cache=True, error_model="numpy", _nrt=False)
def _slice(rng, given, log, width):
    """Draw the log of a parameter by slice sampling, starting from its present value.

    Parameters
    ----------
    given
        `places, state, columns, hyper`; which log; pool and level; for shares the place, two columns, and their sum.
    """
    floor = _density(given, log) + math.log(1.0 - rng.random())
    low = log - width * rng.random()
    high = low + width
    for _ in range(OUT):
        if _density(given, low) <= floor:
            break
        low -= width
    for _ in range(OUT):
        if _density(given, high) <= floor:
            break
        high += width
    while high - low > 1e-12:
        fresh = low + (high - low) * rng.random()
        if _density(given, fresh) > floor:
            return fresh
        low, high = (fresh, high) if fresh < log else (low, fresh)
    return log


@njit(cache=True, error_model="numpy")
def draw_linked_prior(rng, places, state, columns, g, hyper, learn):
    """Draw the compositions and estimated concentrations of one pool given the tables.

    Parameters
    ----------
    columns
        Columns of pool `g`; the concentration of totals is drawn with the free pool, 0.
    hyper
        Medians and standard deviations of the logs of the concentrations: of totals, then of compositions `(4,)`.
    learn
        True to draw concentrations as well.
    """
    _draw_all(rng, places, state, columns, g, hyper, learn)


@njit(cache=True, error_model="numpy", _nrt=False)
def _draw_all(rng, places, state, columns, g, hyper, learn):
    levels, given = places.level_ptr.size - 1, (places, state, columns, hyper)
    for k in range(state.slope.size if learn and g == 0 else 0):
        none = (k, 0, 0, 0.0)
        state.slope[k] = _slice(rng, (*given, SLOPE, g, 0, *none), state.slope[k], WIDTH)
        weigh_parts(places, state)
    for level in range(levels - 1, 0, -1):
        none = (0, 0, 0, 0.0)
        own = (places.level_ptr[level + 1] - places.level_ptr[level]) * max(columns.size - 1, 1)
        width = min(max(6.0 / math.sqrt(own), MIN_FIRST_WIDTH), WIDTH)
        if learn and g == 0:
            log = math.log(state.a[level])
            state.a[level] = math.exp(_slice(rng, (*given, TOTALS, g, level, *none), log, width))
        if learn and columns.size > 1:
            log = math.log(state.kappa[level, g])
            state.kappa[level, g] = math.exp(_slice(rng, (*given, KAPPA, g, level, *none), log, width))
    for level in range(levels - 2, -1, -1):
        for v in range(places.level_ptr[level], places.level_ptr[level + 1]):
            first, children = int(rng.random() * columns.size), places.child_ptr[v + 1] - places.child_ptr[v]
            for k in range(columns.size - (columns.size == 2)):
                i = columns[(first + k) % columns.size]
                j = columns[int(rng.random() * columns.size)]
                if columns.size == 2:
                    j = columns[0] + columns[1] - i
                if i == j:
                    continue
                whole = state.theta[v, i] + state.theta[v, j]
                log = math.log(state.theta[v, i] / state.theta[v, j])
                width = 4.0 / math.sqrt(whole * (state.kappa[level + 1, g] * children + 4.0))
                log = _slice(rng, (*given, SHARES, g, level, v, i, j, whole), log, width)
                state.theta[v, i] = max(whole / (1.0 + math.exp(-log)), TINY)
                state.theta[v, j] = max(whole / (1.0 + math.exp(log)), TINY)


MIN_GAP_SCALES = 1e-4
"""Least gap of a count and its value that are not equal (scales of Laplace noise)."""


def normal_given_variances(
    rng: np.random.Generator, known: LinkedValues, gap: NDArray[np.float64]
) -> LinkedValues:
    """Return Laplace noise as normal noise with drawn variances, given the present errors.

    As exp(-s |d|) is the integral of V^(-1/2) exp(-d^2 / (2 V) - s^2 V / 2), but for a factor, V being exponential before d is
    known, 1 / V is inverse normal given d (Andrews and Mallows 1974, "Scale mixtures of normal distributions"), and s^2 V
    chi-squared of one degree where d is 0. Far from zero, where the normal law of the noise's own variance would hardly ever
    return, V is large.
    """
    at = known.slope > 0
    if not at.any():
        return known
    curve, slope, far = known.curve.copy(), known.slope[at], np.abs(gap[at])
    near = slope**2 / rng.chisquare(1.0, far.size)
    curve[at] += 0.5 * np.where(
        far > 0, rng.wald(slope / np.maximum(far, MIN_GAP_SCALES / slope), slope**2), near
    )
    return known._replace(slope=np.where(at, 0.0, known.slope), curve=curve)
