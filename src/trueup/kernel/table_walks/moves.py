"""Moves on integer tables, and the densities of tables.

*Rows* are factors on sums of counts: the log density of a table, its change by a move, and all tables of a small fibre.
A density on integer tables x is a product of factors, each a function of one linear combination `y = a x` (a row).
Invariants, bounds and rules are factors too: 0 outside `low <= y <= high`. A row's log factor is

    -slope |y - centre| - curve (y - centre)^2              noise; minus infinity beyond `reach`
    + u lgamma(y + 1) + v lgamma(y + w) + t y               Poisson and negative binomial priors, flat totals
    + table[y + tabled - 1/2]                               where `tabled` is not 0: a prior by its masses (1/2), or
                                                            a law p(published | y) that is listed where it is not 0

so every law is in closed form or listed in full, and nothing is truncated.

*Proposals* are drawn in batches independent of the chain's state. Cells form a grid: places, nested in levels, times attributes.
A move takes a cell, another that differs from it along some axes, and changes one of them (a single), moves counts from one to
the other (a pair, which keeps every margin without those axes), or exchanges part of the axes between them (a square, which
keeps every margin that holds only one of the two parts: the basic moves of a two-way table). Listed vectors, such as a lattice
basis, come alone or as sums of two.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit

Reals = NDArray[np.float64]
CENTRE, SLOPE, CURVE, REACH, LOW, HIGH, U, V, W, T, TABLED = range(11)


class Rows(NamedTuple):
    """The density of integer tables: log factors on `r` rows (linear combinations) over `n` cells.

    Attributes
    ----------
    start, row, coefficient
        Rows that each cell is in, cell by cell: `(n + 1,)`, `(entries,)`, `(entries,)`.
    factors
        `(r, 11)`: the columns `CENTRE` to `TABLED`; see above.
    table
        Log masses, all tables end to end.
    """

    start: NDArray[np.int64]
    row: NDArray[np.int64]
    coefficient: Reals
    factors: Reals
    table: Reals


@njit(cache=True, inline="always")
def row_log_factor(factors, table, r, y):
    """Return the log factor of row r of a density when the row has the value y."""
    away = abs(y - factors[r, CENTRE])
    value = -np.inf
    if factors[r, LOW] <= y <= factors[r, HIGH] and away <= factors[r, REACH]:
        value = -factors[r, SLOPE] * away - factors[r, CURVE] * away * away
        if factors[r, U] != 0.0:
            value += factors[r, U] * math.lgamma(y + 1) + factors[r, T] * y
            if factors[r, V] != 0.0:
                value += factors[r, V] * math.lgamma(y + factors[r, W])
        if factors[r, TABLED] != 0.0:
            value += table[np.int64(math.floor(y + factors[r, TABLED]))]
    return value


@njit(cache=True)
def sums(rows, x):
    """Return the values `(r,)` of all rows (linear combinations) for a table `(n,)`."""
    y = np.zeros(len(rows.factors))
    for cell in range(x.size):
        for e in range(rows.start[cell], rows.start[cell + 1]):
            y[rows.row[e]] += rows.coefficient[e] * x[cell]
    return y


@njit(cache=True)
def log_levels(rows, y):
    """Return the log factors `(r,)` of all rows of a density at the rows' values `y` `(r,)`."""
    levels = np.zeros(y.size)
    for r in range(y.size):
        levels[r] = row_log_factor(rows.factors, rows.table, r, y[r])
    return levels


@njit(cache=True)
def log_densities(rows, tables):
    """Return the log density, up to a constant, of each table `(k, n)`."""
    values = np.zeros(len(tables))
    for k in range(len(tables)):
        values[k] = log_levels(rows, sums(rows, tables[k])).sum()
    return values


def enumerate_fibre(matrix: Any, low: Reals, high: Reals, box: tuple[Reals, Reals], most: int):
    """Return all integer tables with `low <= matrix x <= high` in a box, if there are few of them.

    Parameters
    ----------
    matrix
        `(m, n)` sparse.
    low, high
        `(m,)`, infinite where open.
    box
        Bounds `(n,)` of the cells, infinite where open.
    most
        Number of tables (finished or begun) beyond which to give up.

    Returns
    -------
    `(k, n)` tables, or None where they are not finitely many or more than `most`.

    Examples
    --------
    >>> import scipy.sparse
    >>> one = scipy.sparse.csr_array(np.ones((1, 2)))
    >>> enumerate_fibre(one, np.array([2.0]), np.array([2.0]), (np.zeros(2), np.full(2, np.inf)), 10).tolist()
    [[0, 2], [1, 1], [2, 0]]
    """
    bottom, top = _tightened(matrix, low, high, *box)
    if (bottom > top).any():
        return np.zeros((0, len(bottom)), np.int64)
    if not (np.isfinite(bottom).all() and np.isfinite(top).all()):
        return None
    if matrix.shape[0] * matrix.shape[1] > 1 << 20:
        return None
    dense = matrix.toarray()
    # What the cells not yet set can still add to each row, at least and at most.
    least, greatest = _interval_products(dense, bottom, top)
    least, greatest = (np.cumsum(part[:, ::-1], axis=1)[:, ::-1] for part in (least, greatest))
    tables, reached = np.zeros((1, 0), np.int64), np.zeros((1, len(dense)))
    for cell in range(len(bottom)):
        if len(tables) * (top[cell] - bottom[cell] + 1) > 50 * most:
            return None
        values = np.arange(bottom[cell], top[cell] + 1).astype(np.int64)
        reached = (reached[:, None] + values[:, None] * dense[:, cell]).reshape(
            len(tables) * len(values), len(dense)
        )
        rest = (least[:, cell + 1], greatest[:, cell + 1]) if cell + 1 < len(bottom) else (0.0, 0.0)
        keep = ((reached + rest[1] >= low - 1e-9) & (reached + rest[0] <= high + 1e-9)).all(axis=1)
        tables = np.hstack([np.repeat(tables, len(values), axis=0), np.tile(values, len(tables))[:, None]])
        tables, reached = tables[keep], reached[keep]
        if len(tables) > most:
            return None
    return tables


def _interval_products(dense: Reals, bottom: Reals, top: Reals) -> tuple[Reals, Reals]:
    one, other = dense * bottom, dense * top
    return np.minimum(one, other), np.maximum(one, other)


def _tightened(matrix: Any, low: Reals, high: Reals, bottom: Reals, top: Reals) -> tuple[Reals, Reals]:
    """Return whole-number bounds of the cells, tightened by rows whose terms cannot be negative."""
    coo = matrix.tocoo()
    signed = np.ones(matrix.shape[0], bool)
    signed[coo.row[(coo.data < 0) | ~np.isfinite(bottom[coo.col])]] = False
    taken = np.zeros(matrix.shape[0])
    np.add.at(taken, coo.row, coo.data * np.where(np.isfinite(bottom[coo.col]), bottom[coo.col], 0.0))
    use = signed[coo.row] & (coo.data > 0)
    room = bottom[coo.col[use]] + np.floor((high - taken)[coo.row[use]] / coo.data[use] + 1e-9)
    top = top.copy()
    np.minimum.at(top, coo.col[use], room)
    return np.ceil(bottom), np.floor(top)


SINGLE, PAIR, SQUARE, LISTED = range(4)
SAME = -1
"""The place does not change."""


class Moves(NamedTuple):
    """The moves of a Markov chain on integer tables.

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
    """Moves drawn at random: pattern and number of cells `(b,)`, cells and their changes `(b, w)`."""

    pattern: NDArray[np.int64]
    used: NDArray[np.int64]
    cells: NDArray[np.int64]
    change: NDArray[np.int64]


@njit(cache=True)
def propose(rng, moves, turns, chances, size):
    """Draw a batch of moves, with patterns by cumulative probabilities and first cells from `turns`.

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
    """Write a move between cells of a grid that differ in those coordinates which a pattern names."""
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
    """Draw one of the listed vectors, or the sum or difference of two of them."""
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
