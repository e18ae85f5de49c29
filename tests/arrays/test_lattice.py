"""Noise that keeps `A x` for random matrices: its law, its smallest change and its loss, beside enumeration."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import chisquare

from tests.arrays.matrices import chance, counted, near_zero, random_matrix, smallest_through
from tests.reference.lattice import law_of
from trueup import TrueupError
from trueup.arrays import (
    discrete_laplace,
    fieller,
    law_keeping,
    noise_interval,
    noise_keeping,
    posterior_of_counts,
    projection_covariance,
    sample,
)
from trueup.errors import DataError, InfeasibleError, PrivacyError, SpecError
from trueup.noise.lattice import LatticeLaplace

FALSE_ALARM = 1e-6
TRIES = 4e7
"""Proposals that the draws of one matrix take, at most: fewer draws where a law is drawn by many."""


def drawn_and_listed(rng, most_draws):
    matrix = random_matrix(rng)
    vectors, radius = near_zero(matrix)
    epsilon = Fraction(int(rng.integers(28, 40)), radius)  # what is not listed has a mass below exp(-28)
    noise = law_keeping(matrix, epsilon=epsilon)
    tries = max(choice.tries for _, choice in noise.bound.pieces)
    drawn = sample(noise, int(min(most_draws, TRIES / tries)), rng.spawn(1)[0])
    return noise, vectors, drawn, float(epsilon)


def wrong_laws(epsilon):
    """Laws that must be told from the right one: their log masses at vectors."""
    return {
        "epsilon 5 % too small": lambda v: -0.95 * epsilon * np.abs(v).sum(axis=1),
        "the L2 norm": lambda v: -epsilon * np.sqrt((v.astype(float) ** 2).sum(axis=1)),
        "the first cell counts twice": lambda v: -epsilon * (np.abs(v).sum(axis=1) + np.abs(v[:, 0])),
    }


def chances(rng, most_draws):
    """P-value of the draws under the right law; of each wrong law its p-value and the chi-square that it should give."""
    noise, vectors, drawn, epsilon = drawn_and_listed(rng, most_draws)
    right = law_of(vectors, lambda v: -epsilon * np.abs(v).sum(axis=1))
    assert np.allclose(noise.log_vectors(vectors), -epsilon * np.abs(vectors).sum(axis=1))
    found, wrong = counted(drawn, vectors), {}
    for name, log in wrong_laws(epsilon).items():
        law = law_of(vectors, log)
        common = law * len(drawn) >= 20
        expected = len(drawn) * ((right - law)[common] ** 2 / law[common]).sum()
        wrong[name] = chance(*found, law), expected / np.sqrt(2 * max(common.sum(), 1))
    return chance(*found, right), wrong


def check_laws(rng, matrices, most_draws):
    told = dict.fromkeys(wrong_laws(1.0), 0)
    for _ in range(matrices):
        right, wrong = chances(rng, most_draws)
        assert right >= FALSE_ALARM / matrices
        for name, (p, strength) in wrong.items():
            if strength > 20:  # where so many draws must tell the laws apart
                assert p < FALSE_ALARM, name
                told[name] += 1
    assert min(told.values()) >= matrices / 6, told


@pytest.mark.thorough
def test_draws_have_the_law_and_wrong_laws_are_rejected(rng):
    check_laws(rng, 6, 40_000)


@pytest.mark.slow
def test_draws_of_more_matrices_have_the_law(rng):
    check_laws(rng, 30, 200_000)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_a_million_draws_of_300_matrices_have_the_law(rng, part):
    check_laws(rng, 30, 1_000_000)


def check_changes(rng, matrices):
    compared = 0
    for _ in range(matrices):
        matrix = random_matrix(rng)
        vectors, radius = near_zero(matrix)
        noise = law_keeping(matrix, epsilon="1/4")
        change, loss = noise.smallest_change, noise.loss
        assert change is not None
        varies = np.setdiff1d(np.arange(noise.lattice.n), noise.lattice.pinned)
        l1 = smallest_through(vectors, np.abs(vectors).sum(axis=1))[varies].max()
        square = smallest_through(vectors, (vectors**2).sum(axis=1))[varies].max()
        assert change.l1 <= l1
        assert change.l2_squared <= square
        if l1 <= radius:  # then every vector as small was looked at
            compared += 1
            assert (change.l1, loss.amount) == (l1, l1 * Fraction(1, 4))
        if square <= radius**2:
            assert change.l2_squared == square
            gaussian = law_keeping(matrix, rho=0.5)
            assert gaussian.loss.amount == Fraction(1, 2) * int(square)
    assert compared >= 0.7 * matrices


@pytest.mark.slow
def test_the_smallest_change_and_its_loss_are_those_of_enumeration(rng):
    check_changes(rng, 12)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_the_smallest_change_of_300_matrices_is_that_of_enumeration(rng, part):
    check_changes(rng, 50)


@pytest.mark.thorough
def test_the_smallest_change_of_larger_matrices_is_searched_for():
    three_way = np.vstack([np.kron(np.kron(a, b), c) for a, b, c in _two_of_three(3)])
    change = law_keeping(three_way, rho=1).smallest_change
    assert (change.l1, change.l2_squared) == (8, 8)
    table = np.vstack([np.kron(np.eye(20), np.ones(20)), np.kron(np.ones(20), np.eye(20))])
    assert law_keeping(csr_array(table), rho=1).smallest_change.l1 == 4


def _two_of_three(k):
    one, sums = np.eye(k), np.ones((1, k))
    return [(one, one, sums), (one, sums, one), (sums, one, one)]


def test_sums_are_kept_exactly_dense_or_sparse_whatever_the_counts(rng):
    matrix = np.array([[2, -3, 1, 0, 5], [0, 1, 1, 1, 0]])
    x = rng.integers(-(2**60), 2**60, 5) // 100
    for given in (matrix, csr_array(matrix), matrix.tolist(), matrix.astype(float)):
        kept = noise_keeping(x, given, epsilon="1/2")
        assert (matrix @ (kept.values - x) == 0).all()
        assert kept.values.dtype == np.int64


@pytest.mark.parametrize("value", [0.1, "0.1", "1/10", Fraction(1, 10), np.float32(0.1)])
def test_one_number_however_it_is_written(value):
    assert repr(law_keeping([[1, 1]], epsilon=value)) == "LatticeLaplace(epsilon=Fraction(1, 10))"


def test_the_loss_is_charged_before_noise_is_drawn(monkeypatch):
    class Spent(Exception):
        pass

    def refuse(cost):
        assert (cost.currency, cost.amount) == ("epsilon", 2)
        raise Spent

    monkeypatch.setattr("trueup.arrays.drawing.sample", lambda *_: pytest.fail("noise was drawn"))
    with pytest.raises(Spent):
        noise_keeping([1, 2], [[1, 1]], epsilon=1, charge=refuse)


@pytest.mark.parametrize(
    ("x", "matrix", "options", "error", "said"),
    [
        ([1.5, 2], [[1, 1]], {"epsilon": 1}, DataError, "not all whole"),
        ([2**63 - 1, 2], [[1, 1]], {"epsilon": 1}, DataError, "beyond"),
        ([[1, 2]], [[1, 1]], {"epsilon": 1}, DataError, "vector"),
        ([1, 2, 3], [[1, 1]], {"epsilon": 1}, SpecError, "2 columns"),
        ([1, 2], [1, 1], {"epsilon": 1}, SpecError, "matrix"),
        ([1, 2], [[1, 0.5]], {"epsilon": 1}, SpecError, "whole numbers"),
        ([1, 2], [[1, 0], [0, 1]], {"epsilon": 1}, PrivacyError, "every cell"),
        ([1, 2], [[1, 1]], {}, SpecError, "neither"),
        ([1, 2], [[1, 1]], {"epsilon": 1, "rho": 1}, SpecError, "both"),
        ([1, 2], [[1, 1]], {"epsilon": -1}, SpecError, "epsilon"),
        ([1, 2], [[1, 1]], {"epsilon": 1, "norm": "linf"}, SpecError, "norm"),
    ],
)
def test_bad_input_is_refused_and_no_count_is_told(x, matrix, options, error, said):
    with pytest.raises(error, match=said) as caught:
        noise_keeping(x, matrix, **options)
    assert isinstance(caught.value, TrueupError)
    assert "1.5" not in str(caught.value)


@pytest.mark.parametrize("A", [[[1, 1], [1]], [["a", "b"]], None])
def test_sums_that_are_no_matrix_of_numbers_are_refused(A):
    with pytest.raises(SpecError):
        law_keeping(A, epsilon=1)


def test_noise_of_no_law_and_a_seed_are_refused(rng):
    with pytest.raises(SpecError, match="rng is of type int"):
        sample(discrete_laplace(1), 2, 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SpecError, match="not a number"):
        noise_interval(discrete_laplace(1), "90%")  # pyright: ignore[reportArgumentType]
    assert noise_interval(discrete_laplace(1), 1) == (-np.inf, np.inf)


def test_ratios_and_equalities_of_what_is_no_number_are_refused():
    for counts, variance, message in (
        ([np.nan], 1, "infinite or not a number"),
        ([1], -1, "a variance is negative"),
    ):
        with pytest.raises(SpecError, match=message):
            fieller(counts, [1], (variance, 1), 1.645)
    with pytest.raises(SpecError, match="not a matrix"):
        projection_covariance([[1, np.nan]], [1, 1])
    assert (projection_covariance(csr_array([[1, 1]]), [1, 1]) == [[0.5, -0.5], [-0.5, 0.5]]).all()  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_posterior_of_few_tables_is_that_of_enumeration(norm, rng):
    A = np.array([[1, 1, 1, 0], [0, 1, 2, 1]])
    noise = law_keeping(A, epsilon=0.5, norm=norm)
    y = np.array([4, -1, 3, 2])
    found = posterior_of_counts(y, noise, upper=8, draws=40_000, rng=rng)
    assert found.independent
    every = np.indices((9,) * 4).reshape(4, -1).T
    every = every[(every @ A.T == A @ y).all(axis=1)]
    at = {tuple(table): k for k, table in enumerate(every.tolist())}
    seen = np.bincount([at[tuple(table)] for table in found.draws.tolist()], minlength=len(every))
    for rate, right in ((0.5, True), (0.4, False)):
        mass = np.exp(-rate * np.linalg.norm(every - y, 1 if norm == "l1" else 2, axis=1))
        p = chisquare(seen, mass / mass.sum() * seen.sum()).pvalue
        assert (p > FALSE_ALARM) == right
    with pytest.raises(InfeasibleError, match="cannot all hold"):
        posterior_of_counts(y, noise, lower=5, rng=rng)
    with pytest.raises(InfeasibleError, match="row 0 of A"):  # a cell that the sums determine
        posterior_of_counts([1, 2, -2], law_keeping([[1, 1, 0], [0, 0, 1]], epsilon=1), rng=rng)
    with pytest.raises(SpecError, match="does not keep sums of 3 counts"):
        posterior_of_counts(y[:3], noise, rng=rng)
    with pytest.raises(SpecError, match="does not keep sums"):
        posterior_of_counts(y, LatticeLaplace(Fraction(1)), rng=rng)
    with pytest.raises(SpecError, match="keeps no sums"):
        sample(LatticeLaplace(Fraction(1)), 2, rng)
    wide = law_keeping([[1] * 6], epsilon=1, norm="l2")
    with pytest.raises(SpecError, match=r"more than 20,000 tables"):
        posterior_of_counts([50] * 6, wide, rng=rng)
