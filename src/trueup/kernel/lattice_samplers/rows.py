"""Noise `p(v) ~ exp(-eps ||v||_1)` on tables and grids with zero one-way margins, row by row, by exact rejection.

A cell is the sum of q discrete Laplaces (in a two-way table one), `g_m(s)` the weight of a sum s of m of them. Where
columns still lack R with k rows to come, the cells of one row are drawn column by column as if rows were free,

    p_k(v | R) = g_q(v) g_{q(k-1)}(R - v) / g_{qk}(R),

and given that they sum to zero. Over the rows these laws telescope to the target over `prod_k r_k(R)`, `r_k(R)` the
probability that cells drawn so sum to zero. So a row is begun with probability `r_k(R) / M_k`, with `M_k` no less than any
`r_k`, else all is begun anew; where R is always the same, as it is above the first row, nothing need be decided. Columns lack
little for most of the time, where `r_k` is near `M_k`: at epsilon 1/4 tables of 20 x 20 take three tries.

A grid of more axes is drawn in stages. The sums over all axes but the first two are a table with zero margins whose cells have
more summands; each next stage splits its cells along one more axis: its table has a row for each place of that axis, rows sum
to zero, and what a column lacks at first is the cell of the stage before.

`r_k(R)` is a sum of products of positive numbers. In doubles it lies between proven bounds; a word between them is settled in
whole numbers by the caller, who finds R in `asked`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.lattice_samplers import (
    POSITION,
    RUNNING,
    START,
    STATUS,
    TRIES,
    Coins,
    Steps,
    coin,
    invert,
    noted,
    word,
)

ACCEPT = -1
"""Family of the decisions that `r_k / M_k` makes."""
UNIT, HALF_ULP = 2.0**-64, 2.0**-53


class RowLaw(NamedTuple):
    """The law of the rows of a grid of noise, at one stage of the grid's sampler.

    Row `k - 1` of each array is for `k` remaining rows.

    Attributes
    ----------
    rows, columns
        Shape of the stage's table.
    cell, summands
        One discrete Laplace, and how many a cell sums: q.
    coins
        `g_{qk}(s) / g_{qk}(0)`.
    weights
        The same as doubles, correctly rounded `(rows, s)`.
    norms
        `g_{qk}(0) / (g_q(0) g_{q(k-1)}(0))`, correctly rounded.
    limits
        `M_k`.
    beyond, spread
        How far beyond what a column lacks its cell is followed, and how far sums are beyond that, at first; what is left out
        widens the bounds.
    """

    rows: int
    columns: int
    cell: Steps
    summands: int
    coins: Coins
    weights: NDArray[np.float64]
    norms: NDArray[np.float64]
    limits: NDArray[np.float64]
    beyond: int
    spread: int


@njit(cache=True)
def draw_grids(tape, notes, state, stages, asked, out, done):
    """Draw grids of noise whose one-way margins are all zero."""
    while done < out.shape[0]:
        state[START] = state[POSITION]
        tries = 1
        while not _try(tape, notes, state, stages, asked, out[done]):
            tries += 1
        if state[STATUS] != RUNNING:
            break
        state[TRIES] += tries
        done += 1
    return done


@njit(cache=True)
def _try(tape, notes, state, stages, asked, out):
    """Propose a grid; return True if it is accepted or random words run out."""
    sums = np.zeros(stages[0].columns, np.int64)
    for stage in range(len(stages)):
        law = stages[stage]
        table = out[: law.rows * law.columns].reshape(law.rows, law.columns)
        left = table[law.rows - 1]
        left[:] = sums
        for i in range(law.rows - 1):
            if (i or stage) and not _begin(tape, notes, state, law, stage, law.rows - i, left, asked):
                return state[STATUS] != RUNNING
            _row(tape, notes, state, law, law.rows - i, left, table[i])
            left -= table[i]
        sums = table.copy().ravel()
    return True


@njit(cache=True)
def _row(tape, notes, state, law, k, left, out):
    """Draw the cells of one row given that they sum to zero."""
    last = np.argmin(np.abs(left))
    while state[STATUS] == RUNNING:
        total = 0
        for j in range(left.size):
            if j != last:
                out[j] = _cell(tape, notes, state, law, k, left[j])
                total += out[j]
        out[last] = -total
        if coin(tape, notes, state, law.coins, 0, abs(total)) and coin(
            tape, notes, state, law.coins, k - 2, abs(left[last] + total)
        ):
            return


@njit(cache=True)
def _cell(tape, notes, state, law, k, left):
    """Draw one cell of a column whose remaining sum is `left`."""
    while state[STATUS] == RUNNING:
        v = 0
        for _ in range(law.summands):
            v += invert(tape, notes, state, law.cell, 0)
        if coin(tape, notes, state, law.coins, k - 2, abs(left - v)):
            return v
    return 0


@njit(cache=True)
def _begin(tape, notes, state, law, stage, k, left, asked):
    """Return True with probability `r_k / M_k`, the probability that the rejection sampler accepts a row."""
    u, limit = word(tape, state), law.limits[k - 1]
    low, high = u * UNIT * (1 - 8 * HALF_ULP) * limit, (u + 1.0) * UNIT * (1 + 8 * HALF_ULP) * limit
    for part in (4, 1):
        least, most = chance_bounds(
            law, k, left, law.beyond // part, law.beyond // part + law.spread * 2 // part
        )
        if high < least or low > most:
            return high < least
    asked[: left.size] = left
    return noted(notes, state, ACCEPT, stage, k) == 1


@njit(cache=True)
def chance_bounds(law, k, left, beyond, farthest):
    """Return lower and upper bounds on `r_k(left)`, the probability that the cells of a row sum to zero.

    Columns are taken together in two halves, each cut off at `farthest`. Every factor and every sum is positive, so each
    rounding costs a relative 2^-53, and `slack` bounds all of them; what was cut off is what the laws' masses lack.
    """
    middle, size = left.size // 2, 2 * farthest + 1
    first = _sum_masses(law, k, left[:middle], beyond, farthest)
    second = _sum_masses(law, k, left[middle:], beyond, farthest)
    met = 0.0
    for i in range(size):
        met += first[i] * second[size - 1 - i]
    slack = (left.size + 2) * (size + 32) * 2 * HALF_ULP
    missing = 1 - first.sum() * second.sum() * (1 - slack)
    return met * (1 - slack) - 1e-200, met * (1 + slack) + missing


@njit(cache=True)
def _sum_masses(law, k, left, beyond, far):
    """Return the masses from `-far` to `far` of the sum of several columns' cells."""
    total, new = np.zeros(2 * far + 1), np.zeros(2 * far + 1)
    total[far] = 1.0
    low = high = far
    most = law.weights.shape[1] - 1
    for j in range(left.size):
        new[:] = 0.0
        lack = left[j]
        if abs(lack) > most:
            return new  # nothing is known: the decision is left open
        norm = law.norms[k - 1] * law.weights[k - 1, abs(lack)]
        start = max(min(lack, 0) - beyond, lack - most, -most, -high)
        stop = min(max(lack, 0) + beyond, lack + most, most, 2 * far - low)
        if start > stop:
            return new
        for v in range(start, stop + 1):
            mass = law.weights[0, abs(v)] * law.weights[k - 2, abs(lack - v)] / norm
            source = total[max(low, -v) : min(high, 2 * far - v) + 1]
            target = new[max(low + v, 0) : min(high + v, 2 * far) + 1]
            for i in range(source.size):
                target[i] += source[i] * mass
        low, high = max(low + start, 0), min(high + stop, 2 * far)
        total, new = new, total
    return total
