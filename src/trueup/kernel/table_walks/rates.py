"""Gamma variables whose normalised values split the counts of histograms, and moves of persons with them.

The prior is that of counts which are multinomial given gamma numbers. The total T of a place above the lowest is shared among
its parts in proportion to numbers Gamma(a), among the lowest ones that are inhabited alone. The total of a lowest place is
shared among its cells in proportion to g_j ~ Gamma(b_j, rate kappa_j), b_j = kappa_j theta_j. The flat total of the root is
Poisson with a flat rate. Given the counts the numbers are Gamma(T + a), the g_j are Gamma(x_j + e_j + b_j, rate kappa_j + s),
and the root's rate is Gamma(T + 1). Given the g_j, of sum S, a size is Gamma(T + 1, rate S), and its cell of one person more is e
with probability g_e / S.

What persons do is noted first, with every measured value that changes, so that the noise says whether it is taken.

Sizes make the cells of a lowest place independent. One person more, of cell e, turns `S^-T` into `sum_e g_e S^-(T + 1)`, and a
size s, Gamma(T + 1) of rate S, turns that into a product over cells, the g integrated out. It holds where T = 0 too:

    p(x, s, e | T) = s^T prod_j kappa_j^b_j Gamma(x_j + e_j + b_j) / (Gamma(b_j) x_j! (kappa_j + s)^(x_j + e_j + b_j))

Given e a size is drawn from a law near its own, that does not depend on the present size, and refused with the ratio of both
(an independence sampler). Were all kappa_j equal, s / kappa would be Gamma(T + 1) / Gamma(sum_j b_j), a beta prime law; where
they are not, it is one with the mode and the curvature of the log of s, the second shape at most sum_j b_j, so that its tails
are not lighter. The mode solves `sum_j h_j kappa_j / (kappa_j + s) = sum_j b_j`, h_j = x_j + e_j + b_j: one divided by the left
side is concave, so that Newton's steps rise to it from 0. Given s, e is one of the cells.

One file: sizes and rates are gamma numbers behind the same counts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.gibbs_steps import TINY
from trueup.kernel.table_walks.place_masses import AT_ONCE, BOUND_TOLERANCE_COUNTS, log_prior_of_total

NEWTON_STEPS = 2
"""Newton steps towards a mode; the mode of a proposal need not be exact."""
LARGEST_SIZE = 1e300
"""Sizes beyond the largest are drawn as the largest: a size is so with probability `10^(-300 sum_j b_j)`, next to nothing but
where all shares of the place above are."""


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True, fastmath=AT_ONCE)
def _weighted_sums(held, kappa, s):
    """Return the sums over cells of `h v`, `h v (1 - v)` and `h (1 - v)^2` with `v = kappa / (kappa + s)`."""
    above, slope, rest = 0.0, 0.0, 0.0
    for j in range(held.size):
        v = kappa[j] / (kappa[j] + s)
        w = 1.0 - v
        above += held[j] * v
        slope += held[j] * v * w
        rest += held[j] * w * w
    return above, slope, rest


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _fitted(held, kappa, power, around):
    """Return scale and second shape of a beta prime law that approximates the law of a size."""
    s = 0.0
    for j in range(held.size):
        s += held[j] / kappa[j]
    s = power / around * (power + around) / s
    for _ in range(NEWTON_STEPS):
        above, slope, _ = _weighted_sums(held, kappa, s)
        s += s * above * (above - around) / (around * slope)
    _, slope, rest = _weighted_sums(held, kappa, s)
    shape = slope * (slope + rest) / rest
    return s * shape / power, shape


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def draw_size(rng, held, kappa, power, around, s):
    """Draw a size by a Metropolis step with a beta prime proposal; return the new or the old size."""
    scale, shape = _fitted(held, kappa, power, around)
    if not 0.0 < shape < np.inf:
        return s
    fresh = scale * rng.standard_gamma(power) / rng.standard_gamma(shape)
    if not fresh > 0.0:
        return s
    fresh = min(fresh, LARGEST_SIZE)
    log = (power + shape) * math.log((scale + fresh) / (scale + s))
    for j in range(held.size):
        log -= held[j] * math.log((kappa[j] + fresh) / (kappa[j] + s))
    return fresh if math.log(1.0 - rng.random()) < log else s


@njit(cache=True, error_model="numpy")
def draw_sizes(rng, places, state):
    """Draw the auxiliary size of every lowest place, and the cell of its one extra person."""
    last, first = places.level_ptr.size - 2, places.level_ptr[-2]
    x, theta, size, spare, kappa = state.x, state.theta, state.size, state.spare, state.kappa[last]
    held = np.empty(kappa.size)
    for row in range(size.size):
        p, around = places.parent[first + row], 0.0
        for j in range(held.size):
            b = kappa[j] * theta[p, j]
            held[j] = x[row, j] + b
            around += b
        held[spare[row]] += 1.0
        s = size[row] = draw_size(rng, held, kappa, state.total[first + row] + 1.0, around, size[row])
        held[spare[row]] -= 1.0
        whole = 0.0
        for j in range(held.size):
            held[j] /= kappa[j] + s
            whole += held[j]
        left, at = rng.random() * whole, -1
        while left >= 0.0 and at < held.size - 1:
            at += 1
            left -= held[at]
        spare[row] = at


class Rates(NamedTuple):
    """Gamma variables of totals and cells, and the changes that one move makes.

    Attributes
    ----------
    share, whole
        `(nodes,)` numbers of totals, and `(places above the lowest,)` their sums over parts.
    rate
        `(nodes,)` those of a place and all above it.
    cell
        `(leaves, n)` numbers g.
    above
        `(levels, leaves)` which place of each level a lowest one belongs to.
    theta, fresh
        `(places above the lowest,)` and `(leaves,)` what a column is to become.
    arrived
        `(nodes,)` persons who are yet to be shared among a place's parts.
    top
        `(n,)` what the root's table changes by, where a normal law of it is known.
    counts
        Number of changed cells, and number of changed measured values.
    at, by
        `(k, 2)` place and column, and by how much.
    touched, seen, shift
        Changed measured values with their tables `(values, 2)`; `(values,)` flags of the changed ones, and their changes.
    """

    share: NDArray[np.float64]
    whole: NDArray[np.float64]
    rate: NDArray[np.float64]
    cell: NDArray[np.float64]
    above: NDArray[np.int64]
    theta: NDArray[np.float64]
    fresh: NDArray[np.float64]
    arrived: NDArray[np.int64]
    top: NDArray[np.float64]
    counts: NDArray[np.int64]
    at: NDArray[np.int32]
    by: NDArray[np.int64]
    touched: NDArray[np.int32]
    seen: NDArray[np.bool_]
    shift: NDArray[np.float64]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def draw_rates_of_places(rng, places, state, rates):
    """Draw all gamma variables given the counts."""
    last, first = places.level_ptr.size - 2, places.level_ptr[-2]
    rates.share[0] = rng.standard_gamma(state.total[0] + 1.0)
    for level in range(1, last + 1):
        for v in range(places.level_ptr[level], places.level_ptr[level + 1]):
            lived = level < last or state.inhabited[v - first]
            rates.share[v] = (
                rng.standard_gamma(state.total[v] + state.a[level] * state.weight[v]) if lived else 0.0
            )
            rates.whole[places.parent[v]] += rates.share[v]
    for row in range(len(state.x)):
        p = places.parent[first + row]
        for j in range(state.x.shape[1]):
            kappa = state.kappa[last, j]
            shape = state.x[row, j] + (state.spare[row] == j) + max(kappa * state.theta[p, j], TINY)
            rates.cell[row, j] = rng.standard_gamma(shape) / (kappa + state.size[row])


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def find_places(places, above):
    """Write the place on each level that contains each lowest place to `above`."""
    last, first = places.level_ptr.size - 2, places.level_ptr[-2]
    for row in range(above.shape[1]):
        v = first + row
        for level in range(last, -1, -1):
            above[level, row] = v - places.level_ptr[level]
            v = places.parent[v]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def draw_sizes_from(rng, state, rates):
    """Draw each lowest place's auxiliary size and extra person's cell, given the gamma variables."""
    for row in range(len(state.x)):
        whole = rates.cell[row].sum()
        if whole > 0.0:
            total = state.x[row].sum()
            state.size[row] = min(rng.standard_gamma(total + 1.0) / whole, LARGEST_SIZE)
            left, at = rng.random() * whole - rates.cell[row, 0], 0
            while left >= 0.0 and at < state.x.shape[1] - 1:
                at += 1
                left -= rates.cell[row, at]
            state.spare[row] = at


@njit(cache=True, error_model="numpy", _nrt=False)
def change(tables, rates, row, j, by):
    """Record the change of a cell, and those of the measured values that contain the cell."""
    k = rates.counts[0]
    rates.at[k, 0], rates.at[k, 1], rates.by[k] = row, j, by
    rates.counts[0] += 1
    for r in range(tables.level.size):
        i = tables.start[r] + rates.above[tables.level[r], row] * tables.groups[r] + tables.group[r, j]
        if not rates.seen[i]:
            rates.touched[rates.counts[1], 0], rates.touched[rates.counts[1], 1] = i, r
            rates.counts[1] += 1
            rates.seen[i] = True
        rates.shift[i] += by


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _log_mass(tables, r, y):
    """Return the log mass of the noise of table r at the difference y."""
    if tables.bound[r] != 0:
        return 0.0 if tables.bound[r] * y >= -BOUND_TOLERANCE_COUNTS else -np.inf
    away = abs(y)
    return (
        -(tables.slope[r] + tables.curve[r] * away) * away
        if away <= tables.reach[r] + BOUND_TOLERANCE_COUNTS
        else -np.inf
    )


@njit(cache=True, error_model="numpy", _nrt=False)
def log_noise(tables, state, rates):
    """Return the log ratio of the densities of noise and root total, after and before recorded changes."""
    log = 0.0
    if tables.total.size:
        moved = rates.by[: rates.counts[0]].sum()
        log += log_prior_of_total(tables, state.total[0] + moved) - log_prior_of_total(tables, state.total[0])
    for k in range(rates.counts[1]):
        i, r = rates.touched[k]
        if rates.shift[i] != 0.0:
            y = float(state.gap[i])
            log += _log_mass(tables, r, y + rates.shift[i]) - _log_mass(tables, r, y)
    if tables.pull.size:
        rates.top[:] = 0.0
        for k in range(rates.counts[0]):
            rates.top[rates.at[k, 1]] += rates.by[k]
        for j in range(rates.top.size):
            log += rates.top[j] * tables.pull[j]
            for m in range(rates.top.size):
                log -= rates.top[j] * tables.message[j, m] * (state.top[m] + 0.5 * rates.top[m])
    return log


@njit(cache=True, error_model="numpy", _nrt=False)
def settle_change(places, state, rates, taken):
    """Apply the recorded changes if the move is accepted, and clear them in any case."""
    first = places.level_ptr[-2]
    for k in range(rates.counts[0] if taken else 0):
        row, j = rates.at[k]
        state.x[row, j] += rates.by[k]
        state.top[j] += rates.by[k]
        v = first + row
        while v >= 0:
            state.total[v] += rates.by[k]
            v = places.parent[v]
    for k in range(rates.counts[1]):
        i = rates.touched[k, 0]
        if taken:
            state.gap[i] += rates.shift[i]
        rates.shift[i], rates.seen[i] = 0.0, False
    rates.counts[:] = 0


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def how_many_go(rng, count, weight, whole):
    """Draw the number of `count` persons who go to a part with weight `weight` out of `whole`."""
    if count == 0 or not weight > 0.0:
        return 0
    return count if weight >= whole else rng.binomial(count, weight / whole)


@njit(cache=True, error_model="numpy", _nrt=False)
def leave(rng, places, tables, state, rates, level, v, chance):
    """Remove each person below a place with probability `chance`; return the number removed."""
    first, low, high, gone = places.level_ptr[-2], v, v + 1, 0
    for _ in range(level, places.level_ptr.size - 2):
        low, high = places.child_ptr[low], places.child_ptr[high]
    for row in range(low - first, high - first):
        if state.total[first + row] > 0:
            for j in range(state.x.shape[1]):
                by = how_many_go(rng, state.x[row, j], chance, 1.0)
                if by > 0:
                    change(tables, rates, row, j, -by)
                    gone += by
    return gone


@njit(cache=True, error_model="numpy", _nrt=False)
def arrive(rng, places, tables, state, rates, level, v, count):
    """Distribute arriving persons among parts and cells below a place; return False if no rate is left."""
    first, last, low, high, well = places.level_ptr[-2], places.level_ptr.size - 2, v, v + 1, True
    rates.arrived[v] = count
    for _ in range(level, last):
        for u in range(low, high):
            left, whole = rates.arrived[u], 0.0
            rates.arrived[u] = 0
            if left > 0:
                for c in range(places.child_ptr[u], places.child_ptr[u + 1]):
                    whole += rates.share[c]
                for c in range(places.child_ptr[u], places.child_ptr[u + 1]):
                    rates.arrived[c] = how_many_go(rng, left, rates.share[c], whole)
                    left -= rates.arrived[c]
                    whole -= rates.share[c]
                well = well and left == 0
        low, high = places.child_ptr[low], places.child_ptr[high]
    for u in range(low, high):
        if rates.arrived[u] > 0:
            well = fill(rng, tables, rates, u - first, -1, rates.arrived[u]) and well
            rates.arrived[u] = 0
    return well


@njit(cache=True, error_model="numpy", _nrt=False)
def fill(rng, tables, rates, row, but, count):
    """Distribute persons among a lowest place's cells except `but`; return False if no rate is left."""
    whole = 0.0
    for j in range(rates.cell.shape[1]):
        whole += rates.cell[row, j] if j != but else 0.0
    for j in range(rates.cell.shape[1]):
        if j != but and count > 0:
            by = how_many_go(rng, count, rates.cell[row, j], whole)
            if by > 0:
                change(tables, rates, row, j, by)
            count -= by
            whole -= rates.cell[row, j]
    return count == 0
