"""Attainable totals against enumeration, and the smallest set that excludes itself."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.kernel.trees import tree
from tests.reference import trees as slow
from trueup.kernel.tree.whole import conflict, propagate


@st.composite
def bounded(draw):
    child_ptr = draw(tree(most_leaves=5))
    n = child_ptr.size - 1
    lower = np.array(draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, 4]), min_size=n, max_size=n)), float)
    width = np.array(draw(st.lists(st.sampled_from([0, 1, 3, 9]), min_size=n, max_size=n)), float)
    return child_ptr, lower, np.minimum(lower + width, 6.0)


@pytest.mark.thorough
@given(bounded())
@settings(max_examples=150, deadline=None)
def test_propagated_bounds_are_the_attainable_totals(case):
    child_ptr, lower, upper = case
    low, high = lower.copy(), upper.copy()
    node = propagate(child_ptr, low, high)
    for v in range(max(node, 0), lower.size):
        wanted = [] if v == node else list(range(int(low[v]), int(high[v]) + 1))
        assert slow.attainable(child_ptr, lower, upper, v, range(40)) == wanted


@pytest.mark.thorough
@given(bounded())
@settings(max_examples=300, deadline=None)
def test_conflict_is_infeasible_and_irreducible(case):
    child_ptr, lower, upper = case
    node = propagate(child_ptr, lower.copy(), upper.copy())
    assume(node >= 0)
    named = conflict(child_ptr, lower, upper, node)

    def feasible(kept):
        low, high = np.zeros(lower.size), np.full(lower.size, np.inf)
        low[kept], high[kept] = lower[kept], upper[kept]
        return propagate(child_ptr, low, high) < 0

    assert not feasible(named)
    for k in range(named.size):
        assert feasible(np.delete(named, k))


def test_positive_exact_node_over_leaves_held_at_zero():
    child_ptr = np.array([1, 3, 5, 5, 5, 5])
    lower, upper = np.zeros(5), np.array([np.inf, np.inf, np.inf, 0.0, 0.0])
    lower[1] = upper[1] = 3.0
    assert propagate(child_ptr, lower.copy(), upper.copy()) == 1
    np.testing.assert_array_equal(conflict(child_ptr, lower, upper, 1), [1, 3, 4])


def test_a_node_may_contradict_itself():
    lower, upper = np.array([0.0, 3.0, 0.0]), np.array([9.0, -1.0, 9.0])
    assert propagate(np.array([1, 3, 3, 3]), lower.copy(), upper.copy()) == 1
    np.testing.assert_array_equal(conflict(np.array([1, 3, 3, 3]), lower, upper, 1), [1])


def test_parent_is_lifted_above_its_exact_children():
    lower, upper = np.array([0.0, 5.0, 4.0]), np.array([np.inf, 5.0, np.inf])
    assert propagate(np.array([1, 3, 3, 3]), lower, upper) == -1
    np.testing.assert_array_equal(lower, [9, 5, 4])


def test_bounds_that_cross_by_rounding_are_equal():
    child_ptr = np.array([1, 11] + [11] * 10)
    lower, upper = np.full(11, 0.1), np.full(11, 0.1)
    lower[0] = upper[0] = 1.0  # ten times 0.1 is not 1 in doubles
    assert propagate(child_ptr, lower, upper) == -1
    assert lower[0] == upper[0] == 1.0
