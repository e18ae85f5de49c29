"""Sums of counts on grids: exact where every whole number is a point, and to the square of the gaps elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from trueup.kernel.grids import convolve_at, log_spacings, parabolas, slope_and_scale
from trueup.kernel.grids.factors import log_gamma_ratio, log_split
from trueup.kernel.grids.points import zoom
from trueup.kernel.messages import plan_pairs


def convolved(xf, lf, xg, lg, xo):
    out = np.empty(len(xo))
    convolve_at(xf, lf, parabolas(xf, lf), xg, lg, parabolas(xg, lg), xo, out)
    return out


def steps(mean, sd, gap):
    return np.unique(np.rint(mean + sd * np.arange(-6.5, 6.5 + gap, gap)).astype(np.int64))


def normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2


def moments(x, log):
    weight = np.empty(len(x))
    log_spacings(x, weight)
    p = np.exp(log + weight - (log + weight).max())
    p /= p.sum()
    return (p * x).sum(), np.sqrt((p * x**2).sum() - (p * x).sum() ** 2)


@pytest.mark.thorough
def test_sums_on_whole_numbers_are_convolutions(rng):
    for _ in range(200):
        sizes = rng.integers(1, 40, 2)
        (xf, f), (xg, g) = (
            (np.arange(n) + rng.integers(-5, 9), rng.normal(0, 3, n) + rng.normal() * np.arange(n))
            for n in sizes
        )
        every = np.arange(xf[0] + xg[0], xf[-1] + xg[-1] + 1)
        first, last = np.sort(rng.integers(0, len(every), 2))
        expected = np.log(np.convolve(np.exp(f), np.exp(g)))[first : last + 1]
        assert np.allclose(convolved(xf, f, xg, g, every[first : last + 1]), expected, atol=1e-9)


def test_a_cliff_at_the_end_does_not_shoot_over_the_points_beside_it():
    """What siblings no longer allow is thousands of nats lower; a parabola through it and two others would rise by hundreds."""
    x, one = np.array([0, 138, 300, 541]), (np.array([0]), np.zeros(1))
    every = np.arange(0, 300)
    assert convolved(x, np.array([0.0, -0.1, -0.2, -6681.0]), *one, every).max() < 1e-9
    line = (x - 138) * -0.1 / 138  # a straight log stays one, to its end
    assert np.allclose(convolved(x, line, *one, every), (every - 138) * -0.1 / 138, atol=1e-9)


def test_sums_whose_logs_span_hundreds_of_nats_are_kept():
    x = np.arange(400)
    steep = 1.2 * x - 0.001 * x**2
    out = convolved(x, steep, x, -steep, np.arange(300, 340))
    expected = [
        np.logaddexp.reduce(steep[t - x[max(0, t - 399) : t + 1]] - steep[x[max(0, t - 399) : t + 1]])
        for t in range(300, 340)
    ]
    assert np.allclose(out, expected, rtol=1e-9)


@pytest.mark.parametrize(("gap", "within"), [(0.4, 2e-2), (0.2, 5e-3)])
def test_a_sum_of_normal_counts_has_their_mean_and_variance(gap, within):
    xf, xg, sd = steps(3000, 200, gap), steps(5000, 350, gap), np.hypot(200, 350)
    xo = steps(8000, sd, gap)
    mean, spread = moments(xo, convolved(xf, normal(xf, 3000, 200), xg, normal(xg, 5000, 350), xo))
    assert abs(mean - 8000) < within * sd
    assert abs(spread / sd - 1) < within


def test_a_narrow_part_is_seen_between_the_points_of_a_wide_one():
    """One part is 0, or near 5,000, as likely; the other is known to some counts."""
    xf = np.unique(np.concatenate([np.arange(3), steps(5000, 300, 0.3)]))
    f = np.where(
        xf < 3, np.where(xf == 0, 0.0, -np.inf), normal(xf, 5000, 300) - np.log(300 * np.sqrt(2 * np.pi))
    )
    xg = np.arange(10, 40)
    g = normal(xg, 25, 4)
    xo = np.unique(np.concatenate([np.arange(5, 60), xf[3:] + 25]))
    weight = np.empty(len(xo))
    log_spacings(xo, weight)
    p = np.exp(convolved(xf, f, xg, g, xo) + weight)
    assert abs(p[xo < 1000].sum() / p.sum() - 0.5) < 0.01


def test_log_gamma_ratios_keep_their_digits_at_large_counts():
    from mpmath import loggamma, mp, mpf

    mp.dps = 50
    for x in (0.0, 3.0, 1e3, 1e9, 1e15):
        for a, b in ((0.3, 2.0), (1e-3, 5e4), (7.5, 0.2)):
            exact = float(loggamma(mpf(x) + mpf(a)) - loggamma(mpf(x) + mpf(b)))
            assert log_gamma_ratio(x, a, b) == pytest.approx(exact, rel=1e-11, abs=1e-11)
    assert log_split(0, 0.3, 2.0) == 0.0


def test_slope_and_scale_of_a_parabola():
    x = np.arange(-30, 31) * 7
    p = np.exp(normal(x, 10, 60))
    slope, scale = slope_and_scale(x, 5.0 + 0.2 * x - 0.5 * (x / 45.0) ** 2, p / p.sum())
    mean = (p * x).sum() / p.sum()
    assert scale == pytest.approx(45.0)
    assert slope == pytest.approx(0.2 - mean / 45.0**2)


@pytest.mark.parametrize("step", [0.4, 0.2])
def test_finer_grids_may_have_more_points(step):
    """Of a long window with a short scale: with as many points at any gap, finer grids never were fine enough."""
    plan, x = plan_pairs(np.array([1, 1])), np.arange(0, 5401, 27)
    p = np.exp(-x / 400.0)
    ends = np.zeros(1, np.int64), np.full(1, 5400)
    ptr, found = zoom(plan, np.array([0, len(x)]), x, p / p.sum(), np.ones(1), *ends, step)
    assert ptr[-1] == len(found) > 60 / step
    assert np.diff(found).max() <= 5400 * step / 80 + 1
