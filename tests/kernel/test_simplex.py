"""The bounded projection against bisection, DAQP and the limits of its variances."""

import daqp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.simplex import project_on_total
from tests.reference import trees as slow


@st.composite
def parts(draw):
    n = draw(st.integers(1, 9))

    def numbers(*choices):
        return np.array(draw(st.lists(st.sampled_from(choices), min_size=n, max_size=n)), float)

    z = numbers(-30, -3, -1, 0, 0.5, 1, 1, 2, 7, 100)
    spread = numbers(0.1, 1, 1, 1, 2, 50)
    lower = numbers(-np.inf, -2, 0, 0, 0, 1)
    upper = np.maximum(lower, numbers(np.inf, np.inf, 5, 1, 0))
    low, high = np.maximum(lower, -200).sum(), np.minimum(upper, 200).sum()
    return z, spread, lower, upper, low + draw(st.sampled_from([0.0, 0.01, 0.3, 0.5, 1.0])) * (high - low)


@pytest.mark.thorough
@given(parts())
@settings(max_examples=300, deadline=None)
def test_projection_equals_bisection(case):
    z, spread, lower, upper, total = case
    x = project_on_total(spread, lower, upper, total, z)
    assert (x >= lower).all()
    assert (x <= upper).all()
    np.testing.assert_allclose(x, slow.project(spread, lower, upper, total, z), rtol=1e-9, atol=1e-6)


@pytest.mark.thorough
@given(parts())
@settings(max_examples=200, deadline=None)
def test_projection_equals_daqp(case):
    z, spread, lower, upper, total = case
    n = z.size
    high, low = np.append(np.minimum(upper, 1e6), total), np.append(np.maximum(lower, -1e6), total)
    sense = np.append(np.zeros(n, np.int32), 5).astype(np.int32)
    expected, _, flag, _ = daqp.solve(
        np.diag(1 / spread), -z / spread, np.ones((1, n)), high, low, sense, primal_tol=1e-12
    )
    assert flag == 1
    np.testing.assert_allclose(
        project_on_total(spread, lower, upper, total, z), expected, rtol=1e-9, atol=1e-8
    )


@pytest.mark.thorough
@given(parts(), st.integers(0, 2**9 - 1))
@settings(max_examples=200, deadline=None)
def test_infinite_variance_is_the_limit_of_large_ones(case, which):
    z, spread, lower, upper, total = case
    unmeasured = np.array([which >> k & 1 for k in range(z.size)], bool)
    z = np.where(unmeasured, 0, z)
    large = np.where(unmeasured, 1e10, spread)
    x = project_on_total(np.where(unmeasured, np.inf, spread), lower, upper, total, z)
    np.testing.assert_allclose(x, project_on_total(large, lower, upper, total, z), rtol=1e-5, atol=1e-5)


def test_exact_parts_stay_and_the_others_adjust():
    x = project_on_total(
        np.array([0.0, 1.0, 1.0]), np.zeros(3), np.full(3, np.inf), 10.0, np.array([4.0, 1.0, 2.0])
    )
    np.testing.assert_allclose(x, [4, 2.5, 3.5])


def test_rows_are_projected_one_by_one(rng):
    z = rng.normal(size=(5, 4))
    args = (np.ones(4), np.zeros(4), np.full(4, np.inf), 3.0)
    np.testing.assert_array_equal(project_on_total(*args, z), [project_on_total(*args, row) for row in z])
