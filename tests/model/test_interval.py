"""The interval that is stated for a quantity, against what it promises over many true counts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from trueup.model.records.drawn import Marginals, ends_of_sorted, interval_of_draws, shorter_ends
from trueup.model.records.quantity import describe_draws

LEVEL = 0.9
WORST = 0.85
"""Least share of noisy values for which the interval holds a true count, in the worst place of it (.853)."""


def held(ends, truth):
    """Return how often an interval holds each true count: one noisy value, normal noise of standard deviation 1, prior flat
    from 0 on; by integrating over the noisy value."""
    value = np.linspace(-9, 18, 27_001)
    low, high = ends(lambda p: value - ndtri((1 - p) * ndtr(value)))
    weight = np.exp(-0.5 * (value - truth[:, None]) ** 2) / np.sqrt(2 * np.pi) * 0.001
    return (weight * ((low <= truth[:, None]) & (truth[:, None] <= high))).sum(axis=1)


def test_true_counts_of_0_and_near_it_are_held_where_noise_is_wide():
    truth = np.linspace(0, 6, 121)
    found = held(lambda quantile: shorter_ends(quantile, np.zeros(27_001), LEVEL), truth)
    assert found.min() > WORST
    assert found[0] > 0.94
    assert found[-1] == pytest.approx(LEVEL, abs=1e-3)


def test_equal_tails_and_their_lower_end_alone_are_told_apart():
    """Equal tails never hold 0; equal tails stretched to 0 without leaving out more above hold too much."""
    truth = np.linspace(0, 6, 121)
    equal = held(lambda quantile: (quantile(0.05), quantile(0.95)), truth)
    assert equal[0] < 0.01
    stretched = held(lambda quantile: (np.zeros(27_001), quantile(0.95)), truth)
    assert stretched[-1] > 0.94


def test_draws_have_about_the_interval_of_exact_masses(rng):
    """Four geometric laws and Poisson ones; with 40,000 draws an end is off by one count at most where its mass is above .01."""
    counts = np.arange(60)
    laws = [q**counts for q in (0.2, 0.5, 0.8, 0.9)] + [
        np.exp(counts * np.log(m) - np.cumsum(np.log(np.maximum(counts, 1)))) for m in (1.0, 4.0, 9.0)
    ]
    masses = np.array([law / law.sum() for law in laws])
    exact = Marginals(
        np.arange(0, masses.size + 1, 60), np.full(len(laws), 3), masses.ravel()
    )  # counts from 3 on
    draws = 3 + np.array([rng.choice(counts, 40_000, p=law) for law in masses]).T
    for own, other in zip(interval_of_draws(draws, LEVEL), exact.interval(LEVEL), strict=True):
        assert np.abs(own - other).max() <= 1
    low, _ = exact.interval(LEVEL)
    assert low[:4].tolist() == [3] * 4
    assert low[-1] == 7


def test_the_interval_reaches_0_only_if_draws_get_down_to_it(rng):
    wide, ranks = np.abs(rng.normal(0, 5000, 1000)).round(), rng.geometric(0.8, 1000)
    ratios = 2 + rng.exponential(1.0, 1000)  # persons of a household of two or more
    low, _ = ends_of_sorted(np.sort(np.stack([wide, ranks, ratios], axis=1), axis=0), LEVEL)
    assert wide.min() > 0
    assert low[0] == 0
    assert low[1] == 1
    assert low[2] == ratios.min()


def test_a_count_that_is_at_least_1_is_not_said_to_be_0(rng):
    """Draws from 1 on with a mean of 25: were 0 possible, forty of a thousand would be 0."""
    draws = rng.geometric(0.04, (1000, 50))
    assert (interval_of_draws(draws, LEVEL)[0] == 1).all()


def test_the_mass_stated_is_that_of_the_interval(rng):
    draws = rng.negative_binomial(0.3, 0.02, (2, 500, 7))
    found = describe_draws(draws, LEVEL, independent=True)
    inside = (draws >= found["low"]) & (draws <= found["high"])
    np.testing.assert_allclose(inside.mean(axis=(0, 1)), found["mass"])
    assert (found["mass"] >= LEVEL).all()
    assert (found["low"] == 0).all()
