"""Markov chain steps that exchange households with their persons, or draw a whole place anew.

*Exchange*, of two linked tables. Units of one pool are exchangeable under its Dirichlet-multinomial law: where r of T units,
chosen at random, leave a table x, those that stay, z, are of that law, and s units that come one after the other from the urn of
these make one again, y. With P_T the law of tables of T units,

    P_T(x) P(z stays of x) P(y comes from z) = P_(T-r)(z) P(x comes from z) P(y comes from z),

and from y to x it is the same. First households leave and come, then the persons by whom those now there hold more or fewer, and
in each pool as many further units leave as come. The numbers r and s do not depend on the table but for r at most T, and (r, s)
is as likely as (s, r). So all that is left of the ratio of both directions is Gamma(T + a) / T!, the splits above, and the noise.
Steps along one vector hardly connect an empty place with one of a few households: each adds one kind of household with given
kinds of persons, one of hundreds over which the prior's mass is spread.

*Afresh*, of small places: draw a place from its prior given a total near its own. Where noise is wide beside the counts, the
prior says more than the noise does, and normal laws fit badly: a place may be empty or hold a few households with their persons,
which no step of one column connects. So a total T of the free pool is proposed at a distance whose log is uniform, its kinds and
what else belongs to the place are drawn from the prior given T, and the step is accepted by the change of noise, of the splits
above and of Gamma(T + a) / T!, all else being the proposal's own mass.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.linked import MIN_MASS, rise
from trueup.kernel.table_walks.linked_normal import change_place, empty_scratch, path_gain, take_sums

RENEWED, APART = 10.0, 8.0
"""Units of a pool that leave while others come, and by how many fewer or more households come than leave, at most."""


class LinkedPools(NamedTuple):
    """The pools (groups of columns) of a place, beginning with the free pool (households).

    Attributes
    ----------
    start, column
        `(pools + 1,)` where the columns of each pool start among `column`.
    held
        `(pools, n + m)` units of the pool that one of a column brings, which is in a pool before: persons of households.
    """

    start: NDArray[np.int64]
    column: NDArray[np.int64]
    held: NDArray[np.int64]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _leave(rng, columns, whole, count, x):
    """Remove `count` randomly chosen units from columns without replacement."""
    for i in range(count):
        left, at = int(rng.random() * (whole - i)), 0
        while left >= x[columns[at]]:
            left -= x[columns[at]]
            at += 1
        x[columns[at]] -= 1


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _come(rng, columns, count, kappa, theta, x):
    """Add `count` units to columns one after the other, by draws from a Polya urn."""
    whole = 0.0
    for j in columns:
        whole += x[j] + max(kappa * theta[j], MIN_MASS)
    for i in range(count):
        left, at = rng.random() * (whole + i), 0
        while at < columns.size - 1:
            left -= x[columns[at]] + max(kappa * theta[columns[at]], MIN_MASS)
            if left < 0.0:
                break
            at += 1
        x[columns[at]] += 1


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _renew(rng, columns, whole, less, more, further, kappa, theta, x):
    """Remove `less` units from columns, add `more`, and replace up to `further` others at random."""
    both = min(further, whole - less)
    _leave(rng, columns, whole, less + both, x)
    _come(rng, columns, more + both, kappa, theta, x)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _at_most(rng, most):
    """Draw a whole number k below `most`, for which `log(k + 1)` is about uniform."""
    return int(math.exp(rng.random() * math.log(most + 1.0))) - 1


@njit(cache=True, error_model="numpy", _nrt=False)
def draw_exchange(rng, pools, kappa, theta, x, by, further, persons, out):
    """Draw the columns of a place after its number of households has changed, and write them to `out`."""
    for j in range(out.size):
        out[j] = x[j]
    for g in range(pools.start.size - 1):
        columns, whole, change = pools.column[pools.start[g] : pools.start[g + 1]], 0, by
        for j in columns:
            whole += x[j]
        if g > 0:
            change = 0
            for j in pools.column[: pools.start[g]]:
                change += pools.held[g, j] * (out[j] - x[j])
        more = persons if g > 0 else further
        _renew(rng, columns, whole, max(-change, 0), max(change, 0), more, kappa[g], theta, out)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _slack_inside(x, n, slack):
    """Return True if all slacks (unused limits) stay nonnegative."""
    least = 0
    for i in range(slack.size):
        least = min(least, x[n + i] + slack[i])
    return least >= 0


@njit(cache=True, error_model="numpy")
def exchange_sweep(rng, places, values, forms, pools, state, steps):
    """Exchange households at all leaves, and change the chain's state in place.

    Parameters
    ----------
    rng
        A NumPy generator.
    pools
        All cells are of one of these, and the units of each but the first are those that the pools before hold.
    """
    out = np.empty(state.x.shape[1], np.int64)
    _all_places(rng, places, values, forms, pools, state, steps, out, empty_scratch(forms))


@njit(cache=True, error_model="numpy", _nrt=False)
def _all_places(rng, places, values, forms, pools, state, steps, out, scratch):
    levels, n = places.level_ptr.size - 2, forms.pool.shape[1]
    for v in range(steps.size):
        node = places.level_ptr[levels] + v
        kappa, theta, x = state.kappa[levels], state.theta[places.parent[node]], state.x[v]
        for _ in range(steps[v]):
            further, persons, by = _at_most(rng, RENEWED), _at_most(rng, RENEWED), _at_most(rng, APART)
            by = by if rng.random() < 0.5 else -by
            if state.total[node] + by < 0 or (by == 0 and further == 0 and persons == 0):
                continue
            draw_exchange(rng, pools, kappa, theta, x, by, further, persons, out)
            for j in range(n):
                scratch.t[j] = out[j] - x[j]
            take_sums(forms, scratch)
            if not _slack_inside(x, n, scratch.slack):
                continue
            log = rise(state.total[node], by, state.a[levels] * state.weight[node], 1.0)
            log += path_gain(places, values, forms, state, v, 1, 0, scratch)
            if math.log(1.0 - rng.random()) <= log:
                change_place(places, values, forms, state, v, 1, 0, scratch)


MAX_TOTAL = 100
"""Totals from and to which such steps go, at most."""
MAX_TOTAL_DISTANCE = 25.0
"""Longest distance of two totals."""


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _log_gamma_draw(rng, shape):
    """Draw the log of a gamma variable, also accurately for small shapes."""
    return math.log(rng.standard_gamma(shape + 1.0)) + math.log(1.0 - rng.random()) / shape


@njit(cache=True, error_model="numpy", _nrt=False)
def draw_beta_binomial(rng, count, own, other):
    """Draw from a beta-binomial law, in a time that does not depend on the count."""
    if count == 0 or other <= 0.0:
        return count
    odds = _log_gamma_draw(rng, own) - _log_gamma_draw(rng, other)
    return rng.binomial(count, 1.0 / (1.0 + math.exp(min(-odds, 700.0))))


@njit(cache=True, error_model="numpy", _nrt=False)
def draw_dirichlet_multinomial(rng, count, among, kappa, theta, out):
    """Divide a count among columns by a draw from a Dirichlet-multinomial law."""
    left, last = 0.0, 0
    for j in range(among.size):
        if among[j]:
            left, last = left + max(kappa * theta[j], MIN_MASS), j
    for j in range(last + 1):
        if among[j]:
            alpha = max(kappa * theta[j], MIN_MASS)
            left -= alpha
            out[j] = draw_beta_binomial(rng, count, alpha, left) if j < last else count
            count -= out[j]


@njit(cache=True, error_model="numpy", _nrt=False)
def draw_place(rng, forms, pool_of, kappa, theta, total, out):
    """Draw the cells of a place from the prior given the total of its free pool, and write them to `out`."""
    n = out.size
    out[:] = 0
    draw_dirichlet_multinomial(rng, total, forms.pool[0], kappa[0], theta, out)
    for i in range(forms.limits.shape[0]):
        homes, first = 0, -1
        for j in range(n):
            homes += forms.households[i, j] * out[j]
            first = j if first < 0 and forms.persons[i, j] else first
        g, own, (least, most) = pool_of[n + 2 * i], pool_of[first], forms.limits[i]
        more, room = (
            max(kappa[g] * theta[n + 2 * i], MIN_MASS),
            max(kappa[g] * theta[n + 2 * i + 1], MIN_MASS),
        )
        held = least * homes + draw_beta_binomial(rng, (most - least) * homes, more, room)
        if own >= 0:
            draw_dirichlet_multinomial(rng, held, forms.persons[i], kappa[own], theta, out)
        else:
            out[first] = held


@njit(cache=True, error_model="numpy")
def fresh_sweep(rng, places, values, forms, pool_of, state, steps):
    """Propose tables of places from the prior, and change the chain's state in place."""
    levels, n = places.level_ptr.size - 2, forms.pool.shape[1]
    scratch = empty_scratch(forms)
    for v in range(steps.size):
        node = places.level_ptr[levels] + v
        above = places.parent[node]
        for _ in range(steps[v]):
            by = int(math.exp(rng.random() * math.log(MAX_TOTAL_DISTANCE + 1.0)))
            by = by if rng.random() < 0.5 else -by
            total = state.total[node] + by
            if total < 0 or max(total, state.total[node]) > MAX_TOTAL:
                continue
            draw_place(rng, forms, pool_of, state.kappa[levels], state.theta[above], total, scratch.t)
            for j in range(n):
                scratch.t[j] -= state.x[v, j]
            take_sums(forms, scratch)
            log = rise(state.total[node], by, state.a[levels] * state.weight[node], 1.0)
            log += path_gain(places, values, forms, state, v, 1, 0, scratch)
            if math.log(1.0 - rng.random()) <= log:
                change_place(places, values, forms, state, v, 1, 0, scratch)
