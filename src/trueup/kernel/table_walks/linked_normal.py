"""Markov chain steps that draw all columns of a place together, from normal laws near the exact ones.

Steps along one vector after the other are slow where the prior ties columns together: if persons per household are known to a
hundredth, persons and households move together or hardly at all. Here the log density of the n cells x of a place is replaced
by a quadratic one around a centre that was settled before, by

    Gamma(x + s) / Gamma(x + t)  ~  (x + (s + t - 1) / 2)^(s - t),

and the law of each value's noise by the normal law of its variance. A step changes one place by a vector t of whole numbers,
or two places by t and -t, which leaves every sum above both as it is. Under the quadratic laws t is normal with a precision
Q = L L'. Whole numbers are drawn by way of fractions: each column is given a uniform fraction in [-1/2, 1/2), which changes
nothing that is counted; columns with their fractions are drawn from the normal law, and t is what they changed by when both are
rounded. The step is accepted by the ratio of the exact densities times that of the normal ones (Metropolis and Hastings).
Neither centres nor Q depend on what a step draws anew, and the mean is that of the law given all else: where the quadratic
law is good, which it is for counts well above zero, what is drawn is nearly independent of what was there, or on purpose
on the other side of the mean (Adler 1981), since the sum of two places stays. A column whose count may come down to zero is
drawn from the part of its normal law, given the columns drawn before, that is above zero. Where few steps are accepted, a
few columns are drawn at a time.

One file: the quadratic law, the step and its exact density are written in the same terms.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.linked import MIN_MASS, meeting_level, partner, rise

ALONE_PROBABILITY = 0.5
"""Probability that a place is drawn alone as well."""
OVER = 0.9
"""Correlation, negative, of normal deviates with those that were there: steps go beyond the mean more often than not."""
REJECTION_END, FARTHEST_END = -5.0, 30.0
"""Deviates below which an end is left to rejection, and above which nothing is drawn beyond it."""
MIN_QUADRATIC_COUNT = 0.5
"""Counts are at least so large in the quadratic laws."""
SUMS = {"reassoc", "contract"}
"""Floating-point rewrites allowed in sums, so that several terms are added at a time."""
FLATTEST = 0.1
"""Least variance ratio: a pivot of Q is at least so many times the precision of the noise."""


class LinkedForms(NamedTuple):
    """The sums of the `n` cells of a place on which the density of the place depends.

    Attributes
    ----------
    slack, pool
        `(m, n)` slacks, and `(pools, n)` sums of pools.
    group, level
        `(r, n)` the group of each cell in each table of values, -1 for none; `(r,)` the level of the table.
    free
        Columns of the free pool.
    persons, households, limits
        `(pairs, n)` what each pair of rules counts, and `(pairs, 2)` least and most persons per household.
    """

    slack: NDArray[np.int64]
    pool: NDArray[np.int64]
    group: NDArray[np.int64]
    level: NDArray[np.int64]
    free: NDArray[np.int64]
    persons: NDArray[np.int64]
    households: NDArray[np.int64]
    limits: NDArray[np.int64]


class NormalPlaces(NamedTuple):
    """Quadratic approximations of the log priors of places, and the success rates of their steps.

    Attributes
    ----------
    centre
        `(leaves, n)` where each is taken.
    pull, precision
        `(leaves, n)` first and `(leaves, n, n)` negative second derivatives there.
    tried, taken
        `(leaves,)` steps.
    """

    centre: NDArray[np.float64]
    pull: NDArray[np.float64]
    precision: NDArray[np.float64]
    tried: NDArray[np.int64]
    taken: NDArray[np.int64]


class Scratch(NamedTuple):
    """Scratch arrays of one step of a place."""

    columns: NDArray[np.int64]
    mean: NDArray[np.float64]
    was: NDArray[np.float64]
    goes: NDArray[np.float64]
    factor: NDArray[np.float64]
    noise: NDArray[np.float64]
    away: NDArray[np.float64]
    t: NDArray[np.int64]
    slack: NDArray[np.int64]
    pool: NDArray[np.int64]
    group: NDArray[np.int64]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True, fastmath=SUMS)
def _dot(row, x):
    total = row[0] * x[0]
    for i in range(1, row.size):
        total += row[i] * x[i]
    return total


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _add(pull, precision, row, at, apart):
    """Add the quadratic approximation of a log term that depends on one sum of cells."""
    first = apart / at
    for i in range(row.size):
        if row[i] != 0:
            pull[i] += first * row[i]
            for j in range(row.size):
                precision[i, j] += first / at * row[i] * row[j]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def take_quadratic(places, forms, pool_of, state, laws):
    """Compute the quadratic approximation of every place's log prior at its centre."""
    levels, n = places.level_ptr.size - 2, laws.centre.shape[1]
    for v in range(laws.centre.shape[0]):
        node = places.level_ptr[levels] + v
        above, own = places.parent[node], state.a[levels] * state.weight[node]
        centre, pull, precision = laws.centre[v], laws.pull[v], laws.precision[v]
        pull[:], precision[:] = 0.0, 0.0
        for j in range(pool_of.size):
            g = pool_of[j]
            if g < 0:
                continue
            alpha = state.kappa[levels, g] * state.theta[above, j]
            if j < n:
                at = max(centre[j] + 0.5 * alpha, MIN_QUADRATIC_COUNT)
                pull[j] += (alpha - 1.0) / at
                precision[j, j] += (alpha - 1.0) / (at * at)
            else:
                row = forms.slack[j - n]
                _add(
                    pull,
                    precision,
                    row,
                    max(_dot(row, centre) + 0.5 * alpha, MIN_QUADRATIC_COUNT),
                    alpha - 1.0,
                )
        for g in range(forms.pool.shape[0]):
            row, up, down = forms.pool[g], own if g == 0 else 1.0, state.kappa[levels, g]
            at = max(_dot(row, centre) + 0.5 * (up + down - 1.0), MIN_QUADRATIC_COUNT)
            _add(pull, precision, row, at, up - down)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True, fastmath=SUMS)
def _gather(places, values, forms, state, laws, v, sign, stop, scratch, k):
    """Add gradient and precision of the log density of a step of leaf v, from prior and noise."""
    levels, n, columns = places.level_ptr.size - 1, scratch.t.size, scratch.columns
    for i in range(k):
        if sign > 0:
            scratch.away[i] = state.x[v, columns[i]] - laws.centre[v, columns[i]]
        own, law = laws.pull[v, columns[i]], laws.precision[v, columns[i]]
        for j in range(n):
            own -= law[j] * (state.x[v, j] - laws.centre[v, j])
        for j in range(i + 1):
            scratch.factor[i, j] += law[columns[j]]
        scratch.mean[i] += sign * own
    node = places.level_ptr[levels - 1] + v
    for level in range(levels - 1, stop - 1, -1):
        for r in range(forms.level.size):
            if forms.level[r] != level:
                continue
            start = values.start[r] + (node - places.level_ptr[level]) * values.groups[r]
            for i in range(k):
                g = forms.group[r, columns[i]]
                if g < 0:
                    continue
                each = 2.0 * values.curve[start + g] + 0.5 * values.slope[start + g] ** 2
                scratch.mean[i] -= sign * each * state.gap[start + g]
                scratch.noise[i] += each
                for j in range(i + 1):
                    if forms.group[r, columns[j]] == g:
                        scratch.factor[i, j] += each
        node = places.parent[node]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True, fastmath=SUMS)
def _solve(scratch, n):
    """Factor a precision matrix of n columns in place, and replace gradients by the mean.

    The prior's law has no peak where it is steepest at zero, so Q may have negative pivots. Such a column is drawn by the noise
    alone and apart from those that come after it; slopes change with Q, so that the law is the same wherever the place is.
    """
    q, mean, away = scratch.factor, scratch.mean, scratch.away
    for j in range(n):
        for i in range(j, n):
            for k in range(j):
                q[i, j] -= q[i, k] * q[j, k]
        kept = max(q[j, j], FLATTEST * scratch.noise[j], 1e-12)
        if kept > q[j, j]:
            mean[j] -= (kept - q[j, j]) * away[j]
            for i in range(j + 1, n):
                mean[i] += q[i, j] * away[j]
                mean[j] += q[i, j] * away[i]
                q[i, j] = 0.0
        q[j, j] = math.sqrt(kept)
        for i in range(j + 1, n):
            q[i, j] /= q[j, j]
        for k in range(j):
            mean[j] -= q[j, k] * mean[k]
        mean[j] /= q[j, j]
    for j in range(n - 1, -1, -1):
        for i in range(j + 1, n):
            mean[j] -= q[i, j] * mean[i]
        mean[j] /= q[j, j]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _beyond(rng, low):
    """Draw a standard normal variable above `low` (Robert 1995)."""
    while low < 0.4:
        z = rng.standard_normal()
        if z > low:
            return z
    rate = 0.5 * (low + math.sqrt(low * low + 4.0))
    while True:
        z = low - math.log(1.0 - rng.random()) / rate
        if math.log(1.0 - rng.random()) < -0.5 * (z - rate) ** 2:
            return z


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _log_deviate(z, other, low, high):
    """Return the log density, up to a constant, of drawing the deviate z after `other`."""
    if max(low, -high) < REJECTION_END:
        return -0.5 * (z + OVER * other) ** 2 / (1.0 - OVER * OVER) - 0.5 * math.log(1.0 - OVER * OVER)
    return -0.5 * z * z - math.log(0.5 * math.erfc(max(low, -high) / math.sqrt(2.0)))


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _deviate(rng, other, low, high):
    """Draw a normal deviate for a step, mostly of the opposite sign to `other`."""
    if max(low, -high) < REJECTION_END:
        return math.sqrt(1.0 - OVER * OVER) * rng.standard_normal() - OVER * other
    return _beyond(rng, low) if low > -high else -_beyond(rng, -high)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _drawn(rng, state, v, w, scratch, n):
    """Draw changes of n columns that keep counts nonnegative; return their log proposal ratio."""
    q, mean, was, goes, log = scratch.factor, scratch.mean, scratch.was, scratch.goes, 0.0
    scratch.t[:] = 0
    for j in range(n - 1, -1, -1):
        was[j] = rng.random() - 0.5 - mean[j]
        before, after = 0.0, 0.0
        for i in range(j + 1, n):
            before += q[i, j] * was[i]
            after += q[i, j] * goes[i]
        column, here = scratch.columns[j], q[j, j] * was[j] + before
        low = -q[j, j] * (state.x[v, column] + 0.5 + mean[j])
        high = q[j, j] * (state.x[w, column] + 0.5 - mean[j]) if w >= 0 else np.inf
        if max(low + after, -high - after) > FARTHEST_END:
            return -np.inf
        there = _deviate(rng, here, low + after, high + after)
        goes[j] = (there - after) / q[j, j]
        scratch.t[column] = math.floor(mean[j] + goes[j] + 0.5)
        log += _log_deviate(here, there, low + before, high + before)
        log -= _log_deviate(there, here, low + after, high + after)
    return log


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def take_sums(forms, scratch):
    """Compute the changes of slacks and of sums of pools that the drawn changes cause."""
    for i in range(scratch.slack.size):
        scratch.slack[i] = _dot(forms.slack[i], scratch.t)
    for g in range(scratch.pool.size):
        scratch.pool[g] = _dot(forms.pool[g], scratch.t)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _group_changes(forms, r, scratch, count):
    """Compute the changes of the groups of table r that the drawn changes cause."""
    scratch.group[:count] = 0
    for i in range(scratch.t.size):
        g = forms.group[r, i]
        if g >= 0:
            scratch.group[g] += scratch.t[i]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def path_gain(places, values, forms, state, v, sign, stop, scratch):
    """Return the change of the log density of noise and splits above leaf v for a drawn step."""
    levels, free, total = places.level_ptr.size - 1, sign * scratch.pool[0], 0.0
    node = places.level_ptr[levels - 1] + v
    for level in range(levels - 1, stop - 1, -1):
        for r in range(forms.level.size):
            if forms.level[r] != level:
                continue
            _group_changes(forms, r, scratch, values.groups[r])
            start = values.start[r] + (node - places.level_ptr[level]) * values.groups[r]
            for g in range(values.groups[r]):
                d = state.gap[start + g]
                e = d + sign * scratch.group[g]
                total += values.slope[start + g] * (abs(d) - abs(e))
                total += values.curve[start + g] * (d * d - e * e)
        if free != 0 and level < levels - 1:
            up = 1.0 if level == 0 else state.a[level] * state.weight[node]
            children = places.child_ptr[node + 1] - places.child_ptr[node]
            total += rise(state.total[node], free, up, children * state.a[level + 1])
        node = places.parent[node]
    return total


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _gain(places, values, forms, pool_of, state, v, sign, stop, scratch):
    """Return the change of the log density if leaf v takes the drawn step with a given sign."""
    levels, n = places.level_ptr.size - 1, scratch.t.size
    for j in range(pool_of.size):
        if state.x[v, j] + sign * (scratch.t[j] if j < n else scratch.slack[j - n]) < 0:
            return -np.inf
    node = places.level_ptr[levels - 1] + v
    above, total = places.parent[node], 0.0
    for j in range(pool_of.size):
        g, by = pool_of[j], sign * (scratch.t[j] if j < n else scratch.slack[j - n])
        if g >= 0 and by != 0:
            alpha = max(state.kappa[levels - 1, g] * state.theta[above, j], MIN_MASS)
            total += rise(state.x[v, j], by, alpha, 1.0)
    for g in range(1, scratch.pool.size):
        if scratch.pool[g] != 0:
            total += rise(state.sums[v, g], sign * scratch.pool[g], 1.0, state.kappa[levels - 1, g])
    free = sign * scratch.pool[0]
    if free != 0:
        up = state.a[levels - 1] * state.weight[node]
        total += rise(state.total[node], free, up, state.kappa[levels - 1, 0])
    return total + path_gain(places, values, forms, state, v, sign, stop, scratch)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def change_place(places, values, forms, state, v, sign, stop, scratch):
    """Change leaf v by the drawn step, with all sums from the leaf up to level `stop`."""
    levels, n = places.level_ptr.size - 1, scratch.t.size
    for j in range(n):
        state.x[v, j] += sign * scratch.t[j]
    for i in range(scratch.slack.size):
        state.x[v, n + i] += sign * scratch.slack[i]
    for g in range(scratch.pool.size):
        state.sums[v, g] += sign * scratch.pool[g]
    node = places.level_ptr[levels - 1] + v
    for level in range(levels - 1, stop - 1, -1):
        for r in range(forms.level.size):
            if forms.level[r] != level:
                continue
            _group_changes(forms, r, scratch, values.groups[r])
            start = values.start[r] + (node - places.level_ptr[level]) * values.groups[r]
            for g in range(values.groups[r]):
                state.gap[start + g] += sign * scratch.group[g]
        state.total[node] += sign * scratch.pool[0]
        node = places.parent[node]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _choose(rng, columns, k):
    """Move k randomly chosen entries to the front of `columns`, in place."""
    for i in range(k if k < columns.size else 0):
        j = i + int(rng.random() * (columns.size - i))
        columns[i], columns[j] = columns[j], columns[i]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _step(rng, given, v, w, stop, scratch, k):
    """Draw k columns of leaf v given all others, or of v and w given their sum; return True if accepted."""
    places, values, forms, pool_of, state, laws = given
    scratch.mean[:k], scratch.factor[:k, :k], scratch.noise[:k] = 0.0, 0.0, 0.0
    sides = 2 if w >= 0 else 1
    _choose(rng, scratch.columns, k)
    for side in range(sides):
        _gather(places, values, forms, state, laws, w if side else v, 1 - 2 * side, stop, scratch, k)
    _solve(scratch, k)
    log = _drawn(rng, state, v, w, scratch, k)
    if log == -np.inf:
        return False
    take_sums(forms, scratch)
    for side in range(sides):
        log += _gain(places, values, forms, pool_of, state, w if side else v, 1 - 2 * side, stop, scratch)
        if log == -np.inf:
            return False
    if math.log(1.0 - rng.random()) > log:
        return False
    for side in range(sides):
        change_place(places, values, forms, state, w if side else v, 1 - 2 * side, stop, scratch)
    return True


@njit(cache=True, error_model="numpy")
def empty_scratch(forms):
    """Return scratch arrays for one step of a place."""
    n = forms.pool.shape[1]
    return Scratch(
        np.arange(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty((n, n)),
        np.empty(n),
        np.empty(n),
        np.empty(n, np.int64),
        np.empty(forms.slack.shape[0], np.int64),
        np.empty(forms.pool.shape[0], np.int64),
        np.empty(n, np.int64),
    )


@njit(cache=True, error_model="numpy")
def normal_sweep(rng, places, values, forms, pool_of, state, laws, width, steps):
    """Draw every leaf jointly with another one, and half as often alone, in place.

    Parameters
    ----------
    rng
        A NumPy generator.
    pool_of
        `(n + m,)` the pool of each column, -1 for none; pool 0 is the free one.
    width, steps
        `(leaves,)` columns of a place that are drawn at a time, at most, and how often.
    """
    _all_places(rng, places, values, forms, pool_of, state, laws, width, steps, empty_scratch(forms))


@njit(cache=True, error_model="numpy", _nrt=False)
def _all_places(rng, places, values, forms, pool_of, state, laws, width, steps, scratch):
    take_quadratic(places, forms, pool_of, state, laws)
    given = places, values, forms, pool_of, state, laws
    for v in range(laws.centre.shape[0]):
        for _ in range(steps[v]):
            w = partner(rng, places, v)
            for alone in range(int(w < 0), 2):
                if alone and w >= 0 and rng.random() >= ALONE_PROBABILITY:
                    break
                other = -1 if alone else w
                stop = 0 if alone else meeting_level(places, v, w)
                k = width[v] if alone else min(width[v], width[w])
                taken = _step(rng, given, v, other, stop, scratch, k)
                laws.tried[v] += 1
                laws.taken[v] += taken
