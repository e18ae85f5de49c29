"""Least squares on trees against dense algebra, in every limit of the variances."""

import numpy as np
import pytest
from hypothesis import assume, given, settings

from tests.kernel.trees import problem
from tests.reference import trees as slow
from trueup.kernel.tree import least_squares, messages, posterior_variances, unidentified

CLOSE = {"rtol": 1e-9, "atol": 1e-9}


@pytest.mark.thorough
@given(problem())
@settings(max_examples=200, deadline=None)
def test_solution_and_variances_equal_dense_algebra(case):
    child_ptr, variance, y = case
    expected, covariance = slow.solution_and_covariance(child_ptr, variance, y)
    _, spread = messages(child_ptr, variance)
    assert (expected is None) == (unidentified(child_ptr, spread) >= 0)
    assume(expected is not None)
    np.testing.assert_allclose(least_squares(child_ptr, variance, y), expected, **CLOSE)
    np.testing.assert_allclose(posterior_variances(child_ptr, spread), np.diag(covariance), **CLOSE)


@given(problem(unmeasured=False))
@settings(max_examples=100, deadline=None)
def test_limits_are_the_limits(case):
    """Variances 1e-9 and 1e12 give nearly what 0 and infinity give."""
    child_ptr, variance, y = case
    near = np.where(variance == 0, 1e-9, np.where(variance == 200, 1e12, variance))
    far = np.where(variance == 200, np.inf, variance)
    assume(unidentified(child_ptr, messages(child_ptr, far)[1]) < 0)
    np.testing.assert_allclose(
        least_squares(child_ptr, near, y), least_squares(child_ptr, far, y), rtol=1e-4, atol=1e-4
    )


def test_exact_values_stay_to_the_last_bit():
    child_ptr = np.array([1, 3, 3, 3])
    x = least_squares(child_ptr, np.array([0.0, 1.0, 1.0]), np.array([2.0**53 - 1, 0.1, 0.2]))
    assert x[0] == 2.0**53 - 1


def test_unmeasured_values_may_be_nan():
    child_ptr = np.array([1, 3, 3, 3])
    x = least_squares(child_ptr, np.array([1.0, np.inf, 1.0]), np.array([10.0, np.nan, 4.0]))
    np.testing.assert_array_equal(x, [10, 6, 4])


@given(problem(), problem())
@settings(max_examples=30, deadline=None)
def test_rows_of_a_batch_do_not_touch_each_other(case, other):
    child_ptr, variance, y = case
    rows = np.stack([y, 2 * y, y[::-1]])
    before = rows.copy()
    solved = least_squares(child_ptr, variance, rows)
    np.testing.assert_array_equal(rows, before)
    for row, x in zip(rows, solved):
        np.testing.assert_array_equal(x, least_squares(child_ptr, variance, row))
