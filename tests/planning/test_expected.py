"""The closed form that planning uses against the standard errors of the method itself."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from trueup.layouts.histogram import histogram_problem, standard_errors
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.tree import Tree
from trueup.noise import DiscreteGaussian, Exact
from trueup.planning.expected import histogram_errors

AREAS = ["a1", "a2", "b1", "b2", "b3", "c1"]
TREE = Tree.from_columns(
    ["all", "state", "county"],
    [{}, {"state": [a[0] for a in AREAS]}, {"state": [a[0] for a in AREAS], "county": AREAS}],
)
CELLS = Cells(TREE, (Attribute("sex", ("f", "m")), Attribute("age", ("y", "o", "w"))))
MARGINS = [
    Margin("all"),
    Margin("state", ("sex",)),
    Margin("state", ("age",)),
    Margin("county", ("sex",)),
    Margin("county", ("sex", "age")),
]


def test_errors_are_those_of_the_method(rng):
    laws = [DiscreteGaussian(Fraction(int(v))) for v in rng.integers(10, 60, len(MARGINS))]
    headers = [Measured(str(m), m, law) for m, law in zip(MARGINS, laws)]
    known = standard_errors(histogram_problem(Constraints(CELLS, tuple(MARGINS)), headers))
    mean, largest = histogram_errors(CELLS, MARGINS)([law.variance for law in laws])
    for margin, average, most in zip(MARGINS, mean, largest):
        assert average == pytest.approx((known[margin] ** 2).mean(), rel=1e-10)
        assert most == pytest.approx((known[margin] ** 2).max(), rel=1e-10)


def test_exact_and_unmeasured_tables_are_limits():
    errors = histogram_errors(CELLS, MARGINS)
    variances = np.array([5.0, 20.0, 20.0, 20.0, 20.0])
    for at, limit, near in ((0, 0.0, 1e-9), (1, np.inf, 1e12)):
        exact, close = (errors([*variances[:at], v, *variances[at + 1 :]])[0] for v in (limit, near))
        np.testing.assert_allclose(exact, close, rtol=1e-6, atol=1e-8)
    assert errors([0.0, *variances[1:]])[0][0] == 0


def test_counts_that_nothing_determines_have_infinite_errors():
    assert np.isinf(histogram_errors(CELLS, MARGINS)([5.0, 5.0, 5.0, 5.0, np.inf])[0]).all()


def test_an_invariant_is_a_variance_of_zero():
    headers = [Measured("q", m, DiscreteGaussian(Fraction(9))) for m in MARGINS]
    headers[0] = replace(headers[0], law=Exact())
    constraints = Constraints(CELLS, tuple(MARGINS[1:]), invariants=(MARGINS[0],))
    known = standard_errors(histogram_problem(constraints, headers))
    mean, _ = histogram_errors(CELLS, MARGINS)([0.0, 9.0, 9.0, 9.0, 9.0])
    assert mean[-1] == pytest.approx((known[MARGINS[-1]] ** 2).mean(), rel=1e-6)
