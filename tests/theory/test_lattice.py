"""The fourth paper's tails against exact ones on small lattices: where they hold, and that they are asymptotic."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.lattice import law_of, points, table_margins
from trueup.theory import LatticeShape, gaussian_tail, l2_laplace_tail, points_in_ball

CASES = {
    "sum of 2": (np.ones((1, 2), np.int64), [1], 60),
    "sum of 3": (np.ones((1, 3), np.int64), [2], 60),
    "sum of 4": (np.ones((1, 4), np.int64), [3], 30),
    "two sums that cross": (np.array([[1, 1, 1, 0], [0, 1, 1, 1]]), [0, 3], 60),
    "determinant 2": (np.array([[1, 1, 1, 0], [1, -1, 0, 1]]), [0, 1], 60),
    "2 x 3 table": (table_margins(2, 3), [2, 3, 4, 5], 60),
}


def norms(case):
    matrix, dependent, radius = CASES[case]
    vectors = points(matrix, dependent, radius)
    return LatticeShape.of(matrix), vectors, np.linalg.norm(vectors, axis=1), radius


@pytest.mark.parametrize("case", CASES)
def test_points_in_a_ball_settle_about_its_volume(case):
    """All points within the radius are listed: every cell, and so every listed one, is at most the norm."""
    shape, _, size, radius = norms(case)
    r = np.arange(3, radius)
    found = np.array([(size <= each).sum() for each in r])
    ratio = found / points_in_ball(shape, r)
    assert ((ratio > 0.5) & (ratio < 2)).all()
    assert abs(ratio[-1] - 1) < 0.08
    wrong = points_in_ball(LatticeShape(shape.dimension, shape.log_volume + np.log(2.5)), r)
    assert (found / wrong > 2).any(), "a volume 2.5 times as large must be seen"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rate", [1.0, 2.0, 4.0])
def test_the_laplace_tail_holds_from_some_radius_on(case, rate):
    shape, _, size, radius = norms(case)
    law = law_of(size[:, None], lambda v: -rate * v[:, 0])
    t = np.arange(2, radius // 2)
    exact = np.array([law[size >= each].sum() for each in t])
    bound = l2_laplace_tail(shape, rate, t)
    assert (exact[bound < 1] <= bound[bound < 1]).all()
    assert (bound < 1).any()
    if bound[-1] < 1e-3:  # a tail of twice the rate is no bound
        assert (exact > bound * np.exp(-rate * t)).any()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sigma2", [0.5, 2.0, 8.0])
def test_the_gaussian_tail_holds_from_some_radius_on(case, sigma2):
    shape, vectors, size, radius = norms(case)
    law = law_of(vectors, lambda v: -(v**2).sum(axis=1) / (2 * sigma2))
    t = np.arange(2, radius // 2)
    exact = np.array([law[size >= each].sum() for each in t])
    bound = gaussian_tail(shape, sigma2, t)
    assert (exact[bound < 1] <= bound[bound < 1]).all()
    if bound[-1] < 1e-3:  # that of half the spread is no bound
        assert (exact > gaussian_tail(shape, sigma2 / 4, t)).any()
    else:
        assert case == "sum of 4", "its points are listed to half the radius of the others"


def test_lemma_11_is_asymptotic():
    """Near zero it is false: one point is there, whatever the volume, and in many dimensions far out as well."""
    shape = LatticeShape.of(np.ones((1, 4), np.int64))
    assert points_in_ball(shape, 0.0) == 0
    assert points_in_ball(shape, 0.5) < 0.5
    many = LatticeShape.of(np.ones((1, 30), np.int64))
    moves = 30 * 29  # the vectors of norm sqrt 2, and zero
    assert (1 + moves) / points_in_ball(many, np.sqrt(2)) > 2
