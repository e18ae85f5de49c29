"""The interval that is stated for a quantity, against what it promises over many true counts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from trueup.inferring.questions import ask
from trueup.model.cells import Cells
from trueup.model.records.drawn import Drawn, Marginals, ends_of_sorted, interval_of_draws, shorter_ends
from trueup.model.records.posterior import Posterior
from trueup.model.records.quantity import describe_draws
from trueup.model.spec import parse_spec
from trueup.model.tree import Tree

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
    low, _ = ends_of_sorted(np.sort(np.stack([wide, ranks, ratios], axis=1), axis=0), LEVEL, 0.0)
    assert wide.min() > 0
    assert low[0] == 0
    assert low[1] == 1
    assert low[2] == ratios.min()


def test_a_count_that_is_at_least_1_is_not_said_to_be_0(rng):
    """Draws from 1 on with a mean of 25: were 0 possible, forty of a thousand would be 0."""
    draws = rng.geometric(0.04, (1000, 50))
    assert (interval_of_draws(draws, LEVEL, 0.0)[0] == 1).all()


def made(draws, spec=None):
    cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    return Posterior(cells, Drawn(draws, True), {"method": "demo"}, "", spec=spec)


def test_no_interval_begins_below_what_is_known(rng):
    """The least draw of `b` is far below the twenty-first smallest: 0 is possible for it, and not for what contains `a`."""
    wide = np.sort(rng.exponential(3000, (1, 1000)).astype(int))
    wide[:, :3], wide[:, 3:] = 3, np.maximum(wide[:, 3:], 200)
    posterior = made(np.stack([np.full((1, 1000), 31), wide], axis=2))
    lows = {"a": 31, "b": 0, "a + b": 31, "2 * a + b": 62, "'all'": 31, "1 + b": 1}
    for question, low in lows.items():
        assert ask(posterior, question).figures()["low"] == low, question
    for question, low in {"a + b": 31, "a": 31, "b": 0, "b - a": 3 - 31}.items():
        assert posterior.quantity(question).interval()[0] == low, question
    assert posterior.summary("all")["low"] == 31
    assert posterior.area({"area": ["a", "b"]}).interval()[0] == 31
    assert posterior.ratio("a + b", "a").interval()[0] == pytest.approx(34 / 31)
    assert ask(posterior, "(a + b) / a").figures()["low"] == pytest.approx(34 / 31)


def test_no_rank_is_0(rng):
    draws = rng.normal(50, 40, (1, 200, 100)).clip(0).round().astype(int)
    cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": [f"p{k}" for k in range(100)]}]))
    posterior = Posterior(cells, Drawn(draws, True), {"method": "demo"}, "")
    ranks = ask(posterior, "rank(area)")
    assert ranks.figures()["low"].min() == 1
    wrong = interval_of_draws(ranks.draws[0], LEVEL, 0.0)[0]
    assert (wrong == 0).any(), "ranks of this kind get down to 0 if nothing says that they do not"


def test_a_declared_lower_limit_is_not_passed():
    """Draws from 20 on, of which the smallest is less than a fifth of the twenty-first."""
    text = """
format = 2
title = "Two areas"
table = { name = "areas", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
query = [{ name = "total", epsilon = { area = 1 } }]
"""
    bound = '[[constraints.bounds]]\nlevel = "area"\nattributes = []\nlower = 20\n'
    draws = 20 + np.arange(1000).reshape(1, 1000, 1) ** 2 * np.ones(2, int)
    assert made(draws, parse_spec(text)).summary("area")["low"].tolist() == [0, 0]
    assert made(draws, parse_spec(text + bound)).summary("area")["low"].tolist() == [20, 20]


def test_a_change_of_counts_that_all_grew_has_no_lower_limit(rng):
    grown = 1 + rng.exponential(100, 1000)
    assert interval_of_draws(grown, LEVEL)[0] >= grown.min() >= 1


def test_the_mass_stated_is_that_of_the_interval(rng):
    draws = rng.negative_binomial(0.3, 0.02, (2, 500, 7))
    found = describe_draws(draws, LEVEL, independent=True)
    inside = (draws >= found["low"]) & (draws <= found["high"])
    np.testing.assert_allclose(inside.mean(axis=(0, 1)), found["mass"])
    assert (found["mass"] >= LEVEL).all()
    assert (found["low"] == 0).all()
