"""Controlled rounding: least cost against enumeration, promises on large trees, no favour by position."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernel.large_trees import large, slow_sums
from tests.kernel.trees import problem
from tests.reference import trees as slow
from trueup.kernel.tree.topdown import topdown
from trueup.kernel.tree.whole import controlled_rounding


@pytest.mark.thorough
@given(problem(most_leaves=8, unmeasured=False), st.integers(0, 10), st.integers(0, 2**64 - 1))
@settings(max_examples=200, deadline=None)
def test_cost_equals_enumeration(case, tenths, seed):
    child_ptr, variance, y = case
    x = slow_sums(child_ptr, np.abs(y) * tenths / 10)
    weight = 1 / (1 + variance)
    rounded = controlled_rounding(child_ptr, weight, x, seed)
    assert abs(rounded - x).max() < 1
    np.testing.assert_array_equal(slow.aggregate(child_ptr, rounded.copy()), rounded)
    cost = np.sum(weight * (rounded - x) ** 2)
    np.testing.assert_allclose(
        cost, slow.controlled_rounding_cost(child_ptr, weight, x), rtol=1e-7, atol=1e-7
    )


@pytest.mark.thorough
@given(problem(most_leaves=20), st.floats(-1e-9, 1e-9))
@settings(max_examples=100, deadline=None)
def test_integers_that_are_nearly_integers_come_back(case, error):
    child_ptr, _, y = case
    x = slow_sums(child_ptr, y)
    np.testing.assert_array_equal(
        controlled_rounding(child_ptr, np.ones(x.size), x * (1 + error / 40) + error / 2), x
    )


@pytest.mark.thorough
@given(problem(most_leaves=12), st.lists(st.sampled_from([0, 1, 3, np.inf]), min_size=80, max_size=80))
@settings(max_examples=150, deadline=None)
def test_integer_bounds_survive_rounding(case, widths):
    child_ptr, variance, y = case
    lower = slow_sums(child_ptr, np.where(variance == 0, y, np.abs(y) // 3))
    upper = lower + np.array(widths[: y.size])
    x, bad = topdown(child_ptr, np.maximum(variance, 0.5), lower, upper, y)
    assert bad == -1
    rounded = controlled_rounding(child_ptr, np.ones(y.size), x)
    assert ((lower <= rounded) & (rounded <= upper)).all()


def test_rounding_errors_never_break_a_sum(rng):
    """Sums perturbed at the edge of the tolerance: always additive, never a count away."""
    child_ptr, _, y = large(rng)
    for size in 10.0 ** np.arange(-12, -6):
        x = slow_sums(child_ptr, np.abs(y)) + rng.uniform(-size, size, y.size)
        rounded = controlled_rounding(child_ptr, np.ones(y.size), x)
        np.testing.assert_array_equal(slow.aggregate(child_ptr, rounded.copy()), rounded)


def test_large_tree_keeps_its_promises(rng):
    child_ptr, variance, y = large(rng)
    x, bad = topdown(child_ptr, variance, np.zeros(y.size), np.full(y.size, np.inf), y)
    assert bad == -1
    rounded = controlled_rounding(child_ptr, 1 / variance, x)
    assert rounded.dtype == np.int64
    assert rounded.min() >= 0
    assert abs(rounded - x).max() < 1
    np.testing.assert_array_equal(slow.aggregate(child_ptr, rounded.copy()), rounded)


def test_counts_of_hundreds_of_millions(rng):
    child_ptr = np.array([1, 51] + [51] * 50)
    x = slow_sums(child_ptr, rng.uniform(0, 1e8, 51))
    rounded = controlled_rounding(child_ptr, np.ones(51), x)
    assert rounded[0] == rounded[1:].sum()
    assert abs(rounded - x).max() < 1


def test_ties_favour_no_position():
    """Ten equal parts of which one is rounded up: each is chosen equally often over seeds.

    Counts are multinomial; with 20,000 seeds a part's share has standard error .0021, and the bound at 5.5
    of them has false alarm 4e-7 in all. A tie settled by position gives one part the share 1.
    """
    child_ptr = np.array([1, 11] + [11] * 10)
    x = np.append(1.0, np.full(10, 0.1))
    seeds = 20_000
    rounded = controlled_rounding(child_ptr, np.ones(11), np.tile(x, (seeds, 1)), np.arange(seeds))
    shares = rounded[:, 1:].mean(axis=0)
    assert (rounded[:, 0] == 1).all()
    assert abs(shares - 0.1).max() < 5.5 * np.sqrt(0.09 / seeds)


def test_the_seed_settles_everything():
    child_ptr = np.array([1, 11] + [11] * 10)
    x = np.append(5.0, np.full(10, 0.5))
    same = controlled_rounding(child_ptr, np.ones(11), np.tile(x, (2, 1)), 7)
    np.testing.assert_array_equal(same[0], same[1])
    assert (controlled_rounding(child_ptr, np.ones(11), x, 8) != same[0]).any()
