"""Table 2 of Wang & Reiter (2021) and Table 3 of Wang (2020), within Monte Carlo error."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.measurements import Measured
from trueup.model.tree import Tree
from trueup.noise import DiscreteLaplace
from trueup.reconcile.multinomial_mode import MultinomialMode
from trueup.reconcile.multinomial_sample import MultinomialSample

SCENARIO_4 = np.repeat(
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 27, 36, 53, 435],
    [7, 5, 3, 6, 3, 2, 2, 4, 4, 1, 1, 1, 1, 2, 1, 2, 2, 1, 1, 1],
)
# three 0, one each of 1, 2, 3, five in 15..60, the rest up to 977; as the paper describes Figure 1
SCENARIO_1 = np.array([0, 0, 0, 1, 2, 3, 15, 25, 36, 48, 60, *np.linspace(60, 977, 39).astype(int)])
POINTS = {"min": 0, "q1": 11, "median": 24, "q3": 37, "max": 49}


def replicates(method, true, epsilons, rng, number):
    """Released parts `(number, 50)` of repeated noise."""
    names = [f"{i:02d}" for i in range(true.size)]
    cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": names}]))
    laws = [DiscreteLaplace(Fraction(e)) for e in epsilons]
    headers = [Measured("q", Margin(level), law) for level, law in zip(("all", "area"), laws)]
    values = np.empty((number, 1 + true.size), np.int64)
    values[:, 0] = true.sum() + laws[0].sample(number, rng.bytes)
    values[:, 1:] = true + laws[1].sample(number * true.size, rng.bytes).reshape(number, -1)
    state = method.prepare(Constraints(cells, tuple(h.margin for h in headers)), headers)
    return method.apply(state, values, rng).values


def close(draws, mean, variance, *, printed=0.06, spread=0.1):
    """Mean and variance as printed: half a printed unit, a spread of variance, five Monte Carlo errors."""
    error = 5 * draws.std() / np.sqrt(draws.size)
    assert abs(draws.mean() - mean) < printed + error
    assert abs(draws.var() - variance) < 0.06 + spread * variance


@pytest.mark.parametrize("total", ["independent", "summed"])
def test_scenario_4(rng, total):
    parts = replicates(MultinomialMode(total=total, ties="shuffled"), SCENARIO_4, ("1", "1"), rng, 3000)
    for point, mean, variance in [("min", 1.0, 1.1), ("q1", 2.0, 1.5), ("median", 5.9, 1.8),
                                  ("q3", 11.0, 1.8)]:  # fmt: skip
        close(parts[:, POINTS[point]], mean, variance, printed=0.2, spread=0.2)
    close(parts[:, POINTS["max"]], 437.6, 19.2, printed=0.2, spread=0.2)
    close(parts.sum(axis=1), 863, 1.8)
    assert (parts[:, POINTS["max"]] >= 450).mean() == pytest.approx(0.02, abs=0.015)


def test_the_tie_rule_favours_by_position(rng):
    """A true count of 1 comes out lower when it is listed first than when it is listed last."""
    first = replicates(MultinomialMode(), SCENARIO_4, ("1", "1"), rng, 2000)[:, 0].mean()
    last = replicates(MultinomialMode(), SCENARIO_4[::-1], ("1", "1"), rng, 2000)[:, -1].mean()
    assert last - first > 0.25


def test_scenario_2_is_where_the_summed_total_pays(rng):
    summed = replicates(MultinomialMode(total="summed"), SCENARIO_1, ("1/10", "5"), rng, 1000)
    alone = replicates(MultinomialMode(), SCENARIO_1, ("1/10", "5"), rng, 1000)
    close(summed.sum(axis=1), SCENARIO_1.sum(), 0.7, spread=0.3)
    close(alone.sum(axis=1), SCENARIO_1.sum(), 199.8, printed=0.5, spread=0.35)


@pytest.mark.parametrize(
    ("algorithm", "total", "points"),
    [
        (1, "independent", [("min", 1.5, 3.5), ("median", 6.0, 9.3), ("max", 432.5, 256.8)]),
        (1, "summed", [("min", 1.5, 3.5), ("median", 6.0, 9.2), ("max", 432.5, 259.0)]),
        (2, "independent", [("min", 1.1, 2.2), ("median", 6.0, 7.9), ("max", 434.2, 235.1)]),
    ],
)
def test_the_drafts_algorithms(rng, algorithm, total, points):
    method = MultinomialSample(algorithm=algorithm, total=total)
    parts = replicates(method, SCENARIO_4, ("1", "1"), rng, 3000)
    for point, mean, variance in points:
        close(parts[:, POINTS[point]], mean, variance, printed=0.12, spread=0.2)
