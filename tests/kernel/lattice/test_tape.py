"""Uniform digits from one word, and ones that keep the short end, against the same test."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from scipy.stats import chisquare

from trueup.kernel.lattice_samplers import LOW, POSITION, below, digits, run, word

DRAWS = 60_000
FALSE_ALARM = 1e-6
WIDE = 1073741827
"""Three times it is 3/4 of 2^32: were the short end kept, every third value would come twice as often."""


@njit
def draw_digits(tape, notes, state, read, out, done):
    """Fill rows with digits in radices WIDE and 3 of one word, and a uniform below three times WIDE of another."""
    while done < out.shape[0] and state[POSITION] + 40 < tape.size:
        bits = read(tape, state, 3 * WIDE) * np.uint64(WIDE)
        out[done, 0] = bits >> np.uint64(32)
        out[done, 1] = ((bits & LOW) * np.uint64(3)) >> np.uint64(32)
        out[done, 2] = below(tape, state, 3 * WIDE)
        done += 1
    state[1:3] = 1, state[POSITION]
    return done


@njit
def keep_short_end(tape, state, ranges):
    return word(tape, state) >> np.uint64(32)


@njit
def exact(tape, state, ranges):
    return digits(tape, state, ranges)


def p_of(values, bins):
    return chisquare(np.bincount(values, minlength=bins)).pvalue


@pytest.mark.thorough
@pytest.mark.parametrize("read", [exact, keep_short_end])
def test_digits_in_mixed_radix_are_uniform_and_independent(read, rng):
    first, second, single = run(draw_digits, (read,), (DRAWS, 3), rng.bytes, lambda *case: 0).vectors.T
    assert (first < WIDE).all()
    joint = first * 8 // WIDE * 3 + second
    assert (p_of(joint, 24) > FALSE_ALARM) == (read is exact)
    assert p_of(single % 3, 3) > FALSE_ALARM


def test_one_digit_is_a_uniform_below_its_radix(rng):
    """The same word read as a uniform below six and as digits in radices 2 and 3 counts the same."""
    tape = np.frombuffer(rng.bytes(8 * DRAWS), np.uint64)
    uniform, pairs = both(tape)
    assert np.array_equal(uniform, pairs)
    assert p_of(uniform, 6) > FALSE_ALARM


@njit
def both(tape):
    one, two = np.zeros(8, np.int64), np.zeros(8, np.int64)
    uniform, pairs = np.zeros(tape.size, np.int64), np.zeros(tape.size, np.int64)
    for i in range(tape.size):
        one[POSITION] = two[POSITION] = i
        uniform[i] = below(tape, one, 6)
        bits = digits(tape, two, 6) * np.uint64(2)
        pairs[i] = 3 * np.int64(bits >> np.uint64(32)) + np.int64(
            ((bits & LOW) * np.uint64(3)) >> np.uint64(32)
        )
    return uniform, pairs
