"""The top-down default: against a slow twin, its promises, and its refusals."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from scipy.optimize import brentq

from tests.kernel.trees import problem
from tests.reference import trees as slow
from trueup.errors import SpecError
from trueup.kernel.tree import least_squares, messages, sweep_up, unidentified
from trueup.kernel.tree.topdown import topdown


def run(child_ptr, variance, y, **options):
    return topdown(child_ptr, variance, np.zeros(y.size), np.full(y.size, np.inf), y, **options)


@pytest.mark.thorough
@given(problem(exact=False, unmeasured=False))
@settings(max_examples=150, deadline=None)
def test_equals_the_slow_twin(case):
    child_ptr, variance, y = case
    gain, spread = messages(child_ptr, variance)
    estimates = y.copy()
    sweep_up(child_ptr, gain, estimates)
    expected = slow.topdown(child_ptr, estimates, spread, np.zeros(y.size), np.full(y.size, np.inf))
    np.testing.assert_allclose(run(child_ptr, variance, y)[0], expected, rtol=1e-9, atol=1e-7)


@pytest.mark.thorough
@given(problem())
@settings(max_examples=300, deadline=None)
def test_adds_up_is_nonnegative_and_keeps_exact_values(case):
    child_ptr, variance, y = case
    for shrink in (False, True):
        x, bad = run(child_ptr, variance, y, shrink=shrink)
        assert bad == -1
        assert x.min() >= 0
        np.testing.assert_allclose(slow.aggregate(child_ptr, x.copy()), x, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(x[variance == 0], y[variance == 0])


@pytest.mark.thorough
@given(problem())
@settings(max_examples=150, deadline=None)
def test_without_active_bounds_it_is_least_squares(case):
    child_ptr, variance, y = case
    assume(unidentified(child_ptr, messages(child_ptr, variance)[1]) < 0)
    free = np.full(y.size, np.inf)
    for shrink in (False, True):
        x, bad = topdown(child_ptr, variance, -free, free, y, shrink=shrink)
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


@pytest.mark.parametrize("sizes", [(3, 3, 2), (3, 9000, 3), (9000, 9000, 3), (3, 3, 5)])
def test_arrays_that_are_not_of_the_tree_are_refused(sizes):
    """Longer bounds were read beyond the tree, without an end."""
    lower, upper, values = (np.full(size, fill) for size, fill in zip(sizes, (0.0, np.inf, 1.0)))
    with pytest.raises(SpecError, match="one upper bound for each node"):
        topdown(np.array([1, 3, 3, 3]), np.ones(3), lower, upper, values)


def test_upper_bounds_inside_the_tree_hold():
    child_ptr = np.array([1, 3, 5, 5, 5, 5])
    upper = np.array([np.inf, 4.0, np.inf, np.inf, np.inf])
    x, bad = topdown(child_ptr, np.ones(5), np.zeros(5), upper, np.array([20.0, 10, 10, 5, 5]))
    assert bad == -1
    assert x[1] == 4.0
    np.testing.assert_allclose(x[1:3].sum(), x[0])
    np.testing.assert_allclose(x[3:5].sum(), x[1])


def shrunk_slowly(spread, estimates, total):
    """The rule for one parent by a general solver, with lower bounds of zero: two equations in two prices."""
    above = lambda p: np.maximum(estimates + p * spread, 0)  # noqa: E731
    reach = 10 * (np.abs(estimates).max() + total + 1) / spread.min()
    price = float(brentq(lambda p: above(p).sum() - total, -reach, reach, xtol=1e-14))  # pyright: ignore[reportArgumentType]
    threshold = max((total - estimates.sum()) / spread.sum() - price, 0)
    share = 0.1 * np.minimum(1, threshold * np.sqrt(spread))

    def left(p):
        y = above(p)
        return y * (1 - share * 4 * spread / (4 * spread + y**2))

    return left(brentq(lambda p: left(p).sum() - total, price - 1, price + reach, xtol=1e-14))


def test_shrunk_counts_equal_a_general_solvers(rng):
    """Where nothing is shrunk they differ by counts; below a variance of 36 nothing is."""
    apart = 0.0
    for _ in range(200):
        n = int(rng.integers(2, 12))
        spread = rng.gamma(2, 40, n) + 36
        z = rng.poisson(rng.gamma(0.3, 60, n)) + rng.normal(0, np.sqrt(spread))
        total = rng.gamma(1, 60) + 0.1
        child_ptr = np.append(1, np.full(n + 1, n + 1))
        weights = np.append(1.0, np.ones(n)), np.append(1.0, spread)
        x, kept = (
            run(child_ptr, np.append(1.0, spread), np.append(total, z), weights=weights, shrink=shrink)[0][1:]
            for shrink in (True, False)
        )
        np.testing.assert_allclose(x, shrunk_slowly(spread, z, total), rtol=1e-6, atol=1e-6)
        apart = max(apart, np.abs(x - kept).max())
        fine = weights[0], weights[1] / spread.max() * 35
        x, kept = (
            run(child_ptr, fine[1], np.append(total, z), weights=fine, shrink=shrink)[0]
            for shrink in (True, False)
        )
        np.testing.assert_array_equal(x, kept)
    assert apart > 0.5


def sparse_errors(rng, rule):
    """Mean squared errors of 160 releases of 20 parents with 50 places each, nine in ten empty."""
    child_ptr = np.append(1 + np.append(0, 20 + 50 * np.arange(20)), np.full(1001, 1021))
    child_ptr[0] = 1
    truth = np.zeros(1021)
    truth[21:] = np.floor(rng.lognormal(2.4, 1.1, 1000)) * (rng.random(1000) > 0.9)
    slow.aggregate(child_ptr, truth)
    y = truth + rng.normal(0, 8.0, (160, 1021))
    bounds = np.zeros(1021), np.full(1021, np.inf)
    errors = [
        (topdown(child_ptr, np.full(1021, 64.0), *bounds, y, shrink=shrink)[0] - truth) ** 2
        for shrink in rule
    ]
    return [e[:, 21:].mean(axis=1) for e in errors]


def test_shrunk_counts_of_sparse_trees_err_less(rng):
    """By 5.3 standard errors of the paired difference, 17 to 25 expected; without the rule there is no difference."""
    kept, shrunk, again = sparse_errors(rng, (False, True, False))
    score = (kept - shrunk).mean() / ((kept - shrunk).std(ddof=1) / np.sqrt(160))
    assert score > 5.3
    np.testing.assert_array_equal(kept, again)
