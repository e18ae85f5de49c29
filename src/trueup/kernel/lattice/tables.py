"""Two-way tables with both margins fixed: noise `p(v) ~ exp(-eps ||v||_1)`, by exact rejection.

Draw all but two rows as exact zero-sum vectors; let S be minus their sum. The last two rows then
satisfy `u + w = S`, column by column, and `u` sums to zero. With `a = exp(-eps)`, `x = a^2`, the weight of all
splits of one column is

    G(S) = sum_u a^(|u| + |S - u|) = a^|S| (|S| + (1 + x) / (1 - x)),

because the `|S| + 1` splits between 0 and S weigh `a^|S|` each and those beyond lose `x` a step. So
accept the first c - 1 columns with `G(S_j) / G(0)` each, split them (uniform with geometric tails), let the last
column be what makes `u` sum to zero, and accept that with its weight `a^(|u| + |w|)`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from trueup.kernel.lattice.sums import zero_sum
from trueup.kernel.lattice.tape import (
    POSITION,
    RUNNING,
    START,
    STATUS,
    TRIES,
    Coins,
    Steps,
    below,
    coin,
    invert,
    word,
)


class Pairs(NamedTuple):
    """What splits a sum between two cells, for `t` values of epsilon.

    Attributes
    ----------
    cells
        Coins `a^k`: the weight of one cell.
    sums
        Coins `G(k) / G(0)`: the weight of two cells with sum k.
    inside
        Coins "both parts are between 0 and the sum", coin `k + 1` for a sum of size k.
    beyond
        Laws on 1, 2, ... of how far outside they are otherwise: `P(s) ~ x^s`.
    """

    cells: Coins
    sums: Coins
    inside: Coins
    beyond: Steps


@njit(cache=True)
def draw_tables(tape, notes, state, rows, columns, sizes, scratch, pairs, out, done):
    """Draw `(rows, columns)` tables, at least three rows, with all margins zero.

    `sizes` is the law of half the L1 norm of one row (see `sums`), with zeroed words `scratch` to draw it.
    """
    while done < out.shape[0]:
        table = out[done].reshape(rows, columns)
        state[START] = state[POSITION]
        tries = 1
        while not _try(tape, notes, state, sizes, scratch, pairs, table):
            tries += 1
        if state[STATUS] != RUNNING:
            break
        state[TRIES] += tries
        done += 1
    return done


@njit(cache=True)
def _try(tape, notes, state, sizes, scratch, pairs, table):
    """Propose a table; tell whether to stop proposing (accepted, or the tape needs attention)."""
    rows, columns = table.shape
    last = table[rows - 1]
    last[:] = 0
    for i in range(rows - 2):
        zero_sum(tape, notes, state, sizes, scratch, table[i])
        for j in range(columns):
            last[j] -= table[i, j]
    end = columns - 1
    accepted = coin(tape, notes, state, pairs.cells, 0, abs(last[end]))
    j = 0
    while accepted and j < end:
        accepted = coin(tape, notes, state, pairs.sums, 0, abs(last[j]))
        j += 1
    if accepted:
        accepted = _split(tape, notes, state, pairs, table[rows - 2], last)
    return accepted or state[STATUS] != RUNNING


@njit(cache=True)
def _split(tape, notes, state, pairs, above, last):
    """Split the column sums in `last` between `above` and `last`; tell whether the last column accepts."""
    end = last.size - 1
    above[end] = 0
    for j in range(end):
        above[j] = split(tape, notes, state, pairs, 0, last[j])
        above[end] -= above[j]
    sums = last[end]
    for j in range(end + 1):
        last[j] -= above[j]
    # The coin a^|S| was flipped before the split; a^(|u| + |w| - |S|) is left.
    return coin(tape, notes, state, pairs.cells, 0, abs(above[end]) + abs(last[end]) - abs(sums))


@njit(cache=True)
def split(tape, notes, state, pairs, row, total):
    """Draw `u` with `P(u) ~ a^(|u| + |total - u|)`."""
    size = abs(total)
    # Coin `size + 1`, because coin 0 of a family is certain and "inside" is not, even at 0.
    if coin(tape, notes, state, pairs.inside, row, size + 1):
        u = below(tape, state, size + 1)
    else:
        step = invert(tape, notes, state, pairs.beyond, row)
        u = -step if word(tape, state) >> np.uint64(63) else size + step
    return u if total >= 0 else -u
