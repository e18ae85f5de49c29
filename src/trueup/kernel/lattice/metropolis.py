"""Markov chains on integer tables by moves that keep invariants: one step costs what it touches.

Cells form a grid: places, nested in levels, times attributes. A move takes a cell, another that differs from it along some
axes, and changes one of them (a single), moves counts from one to the other (a pair, which keeps every margin without
those axes), or exchanges part of the axes between them (a square, which keeps every margin that holds only one of
the two parts: the basic moves of a two-way table). Listed vectors, such as a lattice basis, come alone or as sums of two.

A step along a move draws from the density on a window of `WINDOW` tables x + jump (i - J) move, i = 0, 1, ..., where the
current table has the uniform place J. Whatever table of the window is drawn, the same window is as likely to be proposed
from there, so the density is stationary and nothing needs to be rejected. The jump is random, up to the scale
that the curvature of the rows allows; it may not depend on the current table.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from trueup.kernel.lattice.rows import CURVE, SLOPE, add_factor, log_factor, log_levels, sums

SINGLE, PAIR, SQUARE, LISTED = range(4)
WINDOW, STRIDE = 8, 1.2
SAME = -1
"""The place does not change."""


class Moves(NamedTuple):
    """What a chain may do.

    Attributes
    ----------
    active
        Cells that may vary, `(a,)`.
    sizes
        Sizes of the attributes, `(k,)`.
    group, bounds
        For every level and place, its group `(levels, places)`; where each level's groups start `(levels, places + 1)`.
    kinds
        Kind of each of p patterns `(p,)`.
    places
        Level within which the place changes, for the two parts of a pattern `(p, 2)`; `SAME` where it does not.
    axes
        Attributes that change, for the two parts `(p, 2, k)`.
    start, cell, coefficient
        Listed vectors end to end.
    """

    active: NDArray[np.int64]
    sizes: NDArray[np.int64]
    group: NDArray[np.int64]
    bounds: NDArray[np.int64]
    kinds: NDArray[np.int64]
    places: NDArray[np.int64]
    axes: NDArray[np.bool_]
    start: NDArray[np.int64]
    cell: NDArray[np.int64]
    coefficient: NDArray[np.int64]


@njit(cache=True)
def walk(rng, rows, moves, box, spans, chances, x, count, thin):
    """Run one chain from table `x` `(n,)`, which is overwritten by where it ends.

    Parameters
    ----------
    box
        Bounds of the cells `(2, n)`.
    spans
        `(n,)` how far each cell may reasonably move (counts).
    chances
        `(p,)` cumulative probabilities of the patterns.
    count, thin
        Tables kept, and sweeps (of one proposal per active cell) between them.

    Returns
    -------
    tables, tried, gone, moved
        `(count, n)`; for each pattern how many steps were tried and went anywhere, and how far in all (squared
        steps over the spans of their cells).
    """
    n, width = x.size, max(4, 2 * np.max(moves.start[1:] - moves.start[:-1]) if moves.start.size > 1 else 4)
    tables = np.zeros((count, n), np.int64)
    tried, gone, moved = np.zeros(chances.size), np.zeros(chances.size), np.zeros(chances.size)
    cells, change = np.zeros(width, np.int64), np.zeros(width, np.int64)
    y = sums(rows, x)
    level = log_levels(rows, y)
    scratch = np.zeros(y.size), np.zeros(WINDOW), np.zeros(y.size, np.int64), np.zeros(y.size, np.bool_)
    for draw in range(count):
        for _ in range(thin * moves.active.size):
            pattern = np.searchsorted(chances, rng.random() * chances[-1], side="right")
            used = _propose(rng, moves, pattern, cells, change)
            tried[pattern] += 1
            if used:
                far = _step(rng, rows, box, spans, x, used, cells, change, y, level, scratch)
                gone[pattern] += far > 0
                moved[pattern] += far
        tables[draw] = x
    return tables, tried, gone, moved


@njit(cache=True)
def survey(rng, rows, moves, fixed, tries):
    """Share of each pattern's moves that change no row in `fixed` `(r,)`."""
    width = max(4, 2 * np.max(moves.start[1:] - moves.start[:-1]) if moves.start.size > 1 else 4)
    cells, change = np.zeros(width, np.int64), np.zeros(width, np.int64)
    delta, shares = np.zeros(fixed.size), np.zeros(moves.kinds.size)
    for pattern in range(moves.kinds.size):
        for _ in range(tries):
            used, keeps = _propose(rng, moves, pattern, cells, change), True
            for turn in range(2):
                for i in range(used):
                    for e in range(rows.start[cells[i]], rows.start[cells[i] + 1]):
                        r = rows.row[e]
                        if fixed[r]:
                            delta[r] += change[i] * rows.coefficient[e] if turn == 0 else 0.0
                            keeps = keeps and (turn == 0 or delta[r] == 0.0)
            for i in range(used):
                for e in range(rows.start[cells[i]], rows.start[cells[i] + 1]):
                    delta[rows.row[e]] = 0.0
            shares[pattern] += (used > 0 and keeps) / tries
    return shares


@njit(cache=True, inline="always")
def _step(rng, rows, box, spans, x, used, cells, change, y, level, scratch):
    """Draw where to go from `x` along a move; return how far. `y` are the rows, `level` their log factors."""
    delta, logs, touched, seen = scratch
    count, length, precision = 0, 0.0, 0.0
    for i in range(used):
        cell = cells[i]
        length += (change[i] / spans[cell]) ** 2
        for e in range(rows.start[cell], rows.start[cell + 1]):
            r = rows.row[e]
            if not seen[r]:
                touched[count], seen[r] = r, True
                count += 1
            delta[r] += change[i] * rows.coefficient[e]
    for k in range(count):
        r = touched[k]
        precision += delta[r] ** 2 * (0.5 * rows.factors[r, SLOPE] ** 2 + 2 * rows.factors[r, CURVE])
    jump = 1 + int(STRIDE * rng.random() / math.sqrt(precision + length))
    here = int(rng.random() * WINDOW)
    first, last = 0, WINDOW - 1
    for i in range(used):
        if change[i] != 0:
            ends = (
                (box[0, cells[i]] - x[cells[i]]) / (jump * change[i]),
                (box[1, cells[i]] - x[cells[i]]) / (jump * change[i]),
            )
            first = max(first, here + math.ceil(max(min(ends[0], ends[1]), -WINDOW)))
            last = min(last, here + math.floor(min(max(ends[0], ends[1]), WINDOW)))
    logs[:] = 0.0
    for k in range(count):
        r = touched[k]
        if delta[r] != 0.0:
            add_factor(
                rows.factors, rows.table, r, y[r] - here * jump * delta[r], jump * delta[r], first, last, logs
            )
    step = (_pick(rng, logs, first, last) - here) * jump
    for k in range(count):
        r = touched[k]
        if step != 0 and delta[r] != 0.0:
            y[r] += step * delta[r]
            level[r] = log_factor(rows.factors, rows.table, r, y[r])
        delta[r], seen[r] = 0.0, False
    for i in range(used):
        x[cells[i]] += step * change[i]
    return step * step * length


@njit(cache=True)
def _pick(rng, logs, first, last):
    """Draw a place between first and last with probabilities proportional to exp(logs)."""
    top, total = logs[first], 0.0
    for i in range(first, last + 1):
        top = max(top, logs[i])
    for i in range(first, last + 1):
        total += math.exp(logs[i] - top)
    left, i = rng.random() * total - math.exp(logs[first] - top), first
    while left >= 0.0 and i < last:
        i += 1
        left -= math.exp(logs[i] - top)
    return i


@njit(cache=True)
def _propose(rng, moves, pattern, cells, change):
    """Write a random move of a pattern; return how many cells it changes, 0 if none."""
    kind = moves.kinds[pattern]
    if kind == LISTED:
        return _listed(rng, moves, cells, change)
    a = moves.active[int(rng.random() * moves.active.size)]
    if kind == SINGLE:
        cells[0], change[0] = a, 1
        return 1
    other = _elsewhere(rng, moves, moves.places[pattern], moves.axes[pattern], a, kind)
    if other[0] == a or (kind == SQUARE and other[1] == a):
        return 0
    cells[0], change[0], cells[1], change[1] = a, -1, other[0], 1
    if kind == PAIR:
        return 2
    cells[2], change[2], cells[3], change[3] = other[1], 1, other[2], -1
    return 4


@njit(cache=True)
def _elsewhere(rng, moves, places, axes, a, kind):
    """Draw new coordinates for the two parts of the axes: `a` with the first, with the second, with both."""
    first, second, both = a, a, a
    stride = 1
    rest = a
    for axis in range(moves.sizes.size - 1, -1, -1):
        size = moves.sizes[axis]
        now = rest % size
        rest //= size
        if axes[0, axis] or axes[1, axis]:
            shift = (int(rng.random() * size) - now) * stride
            first += shift if axes[0, axis] else 0
            second += shift if axes[1, axis] else 0
            both += shift
        stride *= size
    for part in range(2):
        if places[part] != SAME:
            level = places[part]
            group = moves.group[level, rest]
            begin, end = moves.bounds[level, group], moves.bounds[level, group + 1]
            shift = (begin + int(rng.random() * (end - begin)) - rest) * stride
            first += shift if part == 0 else 0
            second += shift if part == 1 else 0
            both += shift
    return first, second, both


@njit(cache=True)
def _listed(rng, moves, cells, change):
    """One listed vector, or the sum or difference of two: a cell may come twice, and then adds up to nothing or two."""
    many = moves.start.size - 1
    i, j = int(rng.random() * many), int(rng.random() * many)
    used = 0
    for e in range(moves.start[i], moves.start[i + 1]):
        cells[used], change[used] = moves.cell[e], moves.coefficient[e]
        used += 1
    if i == j or rng.random() < 0.5:
        return used
    sign = 1 if rng.random() < 0.5 else -1
    for e in range(moves.start[j], moves.start[j + 1]):
        known = 0
        while known < used and cells[known] != moves.cell[e]:
            known += 1
        if known == used:
            cells[used], change[used] = moves.cell[e], 0
            used += 1
        change[known] += sign * moves.coefficient[e]
    return used
