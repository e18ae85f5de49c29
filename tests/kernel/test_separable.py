"""Least squares of counts that are measured by themselves: beside an interior point, at its optimality conditions, and large."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, eye_array

from tests.kernel.test_programs import conditions
from trueup.kernel.linear import Fit, programs
from trueup.kernel.linear.polyhedron import Polyhedron
from trueup.kernel.linear.programs import constrained_least_squares
from trueup.kernel.linear.separable import separable_optimum


def random_program(rng, i):
    """Signed or 0/1 equalities, every third time one that depends on the others; counts up to 10^6, bounds, wide weights."""
    n, m = int(rng.integers(2, 12)), int(rng.integers(1, 6))
    matrix = rng.integers(-5, 6, (m, n)) if i % 2 else rng.integers(0, 2, (m, n))
    matrix = np.vstack([matrix, matrix.sum(axis=0)]) if i % 3 == 0 else matrix
    x = rng.integers(0, 6, n) * 10 ** int(rng.integers(0, 7)) * (rng.random(n) < 0.7)
    ranged = (np.eye(n)[:2] * 2, [-np.inf, 2.0 * x[1] - 2], [2.0 * x[0] + 2, np.inf]) if i % 4 == 0 else ()
    y, weights = x + 3 * rng.normal(size=n), np.exp(rng.normal(size=n) * (3 if i % 5 == 0 else 1))
    p = Polyhedron.of(n, matrix, matrix @ x, *ranged, nonnegative=i % 7 != 0)
    return p, Fit(csr_array(np.eye(n) * 2), 2 * y, weights / 4)


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(4))
def test_the_point_is_that_of_an_interior_point_and_its_bound_proves_it(rng, monkeypatch, part):
    solved = 0
    for i in range(part, 400, 8):
        p, fit = random_program(rng, i)
        found = separable_optimum(p, fit.relative())
        if found is None:
            continue
        solved += 1
        scale = max(1.0, np.abs(found.x).max())
        assert p.residual(found.x) <= 1e-12 * p.scale + 1e-9
        assert found.objective - found.bound <= 1e-6 * max(1.0, found.bound)
        with monkeypatch.context() as patch:
            patch.setattr(programs, "separable_optimum", lambda *_: None)
            other = constrained_least_squares(p, fit)
        if other.gap == 0:
            assert np.abs(other.x - found.x).max() <= 1e-7 * scale
    assert solved >= 45  # of 50; the rest go to the interior points


def test_the_conditions_of_optimality_hold_and_a_wrong_point_breaks_them(rng):
    p, fit = random_program(rng, 1)
    x = separable_optimum(p, fit).x
    assert conditions(p, fit, x) < 1e-8
    free = np.flatnonzero(x > 0.1)
    assert conditions(p, fit, x + 0.01 * np.isin(np.arange(x.size), free[:1])) > 1e-4


def test_large_counts_lose_no_digits(rng):
    x = rng.integers(0, 10**9, 50)
    matrix = rng.integers(0, 2, (5, 50))
    p = Polyhedron.of(50, matrix, matrix @ x)
    found = separable_optimum(p, Fit(csr_array(np.eye(50)), x + rng.normal(size=50), np.ones(50)))
    assert np.abs(found.x - x).max() < 10
    assert p.residual(found.x) < 1e-5


@pytest.mark.parametrize(("m", "n"), [(20, 200), (300, 3000)])
def test_many_counts_are_solved_to_the_last_digits(rng, m, n):
    x = rng.integers(0, 10, n)
    matrix = (
        csr_array(rng.integers(0, 2, (m, n)))
        if m == 20
        else csr_array(
            (np.ones(3 * n), (rng.integers(0, m, 3 * n), np.repeat(np.arange(n), 3))), shape=(m, n)
        )
    )
    p = Polyhedron.of(n, matrix, matrix @ x)
    answer = constrained_least_squares(p, Fit(csr_array(eye_array(n)), x + rng.normal(size=n), np.ones(n)))
    assert answer.status == "solved"
    assert answer.gap == 0
    assert answer.residual < 1e-9


@pytest.mark.parametrize(
    ("rows", "sums", "measured"),
    [
        ([[1, 1]], [-1.0], np.eye(2)),  # no such counts
        ([[1, 1]], [1.0], np.vstack([np.eye(2), [1, 1]])),  # a total is measured as well
        ([[1, 1]], [1.0], np.array([[1, 0], [1, 0]])),  # one count twice, another never
    ],
)
def test_other_programs_are_left_to_other_solvers(rows, sums, measured):
    fit = Fit(csr_array(measured), np.ones(len(measured)), np.ones(len(measured)))
    assert separable_optimum(Polyhedron.of(2, rows, sums), fit) is None
