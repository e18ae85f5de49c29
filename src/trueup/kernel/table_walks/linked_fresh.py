"""Steps of small places for chains of linked counts: draw a place from its prior given a total near its own.

Where noise is wide beside the counts, the prior says more than the noise does, and normal laws fit badly: a place may be empty
or hold a few households with their persons, which no step of one column connects. So a total T of the free pool is proposed at a
distance whose log is uniform, its kinds and what else belongs to the place are drawn from the prior given T, and the step is
accepted by the change of noise, of the splits above and of Gamma(T + a) / T!, all else being the proposal's own mass.
"""

from __future__ import annotations

import math

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.linked import MIN_MASS, rise
from trueup.kernel.table_walks.linked_normal import change_place, empty_scratch, path_gain, take_sums

MAX_TOTAL = 100
"""Totals from and to which such steps go, at most."""
MAX_TOTAL_DISTANCE = 25.0
"""Longest distance of two totals."""


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _log_gamma_draw(rng, shape):
    """Return the log of a gamma deviate: `U^(1 / shape)` times one of shape + 1, since small shapes underflow."""
    return math.log(rng.standard_gamma(shape + 1.0)) + math.log(1.0 - rng.random()) / shape


@njit(cache=True, error_model="numpy", _nrt=False)
def draw_beta_binomial(rng, count, own, other):
    """Draw how many of a count are of one kind: beta-binomial, in time independent of the count."""
    if count == 0 or other <= 0.0:
        return count
    odds = _log_gamma_draw(rng, own) - _log_gamma_draw(rng, other)
    return rng.binomial(count, 1.0 / (1.0 + math.exp(min(-odds, 700.0))))


@njit(cache=True, error_model="numpy", _nrt=False)
def draw_dirichlet_multinomial(rng, count, among, kappa, theta, out):
    """Divide a count among columns by a Dirichlet-multinomial law, one column after the other from what is left."""
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
    """Draw the cells of a place from the prior given the total of its free pool."""
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
    """Draw small places from their prior, `steps` `(leaves,)` times each, from a state, which is overwritten."""
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
            log = rise(state.total[node], by, state.a[levels], 1.0)
            log += path_gain(places, values, forms, state, v, 1, 0, scratch)
            if math.log(1.0 - rng.random()) <= log:
                change_place(places, values, forms, state, v, 1, 0, scratch)
