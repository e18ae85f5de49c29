"""Exact optima of least squares, against every set of touched limits in fractions, with weights of many orders."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.reference.least_squares import least_squares as exhaustive
from trueup.kernel.linear import Fit, active_set, least_squares_bound, programs
from trueup.kernel.linear.active_set import optimum_near
from trueup.kernel.linear.polyhedron import Polyhedron

N = 4
SUMS = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]])
RANGED = np.array([[1, -1, 0, 1], [0, 0, 1, 1]])


def problem(rng, orders, size=1):
    """Four counts and three sums, measured with weights of so many orders; a fixed sum, two ranges, counts from 0."""
    truth = size * rng.integers(0, 4, N)
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("orders", [0, 8])
@pytest.mark.parametrize("solver", ["piqp", "clarabel"])
def test_counts_of_billions_are_solved_to_the_last_digit(rng, monkeypatch, solver, orders):
    """Limits are touched and crossed by parts of a count, whatever the counts: nothing is relative to them."""
    monkeypatch.setattr(programs, "PIQP_VARIABLES", 10**9 if solver == "piqp" else 0)
    for _ in range(25):
        p, fit, twin = problem(rng, orders, 10**9 + 7)
        if twin is not None:
            answer = programs.constrained_least_squares(p, fit)
            assert (answer.status, answer.gap) == ("solved", 0.0)
            assert answer.residual < 1e-5
            np.testing.assert_allclose(answer.x, np.array(twin, float), rtol=1e-15, atol=1e-6)


@pytest.mark.slow
def test_no_prices_prove_more_than_the_least(rng):
    """Whatever prices and multipliers are given: those near the optimum's prove it, others prove less."""
    near = 0
    for _ in range(40):
        p, fit, twin = problem(rng, 2)
        if twin is None:
            continue
        fit, x = fit.relative(), np.array(twin, float)
        low, high = (
            np.append(side, end * np.ones(N)) for side, end in zip(p.bounds, (0.0, np.inf), strict=True)
        )
        rows = csr_array(np.vstack([p.matrix.toarray(), np.eye(N)]))
        best = optimum_near(p, fit, x)
        assert best is not None
        assert best.bound <= fit.objective(x) * (1 + 1e-9) + 1e-9
        near += best.bound >= fit.objective(x) - 1e-6
        for spread in (0.01, 1.0, 100.0):
            prices = fit.weights * (fit.matrix @ x - fit.values) + spread * rng.normal(size=fit.values.size)
            wild = spread * rng.normal(size=low.size)
            multipliers = np.where(np.isfinite(np.where(wild > 0, high, low)), wild, 0.0)
            limits = np.where(multipliers > 0, high, low)
            for most in (fit.objective(x), fit.objective(x) + 100):
                bound = least_squares_bound(fit, rows, limits, prices, multipliers, most)
                assert bound <= fit.objective(x) * (1 + 1e-9) + 1e-9
    assert near >= 20


@pytest.mark.thorough
def test_a_point_that_is_not_the_optimum_is_not_called_it(monkeypatch, rng):
    """An active set that stops too early, its multipliers of the wrong sign left in, is found out by what it proves."""
    monkeypatch.setattr(active_set, "SIGN", np.inf)
    found_out = 0
    for _ in range(40):
        p, fit, twin = problem(rng, 2)
        if twin is None:
            continue
        x, fit = np.array(twin, float), fit.relative()
        start = np.zeros(N)
        found = optimum_near(p, fit, start, 1e5)
        if found is not None and found.objective > fit.objective(x) + 1e-3:
            assert programs.relative_gap(found.objective, found.bound) != 0.0
            assert found.bound <= fit.objective(x)
            found_out += 1
            if found_out == 3:
                break
    assert found_out


@pytest.mark.slow
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


@pytest.mark.thorough
def test_from_any_point_the_answer_is_the_optimum_or_none(rng):
    found = 0
    for _ in range(20):
        p, fit, twin = problem(rng, 2)
        if twin is not None and (best := optimum_near(p, fit.relative(), rng.uniform(0, 9, N))) is not None:
            np.testing.assert_allclose(best.x, np.array(twin, float), atol=1e-9)
            found += 1
    assert found


def test_rows_that_exclude_each_other_have_no_optimum():
    p = Polyhedron.of(2, [[1, 1], [1, 1]], [1.0, 3.0])
    assert optimum_near(p, Fit(csr_array(np.eye(2)), np.zeros(2), np.ones(2)), np.ones(2)) is None


def test_rows_that_depend_on_each_other_do_no_harm():
    p = Polyhedron.of(2, [[1, 1], [2, 2], [1, 0]], [0.0, 0.0, 0.0])
    fit = Fit(csr_array(np.eye(2)), np.array([-3.0, 5.0]), np.ones(2))
    np.testing.assert_allclose(optimum_near(p, fit, np.zeros(2)).x, 0, atol=1e-9)


def test_the_twin_solves_by_hand():
    """Two counts measured as 5 and -1, which sum to 3 and are not negative."""
    found = exhaustive(
        [[1, 0], [0, 1]], [5, -1], [1, 1], [[1, 1], [1, 0], [0, 1]], [3, 0, 0], [3, None, None]
    )
    assert found == [Fraction(3), Fraction(0)]
