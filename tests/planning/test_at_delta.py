"""Totals that are given as an epsilon at a delta: the most that their exact loss allows."""

from __future__ import annotations

from fractions import Fraction

import pandas as pd
import pytest

import trueup
from trueup.errors import SpecError
from trueup.model.mechanism import noise_parts
from trueup.model.problem import Problem
from trueup.planning.allocation import planned_spec
from trueup.privacy import compose, outward, tight_epsilon

PLACES = pd.DataFrame({"state": list("aaabb"), "county": ["a1", "a2", "a3", "b1", "b2"]})
DELTA = Fraction(1, 10**8)


def spec(noise: str, currency: str, neighbours: str = "replace"):
    return trueup.parse_spec(f'''
format = 2
title = "Two states"
table = {{ name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }}
privacy = {{ unit = "person", neighbours = "{neighbours}" }}
level = [{{ name = "all" }}, {{ name = "state", column = "state" }}, {{ name = "county", column = "county" }}]
query = [{{ name = "total", noise = "{noise}", {currency} = {{ state = "1/6", county = "1/6" }} }}]
''')


def loss(problem: Problem, delta: Fraction) -> tuple[Fraction, Fraction]:
    """Exact epsilon of a problem, and that of its rho."""
    parts = noise_parts(problem.spec, problem.constraints, problem.headers)
    return tight_epsilon(parts, delta), compose(part.cost for part in parts).at_delta(delta)


@pytest.mark.slow
@pytest.mark.parametrize(
    "given", [{}, {"targets": ["state=8@95%", "county=10@95%"]}], ids=["weights", "targets"]
)
@pytest.mark.parametrize("epsilon", ["1/2", "3"])
def test_the_planned_noise_is_within_and_nearly_the_most(epsilon, given):
    stated = spec("discrete-gaussian", "rho")
    planned = trueup.plan(stated, PLACES, total=f"{epsilon}@{DELTA}", **given)
    exact, of_rho = loss(Problem(planned_spec(stated, planned), Problem.of(stated, PLACES).cells), DELTA)
    assert 0.99999 * Fraction(epsilon) < exact <= Fraction(epsilon) < of_rho
    shown = "0.5" if epsilon == "1/2" else epsilon
    assert f"at most epsilon = {shown} at delta = 1e-08" in planned.certificate.sentences[-1]


def test_many_tables_of_laplace_noise_gain_as_well():
    stated = spec("discrete-laplace", "epsilon")
    planned = trueup.plan(stated, PLACES, total=f"1/10@{Fraction(1, 100)}")
    assert planned.total > Fraction(1, 10)
    exact, _ = loss(
        Problem(planned_spec(stated, planned), Problem.of(stated, PLACES).cells), Fraction(1, 100)
    )
    assert exact <= Fraction(1, 10)


@pytest.mark.parametrize(
    ("total", "message"),
    [
        ("3@", "is empty|has no delta|delta of the total"),
        ("@1e-10", "epsilon of the total"),
        ("3@2", "1 or more"),
        ("3@0", "delta of the total"),
        ("-3@1e-10", "epsilon of the total"),
        ("3", "has no delta"),
        ("3@1e-10@1", "delta of the total"),
    ],
)
def test_what_is_no_epsilon_at_a_delta_is_refused(total, message):
    with pytest.raises(SpecError, match=message):
        trueup.plan(spec("discrete-gaussian", "rho"), PLACES, total=total)


def test_a_guarantee_states_the_exact_epsilon_of_its_noise():
    problem = Problem.of(spec("discrete-gaussian", "rho"), PLACES)
    exact, of_rho = loss(problem, Fraction(1, 10**10))
    said = problem.guarantee.sentences[0]
    assert (
        f"rho = 1/3 (zero-concentrated differential privacy), and at most epsilon = {outward(exact)} at delta = 1e-10"
        in said
    )
    assert outward(exact) != outward(of_rho)
