"""The rejection sampler's integer arithmetic stays inside its proven margin, and exact decisions are exact."""

from __future__ import annotations

from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from tests.reference.noise_laws import number
from trueup.noise.samplers import gaussian
from trueup.noise.samplers.gaussian import GaussianWide

SIGMA2 = ["1", "7/3", "1024", "1048577", "1000000000000", "123456789123456789/1000", "72057594037927936"]


def chance(sampler: GaussianWide, distance: int) -> mp.mpf:
    """Return the probability of acceptance as the paper states it."""
    x = (distance - sampler.sigma2 / sampler.t) ** 2 / (2 * sampler.sigma2)
    return mp.exp(-number(x))


def distances(sampler: GaussianWide, rng) -> list[int]:
    furthest = sampler.furthest
    drawn = (
        rng.integers(0, furthest, 300, endpoint=True).tolist()
        + rng.integers(0, 1 + furthest // 8, 300).tolist()
    )
    return [0, 1, sampler.t, furthest - 1, furthest, *drawn]


@pytest.mark.parametrize("sigma2", SIGMA2)
def test_the_integer_exponential_is_within_its_margin(sigma2, rng):
    sampler = GaussianWide(Fraction(sigma2))
    tried = distances(sampler, rng)
    vector = sampler._exp(np.array(tried), *gaussian._tables())
    for distance, ours in zip(tried, vector.tolist()):
        assert ours == sampler._exp(distance, *gaussian._lists())
        assert abs(ours - chance(sampler, distance) * 2**32) < gaussian._EXP_ERROR_UNITS - 1
    beyond = sampler.furthest + 1
    for distance in (beyond, 2 * beyond, 40 * beyond):
        assert chance(sampler, distance) * 2**32 < gaussian._EXP_ERROR_UNITS - 1 - vector[4]


def test_a_margin_of_a_quarter_would_not_do(rng):
    """The margin is needed: errors above a quarter of it occur."""
    sampler = GaussianWide(Fraction("1000000000000"))
    tried = distances(sampler, rng)
    ours = sampler._exp(np.array(tried), *gaussian._tables())
    errors = [abs(int(o) - chance(sampler, d) * 2**32) for d, o in zip(tried, ours)]
    assert max(errors) > gaussian._EXP_ERROR_UNITS / 4


@pytest.mark.parametrize("sigma2", SIGMA2)
@pytest.mark.parametrize("agreed", [40, 96, 150])
@pytest.mark.parametrize("above", [False, True])
def test_bits_that_agree_with_the_chance_for_long_are_refined(sigma2, agreed, above, rng):
    """U shares `agreed` bits with exp(-x), then differs: accepted just below, rejected just above."""
    sampler = GaussianWide(Fraction(sigma2))
    y = int(rng.integers(1, 4 * sampler.t)) * int(rng.choice([-1, 1]))
    head = int(mp.floor(chance(sampler, abs(y)) * mp.mpf(2) ** agreed)) + (1 if above else -1)
    u, left = head << (224 - agreed), 224 - 32

    def words(count: int) -> bytes:
        nonlocal left
        left -= 8 * count
        return (u >> left & ((1 << 8 * count) - 1)).to_bytes(count, "big")

    assert sampler._accepts(y, u >> 192, words) is not above


def test_the_tables_of_the_exponential():
    coarse, fine = gaussian._tables()
    for table, unit in ((coarse, 2**10), (fine, 2**20)):
        for i in [*range(0, len(table), 97), len(table) - 1]:
            assert 0 <= mp.exp(-mp.mpf(i) / unit) * 2**31 - int(table[i]) < 1.001
