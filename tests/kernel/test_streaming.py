"""Sums over batches against one pass over everything, in any order of adding; histograms against sorted values."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.kernel.statistics.streaming import (
    BINS,
    Moments,
    Scatter,
    bins_of,
    histogram,
    histogram_quantiles,
    value_of,
)

CUTS = st.lists(st.integers(1, 199), max_size=6, unique=True).map(sorted)


def batches(seed: int, cuts: list[int]) -> list[np.ndarray]:
    """Skewed values far from zero, where sums of raw powers would cancel."""
    return np.split(1e6 + np.random.default_rng(seed).exponential(3, (200, 4)), cuts)


@given(st.integers(0, 2**31), CUTS)
def test_moments_are_those_of_one_pass(seed, cuts):
    parts = batches(seed, cuts)
    whole = np.concatenate(parts)
    found = reduce(add, [Moments.of(part, 4) for part in parts])
    deviations = whole - whole.mean(axis=0)
    np.testing.assert_allclose(found.mean, whole.mean(axis=0), rtol=1e-13)
    for power, sums in zip((2, 3, 4), found.powers):
        np.testing.assert_allclose(sums, (deviations**power).sum(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found.error, whole.std(axis=0, ddof=1) / np.sqrt(200), rtol=1e-6)


@given(st.integers(0, 2**31), CUTS)
def test_scatter_is_that_of_one_pass(seed, cuts):
    parts = batches(seed, cuts)
    found = reduce(add, [Scatter.of(part) for part in parts])
    np.testing.assert_allclose(found.covariance, np.cov(np.concatenate(parts).T), rtol=1e-6, atol=1e-6)


@given(st.integers(0, 2**31))
def test_the_order_of_adding_changes_nothing(seed):
    a, b, c = (Moments.of(part, 4) for part in batches(seed, [50, 120]))
    np.testing.assert_allclose(((a + b) + c).powers, (a + (b + c)).powers, rtol=1e-6)


def test_forgetting_the_gap_between_batches_is_noticed(rng):
    """A sum that only adds the parts' own powers fails the comparison that the right one passes."""
    parts = [rng.normal(size=(50, 3)), 5 + rng.normal(size=(50, 3))]
    right = reduce(add, [Moments.of(part) for part in parts])
    wrong = replace(right, powers=sum(Moments.of(part).powers for part in parts))
    exact = np.concatenate(parts).var(axis=0, ddof=1)
    np.testing.assert_allclose(right.variance, exact)
    assert (np.abs(wrong.variance / exact - 1) > 0.1).all()


@given(st.lists(st.floats(-(2.0**40), 2.0**40), min_size=1, max_size=50))
def test_values_are_cut_towards_zero_by_little(values):
    values = np.array(values)
    cut = value_of(bins_of(values))
    small = np.abs(values) < 2.0**-4
    assert (np.abs(cut) <= np.abs(values)).all()
    assert (np.abs(values - cut)[~small] <= np.abs(values[~small]) / 64).all()
    assert (cut[small] == 0).all()
    assert (cut * values >= 0).all()


def test_whole_numbers_below_128_and_order_are_kept():
    whole = np.arange(-127, 128)
    np.testing.assert_array_equal(value_of(bins_of(whole)), whole)
    wide = np.sort(np.concatenate([-np.geomspace(0.07, 1e12, 400), np.geomspace(0.07, 1e12, 400)]))
    assert (np.diff(bins_of(wide)) >= 0).all()
    assert bins_of(np.array([-1e30, 1e30])).tolist() == [0, BINS - 1]


def test_a_value_is_cut_by_at_most_a_sixty_fourth():
    values = np.geomspace(0.07, 1e9, 20_000)
    assert ((values - value_of(bins_of(values))) / values).max() == pytest.approx(1 / 64, rel=0.05)


@given(st.integers(0, 2**31), st.integers(1, 40))
def test_quantiles_of_a_histogram_are_those_of_the_values(seed, size):
    rng = np.random.default_rng(seed)
    values, group = rng.integers(-90, 90, (size, 6)), np.array([0, 1, 0, 1, 1, 1])
    found = histogram_quantiles(histogram(values, group, 2), np.array([0.05, 0.5, 0.95]))
    for k in (0, 1):
        exact = np.quantile(values[:, group == k], [0.05, 0.5, 0.95], method="inverted_cdf")
        np.testing.assert_array_equal(found[k], exact)
