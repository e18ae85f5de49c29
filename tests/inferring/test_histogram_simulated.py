"""Chains on histograms: many small problems against all tables listed, and calibration on simulated crossing tables."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from tests.inferring.calibration import pit_of_draws, uniform_p
from tests.inferring.histograms import (
    FALSE_ALARM,
    GAUSSIAN,
    LAPLACE,
    chain,
    largest_z,
    listed,
    places,
    walked,
)
from tests.inferring.problems import noisy
from trueup.kernel.settling.split_draws import HYPERPRIOR
from trueup.kernel.table_walks.gibbs_steps import EVEN, MEAN, STRENGTH
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.tree import Tree
from trueup.noise import law_named

PROBLEMS, PARTS = 300, 10
DRAWS = 6000


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_300_random_small_problems_agree_with_all_tables_listed(part, rng):
    for _ in range(PROBLEMS // PARTS):
        cells, measured, exact, middles, given, most = small(rng)
        levels = 2 if middles else 1
        x, mass = listed(cells, measured, middles, levels * given[:1], levels * given[1:2], most, given[2])
        for draws in (
            DRAWS,
            10 * DRAWS,
        ):  # 300 problems of 30 comparisons: chance passes 5.5 once in 500 runs, not twice
            found = chain(cells, measured, draws, rng, given, exact)
            inside = found[(found <= most).all(axis=1)]
            assert len(inside) > 0.98 * len(found)
            if (z := largest_z(cells, inside, x, mass, indicators=False)) < FALSE_ALARM:
                break
        assert z < FALSE_ALARM


def small(rng):
    """Cells, measurements of random margins with random laws, what is exact, and concentrations: at most 120,000 tables."""
    middles = ((), (), (1, 2))[rng.integers(3)]
    most, cells = (12 if not middles else 6), places(middles)
    truth = rng.integers(0, 2 if middles else 3, cells.n)
    wide = [Margin(level, kept) for level in cells.tree.levels for kept in ((), ("sex",))]
    laws = {m: (GAUSSIAN("2"), LAPLACE("1"))[rng.integers(2)] for m in wide if rng.random() < 0.7}
    laws[cells.finest] = GAUSSIAN(("1", "3/2")[rng.integers(2)])
    exact = (wide[rng.integers(len(wide) - 2)],) if rng.random() < 0.5 else ()
    measured = noisy(cells, truth, laws | {m: law_named("exact")() for m in exact}, rng)
    return (
        cells,
        measured,
        exact,
        middles,
        (float(rng.choice([0.3, 1, 4])), float(rng.choice([1, 5, 25])), float(rng.choice([0.0, 0.2, 0.6]))),
        most,
    )


EVENLY = np.ones(2), np.ones(6)
REPLICATES, BURN, KEPT, EACH = 300, 120, 40, 12
FLOOR, CEILING, TOP = 12, 40, 60


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1, 6])
def test_posteriors_of_crossing_tables_are_calibrated(factor, rng):
    """The total is flat: noisy totals of a window alone are kept, under which the law of counts and noise is proper.

    Where concentrations of the tables are six times those that the prior takes, the same test must see it.
    """
    ranks = []
    while len(ranks) < REPLICATES:
        cells, truth, concentrations = simulated(rng, factor)
        kinds = ((), ("race",), ("sex",), ("race", "sex"))
        laws = {Margin(level, kind): GAUSSIAN("2") for level in cells.tree.levels for kind in kinds}
        measured = noisy(cells, truth, laws, rng)
        if FLOOR <= measured.values[0][0] <= CEILING:
            walk = walked(cells, measured, rng, None, ())
            walk.run(1, BURN, lambda done, of: None)
            draws = walk.run(KEPT, EACH, lambda done, of: None)[0]
            pairs = [(f(draws), f(truth[None])[0]) for f in figures(cells)]
            pairs += zip(walk.concentrations[0].T, concentrations, strict=True)
            ranks.append([pit_of_draws(*pair, rng) for pair in pairs])
    smallest = min(uniform_p(rank) for rank in np.array(ranks).T)
    assert smallest > 1e-7 if factor == 1 else smallest < 1e-7


def figures(cells):
    """What ranks are of, beside concentrations: the total, one place's, a cell, how even places and their tables are."""
    first = Margin("tract")
    yield lambda x: cells.sum(x, Margin("all"))[:, 0]
    yield lambda x: cells.sum(x, first)[:, 0]
    yield lambda x: x[:, 5]
    yield lambda x: (cells.sum(x, Margin("block")) ** 2).sum(axis=1)
    yield lambda x: (x.reshape(len(x), -1, 4).astype(float) ** 2).sum(axis=(1, 2))


def simulated(rng, factor, weight=EVENLY):
    """A table from the prior: two tracts of three blocks, by race and sex; weights of these in splits of totals."""
    attributes = (Attribute("race", ("r0", "r1")), Attribute("sex", ("f", "m")))
    blocks = {"tract": [f"t{k // 3}" for k in range(6)]}, {"block": [f"b{k}" for k in range(6)]}
    cells = Cells(Tree.from_columns(["all", "tract", "block"], [{}, *blocks]), attributes)
    h, n = HYPERPRIOR, 4
    a = h.a * np.exp(h.a_spread * rng.normal(size=2))
    common = factor * h.kappa * np.exp(h.kappa_spread * rng.normal(size=2))
    kappa = common[:, None] * np.exp(h.cell_spread * rng.normal(size=(2, n)))
    root = rng.gamma(n**-0.5, n**-0.5, n)
    theta = rng.gamma(kappa[0] * root + EVEN, factors(rng, 2) / kappa[0])
    tracts = split(rng, rng.integers(TOP + 1), factor * a[0] * weight[0], 2)
    mean, strength = rng.beta(*MEAN), rng.gamma(STRENGTH[0], 1 / STRENGTH[1])
    rates = rng.beta(mean * strength, (1 - mean) * strength, 2)
    totals = np.concatenate(
        [
            split(rng, t, factor * a[1] * own * inhabited(rng, rate, 3), 3)
            for t, rate, own in zip(tracts, rates, weight[1].reshape(2, 3))
        ]
    )
    g = rng.gamma(kappa[1] * np.repeat(theta, 3, axis=0), 1 / kappa[1]) + 1e-300
    truth = np.stack([rng.multinomial(t, p / p.sum()) for t, p in zip(totals, g)])
    return cells, truth.ravel(), [*factor * a, *common, mean]


def factors(rng, places):
    """Factors of the cells of places: of each race times of each sex."""
    spread = HYPERPRIOR.factor * np.exp(HYPERPRIOR.factor_spread * rng.normal(size=4))
    of = np.exp(spread * rng.normal(size=(places, 4)))
    return (of[:, :2, None] * of[:, None, 2:]).reshape(places, 4)


def inhabited(rng, rate, parts):
    """Which parts are inhabited, one or more: how many, then which."""
    odds = (1 - rate) / max(rate, 1e-100)
    weights = [comb(parts, k) * odds ** (k - 1) for k in range(1, parts + 1)]
    return rng.permutation(parts) <= rng.choice(parts, p=weights / np.sum(weights))


def split(rng, total, a, parts):
    """Dirichlet-multinomial."""
    shares = rng.gamma(a, 1, parts) + 1e-300
    return rng.multinomial(total, shares / shares.sum())
