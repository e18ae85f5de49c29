"""A spec with `noise = "add-up-laplace"`: noisy counts add up as they are drawn, through every verb."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas
import pytest

import trueup
from tests.reference.lattice import law_of, p_value, points
from trueup import infer, measure, parse_spec, reconcile, simulate
from trueup.errors import SpecError
from trueup.inferring.tree_exact import TreeExact
from trueup.model.header import simulate_many
from trueup.model.problem import Problem

HEAD = """
format = 2
title = "Demo"
table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "county", column = "county" }, { name = "town", column = "town" }]
"""
QUERY = """
query = [{ name = "persons", noise = "add-up-laplace", epsilon = { all = 1, county = "1/2", town = 1 } }]
constraints = { nonnegative = false }
"""
PLACES = pandas.DataFrame({"county": list("xxy"), "town": list("abc"), "n": [12, 0, 7]})
SUMS = np.array([[1, -1, -1, 0, 0, 0], [0, 1, 0, -1, -1, 0], [0, 0, 1, 0, 0, -1]])
"""All, two counties, three towns: each sum less its parts."""


def problem(text=HEAD + QUERY):
    return Problem.of(parse_spec(text), data=PLACES)


def test_noise_of_a_tree_is_independent_noise_given_that_it_adds_up(rng):
    settled, epsilon = problem(), np.array([1, 0.5, 0.5, 1, 1, 1])
    counts = PLACES["n"].to_numpy()
    drawn = simulate_many(settled.cells, counts, settled.headers, rng, 40_000)
    noise = drawn - np.array([19, 12, 7, 12, 0, 7])
    assert (noise @ SUMS.T == 0).all()
    vectors = points(SUMS, [0, 1, 2], 12)
    assert p_value(noise, vectors, law_of(vectors, lambda v: -np.abs(v) @ epsilon)) > 1e-6
    towns = np.array([0, 0, 0, 1, 1, 1])  # independent noise of the towns, summed
    assert p_value(noise, vectors, law_of(vectors, lambda v: -np.abs(v) @ towns)) < 1e-6


def test_one_record_costs_what_separate_measurements_cost():
    settled = problem()
    separate = problem((HEAD + QUERY).replace("add-up-laplace", "discrete-laplace"))
    assert settled.guarantee.amount == separate.guarantee.amount == Fraction(5, 2)
    assert [h.law.epsilon for h in settled.headers] == [h.law.epsilon for h in separate.headers]
    assert "costs exactly" in settled.guarantee.sentences[0]
    vectors, epsilon = points(SUMS, [0, 1, 2], 14), np.array([1, 0.5, 0.5, 1, 1, 1])
    step = np.array([1, 1, 0, 1, 0, 0])  # one record of town a; the normaliser is the same for both
    loss = np.abs(vectors + step) @ epsilon - np.abs(vectors) @ epsilon
    assert loss.max() == 2.5


def test_counts_are_released_as_they_were_drawn():
    released = reconcile(measured := measure(parse_spec(HEAD + QUERY), PLACES))
    assert np.array_equal(released.counts, measured.values[2])
    assert all(released.checks.values())
    assert measured.values[0][0] == measured.values[1].sum() == measured.values[2].sum()


def test_the_posterior_is_that_of_independent_noise_with_the_same_values():
    text = (HEAD + QUERY).replace("nonnegative = false", "nonnegative = true")
    noisy = simulate(problem(text), PLACES["n"].to_numpy(), np.random.default_rng(4))
    separate = problem(text.replace("add-up-laplace", "discrete-laplace"))
    same = trueup.Measurements(separate.cells, separate.headers, noisy.values, separate.guarantee)
    ours = infer(noisy, spec=problem(text).constraints, method=TreeExact(prior="flat")).summary("town")
    theirs = infer(same, spec=separate.constraints, method=TreeExact(prior="flat")).summary("town")
    assert np.allclose(ours["mean"], theirs["mean"], atol=1e-9)


def test_neighbours_by_replacement_leave_the_total_alone():
    text = (HEAD + QUERY).replace("add-remove", "replace")
    assert [h.law.epsilon for h in problem(text).headers] == [1, Fraction(1, 4), Fraction(1, 2)]
    assert problem(text).guarantee.amount == Fraction(3, 2)  # no count of the whole moves


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("all = 1, county = \"1/2\", ", ""), "one level alone"),
        (("epsilon = { all", "rho = { all"), "budget in rho"),
        (("nonnegative = false", 'invariants = [{ level = "county" }]'), "invariants are held"),
        (("town = 1 } }", 'town = 1 }, options = { sampler = "free" } }'), "the option 'sampler'"),
        (("town = 1 } }", "town = 1 }, options = { slowest = 0 } }"), "no exact sampler"),
    ],
)  # fmt: skip
def test_what_cannot_add_up_is_refused(change, why):
    with pytest.raises(SpecError, match=why):
        _ = problem((HEAD + QUERY).replace(*change)).headers
