"""Exact samplers of integer vectors on which given sums are zero.

Here: random words on a tape, and the three decisions that every integer sampler makes with them.

A sampler reads 64-bit words from an unbounded tape of which a finite piece is in memory. If the
piece ends in the middle of a draw, the draw is made again from its start on the *same* words
continued by fresh ones, so nothing is conditioned on the piece's length. If a word equals a
threshold's first 64 bits, the decision is left open: the caller settles it with more bits against a
proven enclosure and notes the outcome beside the word's position, and the draw is made again. No
decision rests on floating point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit

Words = Callable[[int], bytes]
Settle = Callable[[int, int, int, int, Words], int]
"""`settle(family, row, k, word, words)`: the outcome of a decision that 64 bits left open."""

POSITION, STATUS, START, TRIES, PLACE, FAMILY, ROW, COIN = range(8)
RUNNING, EXHAUSTED, OPEN = range(3)
LOW = np.uint64(0xFFFFFFFF)
FIRST_CHUNK, LARGEST_CHUNK = 1 << 10, 1 << 17


class TapeDraws(NamedTuple):
    """Vectors drawn by a kernel, and the number of proposals made.

    Attributes
    ----------
    vectors
        `(d, n)` integers.
    tries
        Proposals made for all of them.
    """

    vectors: NDArray[np.int64]
    tries: int


class Steps(NamedTuple):
    """`t` cumulative distribution functions on the integers, stored as floors of `F 2^bits`.

    Attributes
    ----------
    low
        Where each starts, `(t,)`.
    floors, counts
        `floor(F(low + i) 2^bits)`, `(t, w)` with `counts` `(t,)` of them in use.
    index
        `(t, 1024)`: the first floor that a word with these 10 leading bits can reach.
    family
        What to tell `settle`.
    shift
        `64 - bits`; above 0 only to test what happens when words leave decisions open.
    """

    low: NDArray[np.int64]
    floors: NDArray[np.uint64]
    counts: NDArray[np.int64]
    index: NDArray[np.int64]
    family: int
    shift: int

    @classmethod
    def of(cls, family: int, tables: Sequence[tuple[int, NDArray[np.uint64]]], bits: int = 64) -> Steps:
        """Return the steps of several laws, given the `(low, floors)` of each."""
        width = max(len(floors) for _, floors in tables)
        stack = np.array([np.pad(floors, (0, width - len(floors))) for _, floors in tables])
        leading = np.arange(1 << 10, dtype=np.uint64) << np.uint64(bits - 10)
        index = np.array([np.searchsorted(floors, leading) for _, floors in tables], dtype=np.int64)
        counts = np.array([len(floors) for _, floors in tables], dtype=np.int64)
        return cls(
            np.array([low for low, _ in tables], dtype=np.int64), stack, counts, index, family, 64 - bits
        )


class Coins(NamedTuple):
    """`t` families of coins `k = 0, 1, ...`, with probabilities stored as floors of `p 2^bits`.

    Attributes
    ----------
    floors
        `(t, w)`; coin 0 always succeeds, and coins from `w` on have probabilities below 2^-bits.
    family, shift
        The same as in `Steps`.
    """

    floors: NDArray[np.uint64]
    family: int
    shift: int


def run(
    kernel: Callable[..., int], arguments: Sequence[Any], shape: tuple[int, int], words: Words, settle: Settle
) -> TapeDraws:
    """Make `shape[0]` draws of `shape[1]` cells with a compiled kernel, supplying random words as needed.

    Parameters
    ----------
    kernel
        `kernel(tape, notes, state, *arguments, out, done)` makes draws `done, done + 1, ...` until the
        tape ends or a decision is open, and returns how many are finished; `state[START]` is
        where the unfinished one began.
    arguments
        Tables and shapes, passed on.
    shape
        Draws and cells.
    words
        Source of random bytes.
    settle
        Settles an open decision.
    """
    out = np.zeros(shape, np.int64)
    tape, notes = np.zeros(0, np.uint64), np.zeros((0, 2), np.int64)
    done, tries, chunk = 0, 0, FIRST_CHUNK
    while done < shape[0]:
        state = np.zeros(8, np.int64)
        before, done = done, kernel(tape, notes, state, *arguments, out, done)
        start, tries = int(state[START]), tries + int(state[TRIES])
        if state[STATUS] == OPEN:
            place = int(state[PLACE])
            case = (int(state[FAMILY]), int(state[ROW]), int(state[COIN]), int(tape[place]))
            outcome = settle(*case, words)
            notes = np.vstack([notes, [[place, outcome]]])
        tape, notes = tape[start:], notes[notes[:, 0] >= start] - [start, 0]
        if state[STATUS] == EXHAUSTED:
            chunk = 2 * chunk if done == before or chunk < LARGEST_CHUNK else chunk
            tape = np.concatenate([tape, np.frombuffer(words(8 * chunk), np.uint64)])
    return TapeDraws(out, tries)


@njit(cache=True, inline="always")
def word(tape, state):
    """Return the next random word, or 0 with a flag set if no words are left."""
    place = state[POSITION]
    if place >= tape.size:
        state[STATUS] = EXHAUSTED
        return np.uint64(0)
    state[POSITION] = place + 1
    return tape[place]


@njit(cache=True, inline="always")
def digits(tape, state, ranges):
    """Draw 32 bits as uniform digits in mixed radix; the product `ranges` of the radices is below 2^32.

    The product w r1 = u1 2^32 + w1 shows the first digit u1 and leaves w1; w1 r2 shows the next, and so on, because
    w r1 r2 = (u1 r2 + u2) 2^32 + w2. All digits are one uniform below r1 r2 ... once the short end of the last remainder
    is rejected (Lemire 2019; several at a time: Brackett-Rozinsky and Lemire 2024).
    """
    limit = np.uint64(ranges)
    bits = word(tape, state) >> np.uint64(32)
    if (bits * limit) & LOW < limit:
        short = (np.uint64(1 << 32) - limit) % limit
        while (bits * limit) & LOW < short and state[STATUS] == RUNNING:
            bits = word(tape, state) >> np.uint64(32)
    return bits


@njit(cache=True, inline="always")
def below(tape, state, n):
    """Draw uniformly from `0 .. n-1`, `n < 2^32`, exactly."""
    return np.int64((digits(tape, state, n) * np.uint64(n)) >> np.uint64(32))


@njit(cache=True)
def noted(notes, state, family, row, k):
    """Return the decided outcome for the last word, or record that it is undecided."""
    place = state[POSITION] - 1
    for i in range(notes.shape[0]):
        if notes[i, 0] == place:
            return notes[i, 1]
    if state[STATUS] == RUNNING:
        state[STATUS], state[PLACE] = OPEN, place
        state[FAMILY], state[ROW], state[COIN] = family, row, k
    return np.int64(0)


@njit(cache=True, inline="always")
def invert(tape, notes, state, steps, row):
    """Draw from a cumulative distribution function by inversion: `min {k : F(k) > U}`."""
    u = word(tape, state)
    i, count = steps.index[row, np.int64(u >> np.uint64(54))], steps.counts[row]
    u >>= np.uint64(steps.shift)
    while i < count and steps.floors[row, i] < u:
        i += 1
    if i == count or steps.floors[row, i] == u:
        return noted(notes, state, steps.family, row, 0)
    return steps.low[row] + i


@njit(cache=True, inline="always")
def coin(tape, notes, state, coins, row, k):
    """Flip coin `k` of family `row`; return True for success."""
    if k == 0:
        return True
    u = word(tape, state) >> np.uint64(coins.shift)
    floor = coins.floors[row, k] if k < coins.floors.shape[1] else np.uint64(0)
    if u == floor:
        return noted(notes, state, coins.family, row, k) == 1
    return u < floor
