"""Messages of the column sampler against NumPy's convolution, and the draws that they lead to."""

from __future__ import annotations

import numpy as np
import pytest

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.columns import NARROW, PADDED, WIDE, _at, _convolve, _rank, _shares


@njit(cache=False)
def joined(own, size, after, shift, within, pad):
    out = np.empty(WIDE, np.float32)
    _convolve(own, 0, size, after, out, shift, within, pad)
    return out


@njit(cache=False)
def shared(own, after, back):
    masses, pad = np.empty(own.size), np.zeros(PADDED, np.float32)
    pad[WIDE : 2 * WIDE] = after
    return masses, _shares(own, 0, pad, back, own.size, masses)


@njit(cache=False)
def mirrored(masses, at, u):
    return _at(masses, masses.size, (1.0 - _rank(u, masses, at, masses.size)) * masses.sum())


def message(rng, width, steps):
    return np.append(rng.random(steps), np.zeros(width - steps)).astype(np.float32)


def in_window(own, after, low, tail_low, begin, steps):
    """Masses of the sums from `begin` on, by NumPy."""
    whole = np.convolve(own, after)
    at = np.arange(begin, begin + steps) - low - tail_low
    return np.append(
        np.where((at >= 0) & (at < len(whole)), whole[np.clip(at, 0, len(whole) - 1)], 0.0),
        np.zeros(WIDE - steps),
    )


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_messages_are_convolutions_within_their_window(width, rng):
    apart = 0.0
    for _ in range(300):
        size, tail_size = rng.integers(1, width + 1), rng.integers(1, WIDE + 1)
        own, after = message(rng, width, size), message(rng, WIDE, tail_size)
        low, tail_low = -rng.integers(size), -rng.integers(tail_size)
        begin = max(-rng.integers(WIDE), low + tail_low)
        steps = min(begin + WIDE, low + size - 1 + tail_low + tail_size) - begin
        if steps < 1:
            continue
        within = (np.arange(WIDE) < steps).astype(np.float32)
        found = joined(own, size, after, WIDE + begin - low - tail_low, within, np.zeros(PADDED, np.float32))
        assert np.allclose(found, in_window(own, after, low, tail_low, begin, steps), rtol=1e-5, atol=1e-6)
        apart = max(apart, np.abs(found - in_window(own, after, low, tail_low, begin + 1, steps)).max())
    assert apart > 0.1  # a window one step further is another


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_shares_are_products_of_what_makes_up_the_sum(width, rng):
    for _ in range(300):
        own, after = message(rng, width, width), message(rng, WIDE, rng.integers(1, WIDE + 1))
        back = rng.integers(width + WIDE - 1)
        masses, total = shared(own, after, back)
        for i in range(width):
            expected = own[i] * after[back - i] if 0 <= back - i < WIDE else 0.0
            assert masses[i] == pytest.approx(expected, rel=1e-6)
        assert total == pytest.approx(masses.sum())


def test_mirrored_numbers_keep_their_law(rng):
    """A number drawn from masses has the same law when mirrored, and lies at the other end of it."""
    masses = np.append(rng.random(7), np.zeros(9))
    law = masses / masses.sum()
    first = rng.choice(len(law), 40_000, p=law)
    second = np.array([mirrored(masses, at, rng.random()) for at in first])
    seen = np.bincount(second, minlength=len(law)) / len(second)
    assert (np.abs(seen - law) < 5.5 * np.sqrt(law / len(second)) + 1e-12).all()
    assert np.corrcoef(first, second)[0, 1] < -0.8
    middle = np.array([mirrored(masses, at, 0.5) for at in first])  # not uniform within a number's mass
    wrong = np.bincount(middle, minlength=len(law)) / len(middle)
    assert (np.abs(wrong - law) > 5.5 * np.sqrt(law / len(middle))).any()
