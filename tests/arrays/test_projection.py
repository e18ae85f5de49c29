"""Projections beside enumeration: every set of counts at a bound is tried, and the nearest feasible point kept."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array

from trueup.arrays import project
from trueup.errors import InfeasibleError, SpecError


def enumerated(y, matrix, sums, weights, upper):
    """Least squares with some counts free, others at 0 or at their upper bound: the best feasible of all choices."""
    n, best, least = y.size, None, np.inf
    for sides in product((0, 1, 2) if upper is not None else (0, 1), repeat=n):
        side = np.array(sides)
        held = np.where(side == 2, 0.0 if upper is None else upper, 0.0)
        free = side == 0
        x = held.copy()
        if free.any():
            a = matrix[:, free]
            gap = sums - matrix @ np.where(free, y, held)
            spread = a / weights[free]
            x[free] = y[free] + spread.T @ np.linalg.pinv(spread @ a.T) @ gap
        lowest = -1e-9, np.inf if upper is None else upper + 1e-9
        inside = (x >= lowest[0]).all() and (x <= lowest[1]).all()
        loss = weights @ (x - y) ** 2
        if inside and np.abs(matrix @ x - sums).max() < 1e-7 and loss < least - 1e-12:
            best, least = x, loss
    return best


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(4))
def test_50_projections_each_are_those_of_enumeration(rng, part):
    for i in range(50):
        n, m = int(rng.integers(2, 7)), int(rng.integers(1, 4))
        matrix = rng.integers(-5, 6, (m, n)).astype(float)
        matrix = np.vstack([matrix, matrix[0] * 2]) if i % 3 == 0 else matrix
        x, weights = rng.integers(0, 5, n).astype(float), rng.uniform(0.3, 3, n)
        y, upper = x + 3 * rng.normal(size=n), x + 1 if i % 2 and n < 6 else None
        given = csr_array(matrix) if i % 2 else matrix
        found = project(y, given, matrix @ x, nonnegative=True, weights=weights, upper=upper)
        expected = enumerated(y, matrix, matrix @ x, weights, upper)
        assert (found.status, found.gap) == ("solved", 0)
        np.testing.assert_allclose(found.x, expected, atol=1e-9)


def test_program_p_is_the_weighted_pseudoinverse(rng):
    for _ in range(30):
        matrix, weights = rng.integers(-5, 6, (3, 8)).astype(float), rng.uniform(0.3, 3, 8)
        y, b = rng.normal(size=8) * 10, rng.normal(size=3)
        spread = matrix / weights
        expected = y + spread.T @ np.linalg.solve(spread @ matrix.T, b - matrix @ y)
        np.testing.assert_allclose(project(y, matrix, b, weights=weights).x, expected, atol=1e-9)


def test_whole_points_are_the_nearest_ones(rng):
    for _ in range(10):
        x = rng.integers(0, 4, 4)
        matrix, y = rng.integers(0, 2, (2, 4)), x + rng.integers(-3, 4, 4)
        every = np.array(list(product(range(12), repeat=4)))
        every = every[(every @ matrix.T == matrix @ x).all(axis=1)]
        for norm, power in (("l2", 2), ("l1", 1)):
            least = (np.abs(every - y) ** power).sum(axis=1).min()
            found = project(y, matrix, matrix @ x, nonnegative=True, norm=norm, whole="optimal")
            assert found.x.dtype == np.int64
            assert (np.abs(found.x - y) ** power).sum() == least


def test_l1_is_no_further_than_any_vertex(rng):
    y, matrix = np.array([5.0, 4.0, -3.0]), np.ones((1, 3))
    found = project(y, matrix, [9.0], nonnegative=True, norm="l1")
    assert np.abs(found.x - y).sum() == pytest.approx(3.0)
    np.testing.assert_allclose(found.x, [5.0, 4.0, 0.0], atol=1e-9)


def test_rows_between_limits_hold(rng):
    found = project([5, 1, 1], R=[[1, 1, 0], [0, 1, -1]], least=[-np.inf, 1], most=[4, np.inf])
    assert found.residual < 1e-9
    assert found.x[0] + found.x[1] <= 4 + 1e-9
    assert found.x[1] - found.x[2] >= 1 - 1e-9


@pytest.mark.parametrize("kind", ["0/1", "signed", "real"])
def test_20_dense_equalities_over_200_counts_are_solved(rng, kind):
    matrix = {"0/1": rng.integers(0, 2, (20, 200)), "signed": rng.integers(-3, 4, (20, 200))}.get(
        kind, rng.normal(size=(20, 200))
    )
    x = rng.integers(0, 10, 200)
    found = project(x + rng.normal(size=200) * 3, matrix, matrix @ x, nonnegative=True)
    assert (found.status, found.gap) == ("solved", 0)
    assert found.residual < 1e-9


@pytest.mark.slow
def test_a_search_that_ends_early_gives_its_point_and_says_so(rng):
    matrix, x = rng.integers(0, 2, (20, 200)), rng.integers(0, 10, 200)
    y = x + rng.integers(-5, 6, 200)
    found = project(y, matrix, matrix @ x, nonnegative=True, whole=True, seconds=30)
    assert found.x.dtype == np.int64
    assert (matrix @ found.x == matrix @ x).all() or found.status != "solved"


@pytest.mark.parametrize(
    ("arguments", "options", "error", "said"),
    [
        (([1, 2], [[1, 1]], [-1]), {"nonnegative": True}, InfeasibleError, "row 0 of A"),
        (([1, 2], [[1, 1], [1, 1]], [1, 2]), {}, InfeasibleError, "row 0 of A, row 1 of A"),
        (([1, 2], [[2, 2]], [3]), {"whole": True, "nonnegative": True}, InfeasibleError, "row 0 of A"),
        (([1, 2], [[1, 1, 1]], [3]), {}, SpecError, "3 columns"),
        (([1, 2], [[1, 1]], [3, 4]), {}, SpecError, "b have shape"),
        (([1, np.nan], [[1, 1]], [3]), {}, SpecError, "not all finite"),
        ((["a", 2], [[1, 1]], [3]), {}, SpecError, "not numbers"),
        (([1, 2], [[1, np.inf]], [3]), {}, SpecError, "not finite"),
        (([1, 2], [[1, 1]], [3]), {"weights": [1, 0]}, SpecError, "weight"),
        (([1, 2], [[1, 1]], [3]), {"weights": [1, 1, 1]}, SpecError, "weights have shape"),
        (([1, 2], [[1, 1]], [3]), {"norm": "l3"}, SpecError, "norm"),
        (([1, 2], [[1, 1]], [3]), {"lower": [3, 3], "upper": [2, 4]}, SpecError, "limit"),
        (([1, 2], [[1, 1]], [3]), {"lower": [3, 3, 3]}, SpecError, "lower have shape"),
        (([1, 2], [[1, 1]], [3]), {"lower": np.inf}, SpecError, "no number lies between lower and upper"),
        (([1, 2], [[1, 1]], [3]), {"lower": "x"}, SpecError, "lower are not numbers"),
        (([1, 2],), {"R": [[1, -1]], "least": [np.inf]}, SpecError, "no number lies between least and most"),
        (([1, 2],), {"least": [1]}, SpecError, "without the matrix R"),
        (([1, 2], [[6, 10]], [3]), {"whole": "optimal"}, InfeasibleError, "divides all"),
        (([1, 2], [[1, 1], [1]], [3, 1]), {}, SpecError, "A is not a matrix"),
        (([1, 2], [["a", 1]], [3]), {}, SpecError, "A is not a matrix"),
        (([1, 2], [[1e300, 1]], [3]), {}, SpecError, "beyond"),
        (([1e300, 2], [[1, 1]], [3]), {}, SpecError, "beyond"),
        (([10**400, 2], [[1, 1]], [3]), {}, SpecError, "not numbers"),
        (([1e25, 2],), {"whole": True}, SpecError, "2.62 or more"),
        (([1, 2], [[1, 1]], [3]), {"whole": "best"}, SpecError, "whole is 'best'"),
        (([1, 2], [[1, 1]], [3]), {"whole": True, "rng": 3}, SpecError, "rng is of type int"),
        (([1, 2], [[1, 1]], [3]), {"whole": True, "seconds": np.nan}, SpecError, "seconds"),
    ],
)
def test_what_cannot_be_is_refused(arguments, options, error, said):
    with pytest.raises(error, match=said):
        project(*arguments, **options)


@pytest.mark.parametrize("whole", [False, True, "optimal"])
def test_no_counts_at_all_are_projected_on_no_rules(whole):
    assert project([], None, nonnegative=True, whole=whole).x.shape == (0,)


def test_a_sum_that_is_whole_but_for_rounding_is_not_called_indivisible():
    assert project([1, 2], [[3, 3]], [3 * (0.1 + 0.2) * 10], whole=True).x.sum() == 3


def test_a_matrix_may_be_a_sparse_vector():
    assert project([5, 4, -2], coo_array([1, 1, 1]), [10]).x.sum() == pytest.approx(10)
