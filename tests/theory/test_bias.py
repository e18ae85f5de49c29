"""Theorems 7 and 11 against the projections of the kernel."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from papers.simplex import project_on_total
from trueup.errors import SpecError
from trueup.kernel.tree import least_squares, messages, posterior_variances
from trueup.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from trueup.theory import error_operator, nonnegative_bias_bound, projection_bias, projection_covariance

COUNTS = np.array([2.0, 3.0, 5.0, 9.0, 14.0])


def noise(law, shape, rng):
    return law.sample(int(np.prod(shape)), rng.bytes).reshape(shape).astype(float)


def nonnegative(noisy, total):
    """Program (P+) with one known total."""
    n = noisy.shape[1]
    return project_on_total(np.ones(n), np.zeros(n), np.full(n, np.inf), float(total), noisy)


def z_scores(errors):
    return errors.mean(0) / (errors.std(0) / np.sqrt(len(errors)))


@pytest.mark.parametrize("law", [DiscreteLaplace("1/4"), DiscreteGaussian("9")])
def test_projection_without_bounds_is_unbiased_and_with_them_is_not(law, rng):
    noisy = COUNTS + noise(law, (40_000, 5), rng)
    star = np.array([1, 6, 6, 6, 6, 6, 6])
    nodes = np.column_stack([np.full(len(noisy), COUNTS.sum()), noisy])
    equal = least_squares(star, np.r_[0.0, np.ones(5)], nodes)[:, 1:] - COUNTS
    assert np.abs(z_scores(equal)).max() < 5.2
    assert np.abs(z_scores(nonnegative(noisy, COUNTS.sum()) - COUNTS)).max() > 20
    np.testing.assert_array_equal(projection_bias(np.ones((1, 5))), 0)


def test_noise_with_a_mean_passes_through_the_operator(rng):
    a = rng.integers(0, 2, (3, 7)).astype(float)
    mean, variances = rng.normal(size=7), rng.uniform(0.5, 3, 7)
    x = rng.normal(size=7)
    noisy = x + mean
    gap = a @ (noisy - x)
    projected = noisy - variances * (a.T @ np.linalg.lstsq((a * variances) @ a.T, gap, rcond=None)[0])
    np.testing.assert_allclose(projection_bias(a, mean, variances), projected - x, atol=1e-10)


def test_the_operator_projects_on_the_solutions_and_needs_no_independent_rows(rng):
    a = rng.normal(size=(2, 6))
    operator = error_operator(np.vstack([a, a[0] - a[1]]), rng.uniform(1, 2, 6))
    np.testing.assert_allclose(operator @ operator, operator, atol=1e-12)
    np.testing.assert_allclose(a @ operator, 0, atol=1e-12)
    assert np.trace(operator) == pytest.approx(4)


def test_covariance_is_that_of_the_trees(rng):
    """Two states of two and three counties, the nation known, everything else measured."""
    tree = np.array([1, 3, 5, 8, 8, 8, 8, 8, 8])
    variances = np.r_[0.0, rng.uniform(1, 4, 7)]
    a = np.array([[1, 1, 0, 0, 0, 0, 0], [1, 0, -1, -1, 0, 0, 0], [0, 1, 0, 0, -1, -1, -1]], float)
    closed = posterior_variances(tree, messages(tree, variances)[1])[1:]
    np.testing.assert_allclose(np.diag(projection_covariance(a, variances[1:])), closed, rtol=1e-10)


def test_wrong_weights_cost_variance(rng):
    a, variances = np.ones((1, 4)), np.array([1.0, 2.0, 5.0, 10.0])
    best = np.trace(projection_covariance(a, variances))
    assert np.trace(projection_covariance(a, variances, np.ones(4))) > best


@pytest.mark.parametrize(
    ("law", "draw"),
    [
        (Laplace("2"), lambda rng, shape: rng.laplace(0, 2, shape)),
        (DiscreteLaplace("1/2"), None),
        (Gaussian("9"), lambda rng, shape: rng.normal(0, 3, shape)),
        (DiscreteGaussian("4"), None),
    ],
)
def test_the_bias_is_below_its_bound_and_the_bound_falls_with_the_smallest_count(law, draw, rng):
    bounds = []
    for shift in (0, 10, 20, 40):
        counts = COUNTS + shift
        shape = (20_000, 5)
        errors = (
            nonnegative(counts + (draw(rng, shape) if draw else noise(law, shape, rng)), counts.sum())
            - counts
        )
        bound = nonnegative_bias_bound(law, 5, counts.min(), counts.sum() - counts.min())
        errors_of_means = errors.std(0) / np.sqrt(len(errors))
        assert (np.abs(errors.mean(0)) <= bound + 5.2 * errors_of_means).all()
        bounds.append(bound)
    assert all(small < large for large, small in pairwise(bounds))
    assert bounds[-1] < 0.5


def test_the_euclidean_ball_gives_gaussian_noise_a_better_bound():
    """The same variance: by its own ball the bound is lower than Laplace noise's."""
    gaussian = nonnegative_bias_bound(Gaussian("50"), 33, 100, 1000)
    assert gaussian < nonnegative_bias_bound(Laplace("5"), 33, 100, 1000)


@pytest.mark.parametrize(
    "call",
    [
        lambda: error_operator([[1, 1]], [1.0, -1.0]),
        lambda: error_operator([[1, 1]], [1.0, np.inf]),
        lambda: error_operator([[1, 1]], [1.0]),
        lambda: nonnegative_bias_bound(Laplace("1"), 3, -1, 10),
        lambda: nonnegative_bias_bound(Laplace("1"), 3, 1, float("nan")),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(SpecError):
        call()
