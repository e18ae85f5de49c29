"""The exact mode of a multinomial distribution with integer weights.

The mode of Multinomial(m, N / sum N) maximises `sum_i k_i log N_i - log k_i!` over counts that
sum to `m`: separable and concave, so the greedy choice is optimal. A further trial goes to the
cell with the largest quotient `N_i / (k_i + 1)`; the mode consists of the `m` largest quotients
`N_i / j`, j = 1, 2, ... (Jefferson's and d'Hondt's rule for seats), and `k` is a mode iff

    max_i N_i / (k_i + 1)  <=  min over k_i > 0 of N_i / k_i.

Finucan's algorithm (Wang & Reiter 2021, section 2.2) starts at `floor(c N_i / T)` with
`c = m + S/2`, `T = sum N`, then adds at `max N_i / (k_i + 1)` or removes at `min N_i / k_i`. The
quotients and hence the mode do not depend on `c`, except where quotients tie. Let `t` be the
m-th largest quotient and D the cells that have a quotient equal to `t`; r of them get a trial at
that price. The start takes every quotient `>= T / c`. If `T / c > t` it holds none of D, fewer
than `m` trials are placed, and adding at the lowest index first ends with the r **lowest** indices
of D. Otherwise it holds all of D, and removing at the lowest index first leaves the r **highest**.
So one comparison, `2 T j > (2 m + S) N_a` with `t = N_a / j`, replaces the simulation of Finucan's
loop, and any way of finding `t` will do. Ours brackets the multiplier `1 / t` by interpolation
and selects among the few quotients in between, in time O(S).

All comparisons are between products of integers, in 128 bits.

One file: bracketing, listing and selecting quotients are the steps of one algorithm, on one set of work arrays.
"""

# pyright: reportCallIssue=false
from __future__ import annotations

import math

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.multinomial import product_exceeds, scaled_floor

OK, EMPTY, INFEASIBLE = 0, 1, 2

_PASSES = 12  # of the bracketing; the selection is exact wherever they stop
_TABLE = 2**16  # values below it are counted instead of listed; fits the cache

# --- one vector -------------------------------------------------------------------------------


@njit(cache=True)
def apportioned_mode(weights, trials, weight_sum):
    """Return the multinomial mode of integer weights, with equal small weights counted together."""
    cells = weights.size
    counts = np.zeros(cells, np.int64)
    if trials == 0:
        return counts
    bound, large = _count_large(weights)
    size = bound + large
    values, copies = np.empty(size, np.int64), np.zeros(size, np.int64)
    _fill_items(weights, bound, values, copies)
    seats, rank, tied = np.empty(size, np.int64), np.empty(size, np.int64), np.zeros(size, np.bool_)
    left, lowest = _apportion(
        values, copies, np.zeros(size, np.int64), trials, cells, weight_sum, seats, rank, tied
    )
    _seat_cells(weights, bound, seats, tied, left, lowest, counts)
    return counts


@njit(cache=True)
def _count_large(weights):
    """Return the bound below which weights are tabulated, and the number of weights above it."""
    top = 0
    for i in range(weights.size):
        top = max(top, weights[i])
    bound = min(top + 1, weights.size, _TABLE)
    large = 0
    if top >= bound:
        for i in range(weights.size):
            large += weights[i] >= bound
    return bound, large


@njit(cache=True)
def _fill_items(weights, bound, values, copies):
    """Fill in the distinct weights: item `v < bound` is the weight `v`, and later items are large cells."""
    item = bound
    for value in range(bound):
        values[value] = value
    for i in range(weights.size):
        if weights[i] < bound:
            copies[weights[i]] += 1
        else:
            values[item], copies[item] = weights[i], 1
            item += 1


@njit(cache=True)
def _seat_cells(weights, bound, seats, tied, left, lowest, counts):
    """Write the counts of all cells from those of the items, with the remaining trials for tied cells."""
    cells = weights.size
    step, i = (1, 0) if lowest else (-1, cells - 1)
    item = bound if lowest else seats.size - 1
    for _ in range(cells):
        which = weights[i]
        if which >= bound:
            which = item
            item += step
        counts[i] = seats[which]
        if left > 0 and tied[which]:
            counts[i] += 1
            left -= 1
        i += step


# --- the rule itself --------------------------------------------------------------------------


@njit(cache=True)
def _apportion(values, copies, least, trials, cells, weight_sum, seats, ceiling, tied):
    """Write the trials of one copy of every item to `seats`, and mark the items that tie for the rest.

    `least` are lower bounds on seats whose sum does not exceed `trials`; `ceiling` is work space.
    """
    if _price_is_one(values, copies, least, trials, weight_sum):
        return _all_tied(values, copies, trials, cells, weight_sum, seats, tied)
    low, high = _bracket(values, copies, least, trials, cells, weight_sum)
    (m_low, s_low), (m_high, s_high) = _binary(low), _binary(high)
    left, between = trials, 0
    for i in range(values.size):
        seats[i] = max(least[i], scaled_floor(values[i], m_low, s_low))
        ceiling[i] = max(seats[i], scaled_floor(values[i], m_high, s_high))
        left -= copies[i] * seats[i]
        between += (copies[i] > 0) * (ceiling[i] - seats[i])
        tied[i] = False
    if left == 0:
        return left, True
    item, rank = np.empty(between, np.int64), np.empty(between, np.int64)
    _list_quotients(copies, seats, ceiling, item, rank)
    first, last, left = _select(values, copies, item, rank, left)
    for q in range(last):
        if q < first:
            seats[item[q]] += 1
        else:
            tied[item[q]] = True
    lowest = product_exceeds(2 * weight_sum, rank[first], 2 * trials + cells, values[item[first]])
    return left, lowest


@njit(cache=True)
def _price_is_one(values, copies, least, trials, weight_sum):
    """Return True if the last trial goes to a quotient of exactly 1, which every positive cell has.

    So it is when `m` is at most `sum N`, by less than the number of positive cells: the usual case.
    """
    short = weight_sum - trials
    if short < 0 or least.any():
        return False
    for i in range(values.size):
        if values[i] > 0:
            short -= copies[i]
    return short < 0


@njit(cache=True)
def _all_tied(values, copies, trials, cells, weight_sum, seats, tied):
    """Give each positive cell its weight less one; return the trials left and from which end they go."""
    left = trials
    for i in range(values.size):
        tied[i] = values[i] > 0
        seats[i] = values[i] - tied[i]
        left -= copies[i] * seats[i]
    return left, 2 * weight_sum > 2 * trials + cells


@njit(cache=True)
def _bracket(values, copies, least, trials, cells, weight_sum):
    """Return two multipliers: `low` places at most the given trials, and `high` places at least as many.

    `floor(f N)` sums to between `f T - S` and `f T`, hence the first bracket. The sums use doubles,
    right for a multiplier within 1e-15 of the one asked for.
    """
    total = float(weight_sum)
    low, low_placed = trials / total, float(trials - cells)
    high, high_placed = (trials + cells) / total, float(trials + cells)
    if least.any():
        low, low_placed = 0.0, 0.0
    guess = (trials + 0.5 * cells) / total
    enough, margin = 64 + cells // 64, math.sqrt(cells)
    for _ in range(_PASSES):
        placed = _placed(values, copies, least, guess)
        if placed < trials:
            low, low_placed, aim = guess, float(placed), trials + margin
        else:
            high, high_placed, aim = guess, float(placed), trials - margin
        if high_placed - low_placed <= enough:
            break
        share = (aim - low_placed) / (high_placed - low_placed)
        guess = low + (high - low) * min(max(share, 0.02), 0.98)
    return low * (1 - 2e-15), high * (1 + 2e-15)


@njit(cache=True)
def _placed(values, copies, least, multiplier):
    """Return the number of trials placed if each quotient of at least 1 / `multiplier` gets one."""
    placed = 0
    for i in range(values.size):
        placed += copies[i] * max(least[i], np.int64(multiplier * values[i]))
    return placed


@njit(cache=True)
def _binary(multiplier):
    """Write a nonnegative double as mantissa / 2^shift with integers (shift from 0 to 127)."""
    fraction, exponent = math.frexp(multiplier)
    digits = max(53, exponent)
    if digits - exponent > 127:
        return 0, 0
    return np.int64(math.ldexp(fraction, digits)), digits - exponent


@njit(cache=True)
def _list_quotients(copies, seats, ceiling, item, rank):
    """Write the item and rank of every quotient `value / rank` that lies inside the bracket."""
    q = 0
    for i in range(copies.size):
        if copies[i] > 0:
            for k in range(seats[i] + 1, ceiling[i] + 1):
                item[q], rank[q] = i, k
                q += 1


@njit(cache=True)
def _select(values, copies, item, rank, left):
    """Partition quotients in descending order at the one where the copies of larger ones reach `left`.

    Returns (first, last, left): `[:first]` are larger, `[first:last]` equal, and `left` seats
    remain for the equal ones. Three-way partition (Dijkstra), so that ties cost one pass.
    """
    start, stop = 0, item.size
    while True:
        pivot = (start + stop) // 2
        value, at = values[item[pivot]], rank[pivot]
        first, last, q = start, start, start
        stop_equal = stop
        above = 0
        while q < stop_equal:
            if product_exceeds(values[item[q]], at, value, rank[q]):
                above += copies[item[q]]
                _swap(item, rank, q, first)
                first += 1
                q += 1
            elif product_exceeds(value, rank[q], values[item[q]], at):
                stop_equal -= 1
                _swap(item, rank, q, stop_equal)
            else:
                q += 1
        last = stop_equal
        equal = 0
        for q in range(first, last):
            equal += copies[item[q]]
        if left <= above:
            stop = first
        elif left <= above + equal:
            return first, last, left - above
        else:
            start, left = last, left - above - equal


@njit(cache=True, inline="always")
def _swap(item, rank, a, b):
    item[a], item[b] = item[b], item[a]
    rank[a], rank[b] = rank[b], rank[a]


# --- trees ------------------------------------------------------------------------------------


@njit(cache=True)
def mode_tree(child_ptr, weights, least, fixed, uniform, order, counts):
    """Write the mode of every split of a tree in level order; return the first failed node and status."""
    room = _work_space(child_ptr)
    for v in range(weights.size):
        first, last = child_ptr[v], child_ptr[v + 1]
        if first == last:
            continue
        status = _split(first, last, counts[v], weights, least, fixed, uniform, order, counts, room)
        if status != OK:
            return v, status
    return -1, OK


@njit(cache=True)
def _work_space(starts):
    """Return scratch arrays of the size of the largest group."""
    size = 0
    for g in range(starts.size - 1):
        size = max(size, starts[g + 1] - starts[g])
    integers = np.empty((5, size), np.int64)
    return integers, np.ones(size, np.int64), np.empty(size, np.bool_)


@njit(cache=True)
def _split(first, last, trials, weights, least, fixed, uniform, order, counts, room):
    """Divide `trials` among the cells `first:last`, except the cells with fixed counts; return a status."""
    integers, copies, tied = room
    cell, value, floor, seats, heap = integers
    cells, free, weight_sum = 0, trials, 0
    for place in range(first, last):
        i = order[place]
        if fixed[i]:
            counts[i] = least[i]
            free -= least[i]
            continue
        cell[cells], value[cells], floor[cells] = i, weights[i], least[i]
        weight_sum += weights[i]
        cells += 1
    needed = floor[:cells].sum()
    if free < needed or (cells == 0 and free > 0):
        return INFEASIBLE if fixed[first:last].any() or needed else EMPTY
    if free == needed:
        for h in range(cells):
            counts[cell[h]] = floor[h]
        return OK
    if weight_sum == 0:
        if not uniform:
            return EMPTY
        value[:cells] = 1
        weight_sum = cells
    left, lowest = _apportion(
        value[:cells], copies[:cells], floor[:cells], free, cells, weight_sum, seats, heap, tied
    )
    for step in range(cells):
        h = step if lowest else cells - 1 - step
        extra = left > 0 and tied[h]
        counts[cell[h]] = seats[h] + extra
        left -= extra
    return OK


@njit(cache=True)
def propagate_exact(child_ptr, known, least, fixed):
    """Sum exact counts up the tree; return a node whose exact count contradicts its sum, or -1."""
    for v in range(known.size - 1, -1, -1):
        first, last = child_ptr[v], child_ptr[v + 1]
        below = least[first:last].sum()
        settled = first < last and fixed[first:last].all()
        if known[v] >= 0 and (known[v] < below or (settled and known[v] != below)):
            return v
        least[v] = max(known[v], below)
        fixed[v] = fixed[v] or settled
    return -1
