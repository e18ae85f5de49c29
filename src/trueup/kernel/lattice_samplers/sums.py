"""One fixed sum: noise `p(v) ~ exp(-eps ||v||_1)` on `{v in Z^n : sum v = 0}`, from integer uniforms only.

Write `v = v+ - v-`. The pairs (X, Y) of nonnegative integer vectors with `X - Y = v` are
`X = v+ + c, Y = v- + c`, `c >= 0`. If X and Y are independent uniform weak compositions of the same
K into n parts, every such pair has probability `1 / C(n+k-1, k)^2` given `K = k = ||v||_1 / 2 + |c|_1`. With
`P(K = k) ~ C(n+k-1, k)^2 x^k`, `x = exp(-2 eps)`, the binomials cancel:
`P(v) ~ sum_c x^(||v||_1 / 2 + |c|_1) = exp(-eps ||v||_1) (1 - x)^-n`.
"""

from __future__ import annotations

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.lattice_samplers.tape import LOW, POSITION, RUNNING, START, STATUS, TRIES, digits, invert


@njit(cache=True)
def draw_sums(tape, notes, state, sizes, scratch, out, done):
    """Draw vectors that sum to zero; `sizes` is the law of K, `scratch` zeroed words."""
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
    """Overwrite `out` by one vector that sums to zero."""
    k = invert(tape, notes, state, sizes, 0)
    out[:] = 0
    if state[STATUS] == RUNNING:
        draw_composition(tape, state, k, 1, scratch, out)
        draw_composition(tape, state, k, -1, scratch, out)


@njit(cache=True)
def draw_composition(tape, state, k, sign, scratch, out):
    """Add `sign` times a uniform weak composition of `k` to `out`: `n - 1` bars among `k` stars.

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
    """Mark a place, or the other one if it is marked."""
    if marks[place >> 6] >> np.uint64(place & 63) & np.uint64(1):
        place = other
    marks[place >> 6] |= np.uint64(1) << np.uint64(place & 63)


@njit(cache=True, forceinline=True)
def _between_bars(places, sign, scratch, out):
    """Add the numbers of places between marks; clear the marks."""
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
    """Add one in the cell of each mark, the number of unmarked places before it; clear the marks."""
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
    """Return the place of the lowest set bit: a de Bruijn sequence times it shows it in the top six bits."""
    return _PLACES[np.int64(((marks & (~marks + np.uint64(1))) * _DE_BRUIJN) >> np.uint64(58))]


_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_PLACES = np.zeros(64, np.int64)
_PLACES[[(int(_DE_BRUIJN) << i) % 2**64 >> 58 for i in range(64)]] = np.arange(64)
