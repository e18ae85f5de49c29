"""Noise on invariants of low rank, by rejection on the free cells.

Choose r cells J whose columns of A are independent (r the rank) and draw all others F from their own
laws, independently. `A v = 0` then leaves `v_J = D v_F / q` for an integer matrix D and a positive integer q:
reject unless q divides every entry (rounding would put mass on vectors that break the
invariants, or fold it onto others), and accept with the product of the dependent cells' weights. The accepted
law is the product of all cells' weights on the lattice; the acceptance does not depend on J.

Cells with equal columns and the same law `a^|v|` enter the invariants by their sum S alone, so a dependent cell is
drawn with all m cells of its kind as one aggregate: S is dependent, is accepted with `G_m(S) / G_m(0)`, where
`G_m(S)` is the weight of all v with sum S, and is split among the cells after acceptance. The more
cells the wider is their sum, the less is rejected.

To split S, write `v = X - Y` with X, Y independent vectors of m geometric variables, `P(k) ~ a^k`: that is the cells' law.
Given that `sum X = S + B`, with `B = sum Y`, X is a uniform composition. So draw Y, accept `A = S + B >= 0` with the mass
`f(A) = C(m - 1 + A, A) a^A (1 - a)^m` of a sum of m geometric variables over its largest, and draw the composition.

One fixed sum: noise `p(v) ~ exp(-eps ||v||_1)` on `{v in Z^n : sum v = 0}`, from integer uniforms only.
Write `v = v+ - v-`. The pairs (X, Y) of nonnegative integer vectors with `X - Y = v` are
`X = v+ + c, Y = v- + c`, `c >= 0`. If X and Y are independent uniform weak compositions of the same
K into n parts, every such pair has probability `1 / C(n+k-1, k)^2` given `K = k = ||v||_1 / 2 + |c|_1`. With
`P(K = k) ~ C(n+k-1, k)^2 x^k`, `x = exp(-2 eps)`, the binomials cancel:
`P(v) ~ sum_c x^(||v||_1 / 2 + |c|_1) = exp(-eps ||v||_1) (1 - x)^-n`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.lattice_samplers import (
    LOW,
    POSITION,
    RUNNING,
    START,
    STATUS,
    TRIES,
    Coins,
    Steps,
    coin,
    digits,
    invert,
)


@njit(cache=True)
def draw_sums(tape, notes, state, sizes, scratch, out, done):
    """Draw vectors with sum zero, from a law of half the L1 norm."""
    while done < out.shape[0]:
        state[START] = state[POSITION]
        zero_sum(tape, notes, state, sizes, scratch, out[done])
        if state[STATUS] != RUNNING:
            break
        state[TRIES] += 1
        done += 1
    return done


@njit(cache=True, forceinline=True)
def zero_sum(tape, notes, state, sizes, scratch, out):
    """Overwrite `out` with one vector of sum zero."""
    k = invert(tape, notes, state, sizes, 0)
    out[:] = 0
    if state[STATUS] == RUNNING:
        draw_composition(tape, state, k, 1, scratch, out)
        draw_composition(tape, state, k, -1, scratch, out)


@njit(cache=True)
def draw_composition(tape, state, k, sign, scratch, out):
    """Add `sign` times a uniform composition of `k` into `n` nonnegative parts to `out`.

    Floyd's algorithm marks a uniform subset of places, bars or stars, whichever are fewer; it reads one word for as many
    marks as the ranges of their uniforms allow.
    """
    places, bars = k + out.size - 1, out.size - 1
    if places > 64 * scratch.size:
        scratch = np.zeros(places // 64 + 1, np.uint64)
    place = places - min(bars, k)
    while place < places:
        end, ranges = place + 1, np.uint64(place + 1)
        while end < places and ranges * np.uint64(end + 1) <= LOW:
            end += 1
            ranges *= np.uint64(end)
        bits = digits(tape, state, ranges)
        while place < end:
            bits *= np.uint64(place + 1)
            _mark(scratch, np.int64(bits >> np.uint64(32)), place)
            bits &= LOW
            place += 1
    if bars <= k:
        _between_bars(places, sign, scratch, out)
    else:
        _at_stars(places, sign, scratch, out)


@njit(cache=True, forceinline=True)
def _mark(marks, place, other):
    """Mark a position, or another one if the position is marked already."""
    if marks[place >> 6] >> np.uint64(place & 63) & np.uint64(1):
        place = other
    marks[place >> 6] |= np.uint64(1) << np.uint64(place & 63)


@njit(cache=True, forceinline=True)
def _between_bars(places, sign, scratch, out):
    """Add `sign` times the number of places between successive marks to each cell in turn, and clear the marks."""
    cell, before = 0, -1
    for i in range((places + 63) >> 6):
        marks = scratch[i]
        scratch[i] = 0
        while marks:
            place = (i << 6) + _lowest(marks)
            marks &= marks - np.uint64(1)
            out[cell] += sign * (place - before - 1)
            before = place
            cell += 1
    out[cell] += sign * (places - before - 1)


@njit(cache=True, forceinline=True)
def _at_stars(places, sign, scratch, out):
    """Add `sign` to a cell's count for each marked place (a star between the cell's bars); clear the marks."""
    stars = 0
    for i in range((places + 63) >> 6):
        marks = scratch[i]
        scratch[i] = 0
        while marks:
            out[(i << 6) + _lowest(marks) - stars] += sign
            marks &= marks - np.uint64(1)
            stars += 1


@njit(cache=True, forceinline=True)
def _lowest(marks):
    """Return the position of the lowest set bit of a word, by a de Bruijn sequence."""
    return _PLACES[np.int64(((marks & (~marks + np.uint64(1))) * _DE_BRUIJN) >> np.uint64(58))]


_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_PLACES = np.zeros(64, np.int64)
_PLACES[[(int(_DE_BRUIJN) << i) % 2**64 >> 58 for i in range(64)]] = np.arange(64)


class FreePlan(NamedTuple):
    """The free cells of a piece, and how its other cells depend on them.

    Attributes
    ----------
    free
        Free cells, `(f,)`.
    cells, starts
        Dependent aggregates' cells end to end, and where each aggregate starts, `(r + 1,)`.
    matrix, divisor
        `(r, f)` integers and a positive integer: the aggregates' sums are `matrix @ v[free] / divisor`.
    laws
        Row of each of the n cells in the table of laws, `(n,)`.
    kinds
        Row of each aggregate in the tables of aggregates, `(r,)`.
    """

    free: NDArray[np.int64]
    cells: NDArray[np.int64]
    starts: NDArray[np.int64]
    matrix: NDArray[np.int64]
    divisor: int
    laws: NDArray[np.int64]
    kinds: NDArray[np.int64]


class Aggregates(NamedTuple):
    """Tables that accept the sum of m cells and divide it among the cells, for `t` pairs of a law and m.

    Attributes
    ----------
    sums
        Coins `G_m(k) / G_m(0)`.
    parts
        Laws on 0, 1, ...: `P(k) ~ a^k`.
    heads
        Coins `c f(k - 1) / max f` for a constant c below 1 (coin 0 of a family is certain).
    """

    sums: Coins
    parts: Steps
    heads: Coins


@njit(cache=True)
def draw_free(tape, notes, state, plan, steps, aggregates, scratch, out, done):
    """Draw lattice vectors by rejection on free cells, which are proposed from laws of single cells."""
    while done < out.shape[0]:
        v = out[done]
        state[START] = state[POSITION]
        tries = 1
        while not _try(tape, notes, state, plan, steps, aggregates, v):
            tries += 1
        for i in range(plan.kinds.size):
            cells = plan.cells[plan.starts[i] : plan.starts[i + 1]]
            if cells.size > 1:
                _split_aggregate(tape, notes, state, aggregates, plan.kinds[i], cells, scratch, v)
        if state[STATUS] != RUNNING:
            break
        state[TRIES] += tries
        done += 1
    return done


@njit(cache=True)
def draw_in_basis(tape, notes, state, plan, steps, coins, out, done):
    """Draw lattice vectors by rejection, from independent coordinates in a basis."""
    while done < out.shape[0]:
        v = out[done]
        state[START] = state[POSITION]
        tries = 1
        while not _try_in_basis(tape, notes, state, plan, steps, coins, v):
            tries += 1
        if state[STATUS] != RUNNING:
            break
        state[TRIES] += tries
        done += 1
    return done


@njit(cache=True)
def _try_in_basis(tape, notes, state, plan, steps, coins, v):
    """Propose a lattice vector; return True if it is accepted or random words run out."""
    v[:] = 0
    over = 0
    for j in range(plan.rates.size):
        k = invert(tape, notes, state, steps, plan.laws[j])
        over -= plan.rates[j] * abs(k)
        for cell in range(v.size):
            v[cell] += k * plan.basis[j, cell]
    for cell in range(v.size):
        over += plan.parts * abs(v[cell])
    return state[STATUS] != RUNNING or coin(tape, notes, state, coins, 0, over) or state[STATUS] != RUNNING


@njit(cache=True)
def _try(tape, notes, state, plan, steps, aggregates, v):
    """Propose a lattice vector with each aggregate's sum in its first cell; return True if it is accepted."""
    for cell in plan.free:
        v[cell] = invert(tape, notes, state, steps, plan.laws[cell])
    accepted = True
    i = 0
    while accepted and i < plan.kinds.size:
        total = 0
        for f in range(plan.free.size):
            total += plan.matrix[i, f] * v[plan.free[f]]
        accepted = total % plan.divisor == 0
        if accepted:
            total //= plan.divisor
            accepted = coin(tape, notes, state, aggregates.sums, plan.kinds[i], abs(total))
            v[plan.cells[plan.starts[i]]] = total
        i += 1
    return accepted or state[STATUS] != RUNNING


@njit(cache=True)
def _split_aggregate(tape, notes, state, aggregates, kind, cells, scratch, v):
    """Divide the sum in an aggregate's first cell among its cells."""
    parts, total, accepted = np.zeros(cells.size, np.int64), v[cells[0]], False
    while not accepted and state[STATUS] == RUNNING:
        head = total
        for j in range(cells.size):
            parts[j] = -invert(tape, notes, state, aggregates.parts, kind)
            head -= parts[j]
        accepted = head >= 0 and coin(tape, notes, state, aggregates.heads, kind, head + 1)
    if state[STATUS] == RUNNING:
        draw_composition(tape, state, head, 1, scratch, parts)
        for j in range(cells.size):
            v[cells[j]] = parts[j]
