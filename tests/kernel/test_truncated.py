"""Truncated normal moments against many digits; draws against their law."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from numba import njit
from scipy.stats import kstest, truncnorm

from tests.parameters import one_in
from trueup.kernel.inequalities import (
    draw_laplace,
    draw_normal,
    laplace_moments,
    laplace_pieces,
    normal_moments,
)

FINE_NODES, FINE_WEIGHTS = np.polynomial.legendre.leggauss(64)


def moments(z, sd, low, high=np.inf):
    return normal_moments(z, sd, low, high, FINE_NODES, FINE_WEIGHTS)[1:]


def many_digits(z, low, high):
    """Mean and variance of a unit normal about z on an interval, in 800 digits."""
    with mp.workdps(800 if high < mp.inf else 60):
        a, b = mp.mpf(low) - mp.mpf(z), mp.mpf(high) - mp.mpf(z)
        pdf = lambda x: mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi) if x < mp.inf else mp.mpf(0)  # noqa: E731
        sf = lambda x: mp.erfc(x / mp.sqrt(2)) / 2 if x < mp.inf else mp.mpf(0)  # noqa: E731
        mass = sf(a) - sf(b)
        shift = (pdf(a) - pdf(b)) / mass
        edge = (a * pdf(a) - (b * pdf(b) if b < mp.inf else 0)) / mass
        return float(z + shift), float(1 + edge - shift * shift)


@pytest.mark.slow
@pytest.mark.parametrize("high", one_in(2, [np.inf, 30.0, 1.0, 0.01]))
def test_moments_are_right_to_ten_digits_from_minus_to_plus_forty(high):
    for z in np.linspace(-40, 40, 41):
        mean, variance = moments(z, 1.0, 0.0, high)
        wanted = many_digits(z, 0, mp.inf if high == np.inf else high)
        assert float(mean) == pytest.approx(wanted[0], rel=1e-10)
        assert float(variance) == pytest.approx(wanted[1], rel=1e-10)


def test_the_textbook_formula_fails_where_ours_holds():
    """Eight standard deviations below the bound: the plain formula is negative or infinite."""
    z, sd = -32.0, 4.0
    mean, _ = moments(z, sd, 0.0)
    from scipy.stats import norm

    cdf = norm.cdf(8.0)  # 1 - tiny, rounded
    plain = z + sd * norm.pdf(-8.0) / (1 - cdf) if cdf < 1 else np.inf
    assert abs(plain - 0.4855) > 1
    assert float(mean) == pytest.approx(0.48547, abs=1e-5)


@njit
def _normals(rng, a, b, count):
    out = np.empty(count)
    for i in range(count):
        out[i] = draw_normal(rng, a, b)
    return out


@njit
def _laplaces(rng, pieces, count):
    out = np.empty(count)
    for i in range(count):
        out[i] = draw_laplace(rng, pieces)
    return out


@pytest.mark.parametrize(
    ("a", "b"), [(0, np.inf), (-3, 4), (-0.1, 0.3), (5, 5.1), (5, np.inf), (0.3, 0.9), (-np.inf, -2)]
)
def test_normal_draws(a, b, rng):
    assert kstest(_normals(rng, float(a), float(b), 20_000), truncnorm(a, b).cdf).pvalue > 1e-6


@pytest.mark.parametrize(
    ("z", "tilt", "low", "high"),
    [(3, 0.1, 0, np.inf), (-3, -0.4, 0, np.inf), (9, 0.3, 0, 7), (2, -0.2, 0, 7)],
)
def test_laplace_draws_and_moments(z, tilt, low, high, rng):
    draws = _laplaces(rng, laplace_pieces(float(z), 2.0, tilt, float(low), float(high)), 20_000)
    x = np.linspace(low, min(high, 400.0), 400_001)
    density = np.exp(-np.abs(x - z) / 2 + tilt * x - np.max(-np.abs(x - z) / 2 + tilt * x))
    running = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    assert kstest(draws, lambda v: np.interp(v, x, running / running[-1])).pvalue > 1e-6
    _, mean, variance = laplace_moments(float(z), 2.0, tilt, float(low), float(high))
    weights = density / density.sum()
    assert mean == pytest.approx(weights @ x, rel=1e-3)
    assert variance == pytest.approx(weights @ x**2 - (weights @ x) ** 2, rel=1e-2)
