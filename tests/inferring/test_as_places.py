"""Tables without places: an attribute stands for places, nothing is mixed up on the way, and sums of small counts hold."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import trueup as tu
from trueup.inferring import choose_inference
from trueup.inferring.histogram_gibbs import HistogramGibbs
from trueup.inferring.recast import AsPlaces
from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.constraints import Bound, Constraints
from trueup.model.header import Measured, simulate_many
from trueup.model.problem import Problem
from trueup.model.records.drawn import Drawn
from trueup.model.spec import parse_spec
from trueup.model.tree import Tree
from trueup.noise import DiscreteLaplace

WHOLE = Tree.from_columns(["all"], [{}])
SEX, AGE, WORK = (
    Attribute(name, tuple(f"{name}{i}" for i in range(size)))
    for name, size in (("sex", 2), ("age", 4), ("work", 3))
)
CELLS = Cells(WHOLE, (SEX, AGE, WORK))
TABLES = [("sex", "age", "work"), ("age", "work"), ("sex", "age"), ("work",), ("sex",), ()]


def laid_out(rng):
    margins = [Margin("all", names) for names in TABLES]
    headers = [Measured(f"q{i}", m, DiscreteLaplace(Fraction(1, 2))) for i, m in enumerate(margins)]
    most = rng.integers(5, 9, CELLS.size(margins[1])).astype(float)
    bounds = (Bound(margins[1], None, most), Bound(CELLS.finest, 0, 7))
    constraints = Constraints(CELLS, tuple(margins), invariants=(Margin("all"),), bounds=bounds)
    return constraints, headers, most


def test_every_sum_and_bound_is_that_of_the_same_cells(rng):
    constraints, headers, most = laid_out(rng)
    laid = AsPlaces.of(constraints, headers)
    assert laid.name == "age"  # the one with most values
    assert laid.constraints.structure() == "histogram"
    own, counts = laid.constraints.cells, rng.integers(0, 9, CELLS.n)
    sums = np.concatenate([h.sums(CELLS, counts) for h in headers])
    same = np.concatenate([h.sums(own, counts[laid.order]) for h in laid.headers])
    np.testing.assert_array_equal(laid.values(sums, headers), same)
    bound = laid.constraints.bounds[0]
    room = most - CELLS.sum(counts, Margin("all", ("age", "work")))
    left = bound.upper - own.sum(counts[laid.order], bound.margin)
    np.testing.assert_array_equal(np.sort(left), np.sort(room))
    assert bound.margin == Margin("age", ("work",))
    back = laid.restored(Drawn(counts[laid.order][None, None], False))
    np.testing.assert_array_equal(back.draws[0, 0], counts)


def test_an_attribute_of_which_a_recode_or_a_condition_speaks_is_left_alone(rng):
    halves = Recode("half", ("low", "high"), (0, 0, 1, 1))
    cells = Cells(WHOLE, (SEX, Attribute("age", AGE.values, recodes=(halves,)), WORK))
    margins = (Margin("all", ("half", "work")), cells.finest)
    headers = [Measured("q", m, DiscreteLaplace(Fraction(1, 2))) for m in margins]
    assert AsPlaces.of(Constraints(cells, margins), headers).name == "work"
    zeros = ({"work": "work0", "sex": "sex1"},)
    assert AsPlaces.of(Constraints(cells, margins, zeros=zeros), headers) is None


BIRTHS = """
format = 2
title = "Births"
table = { name = "births", kind = "counts", counts = "birth", count = "n" }
privacy = { unit = "birth", neighbours = "add-remove" }
level = [{ name = "all" }]
attribute = [
  { name = "parity", values = ["1", "2", "3", "4"] },
  { name = "age", values = ["1", "2", "3", "4", "5", "6", "7", "8"] },
  { name = "wed", values = ["y", "n"] },
]
query = [
  { name = "cells", attributes = ["parity", "age", "wed"], epsilon = { all = "1/6" } },
  { name = "age", attributes = ["age", "wed"], epsilon = { all = "1/6" } },
  { name = "parity", attributes = ["parity"], epsilon = { all = "1/6" } },
]
"""


@pytest.mark.slow
def test_sums_of_many_small_counts_hold_and_the_flat_prior_is_told_by_them(rng):
    """Births by parity, age and status: 64 cells, half of them below the noise. Under the flat prior their sums are too large."""
    problem = Problem.of(parse_spec(BIRTHS))
    assert choose_inference({}, problem.constraints, problem).name == "histogram-gibbs"
    level = np.multiply.outer(np.multiply.outer([1, 0.8, 0.2, 0.05], [1, 8, 25, 30, 20, 6, 1, 0]), [2, 0.4])
    held, flat = [], []
    for _ in range(4):
        truth = rng.poisson(4 * level.ravel())
        noisy = tu.simulate(problem, truth, rng)
        true = problem.cells.sum(truth, "all x age")
        for prior, into in ((None, held), ("flat", flat)):
            spec = problem.spec.model_copy(update={"infer": {"prior": prior} if prior else {}})
            found = tu.infer(noisy, spec=Problem(spec, problem.cells), draws=400).summary("all x age")
            into += ((found["low"] <= true) & (true <= found["high"])).tolist()
    assert np.mean(held) > 0.75  # 32 intervals of 90 %
    assert np.mean(held) > np.mean(flat)


def test_draws_of_a_table_keep_its_rules(rng):
    constraints, headers, _ = laid_out(rng)
    constraints = Constraints(CELLS, constraints.margins, invariants=(Margin("all"),))
    headers = [*headers[:-1], Measured.enumerated(CELLS, Margin("all"))]
    truth = rng.integers(0, 9, CELLS.n)
    values = simulate_many(CELLS, truth, headers, rng, 1)[0]
    method = HistogramGibbs()
    assert method.refuses(constraints, headers) is None
    found = method.apply(method.prepare(constraints, headers), values, 50, rng, lambda done, of: None)
    assert (found.draws.sum(axis=-1) == truth.sum()).all()
    assert found.draws.min() >= 0
