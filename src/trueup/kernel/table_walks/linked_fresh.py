"""Steps of small places for chains of linked counts: a place is drawn from its prior given a total near the one it has.

Where noise is wide beside the counts, the prior says more than the noise does, and normal laws fit badly: a place may be empty
or hold a few households with their persons, which no step of one column connects. So a total T of the free pool is proposed at a
distance whose log is uniform, its kinds and what else belongs to the place are drawn from the prior given T (Polya urns), and
the step is accepted by the change of noise, of the splits above and of Gamma(T + a) / T!, all else being the proposal's own mass.
"""

from __future__ import annotations

import math

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.linked import LEAST, rise
from trueup.kernel.table_walks.linked_normal import change_place, empty_scratch, path_gain, take_sums

LARGEST = 100
"""Totals from and to which such steps go, at most."""
FARTHEST = 25.0
"""Longest distance of two totals."""


@njit(cache=True, nogil=True, error_model="numpy", _nrt=False, forceinline=True)
def _urn(rng, count, columns, kappa, theta, out):
    """Add a Dirichlet-multinomial draw of so many to columns that are empty."""
    whole = 0.0
    for j in columns:
        whole += max(kappa * theta[j], LEAST)
    for k in range(count):
        left = rng.random() * (whole + k)
        for j in columns:
            left -= max(kappa * theta[j], LEAST) + out[j]
            if left < 0.0:
                break
        out[j] += 1


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def _place(rng, forms, pool_of, kappa, theta, total, out):
    """Draw the cells of a place from the prior given the total of its free pool."""
    n = out.size
    out[:] = 0
    _urn(rng, total, forms.free, kappa[0], theta, out)
    for i in range(forms.limits.shape[0]):
        homes = 0
        for j in range(n):
            homes += forms.households[i, j] * out[j]
        further, g = np.zeros(2, np.int64), pool_of[n + 2 * i]
        least, most = forms.limits[i]
        _urn(rng, (most - least) * homes, np.arange(2), kappa[g], theta[n + 2 * i : n + 2 * i + 2], further)
        columns = np.flatnonzero(forms.persons[i])
        own = pool_of[columns[0]]
        if own >= 0:
            _urn(rng, least * homes + further[0], columns, kappa[own], theta, out)
        else:
            out[columns[0]] = least * homes + further[0]


@njit(cache=True, nogil=True, error_model="numpy")
def fresh_sweep(rng, places, values, forms, pool_of, state, steps):
    """Draw small places from their prior, `steps` `(leaves,)` times each, from a state, which is overwritten."""
    levels, n = places.level_ptr.size - 2, forms.pool.shape[1]
    scratch = empty_scratch(forms)
    for v in range(steps.size):
        node = places.level_ptr[levels] + v
        above = places.parent[node]
        for _ in range(steps[v]):
            by = int(math.exp(rng.random() * math.log(FARTHEST + 1.0)))
            by = by if rng.random() < 0.5 else -by
            total = state.total[node] + by
            if total < 0 or max(total, state.total[node]) > LARGEST:
                continue
            _place(rng, forms, pool_of, state.kappa[levels], state.theta[above], total, scratch.t)
            for j in range(n):
                scratch.t[j] -= state.x[v, j]
            take_sums(forms, scratch)
            log = rise(state.total[node], by, state.a[levels], 1.0)
            log += path_gain(places, values, forms, state, v, 1, 0, scratch)
            if math.log(1.0 - rng.random()) <= log:
                change_place(places, values, forms, state, v, 1, 0, scratch)
