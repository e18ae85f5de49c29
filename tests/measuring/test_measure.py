"""measure: the noise that is added is the law's, and nothing leaks."""

from __future__ import annotations

import multiprocessing
from collections import Counter

import numpy as np
import pandas
import pytest

from tests.areas import SPEC
from trueup import measure, simulate
from trueup.errors import DataError, InfeasibleError
from trueup.model.problem import Problem
from trueup.model.spec import parse_spec
from trueup.noise import law_named

FRAME = pandas.DataFrame({"state": ["02", "01", "01"], "county": ["001", "003", "001"], "n": [30, 7, 0]})


def _noise(_: int) -> tuple[int, ...]:
    noisy = measure(parse_spec(SPEC), FRAME)
    return tuple((np.concatenate(noisy.values) - [37, 7, 30, 0, 7, 30]).tolist())


def test_two_measurements_differ():
    assert len({_noise(i) for i in range(10)}) > 1


def test_forked_workers_draw_different_noise():
    with multiprocessing.get_context("fork").Pool(4) as pool:
        drawn = pool.map(_noise, range(40), chunksize=10)
    assert max(Counter(drawn).values()) < 6


@pytest.mark.thorough
def test_noise_is_added_to_the_true_sums(rng):
    """A sign test of the median: each noisy value is below and above its true sum equally often."""
    problem = Problem.of(parse_spec(SPEC), data=FRAME)
    counts = np.array([0, 7, 30])
    draws = np.array([simulate(problem, counts, rng).flat for _ in range(4000)])
    truth = np.array([37, 7, 30, 0, 7, 30])
    above, below = (draws > truth).sum(axis=0), (draws < truth).sum(axis=0)
    # Six standard deviations; a shift by one count moves the difference by more than 300.
    assert (np.abs(above - below) < 6 * np.sqrt(above + below)).all()


def test_invariants_are_exact_and_the_rest_is_noisy():
    text = SPEC.replace('{ all = "1/4", state = "1/4", county = "1/2" }', '{ county = "1/50" }')
    noisy = measure(parse_spec(text + '[constraints]\ninvariants = [{ level = "state" }]\n'), FRAME)
    assert noisy.values[1].tolist() == [7, 30]
    assert not np.array_equal(noisy.values[0], [0, 7, 30]) or _noisy_again(text)


def _noisy_again(text) -> bool:
    """At epsilon 1/50 three exact values in a row have probability 1e-6: look again."""
    noisy = measure(parse_spec(text + '[constraints]\ninvariants = [{ level = "state" }]\n'), FRAME)
    return not np.array_equal(noisy.values[0], [0, 7, 30])


def test_simulations_are_marked_and_repeatable():
    problem = Problem.of(parse_spec(SPEC), data=FRAME)
    one, two = (simulate(problem, np.array([0, 7, 30]), np.random.default_rng(5)) for _ in range(2))
    assert one.simulation
    with pytest.raises(DataError, match=r"shape \(1, 3\).*counts.ravel"):
        simulate(problem, np.array([[0, 7, 30]]), np.random.default_rng(5))
    assert one.digest == two.digest
    assert not measure(problem, FRAME).simulation


def test_data_that_break_a_declared_rule_are_refused_without_a_count():
    zero = SPEC + '[[attribute]]\nname = "sex"\nvalues = ["f", "m"]\n'
    zero = zero.replace('name = "total"', 'name = "total", attributes = ["sex"]')
    zero += '[constraints]\nzeros = [{ sex = "m" }]\n'
    frame = FRAME.assign(sex=["f", "m", "f"])
    with pytest.raises(InfeasibleError, match="structural zero") as caught:
        measure(parse_spec(zero), frame)
    assert not any(part in str(caught.value) for part in ("7", "003", "sex=m"))
    rule = SPEC + '[constraints]\nbounds = [{ level = "county", upper = 9 }]\n'
    with pytest.raises(InfeasibleError, match="bound of 'county'"):
        measure(parse_spec(rule), FRAME)


def test_a_broken_bound_is_told_from_others_of_its_table():
    text = SPEC.replace('name = "total"', 'name = "total", attributes = ["sex"]')
    text += '[[attribute]]\nname = "sex"\nvalues = ["f", "m"]\n[constraints]\nbounds = [\n'
    for value, most in (("f", 90), ("m", 5)):
        text += (
            f'{{ level = "county", attributes = ["sex"], where = {{ sex = "{value}" }}, upper = {most} }},\n'
        )
    with pytest.raises(InfeasibleError) as caught:
        measure(parse_spec(text + "]\n"), FRAME.assign(sex=["f", "m", "f"]))
    assert "'county x sex' where sex=m (at most 5)." in str(caught.value)
    assert "sex=f" not in str(caught.value)


def test_every_law_is_known_to_specs():
    assert law_named("two-sided-geometric") is law_named("discrete-laplace")
