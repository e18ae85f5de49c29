"""The integer optimum against enumeration, and its certificate against perturbations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernel.large_trees import large
from tests.kernel.trees import problem
from tests.reference import trees as slow
from trueup.kernel.tree.bounds import propagate
from trueup.kernel.tree.integer import best_move, integer_optimum
from trueup.kernel.tree.least_squares import aggregate
from trueup.kernel.tree.nonnegative import nonnegative

TOP = 6


def weights(variance, kind):
    weight = np.where((variance > 0) & np.isfinite(variance), 1 / np.maximum(variance, 0.1), 0.0)
    return {"squares": (weight, 0 * weight), "absolute": (0 * weight, weight), "both": (weight, 3 * weight)}[
        kind
    ]


@pytest.mark.thorough
@given(
    problem(most_leaves=4),
    st.sampled_from(["squares", "absolute", "both"]),
    st.integers(0, 2**32),
    st.lists(st.sampled_from([np.inf, np.inf, 1, 3]), min_size=40, max_size=40),
)
@settings(max_examples=75, deadline=None)
def test_equals_enumeration(case, kind, seed, limits):
    """Values are kept small enough that every optimum has leaves of at most TOP."""
    child_ptr, variance, y = case
    y, exact = np.minimum(y, TOP / 2), variance == 0
    y[exact] = 0.0
    square, absolute = weights(variance, kind)
    lower, upper = np.zeros(y.size), np.minimum(np.array(limits[: y.size]), TOP)
    upper[exact] = 0.0
    low, high = lower.copy(), upper.copy()
    assert propagate(child_ptr, low, high) == -1
    expected = slow.integer_cost(child_ptr, square, absolute, y, lower, upper, TOP)
    for start in (y, np.zeros(y.size), np.full(y.size, 3.7)):
        found, _ = integer_optimum(child_ptr, square, absolute, y, low, high, start, seed)
        cost = np.sum(square * (found - y) ** 2 + absolute * abs(found - y))
        np.testing.assert_allclose(cost, expected, rtol=1e-9, atol=1e-9)
        assert ((lower <= found) & (found <= upper)).all()
        assert best_move(child_ptr, square, absolute, y, low, high, found) < 1e-9


def test_large_tree_is_certified_and_no_worse_than_rounding(rng):
    child_ptr, variance, y = large(rng)
    square, none = 1 / variance, np.zeros(y.size)
    x, _ = nonnegative(child_ptr, variance, y)
    top = np.full(y.size, np.inf)
    found, rounds = integer_optimum(child_ptr, square, none, y, none, top, x)
    np.testing.assert_array_equal(aggregate(child_ptr, found.copy()), found)
    assert best_move(child_ptr, square, none, y, none, top, found) < 1e-9
    assert np.sum(square * (found - y) ** 2) >= np.sum(square * (x - y) ** 2)
    assert rounds < 10
    far, _ = integer_optimum(child_ptr, square, none, y, none, top, np.full(y.size, 60.0), seed=5)
    np.testing.assert_allclose(np.sum(square * (far - y) ** 2), np.sum(square * (found - y) ** 2), rtol=1e-12)


def test_the_certificate_sees_one_count_in_the_wrong_place(rng):
    child_ptr, variance, y = large(rng)
    square, none = 1 / variance, np.zeros(y.size)
    top = np.full(y.size, np.inf)
    x, _ = nonnegative(child_ptr, variance, y)
    found, _ = integer_optimum(child_ptr, square, none, y, none, top, x)
    leaves = np.flatnonzero((child_ptr[:-1] == child_ptr[1:]) & (found > 3))
    found[leaves[0]] += 3
    found[leaves[-1]] -= 3
    assert best_move(child_ptr, square, none, y, none, top, aggregate(child_ptr, found)) > 1e-6


def test_exact_totals_inside_the_tree_are_kept(rng):
    child_ptr, variance, y = large(rng)
    lower, upper = np.zeros(y.size), np.full(y.size, np.inf)
    lower[1:21] = upper[1:21] = np.maximum(y[1:21], 0) + 7
    assert propagate(child_ptr, lower, upper) == -1
    square = 1 / variance
    square[1:21] = 0
    found, _ = integer_optimum(child_ptr, square, np.zeros(y.size), y, lower, upper, y)
    np.testing.assert_array_equal(found[1:21], lower[1:21])
    assert best_move(child_ptr, square, np.zeros(y.size), y, lower, upper, found) < 1e-9
