"""Chains with relaxed copies against enumeration, wrong exchanges, and a published table on which plain chains are stuck."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from tests.inferring.perturbed_problems import crossing, enumerated
from tests.reference.lattice import p_value
from trueup.inferring import infer
from trueup.inferring.lattice_moves import LatticeMoves
from trueup.inferring.tempered import LEAST_PENALTY, MOST_MISSED, Ladder, may_relax, penalties, relaxed
from trueup.inferring.walk import Walk
from trueup.kernel.table_walks.moves import HIGH, LOW, log_densities
from trueup.layouts.linear import LinearProblem
from trueup.layouts.rows import RowProblem
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.guarantee import NO_GUARANTEE
from trueup.model.header import Measured
from trueup.model.prior import Flat
from trueup.model.records.measurements import Measurements
from trueup.model.tree import Tree
from trueup.noise.perturbed import RandomRounding, Rounded

FALSE_ALARM = 1e-6


def published(cells, truth, law, rng):
    """All margins of all levels under one law, and their constraints."""
    names = [a.name for a in cells.attributes]
    kept = [tuple(n for i, n in enumerate(names) if k >> i & 1) for k in range(1 << len(names))]
    margins = [Margin(level, some) for level in cells.tree.levels for some in kept]
    values = [law.publish(t, rng.random(len(t))) for t in (cells.sum(truth, m) for m in margins)]
    measured = Measurements(cells, tuple(Measured("t", m, law) for m in margins), tuple(values), NO_GUARANTEE)
    return measured, Constraints(cells, tuple(margins))


def walk_of(constraints, measured, seed=0):
    state = LinearProblem(constraints, measured.headers)
    problem = RowProblem.of(state, measured.flat, Flat())
    return Walk.of(state, measured.flat, problem, np.random.default_rng(seed).spawn(2))


def always(self, rng):
    """Exchange neighbours whatever their densities."""
    self.tables = self.tables[1:] + self.tables[:1]


def by_one_alone(self, rng):
    """Exchange by the density of one rung, as if the other's were flat."""
    for k in range(len(self.rungs) - 1):
        here = log_densities(self.rungs[k], np.stack(self.tables[k : k + 2]))
        if math.log(1 - rng.random()) < here[1] - here[0]:
            self.tables[k], self.tables[k + 1] = self.tables[k + 1], self.tables[k]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "exchange"),
    [(Rounded(3), None), (RandomRounding(3), None), (Rounded(3), always), (RandomRounding(3), by_one_alone)],
)
def test_draws_have_the_posterior(law, exchange, rng, monkeypatch):
    if exchange is not None:
        monkeypatch.setattr(Ladder, "_exchange", exchange)
    cells = crossing(2, 3)
    measured, constraints = published(cells, rng.poisson(2, cells.n), law, rng)
    tables, masses = enumerated(cells, measured)
    walk = walk_of(constraints, measured, rng)
    assert walk.relax()
    assert not walk.relax()
    p = p_value(walk.run(1500, 3).reshape(-1, cells.n), tables, masses)
    assert p > FALSE_ALARM if exchange is None else p < FALSE_ALARM


def test_ranges_are_missed_by_so_much_and_no_more(rng):
    cells = crossing(2, 2)
    measured, constraints = published(cells, np.array([4, 7, 2, 9]), Rounded(5), rng)
    rows = walk_of(constraints, measured).problem.rows
    wide = relaxed(rows, 0.7)
    moved = wide.factors[:, HIGH] != rows.factors[:, HIGH]
    assert moved.sum() == 5, "sums of several cells alone"
    assert np.array_equal(wide.factors[moved, LOW], rows.factors[moved, LOW] - MOST_MISSED)
    inside = np.array([4, 7, 2, 9])
    assert log_densities(wide, inside[None])[0] == pytest.approx(log_densities(rows, inside[None])[0])
    outside = np.array([7, 7, 2, 12])  # two rows and two columns miss their ranges by 2, and the total by 6
    assert log_densities(rows, outside[None])[0] == -np.inf
    fall = log_densities(rows, inside[None])[0] - log_densities(wide, outside[None])[0]
    assert fall == pytest.approx(0.7 * 14)


def test_rungs_fall_to_the_least_penalty():
    for sums in (1, 5, 80, 1000):
        found = penalties(sums)
        assert all(one > other for one, other in pairwise(found))
        assert LEAST_PENALTY <= found[-1] < 2 * LEAST_PENALTY
        assert len(found) < 20


def test_without_published_ranges_nothing_is_relaxed(rng):
    cells = crossing(2, 2)
    measured, constraints = published(cells, np.array([4, 7, 2, 9]), Rounded(5), rng)
    only = Measurements(cells, measured.headers[3:4], measured.values[3:4], NO_GUARANTEE)
    walk = walk_of(Constraints(cells, (only.headers[0].margin,)), only)
    assert not may_relax(walk.problem.rows)
    assert not walk.relax()
    assert constraints.cells is cells


def test_chains_that_are_stuck_go_on_with_relaxed_copies(rng, monkeypatch):
    """Every run of several sweeps to a draw is taken to be stuck here."""
    monkeypatch.setattr("trueup.inferring.walk.STUCK", 0.0)
    monkeypatch.setattr(
        "trueup.inferring.walk.AIMED_EFFECTIVE_SIZE", 850.0
    )  # so that the first run is too short
    relaxes, relax = [], Walk.relax
    monkeypatch.setattr(Walk, "relax", lambda walk: relaxes.append(relax(walk)) or relaxes[-1])
    cells = crossing(2, 4)
    measured, constraints = published(cells, rng.poisson(9, cells.n), Rounded(10), rng)
    posterior = infer(measured, LatticeMoves(enumerate=0), spec=constraints, draws=200)
    assert relaxes[0]
    assert posterior.drawn.stats["passed"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_small_table_rounded_to_threes_is_answered():
    rng = np.random.default_rng(1)
    places, two, five = 10, ("a0", "a1"), tuple(f"b{k}" for k in range(5))
    regions, names = [f"r{p // 2}" for p in range(places)], [f"p{p}" for p in range(places)]
    tree = Tree.from_columns(
        ["all", "region", "place"], [{}, {"region": regions}, {"region": regions, "place": names}]
    )
    cells = Cells(tree, (Attribute("a", two), Attribute("b", five)))
    mean = rng.gamma(0.7, 1 / 0.7, places)[:, None, None] * rng.gamma(2, 0.5, (1, 2, 5)) * 12
    truth = rng.poisson(mean).ravel()
    measured, constraints = published(cells, truth, Rounded(3), rng)
    posterior = infer(measured, LatticeMoves(), spec=constraints, draws=200, minutes=5)
    assert posterior.drawn.stats["passed"]
    low, high = np.quantile(posterior.draws.reshape(-1, cells.n), [0.05, 0.95], axis=0)
    assert np.mean((low <= truth) & (truth <= high)) > 0.85
