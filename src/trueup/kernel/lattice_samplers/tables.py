"""Two-way tables with both margins fixed: noise `p(v) ~ exp(-eps ||v||_1)`, by exact rejection.

Draw all but two rows as exact zero-sum vectors; let S be minus their sum. The last two rows then
satisfy `u + w = S`, column by column, and `u` sums to zero. With `a = exp(-eps)`, `x = a^2`, the weight of all
splits of one column is

    G(S) = sum_u a^(|u| + |S - u|) = a^|S| (|S| + (1 + x) / (1 - x)),

because the `|S| + 1` splits between 0 and S weigh `a^|S|` each and those beyond lose `x` a step. So
accept all columns but two with `G(S_j) / G(0)` each and split them (uniform with geometric tails). With s and t the sums
of the two left and T what is left of `u`, the weight of all ways to share T between them is

    N = sum_u a^(|u| + |u - s| + |u - T| + |u - (T - t)|).

Sorted, the four corners 0, s, T, T - t are p1, ..., p4 with gaps d1, d2, d3. From the `d2 + 1` values in the middle, which
weigh `a^(d1 + 2 d2 + d3)` each, the weight falls by x a step as far as p1 and p4 and by x^2 beyond. Summed, with
`N(0) = (1 + x^2) / (1 - x^2)`, `y = x / (1 + x^2)`, `y_i = y (1 - x^d_i)`, `q = N(0) / (d2 + N(0))`:

    N / N(0) = [x^d2 (1 + d2 / N(0))] [a^d1 (1 + y_1)] [a^d3 (1 + y_3)] (1 + q (y_1 + y_3)) / ((1 + y_1) (1 + y_3)).

The brackets are coins (the first is G at twice epsilon). The last factor flips coins `y_i / (1 + y_i)`: of the terms
1, y_1, y_3, y_1 y_3 of its denominator they pick one, which is kept surely, with chance q, with chance q, never.
Last, split p3 - p2 as one column of twice the weight would be, and accept what lies beyond p1 or p4 with x a step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.lattice_samplers.sums import zero_sum
from trueup.kernel.lattice_samplers.tape import (
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

CELL, SUM, GAP, END = range(4)
INSIDE, TAIL, SHARE = range(3)


class Pairs(NamedTuple):
    """What accepts and splits the sums of two cells and of two columns.

    Attributes
    ----------
    fading
        Coins `a^k` (CELL): the weight of one cell; `G(k) / G(0)` (SUM): that of two cells with sum k; the two kinds of
        brackets above: `x^k (1 + k / N(0))` (GAP) of the gap between the middle corners, `a^k (1 + y (1 - x^k))` (END) of
        an outer one.
    lasting
        Coins "both parts are between 0 and the sum" (INSIDE), coin `k + 1` for a sum of size k; `z / (1 + z)`,
        `z = y (1 - x^k)` (TAIL), coin `k + 1` for an outer gap k; `N(0) / (k + N(0))` (SHARE) of the middle gap.
    beyond
        Law on 1, 2, ... of how far outside parts are otherwise: `P(s) ~ x^s`.
    """

    fading: Coins
    lasting: Coins
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
    j, accepted = 0, True
    while accepted and j < columns - 2:
        accepted = coin(tape, notes, state, pairs.fading, SUM, abs(last[j]))
        j += 1
    if accepted:
        accepted = _split(tape, notes, state, pairs, table[rows - 2], last)
    return accepted or state[STATUS] != RUNNING


@njit(cache=True)
def _split(tape, notes, state, pairs, above, last):
    """Split the column sums in `last` between `above` and `last`; tell whether the last two columns accept."""
    end = last.size - 1
    left = 0
    for j in range(end - 1):
        above[j] = split_table(tape, notes, state, pairs, last[j])
        left -= above[j]
    corners = _sorted(0, last[end - 1], left, left - last[end])
    accepted = _accept(tape, notes, state, pairs, corners)
    if accepted:
        above[end - 1] = _share(tape, notes, state, pairs, corners)
        above[end] = left - above[end - 1]
        for j in range(end + 1):
            last[j] -= above[j]
    return accepted


@njit(cache=True)
def _sorted(a, b, c, d):
    """Sort four numbers."""
    low, high = max(min(a, b), min(c, d)), min(max(a, b), max(c, d))
    return min(a, b, c, d), min(low, high), max(low, high), max(a, b, c, d)


@njit(cache=True)
def _accept(tape, notes, state, pairs, corners):
    """Accept the last two columns with `N / N(0)`."""
    before, between, after = corners[1] - corners[0], corners[2] - corners[1], corners[3] - corners[2]
    if not (
        coin(tape, notes, state, pairs.fading, GAP, between)
        and coin(tape, notes, state, pairs.fading, END, before)
        and coin(tape, notes, state, pairs.fading, END, after)
    ):
        return False
    one = coin(tape, notes, state, pairs.lasting, TAIL, before + 1)
    other = coin(tape, notes, state, pairs.lasting, TAIL, after + 1)
    if one and other:
        return False
    return one == other or coin(tape, notes, state, pairs.lasting, SHARE, between)


@njit(cache=True)
def _share(tape, notes, state, pairs, corners):
    """Draw `u` with `P(u) ~ a^(sum of its distances to the corners)`."""
    while state[STATUS] == RUNNING:
        u = corners[1] + split_table(tape, notes, state, pairs, corners[2] - corners[1])
        beyond = max(corners[0] - u, u - corners[3], 0)
        if coin(tape, notes, state, pairs.fading, CELL, 2 * beyond):
            return u
    return 0


@njit(cache=True)
def split_table(tape, notes, state, pairs, total):
    """Draw `u` with `P(u) ~ a^(|u| + |total - u|)`."""
    size = abs(total)
    # Coin `size + 1`, because coin 0 of a family is certain and "inside" is not, even at 0.
    if coin(tape, notes, state, pairs.lasting, INSIDE, size + 1):
        u = below(tape, state, size + 1)
    else:
        step = invert(tape, notes, state, pairs.beyond, 0)
        u = -step if word(tape, state) >> np.uint64(63) else size + step
    return u if total >= 0 else -u
