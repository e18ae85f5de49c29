"""Exact optima of least squares, against every set of touched limits in fractions, with weights of many orders."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.reference.least_squares import least_squares as exhaustive
from trueup.kernel.linear import programs
from trueup.kernel.linear.active_set import optimum_near
from trueup.kernel.linear.fit import Fit
from trueup.kernel.linear.polyhedron import Polyhedron

N = 4
SUMS = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]])
RANGED = np.array([[1, -1, 0, 1], [0, 0, 1, 1]])


def problem(rng, orders):
    """Four counts and three sums, measured with weights of so many orders; a fixed sum, two ranges, counts from 0."""
    truth = rng.integers(0, 4, N)
    matrix = np.vstack([np.eye(N, dtype=int), SUMS])
    weights = 10 ** rng.integers(0, orders + 1, N + 3)
    weights[rng.permutation(N + 3)[:2]] = 1, 10**orders
    values = matrix @ truth + rng.integers(-4, 5, N + 3)
    fixed, middle = rng.integers(0, 2, N), (RANGED @ truth).tolist()
    whole = int(fixed @ truth)
    lower, upper = [whole, middle[0] - 1, None], [whole, middle[0] + 1, middle[1]]
    fit = Fit(csr_array(matrix.astype(float)), values.astype(float), weights.astype(float))
    low, high = (np.array([np.nan if v is None else v for v in side], float) for side in (lower, upper))
    p = Polyhedron.of(N, [fixed], low[:1], RANGED, np.nan_to_num(low[1:], nan=-np.inf), high[1:])
    given = [list(map(int, v)) for v in (values, weights)]
    rows = np.vstack([fixed, RANGED, np.eye(N, dtype=int)]).tolist()
    twin = (
        exhaustive(matrix.tolist(), *given, rows, [*lower, *[0] * N], [*upper, *[None] * N])
        if fixed.any()
        else None
    )
    return p, fit, twin


@pytest.mark.parametrize("orders", [0, 4, 8])
@pytest.mark.parametrize("solver", ["piqp", "clarabel"])
def test_the_optimum_is_the_exhaustive_one(rng, monkeypatch, solver, orders):
    monkeypatch.setattr(programs, "PIQP_VARIABLES", 10**9 if solver == "piqp" else 0)
    for _ in range(25):
        p, fit, twin = problem(rng, orders)
        if twin is not None:
            answer = programs.constrained_least_squares(p, fit)
            assert (answer.status, answer.gap) == ("solved", 0.0)
            np.testing.assert_allclose(answer.x, np.array(twin, float), atol=1e-9)


def test_a_solver_alone_would_fail_these(rng, monkeypatch):
    """The twin has the power to tell: an interior point misses it by far where weights differ by eight orders."""
    monkeypatch.setattr(programs, "optimum_near", lambda *given: None)
    missed = []
    for _ in range(25):
        p, fit, twin = problem(rng, 8)
        if twin is not None:
            answer = programs.constrained_least_squares(p, fit)
            assert answer.gap is None
            missed.append(np.abs(answer.x - np.array(twin, float)).max())
    assert max(missed) > 1e-3


def test_a_common_factor_of_all_weights_changes_nothing(rng):
    for factor in (1e-17, 1e99):
        p, fit, twin = problem(rng, 2)
        if twin is not None:
            scaled = Fit(fit.matrix, fit.values, factor * fit.weights)
            np.testing.assert_allclose(
                programs.constrained_least_squares(p, scaled).x, np.array(twin, float), atol=1e-9
            )


def test_from_any_point_the_answer_is_the_optimum_or_none(rng):
    found = 0
    for _ in range(20):
        p, fit, twin = problem(rng, 2)
        if twin is not None and (x := optimum_near(p, fit.relative(), rng.uniform(0, 9, N))) is not None:
            np.testing.assert_allclose(x, np.array(twin, float), atol=1e-9)
            found += 1
    assert found


def test_rows_that_exclude_each_other_have_no_optimum():
    p = Polyhedron.of(2, [[1, 1], [1, 1]], [1.0, 3.0])
    assert optimum_near(p, Fit(csr_array(np.eye(2)), np.zeros(2), np.ones(2)), np.ones(2)) is None


def test_rows_that_depend_on_each_other_do_no_harm():
    p = Polyhedron.of(2, [[1, 1], [2, 2], [1, 0]], [0.0, 0.0, 0.0])
    fit = Fit(csr_array(np.eye(2)), np.array([-3.0, 5.0]), np.ones(2))
    np.testing.assert_allclose(optimum_near(p, fit, np.zeros(2)), 0, atol=1e-9)


def test_the_twin_solves_by_hand():
    """Two counts measured as 5 and -1, which sum to 3 and are not negative."""
    found = exhaustive(
        [[1, 0], [0, 1]], [5, -1], [1, 1], [[1, 1], [1, 0], [0, 1]], [3, 0, 0], [3, None, None]
    )
    assert found == [Fraction(3), Fraction(0)]
