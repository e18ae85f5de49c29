"""Markov chains on linked tables of a hierarchy, with steps at one place or between two places.

Every lowest place v has a table x_v of n columns, the last of which may be slacks: what inequalities leave over. Columns
belong to pools, D_vg their sum at v. The density of all tables given concentrations a, kappa and compositions theta:

    root             Gamma(T + 1) / Gamma(T + C a_1)                    a flat total of the free pool, C the number of children
    a place between  Gamma(T + a_l) / Gamma(T + C a_(l+1))              its share of the total above, its children's split
    a lowest place   Gamma(T + a_l) / Gamma(T + kappa_0)                T = D_v0, the sum of the free pool
                     prod over other pools g of  Gamma(D_g + 1) / Gamma(D_g + kappa_g)
                     prod over columns j of pools  Gamma(x_j + kappa_g theta_j) / x_j!

theta the composition of the place above; times one factor of the difference of count and noisy value for each value. A column
of no pool has no factor but its bound, zero.

A *move* is a whole vector u that keeps what links the columns. A step adds t u to the table of one place, or t u to one and
-t u to another, which leaves all sums above both as they are. Two kinds of steps, both of the exact law:

- *window*: t is drawn from its law on some equidistant values, among which 0 has a uniform position, chosen with their
  distance before anything is looked at: any of these values would have proposed the same ones;
- *normal*: t is proposed from the normal law, rounded, that the values' noise alone gives along u, with Laplace noise at its
  variance, and accepted by the ratio of masses (Metropolis and Hastings). It is the better the less the prior says.

Functions that make no array are compiled with `_nrt=False`: they borrow the arrays of their callers. Else each call and each
look at a part of a named tuple counts references to arrays, which took two thirds of a step's time. Those of a step are also
inlined by LLVM (`forceinline`), each where it is called from one place: else a call copies addresses, sizes and strides of some
forty arrays, which took most of what was left.

One file: the density, its two kinds of steps, and what a step changes are written in the same terms.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit

WINDOW = 6
"""Values of a window."""
SIBLING_PROBABILITY = 0.8
"""Probability that the partner of a place has the same parent."""
MIN_MASS = 1e-300


class LinkedValues(NamedTuple):
    """The measured values in one array: `r` tables, each measured at one level.

    Attributes
    ----------
    start, groups
        `(r,)` where the values of a table start, and how many a place has.
    slope, curve
        Coefficients of the log mass of each value's noise, `-slope |d| - curve d^2`; both 0 where nothing was measured.
    """

    start: NDArray[np.int64]
    groups: NDArray[np.int64]
    slope: NDArray[np.float64]
    curve: NDArray[np.float64]


class LinkedMoves(NamedTuple):
    """The `k` vectors along which linked tables move, and the changes that each causes.

    Attributes
    ----------
    column_ptr, column, by
        Columns, and by how much.
    pool_ptr, pool, pool_by
        Sums of pools other than the free one.
    free
        `(k,)` by how much the sum of the free pool changes.
    touch_ptr
        `(k * levels + 1,)` of each level, where what is changed of its tables starts.
    table, group, touch_by
        These: tables, groups, and by how much.
    """

    column_ptr: NDArray[np.int64]
    column: NDArray[np.int64]
    by: NDArray[np.int64]
    pool_ptr: NDArray[np.int64]
    pool: NDArray[np.int64]
    pool_by: NDArray[np.int64]
    free: NDArray[np.int64]
    touch_ptr: NDArray[np.int64]
    table: NDArray[np.int64]
    group: NDArray[np.int64]
    touch_by: NDArray[np.int64]


class LinkedState(NamedTuple):
    """The state of a Markov chain on linked tables, which is changed in place.

    Attributes
    ----------
    x
        `(leaves, n)` tables.
    total
        `(nodes,)` sums of the free pool.
    sums
        `(leaves, pools)` sums of pools.
    gap
        Counts less noisy values.
    theta
        `(places above the lowest, n)` compositions, pool by pool.
    a, kappa
        `(levels,)` and `(levels, pools)` concentrations; those of the root are not used.
    weight, slope
        `(nodes,)` and `(p,)`, as those of `columns.ChainState`.
    """

    x: NDArray[np.int64]
    total: NDArray[np.int64]
    sums: NDArray[np.int64]
    gap: NDArray[np.float64]
    theta: NDArray[np.float64]
    a: NDArray[np.float64]
    kappa: NDArray[np.float64]
    weight: NDArray[np.float64]
    slope: NDArray[np.float64]


@njit(cache=True, error_model="numpy", inline="always")
def log_gamma(z):
    """Return the log of the gamma function at z > 0, accurate to 1e-11."""
    below = 1.0
    while z < 9.0:
        below *= z
        z += 1.0
    w = 1.0 / z
    s = w * w
    return (
        (z - 0.5) * math.log(z)
        - z
        + 0.9189385332046727
        + w * (0.08333333333333333 - s * (0.002777777777777778 - s * (0.0007936507936507937 - s * 0.0005952380952380953)))
        - (math.log(below) if below != 1.0 else 0.0)
    )  # fmt: skip


@njit(cache=True, error_model="numpy", _nrt=False)
def rise(x, by, up, down):
    """Return the change of `log (Gamma(x + up) / Gamma(x + down))` when x grows by `by`, accurate to 1e-8."""
    least = min(x, x + by)
    if least > 50.0 * max(up, down, 1.0):
        apart, middle = up - down, 0.5 * (up + down - 1.0)
        one, other = 1.0 / (x + middle), 1.0 / (x + by + middle)
        return apart * (math.log(one / other) - (apart * apart - 1.0) / 24.0 * (other * other - one * one))
    return log_gamma(x + by + up) - log_gamma(x + up) - log_gamma(x + by + down) + log_gamma(x + down)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _inside(moves, state, v, m, t):
    """Return True if all columns of place v stay nonnegative when it moves by t along vector m."""
    least = 0
    for i in range(moves.column_ptr[m], moves.column_ptr[m + 1]):
        least = min(least, state.x[v, moves.column[i]] + t * moves.by[i])
    return least >= 0


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _log_prior_change(places, moves, pool_of, state, v, m, t):
    """Return the change of leaf v's log prior when its table moves by t along vector m."""
    levels = places.level_ptr.size - 2
    node = places.level_ptr[levels] + v
    above, total = places.parent[node], 0.0
    for i in range(moves.column_ptr[m], moves.column_ptr[m + 1]):
        j = moves.column[i]
        g = pool_of[j]
        if g >= 0:
            alpha = max(state.kappa[levels, g] * state.theta[above, j], MIN_MASS)
            total += rise(state.x[v, j], t * moves.by[i], alpha, 1.0)
    for i in range(moves.pool_ptr[m], moves.pool_ptr[m + 1]):
        g = moves.pool[i]
        total += rise(state.sums[v, g], t * moves.pool_by[i], 1.0, state.kappa[levels, g])
    if moves.free[m] != 0:
        up = state.a[levels] * state.weight[node]
        total += rise(state.total[node], t * moves.free[m], up, state.kappa[levels, 0])
    return total


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _path(places, values, moves, state, v, m, t, stop):
    """Return the change of the log density of noise and splits above leaf v when it moves by t along m."""
    levels = places.level_ptr.size - 1
    node, total = places.level_ptr[levels - 1] + v, 0.0
    for level in range(levels - 1, stop - 1, -1):
        row = node - places.level_ptr[level]
        for i in range(moves.touch_ptr[m * levels + level], moves.touch_ptr[m * levels + level + 1]):
            r = moves.table[i]
            at = values.start[r] + row * values.groups[r] + moves.group[i]
            d = state.gap[at]
            e = d + t * moves.touch_by[i]
            total += values.slope[at] * (abs(d) - abs(e)) + values.curve[at] * (d * d - e * e)
        if moves.free[m] != 0 and level < levels - 1:
            up = 1.0 if level == 0 else state.a[level] * state.weight[node]
            down = (places.child_ptr[node + 1] - places.child_ptr[node]) * state.a[level + 1]
            total += rise(state.total[node], t * moves.free[m], up, down)
        node = places.parent[node]
    return total


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _normal(places, values, moves, state, v, m, sign, stop):
    """Return precision and linear term of the noise's log density of the length t of a move."""
    levels = places.level_ptr.size - 1
    node, precision, pull = places.level_ptr[levels - 1] + v, 0.0, 0.0
    for level in range(levels - 1, stop - 1, -1):
        row = node - places.level_ptr[level]
        for i in range(moves.touch_ptr[m * levels + level], moves.touch_ptr[m * levels + level + 1]):
            r = moves.table[i]
            at = values.start[r] + row * values.groups[r] + moves.group[i]
            each, by = 2.0 * values.curve[at] + 0.5 * values.slope[at] ** 2, float(sign * moves.touch_by[i])
            precision += each * by * by
            pull -= each * by * state.gap[at]
        node = places.parent[node]
    return precision, pull


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _change(places, values, moves, state, v, m, t, stop):
    """Move leaf v by t along vector m, with the sums of all places above it up to level `stop`."""
    levels = places.level_ptr.size - 1
    for i in range(moves.column_ptr[m], moves.column_ptr[m + 1]):
        state.x[v, moves.column[i]] += t * moves.by[i]
    for i in range(moves.pool_ptr[m], moves.pool_ptr[m + 1]):
        state.sums[v, moves.pool[i]] += t * moves.pool_by[i]
    node = places.level_ptr[levels - 1] + v
    for level in range(levels - 1, stop - 1, -1):
        row = node - places.level_ptr[level]
        for i in range(moves.touch_ptr[m * levels + level], moves.touch_ptr[m * levels + level + 1]):
            r = moves.table[i]
            state.gap[values.start[r] + row * values.groups[r] + moves.group[i]] += t * moves.touch_by[i]
        state.total[node] += t * moves.free[m]
        node = places.parent[node]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _change_both(places, values, moves, state, v, w, m, t, stop):
    """Move leaf v by t along vector m, and leaf w by -t unless w is -1."""
    for side in range(2 if w >= 0 else 1):
        u, by = (w, -t) if side else (v, t)
        _change(places, values, moves, state, u, m, by, stop)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _gain(places, values, moves, pool_of, state, v, w, m, t, stop):
    """Return the change of the log density if leaf v moves by t along m, and w by -t unless w is -1."""
    if t == 0:
        return 0.0
    total = 0.0
    for side in range(2 if w >= 0 else 1):
        u, by = (w, -t) if side else (v, t)
        if not _inside(moves, state, u, m, by):
            return -np.inf
        total += _log_prior_change(places, moves, pool_of, state, u, m, by)
        total += _path(places, values, moves, state, u, m, by, stop)
    return total


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _draw_on_window(rng, given, v, w, m, stop, widest, logs):
    """Draw the length t of a move from its conditional law on a random window of lengths."""
    stride = int(math.exp(rng.random() * math.log(widest + 1.0)))
    first = -int(rng.random() * WINDOW)
    top = 0.0
    for i in range(WINDOW):
        logs[i] = _gain(*given, v, w, m, stride * (first + i), stop)
        top = max(top, logs[i])
    whole = 0.0
    for i in range(WINDOW):
        logs[i] = math.exp(logs[i] - top)
        whole += logs[i]
    left = rng.random() * whole
    for i in range(WINDOW):
        left -= logs[i]
        if left < 0.0:
            return stride * (first + i)
    return 0


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def rounded_mass(t, mean, sd):
    """Return the probability of the whole number t under a rounded normal law."""
    root = sd * math.sqrt(2.0)
    far = abs(t - mean)
    return 0.5 * (math.erfc((far - 0.5) / root) - math.erfc((far + 0.5) / root))


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _proposed(rng, places, values, moves, pool_of, state, v, w, m, stop):
    """Propose a move of length t from a rounded normal law; return the length, or 0 if it is rejected."""
    precision, pull = 0.0, 0.0
    for side in range(2 if w >= 0 else 1):
        more = _normal(places, values, moves, state, w if side else v, m, 1 - 2 * side, stop)
        precision, pull = precision + more[0], pull + more[1]
    if not precision > 0.0:
        return 0
    mean, sd = pull / precision, 1.0 / math.sqrt(precision)
    t = math.floor(mean + sd * rng.standard_normal() + 0.5)
    gain = _gain(places, values, moves, pool_of, state, v, w, m, t, stop)
    if gain == -np.inf:
        return 0
    here, there = rounded_mass(0, mean, sd), rounded_mass(t, mean, sd)
    if not here > 0.0:  # beyond where doubles tell the masses of the normal law apart
        return 0
    return t if rng.random() < math.exp(min(gain, 700.0)) * here / there else 0


@njit(cache=True, error_model="numpy")
def linked_sweeps(rng, places, values, moves, pool_of, state, widest, steps, count):
    """Run sweeps of moves over all places, and change the chain's state in place.

    Parameters
    ----------
    rng
        A NumPy generator.
    pool_of
        `(n,)` the pool of each column, -1 for none; pool 0 is the free one.
    widest
        `(k,)` longest distance of the values of a window, of each move.
    steps
        `(leaves,)` steps at each place in a sweep: every other one between two places.
    """
    _all_leaves(rng, places, values, moves, pool_of, state, widest, steps, count, np.empty(WINDOW))


@njit(cache=True, error_model="numpy", _nrt=False)
def _all_leaves(rng, places, values, moves, pool_of, state, widest, steps, count, logs):
    leaves, given = state.x.shape[0], (places, values, moves, pool_of, state)
    many = moves.free.size
    for _ in range(count):
        for v in range(leaves):
            for step in range(steps[v]):
                m, w, stop = int(rng.random() * many), -1, 0
                if step % 2:
                    w = partner(rng, places, v)
                    if w < 0:
                        continue
                    stop = meeting_level(places, v, w)
                if rng.random() < 0.3:
                    t = _draw_on_window(rng, given, v, w, m, stop, widest[m], logs)
                else:
                    t = _proposed(rng, places, values, moves, pool_of, state, v, w, m, stop)
                if t != 0:
                    _change_both(places, values, moves, state, v, w, m, t, stop)


@njit(cache=True, error_model="numpy")
def near_zero_sweep(rng, places, values, moves, pool_of, state, widest, units, small, times):
    """Draw columns with small counts one at a time, and change the chain's state in place.

    Where the prior has its peak at zero, no normal law is near: what it proposes leaves zero hardly ever.

    Parameters
    ----------
    units
        `(n,)` the move that changes a column alone, -1 for none.
    small, times
        `(leaves, n)` which columns, and `(leaves,)` how often: alone, and with another place.
    """
    given = places, values, moves, pool_of, state
    _all_small(rng, given, widest, units, small, times, np.empty(WINDOW))


@njit(cache=True, error_model="numpy", _nrt=False)
def _all_small(rng, given, widest, units, small, times, logs):
    places, values, moves, _, state = given
    for v in range(small.shape[0]):
        for j in range(small.shape[1]):
            m = units[j]
            for step in range(2 * times[v] if small[v, j] and m >= 0 else 0):
                w = partner(rng, places, v) if step % 2 else -1
                stop = meeting_level(places, v, w) if w >= 0 else 0
                t = _draw_on_window(rng, given, v, w, m, stop, widest[m], logs)
                if t != 0:
                    _change_both(places, values, moves, state, v, w, m, t, stop)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def partner(rng, places, v):
    """Return a random leaf that shares the parent of v or a higher ancestor, or -1 if there is none."""
    levels = places.level_ptr.size - 1
    node = places.parent[places.level_ptr[levels - 1] + v]
    if rng.random() > SIBLING_PROBABILITY:
        for _ in range(int(rng.random() * (levels - 1))):
            node = places.parent[node]
    first, last, leaves = node, node + 1, places.level_ptr[levels - 1]
    while first < leaves:
        first, last = places.child_ptr[first], places.child_ptr[last]
    if last - first < 2:
        return -1
    w = first - leaves + int(rng.random() * (last - first - 1))
    return w + (w >= v)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def meeting_level(places, v, w):
    """Return the level just below the lowest place that contains both leaves."""
    levels = places.level_ptr.size - 1
    one, other, level = places.level_ptr[levels - 1] + v, places.level_ptr[levels - 1] + w, levels - 1
    while one != other:
        one, other, level = places.parent[one], places.parent[other], level - 1
    return level + 1
