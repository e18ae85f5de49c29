"""Compositions and concentrations of the hierarchical prior of histograms, drawn given the tables (Gibbs steps).

    theta_root ~ Dirichlet(1, .., 1),  theta_v ~ Dirichlet(kappa_l theta_parent + EVEN),
    x_v | T_v, theta_parent ~ Dirichlet-multinomial(kappa theta_parent)  at the lowest places

`EVEN`, a tenth of a table for each column, keeps shares of columns that are empty above from sinking to 10^-100, where
chains would stick for long: a composition of 16 columns weighs that less than two of its hundreds of tables.

Given auxiliary counts m_vj, the number of tables of a Chinese restaurant with x_vj guests and concentration kappa
theta_j, the composition of the place above is Dirichlet with its own law's parameters plus sum_v m_v, whose guests these are
in turn (Teh, Jordan, Beal and Blei 2006, "Hierarchical Dirichlet processes", section 5.2, with a finite base). Given a
level's guests the density of its kappa is Dirichlet-multinomial, that level's own compositions integrated out: given the tables
as well it would move in steps far shorter than its posterior is wide. The density of a is the splits' own. Both have
lognormal priors and are drawn by slices of their logs (Neal 2003).
"""

from __future__ import annotations

import math

import numpy as np

from trueup.kernel.compiled import njit

EVEN = 0.1
TINY = 1e-100
"""Least share: below it a count of one more is as good as impossible."""
WIDTH, OUT = 1.0, 20
"""First width of a slice, and steps out of it at most."""
FAR = 12.0
"""A concentration's log lies within so much of 0."""


@njit(cache=True, nogil=True, error_model="numpy")
def occupied(rng, guests, alpha):
    """Draw how many tables `guests` of a Chinese restaurant occupy: guest i + 1 a new one with probability alpha / (alpha + i).

    Beyond the first two, new tables come as points of rate `log(1 + alpha / i)` on [i, i + 1), at most one each, thinned
    from the rate alpha / (s - 1), so that the time is that of the tables, not of the guests.
    """
    count, i = 0, 0
    while i < min(guests, 2):
        if i == 0 or rng.random() * (alpha + i) < alpha:
            count += 1
        i += 1
    s = 2.0
    while True:
        s = 1.0 + (s - 1.0) * math.exp(min(-math.log(1.0 - rng.random()) / alpha, 700.0))
        if not s < guests:
            return count
        k = math.floor(s)
        if rng.random() * alpha < math.log1p(alpha / k) * (s - 1.0):
            count += 1
            s = k + 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def _seat(rng, places, state, guests, level):
    """Draw the tables of the places of a level: the guests of those above."""
    first, last = places.level_ptr[level], places.level_ptr.size - 2
    even = 0.0 if level == last else EVEN
    guests[places.level_ptr[level - 1] : first] = 0
    for v in range(first, places.level_ptr[level + 1]):
        p = places.parent[v]
        for j in range(state.theta.shape[1]):
            n = state.x[v - first, j] if level == last else guests[v, j]
            if n > 0:
                around = max(state.kappa[level] * state.theta[p, j], TINY)
                for _ in range(occupied(rng, n, around + even)):
                    guests[p, j] += rng.random() * (around + even) < around


@njit(cache=True, nogil=True, error_model="numpy")
def _rise(x, b):
    """Log of `Gamma(x + b) / Gamma(b)`."""
    if x < 6:
        total = 1.0
        for i in range(x):
            total *= b + i
        return math.log(total)
    return math.lgamma(x + b) - math.lgamma(b)


@njit(cache=True, nogil=True, error_model="numpy")
def _log_kappa(places, state, open_, guests, level, log, median, spread):
    """Log density of log kappa given the guests of a level, whose own compositions are integrated out."""
    kappa, total = math.exp(log), 0.0
    first, last = places.level_ptr[level], places.level_ptr.size - 2
    even = 0.0 if level == last else EVEN
    whole = kappa + even * open_.sum()
    for v in range(first, places.level_ptr[level + 1]):
        above, all_ = state.theta[places.parent[v]], 0
        for j in range(above.size):
            n = state.x[v - first, j] if level == last else guests[v, j]
            if n > 0:
                total += _rise(n, max(kappa * above[j], TINY) + even)
                all_ += n
        if all_ > 0:
            total -= _rise(all_, whole)
    return total - 0.5 * ((log - math.log(median)) / spread) ** 2


@njit(cache=True, nogil=True, error_model="numpy")
def _log_a(places, state, level, log, median, spread):
    """Log density of log a given the totals."""
    a, total = math.exp(log), 0.0
    for v in range(places.level_ptr[level], places.level_ptr[level + 1]):
        total += _rise(state.total[v], a)
    for p in range(places.level_ptr[level - 1], places.level_ptr[level]):
        total -= _rise(state.total[p], a * (places.child_ptr[p + 1] - places.child_ptr[p]))
    return total - 0.5 * ((log - math.log(median)) / spread) ** 2


@njit(cache=True, nogil=True, error_model="numpy")
def _slice(rng, places, state, open_, guests, level, which, median, spread):
    """A draw of one log concentration by a slice: of totals (`which` 0) or of compositions (1)."""
    log = math.log(state.a[level] if which == 0 else state.kappa[level])
    value = _density(places, state, open_, guests, level, which, log, median, spread)
    floor = value + math.log(1.0 - rng.random())
    low = log - WIDTH * rng.random()
    high = low + WIDTH
    for _ in range(OUT):
        if low <= -FAR or _density(places, state, open_, guests, level, which, low, median, spread) <= floor:
            break
        low -= WIDTH
    for _ in range(OUT):
        if high >= FAR or _density(places, state, open_, guests, level, which, high, median, spread) <= floor:
            break
        high += WIDTH
    while True:
        fresh = low + (high - low) * rng.random()
        if _density(places, state, open_, guests, level, which, fresh, median, spread) > floor:
            return math.exp(fresh)
        low, high = (fresh, high) if fresh < log else (low, fresh)


@njit(cache=True, nogil=True, error_model="numpy")
def _density(places, state, open_, guests, level, which, log, median, spread):
    if abs(log) > FAR:
        return -np.inf
    if which == 0:
        return _log_a(places, state, level, log, median, spread)
    return _log_kappa(places, state, open_, guests, level, log, median, spread)


@njit(cache=True, nogil=True, error_model="numpy")
def _dirichlet(rng, weights, out):
    for j in range(weights.size):
        out[j] = rng.standard_gamma(weights[j]) if weights[j] > 0.0 else 0.0
    total = out.sum()
    for j in range(weights.size):
        if weights[j] > 0.0:
            out[j] = max(out[j] / total, TINY) if total > 0.0 else TINY
    if not total > 0.0:  # all weights are tiny: all of the mass on one, in proportion
        left, at = rng.random() * weights.sum(), 0
        for j in range(weights.size):
            left -= weights[j]
            if left < 0.0:
                at = j
                break
        out[at] = 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def draw_prior(rng, places, state, open_, guests, hyper, learn):
    """Draw compositions, and concentrations if they are to be learnt, given the tables; `state` is overwritten.

    Parameters
    ----------
    open_
        `(n,)` 1 for columns that may be other than zero.
    guests
        Room `(places above the lowest, n)`.
    hyper
        Lognormal hyperprior: medians, and standard deviations of logs.
    learn
        Whether concentrations are drawn as well.
    """
    for level in range(places.level_ptr.size - 2, 0, -1):
        if learn:
            state.a[level] = _slice(rng, places, state, open_, guests, level, 0, hyper.a, hyper.a_spread)
            state.kappa[level] = _slice(
                rng, places, state, open_, guests, level, 1, hyper.kappa, hyper.kappa_spread
            )
        _seat(rng, places, state, guests, level)
    _dirichlet(rng, open_ * (1.0 + guests[0]), state.theta[0])
    for level in range(1, places.level_ptr.size - 2):
        for v in range(places.level_ptr[level], places.level_ptr[level + 1]):
            above = state.theta[places.parent[v]]
            _dirichlet(rng, open_ * (state.kappa[level] * above + EVEN) + guests[v], state.theta[v])
