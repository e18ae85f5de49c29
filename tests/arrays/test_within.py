"""Noise on a feasible set: its loss by enumeration of all pairs, its law by chi-square, its bias, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tests.reference.lattice import one_way_margins, p_value
from trueup.arrays import NoiseWithin, noise_within
from trueup.errors import DataError, PrivacyError, SpecError


def tables_of(rules, n):
    """All tables of a finite set, each as a row."""
    low, high = (np.broadcast_to(rules[end], n) for end in ("lower", "upper"))
    every = np.array(list(product(*(range(a, b + 1) for a, b in zip(low, high)))), np.int64)
    if "R" in rules:
        every = every[(every @ np.array(rules["R"]).T >= rules["least"]).all(axis=1)]
    return every


def fibres(rules, tables):
    """Tables with the same kept sums, set by set."""
    if "A" not in rules:
        return [tables]
    sums = tables @ np.array(rules["A"]).T
    return [tables[(sums == one).all(axis=1)] for one in np.unique(sums, axis=0)]


def law(noise, tables, x):
    weight = np.exp(-np.abs(tables - x) @ noise.rates)
    return weight / weight.sum()


def loss(noise, tables):
    """The largest loss of two tables, for each unit of their distance."""
    apart = np.abs(tables[:, None] - tables).sum(axis=2)
    weights = np.abs(tables[:, None] - tables) @ noise.rates
    log = -weights - np.log(np.exp(-weights).sum(axis=1))[:, None]
    largest = np.abs(log[:, None] - log).max(axis=2)
    return (largest[apart > 0] / apart[apart > 0]).max()


def random_rules(rng):
    """Two to ten cells in boxes, half of the time under a sum, a third under an inequality."""
    n = int(rng.integers(2, 11))
    widths = rng.integers(1, 2 if n > 6 else 5 if n < 4 else 3, n)
    rules = {"lower": rng.integers(-2, 3, n)}
    rules["upper"] = rules["lower"] + widths
    if rng.random() < 0.5:
        rules["A"] = [(rng.random(n) < 0.7).astype(int)]
        rules["A"] = rules["A"] if np.any(rules["A"]) else [np.ones(n, int)]
    if rng.random() < 1 / 3:
        rules["R"], middle = [rng.integers(-1, 3, n)], (rules["lower"] + rules["upper"]) / 2
        rules["least"] = [float(np.floor(rules["R"][0] @ middle))]
    return rules, n


def laid_out(rng, count):
    found = []
    while len(found) < count:
        rules, n = random_rules(rng)
        tables = tables_of(rules, n)
        sets = [one for one in fibres(rules, tables) if 1 < len(one) <= 400]
        if not sets:
            continue
        own = sets[int(rng.integers(len(sets)))]
        epsilon = float(np.exp(rng.uniform(np.log(0.2), np.log(3))))
        found.append((NoiseWithin.of(own[0], epsilon=epsilon, **rules), own, epsilon, rules))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.thorough)])
def test_the_true_loss_is_never_above_the_stated_and_equal_where_that_is_said(rng, count):
    exact = 0
    for noise, tables, epsilon, _ in laid_out(rng, count):
        true = loss(noise, tables)
        assert true <= epsilon * (1 + 1e-12)
        if all("at most" not in line for line in noise.explain()):
            exact += 1
            assert true > epsilon * (1 - 1e-6)
    assert exact > count / 2


@pytest.mark.thorough
def test_noise_scaled_as_if_the_normaliser_were_constant_would_lose_more(rng):
    found = []
    for noise, tables, epsilon, _ in laid_out(rng, 40):
        naive = NoiseWithin(noise.epsilon, tuple(_at(part, epsilon) for part in noise.parts), noise._rules)
        found.append(loss(naive, tables) / epsilon)
    assert max(found) > 1.3
    assert min(found) > 1 - 1e-9


def _at(part, rate):
    from dataclasses import replace

    return replace(part, rate=rate if part.rate else 0.0)


CASES = {
    "answers": ({"lower": 0, "upper": 1}, [0, 1, 1]),
    "a slow box": ({"lower": 0, "upper": 4}, [1, 4]),
    "open above": ({"lower": [0, 0, 0], "upper": np.inf, "R": [[1, 1, -2]], "least": [0]}, [2, 1, 1]),
    "a sum of answers": ({"lower": 0, "upper": 1, "A": np.ones((1, 12), int)}, [1] * 4 + [0] * 8),
    "a sum within bounds": ({"lower": 0, "upper": 6, "A": np.ones((1, 5), int)}, [6, 5, 0, 1, 0]),
    "a listed set": ({"lower": 0, "upper": 3, "A": [[1, 2, 3]]}, [3, 1, 0]),
    "sums kept": ({"A": [[1, 1, 1]]}, [3, 1, 0]),
    "a table of answers, by its sums": ({"lower": 0, "upper": 1, "A": one_way_margins(3, 4)}, [1, 0, 1] * 4),
    "weights and a rule, by their sums": (
        {
            "lower": -1,
            "upper": 2,
            "A": [[1, 2, -1, 0]],
            "R": [[1, 0, 2, 1], [0, -1, 0, 1]],
            "least": [-1, -2],
        },
        [1, 0, 2, -1],
    ),
}
"""Rules and counts; where nothing is said of sums, tables are listed if they are few."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_draws_follow_the_law(rng, name):
    rules, x = CASES[name]
    x = np.array(x)
    by_sums = "by the" in name or "by its" in name
    noise = NoiseWithin.of(x, epsilon="1/5" if name == "a slow box" else 1, known=not by_sums, **rules)
    assert by_sums <= ("weights of their sums" in noise.explain()[0])
    window = rules | {
        "lower": np.maximum(rules.get("lower", -30), x - 30), "upper": np.minimum(rules.get("upper", 30), x + 30),
    }  # fmt: skip
    window |= {end: window[end].astype(int) for end in ("lower", "upper")}
    tables = tables_of(window, x.size)
    if "A" in rules:
        A = np.array(rules["A"])
        tables = tables[(tables @ A.T == A @ x).all(axis=1)]
    drawn = noise.draw(x, 4000 if "sum" in name else 20_000, rng.bytes)
    mass = law(noise, tables, x)
    assert p_value(drawn, tables, mass) > 1e-6
    wrong = np.exp(-0.7 * np.abs(tables - x) @ noise.rates)
    assert p_value(drawn, tables, wrong / wrong.sum()) < 1e-6


def test_bias_is_that_of_the_law_and_stated_by_size():
    for name in ("answers", "a slow box", "a listed set", "sums kept"):
        rules, x = CASES[name]
        noise = NoiseWithin.of(np.array(x), epsilon=1, **rules)
        if name == "sums kept":
            assert np.abs(noise.bias(x)).max() == 0
            continue
        tables = tables_of(rules, len(x))
        if "A" in rules:
            A = np.array(rules["A"])
            tables = tables[(tables @ A.T == A @ x).all(axis=1)]
        assert np.allclose(noise.bias(x), law(noise, tables, x) @ tables - x, atol=1e-6)
    open_above = NoiseWithin.of(np.array([0]), epsilon=1, lower=0)
    biases = [float(open_above.bias([count])[0]) for count in (0, 1, 2, 5, 20)]
    assert biases == sorted(biases, reverse=True)
    assert abs(biases[-1]) < 1e-3 < biases[0]


@pytest.mark.parametrize(
    "x", [np.nan, [np.inf, 1, 1], ["a", 1, 1], [1, 1], [[1, 1, 1]], [10**30, 1, 1], [1, 1, 2]]
)
def test_the_bias_of_what_is_not_in_the_set_is_refused(x):
    noise = NoiseWithin.of(np.array([0, 1, 1]), epsilon=1, lower=0, upper=1)
    with pytest.raises(DataError):
        noise.bias(x)


def test_the_loss_is_charged_before_anything_is_drawn():
    charged = []
    kept = noise_within(
        [1, 0, 1], epsilon=2, sensitivity=2, A=[[1, 1, 1]], lower=0, upper=1, charge=charged.append
    )
    assert charged[0].amount == 2
    assert kept.noise.epsilon == Fraction(1)
    assert kept.values.sum() == 2

    def refuse(cost):
        raise RuntimeError("spent")

    with pytest.raises(RuntimeError, match="spent"):
        noise_within([1], epsilon=2, lower=0, charge=refuse)


@pytest.mark.parametrize(
    ("x", "rules", "error", "why"),
    [
        ([3, 0], {"lower": 0, "upper": 2}, DataError, "break a rule of the feasible set"),
        ([3, 0], {"R": [[1, -4]], "least": [4]}, DataError, "break a rule of the feasible set"),
        ([0.5], {"lower": 0}, DataError, "whole"),
        ([2, 2], {"lower": 2, "upper": 2}, PrivacyError, "one table"),
        ([2, 2], {"A": [[1, 0.5]]}, SpecError, "not whole"),
        ([1] * 40, {"lower": 0, "R": np.ones((1, 40)), "least": [2]}, SpecError, "may take"),
        ([10**6], {"lower": 0, "upper": 10**7, "epsilon": 1e-8}, SpecError, "too small"),
        (
            [2, 2],
            {"lower": 0, "upper": 9, "A": [[1, 1]], "epsilon": 1e-12},
            SpecError,
            "wider than any count",
        ),
        ([2, 2], {"lower": 0, "epsilon": "1e400"}, SpecError, "practically no noise"),
        ([2, 2], {"A": [[1, 1e30]]}, SpecError, "2\\^62 or more"),
    ],
)
def test_what_cannot_be_is_refused(x, rules, error, why):
    with pytest.raises(error, match=why):
        noise_within(x, **{"epsilon": 1} | rules)


def test_wide_boxes_and_many_answers_are_quick(rng):
    wide = NoiseWithin.of(np.array([10**12]), epsilon=1, lower=0, upper=10**15)
    assert abs(wide.draw(np.array([10**12]), 100, rng.bytes) - 10**12).max() < 60
    answers = rng.integers(0, 2, 20_000)
    drawn = NoiseWithin.of(answers, epsilon=1, lower=0, upper=1).draw(answers, 1, rng.bytes)[0]
    assert abs((drawn != answers).mean() - 1 / (1 + np.e)) < 0.02


@pytest.mark.parametrize("upper", [[np.inf, 0, 5], [0, np.inf, 5]])
def test_cells_bounded_on_one_side_beside_cells_without_bounds_lose_no_more_than_is_stated(upper):
    """Taken for cells without bounds, they would lose 1.49 times what is stated."""
    noise = NoiseWithin.of(np.zeros(3, int), epsilon=1, upper=upper)
    assert noise.rates[np.isinf(upper)] == 1
    below = np.arange(200)  # what a count lies below its bound; beyond, the mass is less than exp(-150)
    for rate in noise.rates[np.isfinite(upper)]:
        log = -rate * np.abs(below[:, None] - below[:20])
        log -= np.log(np.exp(log).sum(axis=0))
        assert 1 - 1e-6 < np.abs(np.diff(log, axis=1)).max() <= 1


def test_sums_that_others_imply_are_no_more_than_those():
    rules = {"lower": 0, "A": [[1, 1, 1], [2, 2, 2]]}
    kept = NoiseWithin.of(np.array([400, 500, 900]), epsilon=1, **rules)
    assert kept.rates.tolist() == [0.5] * 3
    assert kept.draw(np.array([400, 500, 900]), 1, np.random.default_rng(1).bytes).sum() == 1800


def test_bias_is_quick_in_wide_boxes_with_little_loss():
    wide = NoiseWithin.of(
        np.array([0, 10**9, 10**9]), epsilon="1e-7", lower=0, upper=[np.inf, np.inf, 2 * 10**9]
    )
    bias = wide.bias([0, 10**9, 10**9]) * wide.rates
    assert bias == pytest.approx([1, 0, 0], abs=1e-6)
    near = NoiseWithin.of(np.array([0, 3]), epsilon="1/1000", lower=0, upper=100_000)
    far = np.arange(100_001)
    mass = np.exp(-near.rates[0] * np.abs(far[:, None] - [0, 3]))
    assert np.allclose(near.bias([0, 3]), far @ mass / mass.sum(axis=0) - [0, 3], rtol=1e-9)
