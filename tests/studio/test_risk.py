"""Bounds on suspicions that the studio shows: none is below what the noise of two tables of counts lets somebody conclude."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import numpy as np
import pandas as pd
import pytest

from trueup import Problem, parse_spec
from trueup.studio.accuracy import BEFORE, doubts, risk

SPEC = """
format = 2
title = "Homes"
table = { name = "homes", kind = "counts", counts = "household", count = "n" }
privacy = { unit = "household", neighbours = "NEIGHBOURS" }
level = [{ name = "all" }, { name = "area", column = "area" }]
attribute = [{ name = "rents", values = ["yes", "no"] }]
query = [{ name = "q", attributes = ["rents"], noise = "NOISE", CURRENCY = { area = "0.375" } }]
"""
EXACT = 'constraints = { invariants = [{ level = "all" }] }\n'
PRESENCE, ANSWER = ([[3, 2]], [[2, 2]]), ([[3, 2]], [[2, 3]])
"""Tables with and without a household, and with another answer of it."""


def _guarantee(neighbours="add-remove", noise="discrete-laplace", currency="epsilon", more=""):
    text = SPEC.replace("NEIGHBOURS", neighbours).replace("NOISE", noise).replace("CURRENCY", currency)
    head, tables = text.split("table =", 1)
    problem = Problem.of(parse_spec(f"{head}{more}table ={tables}"), pd.DataFrame({"area": ["a", "b"]}))
    return problem.guarantee


def _largest_posterior(before, tables, epsilon):
    """Return the largest probability of the first table after any output of discrete Laplace noise with ratio e^-epsilon."""
    outputs = np.arange(-20, 30)
    ratios = [
        max(-epsilon * (abs(outputs - one) - abs(outputs - other)))
        for one, other in zip(np.ravel(tables[0]), np.ravel(tables[1]))
    ]
    odds = before / (1 - before) * exp(sum(ratios))
    return odds / (1 + odds)


@pytest.mark.parametrize(
    ("neighbours", "more", "pairs"),
    [
        ("add-remove", "", [PRESENCE, ANSWER]),
        ("replace", "", [ANSWER]),
        ("add-remove", EXACT, [ANSWER]),
        ("replace", EXACT, [ANSWER]),
    ],
)
def test_a_bound_is_what_the_noise_lets_somebody_conclude(neighbours, more, pairs):
    guarantee = _guarantee(neighbours, more=more)
    scale = 0.375 if neighbours == "add-remove" else 0.375 / 2
    shown = risk("epsilon", guarantee.amount, doubts(guarantee))["doubts"]
    assert len(shown) == len(pairs)
    for doubt, tables in zip(shown, pairs):
        for before, bound in zip(BEFORE, doubt["suspicions"]):
            assert bound["after"] == pytest.approx(_largest_posterior(before, tables, scale))


def test_another_answer_is_twice_the_loss_in_rho_too():
    factors = [kind.factor for kind in doubts(_guarantee(noise="discrete-gaussian", currency="rho"))]
    assert factors == [1, 2]


def test_no_bound_is_shown_where_no_smallest_change_is_known():
    guarantee = _guarantee(more=EXACT)
    assert doubts(guarantee)
    assert doubts(replace(guarantee, change=None)) == []
