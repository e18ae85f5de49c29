"""Claim: `explain` states how far the noise that is drawn goes, exactly where it says so and else by a bound that holds.

Compared with the law itself, its points listed and weighed. Broken on purpose: a figure one less, and noise of the law without
its invariants.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.reference.lattice import law_of, points, table_margins, three_crossing_sums
from trueup.kernel.lattice.structure import Lattice
from trueup.noise import DiscreteGaussian, DiscreteLaplace
from trueup.noise.lattice import LatticeGaussian, LatticeL2Laplace, LatticeLaplace

TWISTED = np.array([[1, 1, 1, 0], [1, -1, 0, 1]])
EXACT = {
    "sum of 2": (np.ones((1, 2), np.int64), [1], 40),
    "sum of 3": (np.ones((1, 3), np.int64), [2], 40),
    "two sums that cross": (np.array([[1, 1, 1, 0], [0, 1, 1, 1]]), [0, 3], 30),
    "determinant 2": (TWISTED, [0, 1], 30),
    "2 x 3 table": (table_margins(2, 3), [2, 3, 4, 5], 30),
    "a cell beside a sum": (np.array([[1, 1, 0]]), [1], 30),
}
BOUND = {
    "3 x 3 table": (table_margins(3, 3), [2, 5, 6, 7, 8], 8),
    "crossing sums": (three_crossing_sums(1), [0, 1, 3], 8),
}
PROBABILITIES = (0.5, 0.2, 0.05, 0.01, 1e-3)


def tails(matrix, dependent, radius, log_weight):
    """`P(|v_i| > t)` for t = 0, 1, ... of the worst cell, from the listed law."""
    vectors = points(matrix, dependent, radius)
    law = law_of(vectors, log_weight)
    sizes = np.abs(vectors)
    return np.array([max(law @ (sizes > t)) for t in range(radius)])


def laws():
    yield LatticeLaplace("4/5"), lambda v: -0.8 * np.abs(v).sum(axis=1)
    yield LatticeLaplace("2"), lambda v: -2.0 * np.abs(v).sum(axis=1)
    yield LatticeGaussian("3"), lambda v: -(v**2).sum(axis=1) / 6
    yield LatticeGaussian("1/2"), lambda v: -(v**2).sum(axis=1)


@pytest.mark.parametrize("case", EXACT)
def test_a_tail_called_exact_is_that_of_the_law(case):
    matrix, dependent, radius = EXACT[case]
    for law, log_weight in laws():
        bound = law.on(Lattice.of(matrix.shape[1], matrix))
        known = tails(matrix, dependent, radius, log_weight)
        for probability in PROBABILITIES:
            found = bound.tail(probability)
            assert found.exact
            assert known[found.counts] <= probability
            assert found.counts == 0 or known[found.counts - 1] > probability


@pytest.mark.thorough
@pytest.mark.parametrize("case", ["3 x 3 table", pytest.param("crossing sums", marks=pytest.mark.slow)])
def test_a_bound_holds_and_is_called_one(case):
    matrix, dependent, radius = BOUND[case]
    cases = [*laws(), (LatticeL2Laplace("2"), lambda v: -2 * np.linalg.norm(v, axis=1))]
    for law, log_weight in cases:
        bound = law.on(Lattice.of(matrix.shape[1], matrix))
        known = tails(matrix, dependent, radius, log_weight)
        for probability in PROBABILITIES:
            found = bound.tail(probability)
            if found.counts < radius:
                assert known[found.counts] <= probability
            if found.exact:
                assert found.counts == np.argmax(known <= probability)


def test_crossing_sums_at_a_large_epsilon_are_exact_too():
    """Three dimensions fit the grid where the noise is narrow."""
    matrix, dependent, radius = BOUND["crossing sums"]
    known = tails(matrix, dependent, radius, lambda v: -((v**2).sum(axis=1)))
    found = LatticeGaussian("1/2").on(Lattice.of(7, matrix)).tail(0.05)
    assert found == (np.argmax(known <= 0.05), True)


def test_the_tail_is_not_that_of_the_law_without_invariants():
    """At one sum of two cells a cell's noise is Laplace of twice the epsilon: half as wide."""
    narrow = LatticeLaplace("1/4").on(Lattice.of(2, np.ones((1, 2), np.int64))).tail(0.05)
    assert narrow == DiscreteLaplace("1/2").tail(0.05)
    assert narrow.counts < DiscreteLaplace("1/4").tail(0.05).counts


def test_the_tail_of_independent_noise_is_that_of_its_cdf():
    for law in (DiscreteLaplace("1/3"), DiscreteGaussian("7")):
        found = law.tail(0.05)
        assert found.exact
        assert law.cdf(-found.counts - 1) + law.sf(found.counts) <= 0.05
        assert law.cdf(-found.counts) + law.sf(found.counts - 1) > 0.05


@pytest.mark.thorough
def test_many_cells_of_one_sum_have_the_tail_of_independent_noise():
    law = LatticeLaplace(Fraction(1, 3)).on(Lattice.of(10**6, np.ones((1, 10**6), np.int64)))
    assert law.tail(0.05) == DiscreteLaplace("1/3").tail(0.05)
