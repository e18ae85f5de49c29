"""General linear constraints: against closed forms, enumeration and the conditions of optimality."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy
from scipy.optimize import nnls
from scipy.sparse import csr_array

from trueup.errors import TrueupError
from trueup.kernel import Status
from trueup.kernel.linear import FitLoss, programs
from trueup.kernel.linear.absolute_deviations import least_absolute
from trueup.kernel.linear.polyhedron import Polyhedron
from trueup.kernel.linear.programs import Fit, constrained_least_squares
from trueup.kernel.linear.whole_fit import whole_fit, whole_nearest


def identity_fit(y):
    return Fit(csr_array(np.eye(y.size)), np.asarray(y, float), np.ones(y.size))


def overlapping(rng, n=8, nonnegative=True):
    """Three overlapping sums (one redundant) and two ranges that the true counts satisfy."""
    truth = rng.integers(0, 6, n).astype(float)
    a = (rng.random((2, n)) < 0.5).astype(float)
    a = np.vstack([a, a.sum(axis=0)])
    r = (rng.random((2, n)) < 0.5).astype(float)
    p = Polyhedron.of(n, a, a @ truth, r, r @ truth - 1, [np.inf, r[1] @ truth + 1], nonnegative=nonnegative)
    return truth, truth + rng.integers(-3, 4, n), p


def conditions(p, fit, x):
    """Largest violation of the optimality conditions of least squares, by nonnegative least squares on the cone.

    At the optimum, minus the gradient is a combination of the equalities and of the active rows.
    """
    gradient = fit.matrix.T @ (fit.weights * (fit.matrix @ x - fit.values))
    r, low, high = p.ranged.toarray(), p.lower, p.upper
    at_low, at_high = np.abs(r @ x - low) < 1e-6, np.abs(r @ x - high) < 1e-6
    empty = np.eye(p.cells)[x < 1e-6]
    cone = np.vstack([p.equal.toarray(), -p.equal.toarray(), -r[at_low], r[at_high], -empty])
    return nnls(cone.T, -gradient, maxiter=10_000)[1]


@pytest.mark.parametrize("solver", ["piqp", "clarabel"])
def test_least_squares_meets_the_conditions_of_optimality(rng, monkeypatch, solver):
    monkeypatch.setattr(programs, "PIQP_VARIABLES", 10**9 if solver == "piqp" else 0)
    for _ in range(10):
        _, y, p = overlapping(rng)
        extra = np.vstack([np.eye(8), np.ones((1, 8))])
        fit = Fit(csr_array(extra), np.append(y, y.sum() + 2), rng.uniform(0.3, 2, 9))
        answer = constrained_least_squares(p, fit)
        assert answer.status == "solved"
        assert p.residual(answer.x) < 1e-6
        assert conditions(p, fit, answer.x) < 1e-4


def points(p, y, reach):
    """All whole-number points of a small polyhedron within reach of y, one a row."""
    sides = [np.arange(max(0, int(c) - reach), int(c) + reach + 1) for c in y]
    grid = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, y.size)
    value = grid @ p.matrix.toarray().T
    low, high = p.bounds
    return grid[((value >= low) & (value <= high)).all(axis=1)]


def test_whole_least_absolute_equals_enumeration_and_breaks_ties_by_squares(rng):
    for _ in range(6):
        _, y, p = overlapping(rng, 5)
        fit = identity_fit(y)
        found = points(p, y, 5) - y
        best = min(zip(np.abs(found).sum(axis=1), (found**2).sum(axis=1), strict=True))
        answer = whole_nearest(p, fit)
        assert answer.status == "solved"
        assert answer.objective == pytest.approx(best[0])
        assert ((answer.x - y) ** 2).sum() == pytest.approx(best[1])


def test_whole_least_squares_equals_enumeration(rng):
    for _ in range(6):
        _, y, p = overlapping(rng, 5)
        fit = identity_fit(y)
        centre = constrained_least_squares(p, fit).x
        answer = whole_fit(p, fit, FitLoss.squares(fit.weights), centre)
        assert answer.objective == pytest.approx(((points(p, y, 6) - y) ** 2).sum(axis=1).min())


def test_least_absolute_is_optimal_and_spreads_evenly():
    p = Polyhedron.of(4, [[1, 1, 1, 1]], [10.0], nonnegative=False)
    answer = least_absolute(p, identity_fit(np.array([1.0, 2, 3, 0])))
    np.testing.assert_allclose(answer.x, [2, 3, 4, 1], atol=1e-6)
    assert answer.objective == pytest.approx(4)


def test_least_absolute_is_proved_and_lying_prices_prove_nothing(rng, monkeypatch):
    solve, told = scipy.optimize.linprog, []
    for lie in (1.0, 0.5, -1.0):

        def lying(*given, lie=lie, **more):
            answer = solve(*given, **more)
            answer.eqlin.marginals = lie * answer.eqlin.marginals
            return answer

        monkeypatch.setattr(scipy.optimize, "linprog", lying)
        for size in (1, 10**9):
            _, y, p = overlapping(rng)
            moved = replace(p, **{side: size * getattr(p, side) for side in ("sums", "lower", "upper")})
            answer = least_absolute(moved, identity_fit(size * y + rng.integers(0, 3, 8)))
            told.append((lie == 1.0, answer.gap == 0.0))
    assert all(honest == proved for honest, proved in told)


def test_conflict_is_irreducible_and_empty_when_there_is_none(rng):
    _, _, p = overlapping(rng)
    assert p.conflict() == []
    a = np.vstack([p.equal.toarray(), np.eye(8)[0], np.eye(8)[1], np.eye(8)[0] + np.eye(8)[1]])
    bad = Polyhedron.of(8, a, np.append(p.sums, [2.0, 2.0, 7.0]))
    rows = bad.conflict()
    assert rows
    assert not bad.of_rows(rows).feasible()
    assert all(bad.of_rows([r for r in rows if r != row]).feasible() for row in rows)


def test_a_system_without_whole_solutions_names_its_rows():
    p = Polyhedron.of(2, [[2, 2], [1, 0]], [3.0, 1.0])
    assert p.conflict() == []
    assert p.conflict(integer=True) == [0]


def test_an_inequality_no_point_satisfies():
    p = Polyhedron.of(2, ranged=[[1, 1]], lower=[-np.inf], upper=[-1.0])
    assert p.conflict() == [0]
    assert least_absolute(p, identity_fit(np.zeros(2))).status != "solved"


@pytest.mark.parametrize("far", [20.0, 1e9])
def test_the_optimum_is_found_and_proved_however_far_the_start_is_from_it(far):
    p = Polyhedron.of(2, [[1, 1]], [far])
    answer = whole_fit(p, identity_fit(np.zeros(2)), FitLoss.squares(np.ones(2)), np.zeros(2))
    assert (answer.status, answer.gap, answer.x.tolist()) == (Status.SOLVED, 0.0, [far / 2, far / 2])


def test_no_whole_point_is_not_solved_and_proves_nothing():
    p = Polyhedron.of(2, [[2, 2]], [3.0])
    answer = whole_fit(p, identity_fit(np.zeros(2)), FitLoss.squares(np.ones(2)), np.zeros(2))
    assert (answer.status, answer.gap) == (Status.UNSOLVED, None)


def test_a_missing_solver_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "piqp", None)
    total_too = Fit(csr_array(np.vstack([np.eye(2), np.ones(2)])), np.ones(3), np.ones(3))
    with pytest.raises(TrueupError, match=r"trueup\[solvers\]"):
        constrained_least_squares(Polyhedron.of(2, [[1, 1]], [3.0]), total_too)
    assert constrained_least_squares(Polyhedron.of(2, [[1, 1]], [3.0]), identity_fit(np.ones(2))).gap == 0
