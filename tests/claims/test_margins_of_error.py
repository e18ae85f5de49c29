"""Claim: 90 % margins of error hold the true count of about 90 % of the counts that are released at a size.

Held on populations that the simulation never sees: heavy-tailed places, half of them empty, and few that are alike. Broken
on purpose: margins of noise half as wide, of least squares alone, and of a population without empty places.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trueup.model.cells import Attribute, Cells
from trueup.model.header import simulate_many, split
from trueup.model.problem import Problem
from trueup.model.records.expected_errors import COARSE_MARGIN_COUNTS, SIZES, ExpectedErrors
from trueup.model.records.measurements import Measurements
from trueup.model.spec import parse_spec
from trueup.model.tree import Tree
from trueup.noise import DiscreteGaussian, DiscreteLaplace
from trueup.reconciling import Prepared, build, published
from trueup.reconciling.expected_errors import Sample, expected_errors

RELEASES, AREAS, BLOCKS = 6, 30, 20
WORK = 2**15
LEAST, ERRORS = 300, 5
"""Classes of fewer counts in all releases are left out; standard errors of their share by which a claim may be missed: seven
classes of a world are missed by chance once in 200,000 times, if the claim holds with no room."""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("trueup.reconciling.expected_errors.WORK", WORK)


def spec_of(noise: str, budgets: str, *, by: bool):
    attribute = '[[attribute]]\nname = "kind"\nvalues = ["a", "b", "c", "d"]\n' if by else ""
    crossed = (
        f'[[query]]\nname = "kinds"\nattributes = ["kind"]\nnoise = "{noise}"\n{budgets}\n' if by else ""
    )
    return parse_spec(f"""
format = 2
title = "Heavy-tailed"
table = {{ name = "demo", kind = "counts", counts = "person", count = "n" }}
privacy = {{ unit = "person", neighbours = "add-remove" }}
level = [{{ name = "all" }}, {{ name = "area", column = "area" }}, {{ name = "block", column = "block" }}]
{attribute}
[[query]]
name = "total"
noise = "{noise}"
{budgets}
{crossed}
""")


WORLDS = {
    "tree": (
        "tree-topdown",
        "discrete-laplace",
        'epsilon = { all = "1/5", area = "1/5", block = "1/4" }',
        False,
    ),
    "narrow tree": (
        "tree-topdown",
        "discrete-gaussian",
        'rho = { all = "1/8", area = "1/8", block = "1/4" }',
        False,
    ),
    "histogram": (
        "histogram-tree",
        "discrete-gaussian",
        'rho = { all = "1/30", area = "1/30", block = "1/30" }',
        True,
    ),
}


def world(name: str, rng: np.random.Generator):
    """Problem, prepared method and true counts: sizes lognormal, half of the places empty, one in twenty of another kind."""
    method, noise, budgets, by = WORLDS[name]
    columns = [{}, {"area": np.repeat(np.arange(AREAS), BLOCKS)}, {"block": np.arange(AREAS * BLOCKS)}]
    tree = Tree.from_columns(["all", "area", "block"], columns)
    attributes = (Attribute("kind", ("a", "b", "c", "d")),) if by else ()
    problem = Problem(spec_of(noise, budgets, by=by), Cells(tree, attributes))
    sizes = rng.lognormal(2.5, 1.5, AREAS * BLOCKS) * (rng.random(AREAS * BLOCKS) < 0.5)
    shares = np.where(
        rng.random((AREAS * BLOCKS, 1)) < 0.05, [[0.05, 0.05, 0.1, 0.8]], [[0.8, 0.15, 0.04, 0.01]]
    )
    means = sizes[:, None] * (shares if by else np.ones((1, 1)))
    prepared = Prepared.of(
        problem.constraints, problem.headers, build(method, {"estimates": "least-squares"} if by else {})
    )
    return problem, prepared, rng.poisson(means).ravel()


def releases(problem: Problem, prepared: Prepared, truth, rng: np.random.Generator):
    values = simulate_many(problem.cells, truth, problem.headers, rng, RELEASES)
    for row in values:
        parts = tuple(split(row, problem.headers, problem.cells))
        noisy = Measurements(
            problem.cells, problem.headers, parts, problem.guarantee, simulation=True, spec=problem.spec
        )
        yield prepared.reconcile(noisy)


def misses(problem: Problem, released, truth, margins) -> list[str]:
    """Tables and classes of released size whose margins cover too little or too much; `margins` by table, for each release."""
    found = []
    for table in released[0].published:
        true = problem.cells.sum(truth, table)
        counts = np.concatenate([r.sums(table) for r in released])
        error = np.abs(counts - np.tile(true, RELEASES))
        margin = np.concatenate([of[table] for of in margins])
        at = np.searchsorted(SIZES, counts, side="right")
        for k in np.flatnonzero(np.bincount(at) >= LEAST):
            held = at == k
            covered, width = (error[held] <= margin[held]).mean(), margin[held].mean()
            slack = ERRORS * np.sqrt(0.09 / held.sum())
            if covered < 0.88 - slack or (covered > 0.92 + slack and width > COARSE_MARGIN_COUNTS):
                found.append(f"{table}, class {k}: margins of {width:.1f} cover {covered:.3f}")
    return found


def looked_up(released, expected: ExpectedErrors):
    return {t: expected.margin_of_error(t, released.sums(t)) for t in released.published}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_margins_hold_what_they_say(name, rng):
    problem, prepared, truth = world(name, rng)
    released = list(releases(problem, prepared, truth, rng))
    own = [looked_up(r, r.expected) for r in released]
    assert misses(problem, released, truth, own) == []


def simulated(problem: Problem, prepared: Prepared, population, headers, rng) -> ExpectedErrors:
    sample = Sample(problem.cells, population[None], problem.constraints, headers)
    tables = published(problem.constraints)
    return expected_errors(prepared.method, sample, tables, rng, said="a wrong one", work=WORK)


def halved(header):
    law = header.law
    narrow = (
        DiscreteGaussian(law.sigma2 / 4)
        if isinstance(law, DiscreteGaussian)
        else DiscreteLaplace(2 * law.epsilon)
    )
    return replace(header, law=narrow)


@pytest.mark.thorough
@pytest.mark.parametrize("name", WORLDS)
def test_margins_of_narrower_noise_are_seen(name, rng):
    problem, prepared, truth = world(name, rng)
    released = list(releases(problem, prepared, truth, rng))
    wrong = [
        looked_up(r, simulated(problem, prepared, r.counts, [halved(h) for h in problem.headers], rng))
        for r in released
    ]
    assert misses(problem, released, truth, wrong)


@pytest.mark.parametrize("name", ["tree", "histogram"])
def test_margins_of_least_squares_alone_are_seen(name, rng):
    problem, prepared, truth = world(name, rng)
    released = list(releases(problem, prepared, truth, rng))
    normal = [{t: 1.645 * r.errors[t] for t in r.published} for r in released]
    assert misses(problem, released, truth, normal)


def test_margins_of_a_population_without_empty_places_are_seen(rng):
    problem, prepared, truth = world("tree", rng)
    released = list(releases(problem, prepared, truth, rng))
    even = np.full_like(truth, max(1, round(truth.mean())))
    wrong = simulated(problem, prepared, even, problem.headers, rng)
    assert misses(problem, released, truth, [looked_up(r, wrong) for r in released])


@pytest.mark.thorough
def test_places_of_which_a_sample_has_too_few_below_are_not_said_to_err_less(rng, monkeypatch):
    """4 of 20 blocks an area are simulated, which say more of its sums. Broken on purpose: what is simulated is believed."""
    monkeypatch.setattr("trueup.reconciling.expected_errors.WORK", 2**12)
    problem, prepared, truth = world("histogram", rng)
    release = next(releases(problem, prepared, truth, rng))
    noisy, simulation = release.measurements, prepared.simulation
    options = {"spec": noisy.spec, "work": 2**12}
    alone = simulation.simulate(release.counts, noisy.flat, noisy.headers, rng, **options)
    area = next(t for t in release.published if t.level == "area" and t.attributes)
    standard = np.sqrt(np.square(release.errors[area]).mean())
    told, believed = (min(c.rmse for c in e.tables[area]) for e in (release.expected, alone))
    assert told >= standard
    assert believed < 0.9 * standard
