"""Populations drawn from what measurements say: they keep the rules, and hold the true counts as often as they say.

Broken on purpose: draws of noise that is thought half as wide, and draws whose concentration is the prior's median alone.
"""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from tests.conformance.structures import STRUCTURES
from trueup.errors import SpecError
from trueup.kernel.settling.split_draws import CONCENTRATIONS, EstimatedSplits
from trueup.measuring import simulate
from trueup.model.constraints import violations
from trueup.model.problem import Problem
from trueup.model.spec import parse_spec
from trueup.reconciling.populations import drawn_populations

NONE_DRAWN = "general"
DRAWS = 20


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda s: s.name)
def test_draws_are_whole_and_keep_every_rule(structure, rng):
    values = structure.noisy_values(structure.true_counts(rng), rng)[0]
    correlated = any(h.law.joint for h in structure.headers if not h.exact)
    constraints = structure.constraints
    if constraints.structure() == NONE_DRAWN or correlated:
        with pytest.raises(SpecError, match="no population can be simulated"):
            drawn_populations(constraints, structure.headers, values, 3, rng)
        return
    found = drawn_populations(constraints, structure.headers, values, 3, rng)
    assert found.dtype.kind == "i"
    exact = [(h, h.sums(constraints.cells, structure.true_counts(rng)).size) for h in structure.headers]
    start = 0
    for header, size in exact:
        if header.exact:
            for row in found:
                sums = header.sums(constraints.cells, row)
                np.testing.assert_array_equal(sums, values[start : start + size])
        start += size
    upper = any(b.upper is not None for b in constraints.bounds) and constraints.chain is None
    assert upper or not any(violations(constraints, row) for row in found)


def world(rng: np.random.Generator, children: int, deviation: float):
    """Totals of 40 parents, split with a concentration of its own, and noisy estimates of the parts."""
    a = np.exp(rng.uniform(np.log(0.1), np.log(20)))
    shares = rng.dirichlet(np.full(children, a), 40)
    totals = rng.integers(20, 400, 40)
    true = np.array([rng.multinomial(n, p) for n, p in zip(totals, shares, strict=True)])
    return totals.astype(float), true.ravel(), true.ravel() + rng.normal(0, deviation, true.size)


def ranks(rng: np.random.Generator, deviation: float, thought: float, *, known: bool) -> np.ndarray:
    """Where each true count lies among its draws, from 0 to 1, ties at random."""
    found = []
    for _ in range(12):
        totals, true, noisy = world(rng, 8, deviation)
        split = EstimatedSplits(np.arange(0, true.size + 1, 8), noisy, np.full(true.size, thought**2))
        chances = split.concentrations(totals)
        a = rng.choice(CONCENTRATIONS, DRAWS, p=chances) if not known else np.full(DRAWS, 0.6)
        draws = np.rint([split.draw(totals, float(value), rng) for value in a])
        below, equal = (draws < true).sum(axis=0), (draws == true).sum(axis=0)
        found.append((below + rng.integers(0, equal + 1)) / DRAWS)
    return np.concatenate(found)


def chi_square(rank: np.ndarray) -> float:
    """Of the ranks against equal chances, over its number of cells; correlated within parents, so about twice as large."""
    seen = np.bincount(np.rint(rank * DRAWS).astype(int), minlength=DRAWS + 1)
    expected = rank.size / (DRAWS + 1)
    return float((np.square(seen - expected) / expected).mean())


@pytest.mark.thorough
@pytest.mark.parametrize("deviation", [2.0, 15.0, 60.0])
def test_true_counts_are_among_the_draws_as_one_of_them(deviation, rng):
    assert chi_square(ranks(rng, deviation, deviation, known=False)) < 4


def test_draws_of_narrower_noise_are_seen(rng):
    assert chi_square(ranks(rng, 15.0, 7.5, known=False)) > 4


@pytest.mark.thorough
def test_draws_with_one_concentration_for_all_are_seen(rng):
    assert chi_square(ranks(rng, 60.0, 60.0, known=True)) > 4


CROSSED = """
format = 2
title = "Dwellings"
table = { name = "d", kind = "counts", counts = "home", count = "n" }
privacy = { unit = "home", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "borough", column = "borough" }, { name = "ward", column = "ward" }]
attribute = [{ name = "type", values = ["a", "b", "c"] }, { name = "tenure", values = ["own", "rent"] }]
query = [
  { name = "type", attributes = ["type"], epsilon = { borough = "1/4", ward = "1/8" } },
  { name = "tenure", attributes = ["tenure"], epsilon = { ward = "1/8" } },
  { name = "both", attributes = ["type", "tenure"], epsilon = { ward = "1/4" } },
]
"""


@pytest.mark.thorough
def test_draws_of_some_places_follow_the_law_of_draws_of_all(rng):
    """Means and deviations of 300 draws of a borough's wards; those of the borough beside it, 3 times as large, are seen."""
    places = {"borough": np.repeat(list("vwxyz"), 6), "ward": [f"{i:02d}" for i in range(30)]}
    problem = Problem.of(parse_spec(CROSSED), pandas.DataFrame(places))
    truth = rng.poisson(np.repeat([10, 30, 10, 30, 10], 36))
    values = simulate(problem, truth, rng).flat
    at, beside = (places["borough"] == name for name in "wx")
    drawn = problem.constraints, problem.headers, values, 300, rng
    whole, some = (drawn_populations(*drawn, only).reshape(300, 30, 6) for only in (None, at))
    assert not some[:, ~at].any()

    def apart(ours, theirs):
        error = np.sqrt((ours.var(axis=0) + theirs.var(axis=0)) / 300) + 1e-9
        return float(np.abs((ours.mean(axis=0) - theirs.mean(axis=0)) / error).max())

    assert apart(some[:, at], whole[:, at]) < 5
    assert apart(some[:, at] ** 2.0, whole[:, at] ** 2.0) < 5
    assert apart(some[:, at], whole[:, beside]) > 20
