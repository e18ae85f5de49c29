"""The global nonnegative optimum against enumeration, DAQP, scipy's nnls and its own conditions."""

import daqp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from scipy.optimize import nnls

from benchmarks._nonnegative import nonnegative, optimality_gap
from tests.kernel.large_trees import large, slow_sums
from tests.kernel.trees import problem
from tests.reference import trees as slow
from trueup.kernel.tree import messages, unidentified

CLOSE = {"rtol": 1e-9, "atol": 1e-9}


@pytest.mark.thorough
@given(problem(most_leaves=6))
@settings(max_examples=75, deadline=None)
def test_equals_enumeration_of_active_sets(case):
    child_ptr, variance, y = case
    assume(unidentified(child_ptr, messages(child_ptr, variance)[1]) < 0)
    expected = slow.nonnegative(child_ptr, variance, y)
    for passes in (60, 0):
        x, _ = nonnegative(child_ptr, variance, y, passes=passes)
        np.testing.assert_allclose(x, expected, **CLOSE)
        assert optimality_gap(child_ptr, variance, y, x) < 1e-8


@pytest.mark.thorough
@given(problem(most_leaves=25, exact=False, unmeasured=False))
@settings(max_examples=150, deadline=None)
def test_equals_nnls_and_daqp(case):
    child_ptr, variance, y = case
    s = slow.summing_matrix(child_ptr)
    half = s / np.sqrt(variance)[:, None]
    x, _ = nonnegative(child_ptr, variance, y)
    by_nnls = s @ nnls(half, y / np.sqrt(variance))[0]
    size = s.shape[1]
    by_daqp, _, flag, _ = daqp.solve(
        half.T @ half, -half.T @ (y / np.sqrt(variance)), np.zeros((0, size)),
        np.full(size, 1e30), np.zeros(size), primal_tol=1e-12,
    )  # fmt: skip
    assert flag == 1
    np.testing.assert_allclose(x, by_nnls, **CLOSE)
    np.testing.assert_allclose(x, s @ by_daqp, **CLOSE)


@pytest.mark.thorough
def test_breakpoints_equal_passes_on_a_large_tree(rng):
    child_ptr, variance, y = large(rng)
    x, passes = nonnegative(child_ptr, variance, y)
    by_breakpoints, once = nonnegative(child_ptr, variance, y, passes=0)
    assert passes[0] > 2
    assert once[0] == 1
    np.testing.assert_allclose(x, by_breakpoints, **CLOSE)
    assert optimality_gap(child_ptr, variance, y, x) < 1e-8


def test_the_gap_sees_a_feasible_point_that_is_not_optimal(rng):
    child_ptr, variance, y = large(rng)
    x, _ = nonnegative(child_ptr, variance, y)
    clipped = slow_sums(child_ptr, np.maximum(y, 0))
    assert optimality_gap(child_ptr, variance, y, clipped) > 1.0
    some = np.flatnonzero((x > 1) & (child_ptr[:-1] == child_ptr[1:]))[0]
    moved = x.copy()
    moved[some] += 1e-3
    assert optimality_gap(child_ptr, variance, y, slow_sums(child_ptr, moved)) > 1e-5


def test_a_bad_case_of_passes_is_cut_short():
    """Leaves that fall geometrically make many passes fix few leaves each; breakpoints need one."""
    n = 200
    child_ptr = np.concatenate([[1], np.full(n + 1, n + 1)])
    y = np.append(1.0, -(3.0 ** np.arange(n)))
    variance = np.append(0.0, np.ones(n))
    x, many = nonnegative(child_ptr, variance, y, passes=1000)
    short, few = nonnegative(child_ptr, variance, y, passes=2)
    assert many[0] > 40
    assert few[0] == 3
    np.testing.assert_allclose(x, short, **CLOSE)
