"""Moves that a chain on integer tables may make, drawn in batches independent of the chain's state.

Cells form a grid: places, nested in levels, times attributes. A move takes a cell, another that differs from it along some
axes, and changes one of them (a single), moves counts from one to the other (a pair, which keeps every margin without
those axes), or exchanges part of the axes between them (a square, which keeps every margin that holds only one of
the two parts: the basic moves of a two-way table). Listed vectors, such as a lattice basis, come alone or as sums of two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit

SINGLE, PAIR, SQUARE, LISTED = range(4)
SAME = -1
"""The place does not change."""


class Moves(NamedTuple):
    """The moves of a chain.

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


class Batch(NamedTuple):
    """Moves drawn at random: pattern `(b,)`, number of cells `(b,)`, cells `(b, w)` and their changes `(b, w)`."""

    pattern: NDArray[np.int64]
    used: NDArray[np.int64]
    cells: NDArray[np.int64]
    change: NDArray[np.int64]


@njit(cache=True)
def propose(rng, moves, turns, chances, size):
    """Draw moves: their patterns by the cumulative `chances` `(p,)`, their first cells from `turns`.

    A move that finds no second cell has no cells at all.
    """
    longest = np.max(moves.start[1:] - moves.start[:-1]) if moves.start.size > 1 else 0
    pattern = np.searchsorted(chances, rng.random(size) * chances[-1], side="right")
    batch = Batch(
        pattern,
        np.zeros(size, np.int64),
        np.zeros((size, max(4, 2 * longest)), np.int64),
        np.zeros((size, max(4, 2 * longest)), np.int64),
    )
    _on_grid(rng.random((size, 3 + moves.sizes.size)), moves, turns, batch)
    for k in range(size):
        if moves.kinds[pattern[k]] == LISTED:
            batch.used[k] = _listed_move(rng, moves, batch.cells[k], batch.change[k])
    return batch


@njit(cache=True)
def _on_grid(dice, moves, turns, batch):
    """Write moves among cells of the grid: from `a` to one with other coordinates in the first part, the second, both."""
    sizes, group, bounds, kinds = moves.sizes, moves.group, moves.bounds, moves.kinds
    places, axes = moves.places, moves.axes
    pattern, used, cells, change = batch.pattern, batch.used, batch.cells, batch.change
    for k in range(used.size):
        p = pattern[k]
        a = turns[int(dice[k, 0] * turns.size)]
        first, second, both, stride, rest = a, a, a, 1, a
        for axis in range(sizes.size - 1, -1, -1):
            if axes[p, 0, axis] or axes[p, 1, axis]:
                shift = (int(dice[k, 3 + axis] * sizes[axis]) - rest % sizes[axis]) * stride
                first += shift if axes[p, 0, axis] else 0
                second += shift if axes[p, 1, axis] else 0
                both += shift
            rest //= sizes[axis]
            stride *= sizes[axis]
        for part in range(2):
            level = places[p, part]
            if level != SAME:
                begin, end = bounds[level, group[level, rest]], bounds[level, group[level, rest] + 1]
                shift = (begin + int(dice[k, 1 + part] * (end - begin)) - rest) * stride
                first += shift if part == 0 else 0
                second += shift if part == 1 else 0
                both += shift
        cells[k, 0], cells[k, 1], cells[k, 2], cells[k, 3] = a, first, second, both
        change[k, 0], change[k, 1], change[k, 2], change[k, 3] = 1, -1, -1, 1
        if kinds[p] == SINGLE:
            used[k] = 1
        elif kinds[p] == PAIR:
            used[k] = 2 if first != a else 0
        else:
            used[k] = 4 if first != a and second != a else 0


@njit(cache=True)
def _listed_move(rng, moves, cells, change):
    """Draw one listed vector, or the sum or difference of two, adding up repeated cells."""
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
