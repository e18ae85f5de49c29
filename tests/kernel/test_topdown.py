"""The top-down default: against a slow twin, its promises, and its refusals."""

import numpy as np
from hypothesis import assume, given, settings

from tests.kernel.trees import problem
from tests.reference import trees as slow
from trueup.kernel.tree.least_squares import aggregate, least_squares, messages, sweep_up, unidentified
from trueup.kernel.tree.topdown import raw_weights, topdown


def run(child_ptr, variance, y, **options):
    return topdown(child_ptr, variance, np.zeros(y.size), np.full(y.size, np.inf), y, **options)


@given(problem(exact=False, unmeasured=False))
@settings(max_examples=150, deadline=None)
def test_equals_the_slow_twin(case):
    child_ptr, variance, y = case
    gain, spread = messages(child_ptr, variance)
    estimates = y.copy()
    sweep_up(child_ptr, gain, estimates)
    expected = slow.topdown(child_ptr, estimates, spread, np.zeros(y.size), np.full(y.size, np.inf))
    np.testing.assert_allclose(run(child_ptr, variance, y)[0], expected, rtol=1e-9, atol=1e-7)


@given(problem())
@settings(max_examples=300, deadline=None)
def test_adds_up_is_nonnegative_and_keeps_exact_values(case):
    child_ptr, variance, y = case
    for weights in (None, raw_weights(variance)):
        x, bad = run(child_ptr, variance, y, weights=weights)
        assert bad == -1
        assert x.min() >= 0
        np.testing.assert_allclose(aggregate(child_ptr, x.copy()), x, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(x[variance == 0], y[variance == 0])


@given(problem())
@settings(max_examples=150, deadline=None)
def test_without_active_bounds_it_is_least_squares(case):
    child_ptr, variance, y = case
    assume(unidentified(child_ptr, messages(child_ptr, variance)[1]) < 0)
    free = np.full(y.size, np.inf)
    x, bad = topdown(child_ptr, variance, -free, free, y)
    assert bad == -1
    np.testing.assert_allclose(x, least_squares(child_ptr, variance, y), rtol=1e-9, atol=1e-9)


def test_contradictions_name_the_node():
    child_ptr = np.array([1, 3, 5, 5, 5, 5])
    variance = np.array([1.0, 0.0, 1.0, 0.0, 0.0])
    y = np.array([9.0, 4.0, 4.0, 1.0, 2.0])
    assert run(child_ptr, variance, y)[1] == 1
    y[1] = 3.0
    assert run(child_ptr, variance, y)[1] == -1
    y[3] = -1.0
    assert run(child_ptr, variance, y)[1] == 3


def test_upper_bounds_inside_the_tree_hold():
    child_ptr = np.array([1, 3, 5, 5, 5, 5])
    upper = np.array([np.inf, 4.0, np.inf, np.inf, np.inf])
    x, bad = topdown(child_ptr, np.ones(5), np.zeros(5), upper, np.array([20.0, 10, 10, 5, 5]))
    assert bad == -1
    assert x[1] == 4.0
    np.testing.assert_allclose(x[1:3].sum(), x[0])
    np.testing.assert_allclose(x[3:5].sum(), x[1])
