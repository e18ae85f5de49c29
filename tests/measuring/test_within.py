"""A spec with `noise = "within-laplace"`: noisy counts stay within what is known, through every verb."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from tests.arrays.test_within import tables_of
from tests.reference.lattice import p_value
from trueup import infer, measure, parse_spec, read_measurements, reconcile, release, simulate
from trueup.checking.bundle import check
from trueup.errors import DataError, SpecError, TrueupError
from trueup.inferring.lattice_moves import LatticeMoves
from trueup.model.header import simulate_many
from trueup.model.problem import Problem

HEAD = """
format = 2
title = "Answers"
table = { name = "answers", kind = "counts", counts = "answer", count = "n", keys = "public" }
privacy = { unit = "answer", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "person", column = "p" }]
attribute = [{ name = "question", values = ["a", "b"] }]
query = [{ name = "q", attributes = ["question"], noise = "within-laplace", epsilon = { person = 1 } }]
[constraints]
bounds = [{ level = "person", attributes = ["question"], lower = 0, upper = 1 }]
"""
SUMS = 'invariants = [{ level = "all", attributes = ["question"] }]\n'
DATA = pandas.DataFrame({"p": list("uuvvwwxx"), "question": list("abababab"), "n": [0, 1, 1, 0, 1, 1, 0, 1]})
TRUE = DATA["n"].to_numpy()


def problem(text=HEAD + SUMS):
    return Problem.of(parse_spec(text), data=DATA)


def feasible(sums=True):
    tables = tables_of({"lower": 0, "upper": 1}, 8)
    return tables[(tables[:, ::2].sum(axis=1) == 2) & (tables[:, 1::2].sum(axis=1) == 3)] if sums else tables


@pytest.mark.parametrize("sums", [True, False])
def test_counts_have_the_law_of_the_set(rng, sums):
    settled = problem(HEAD + SUMS * sums)
    drawn = simulate_many(settled.cells, TRUE, settled.headers[:1], rng, 6_000)
    tables, far = feasible(sums), np.abs(feasible(sums) - TRUE).sum(axis=1)
    assert p_value(drawn, tables, np.exp(-far) / np.exp(-far).sum()) > 1e-6
    assert p_value(drawn, tables, np.exp(-0.8 * far) / np.exp(-0.8 * far).sum()) < 1e-6
    assert settled.headers[0].law.tail(0.01).counts == 1


def test_the_posterior_is_that_of_enumeration(rng):
    noisy = simulate(problem(), TRUE, np.random.default_rng(3))
    tables = feasible()
    mass = np.exp(-np.abs(tables - noisy.values[0]).sum(axis=1))
    posterior = infer(noisy, LatticeMoves(enumerate=1000), spec=problem().constraints, draws=100)
    found = posterior.summary("person x question")["mean"]
    assert np.allclose(found, mass @ tables / mass.sum(), atol=1e-9)


def test_what_was_drawn_is_released_as_it_is_and_read_back(tmp_path):
    (tmp_path / "spec.toml").write_text(HEAD + SUMS)
    DATA.to_csv(tmp_path / "data.csv", index=False)
    released = release(tmp_path / "spec.toml", tmp_path / "data.csv", tmp_path / "out")
    assert all(finding.holds for finding in check(tmp_path / "out"))
    measured = read_measurements(tmp_path / "out")
    assert (released.counts == measured.values[0]).all()
    law = measured.headers[0].law
    assert (law.factors, law.tail(0.05).counts) == (True, 1)
    assert law.variance == problem().headers[0].law.variance


RULES = {
    "sums of several values": HEAD.replace("upper = 1", "upper = 3") + SUMS,
    "a rule of each person": HEAD + 'linear = [{ rule = "a <= b + 1", level = "person" }]\n',
    "a bound on sums": HEAD.replace(
        "1 }]", '1 }, { level = "all", attributes = ["question"], lower = 1, upper = 3 }]'
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_rules_hold_as_drawn_and_losses_are_said_to_be_bounds(name):
    text = RULES[name]
    for _ in range(4):
        noisy = measure(spec := parse_spec(text), DATA)
        assert (reconcile(noisy, spec=spec).counts == noisy.values[0]).all()
    assert not any("costs exactly" in sentence for sentence in noisy.guarantee.sentences)
    assert any("at most" in sentence for sentence in noisy.guarantee.sentences if "Drawn" in sentence)
    with pytest.raises(SpecError, match="depends on other counts"):
        infer(noisy, spec=spec, draws=10)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("epsilon = {", "rho = {"), "budget in rho"),
        (("person = 1 }", "person = 1 }, options = { sampler = 'free' }"), "the option 'sampler'"),
        (("lower = 0, upper = 1", "lower = 3, upper = 1"), "exceeds its upper"),
        (("lower = 0, upper = 1", "lower = 1, upper = 1"), "one table"),
        (("bounds = [", 'linear = [{ rule = "a >= b", level = "all" }]\n#'), "may take"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_counts_are_read(change, why):
    head = HEAD.replace("person = 1 }", "person = '1/10' }") if why == "may take" else HEAD
    with pytest.raises(TrueupError, match=why):
        _ = problem(head.replace(*change)).headers


def test_noise_on_counts_without_upper_bounds_has_the_bias_that_is_stated(rng):
    settled = problem(HEAD.split("bounds")[0])
    law = settled.headers[0].law
    assert not law.factors
    counts = np.array([0, 0, 1, 2, 5, 9, 20, 0])
    drawn = simulate_many(settled.cells, counts, settled.headers, rng, 20_000)
    assert drawn.min() == 0
    error = (drawn - counts).mean(axis=0) - law.bound.bias(counts)
    assert (np.abs(error) < 5 * drawn.std(axis=0) / 20_000**0.5).all()
    beyond = (np.abs(drawn - counts) > law.tail(0.05).counts).mean(axis=0)
    assert 0 < beyond.max() < 0.05 + 5 * 0.0016


def test_made_up_counts_outside_the_set_are_refused(rng):
    for text in (HEAD, HEAD + SUMS):
        with pytest.raises(DataError, match="break a rule of the feasible set"):
            simulate(problem(text), np.full(8, 3), rng)
