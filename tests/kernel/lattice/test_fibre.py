"""Nonnegative post-processing: the posterior on the fibre, by rejection and by walking, against enumeration."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.lattice import law_of, p_value, points, table_margins
from trueup.errors import DataError, SpecError
from trueup.kernel.lattice.structure import Lattice
from trueup.kernel.statistics.diagnostics import diagnose
from trueup.kernel.table_walks import fibre
from trueup.noise.lattice.laws import LatticeGaussian, LatticeL2Laplace, LatticeLaplace
from trueup.reconciling.lattice_fibre import nonnegative_tables

SUM4, TABLE = np.ones((1, 4), np.int64), table_margins(3, 3)
CROSSED = np.array([[1, 1, 1, 0], [1, -1, 0, 1]])
CASES = {
    "sum": (SUM4, [3], np.array([-1, 3, 0, 2])),
    "table": (TABLE, [2, 5, 6, 7, 8], np.array([1, -1, 2, 0, 2, 1, 1, 0, 0])),
    "general": (CROSSED, [0, 1], np.array([2, 1, -1, 3])),
}


def posterior(matrix, dependent, noisy, law):
    reach = int(np.abs(noisy).sum()) + 1 if matrix.shape[1] < 9 else 5
    v = points(matrix, dependent, reach)
    x = noisy - v
    v, x = v[(x >= 0).all(axis=1)], x[(x >= 0).all(axis=1)]
    return x, law_of(v, law)


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("law", [LatticeLaplace("1"), LatticeGaussian("2")])
def test_rejection_draws_from_the_posterior(case, law, rng):
    matrix, dependent, noisy = CASES[case]
    found = nonnegative_tables(law.on(Lattice.of(len(noisy), matrix)), noisy, 20_000, rng)
    rate, power = law.factor
    x, probability = posterior(matrix, dependent, noisy, lambda v: -rate * (np.abs(v) ** power).sum(axis=1))
    assert found.exact == 1
    assert (found.draws >= 0).all()
    assert np.array_equal(found.draws @ matrix.T, np.tile(matrix @ noisy, (20_000, 1)))
    assert p_value(found.draws, x, probability) > 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
def test_walking_reaches_the_posterior(case, rng):
    matrix, dependent, noisy = CASES[case]
    lattice = Lattice.of(len(noisy), matrix)
    (piece,) = lattice.pieces
    cells = piece.cells.ravel()
    walked = fibre.fibre_walk(piece, noisy[cells], 1.0, 1, 5_000, 40, rng)
    draws = np.zeros((20_000, len(noisy)), np.int64)
    draws[:, cells] = walked.draws.reshape(-1, len(cells))
    x, probability = posterior(matrix, dependent, noisy, lambda v: -np.abs(v).sum(axis=1))
    assert walked.connected == (case != "general")
    assert np.array_equal(draws @ matrix.T, np.tile(matrix @ noisy, (20_000, 1)))
    assert diagnose(walked.draws)[0].max() < 1.02
    assert p_value(draws, x, probability) > 1e-6


def test_what_cannot_be_rejected_is_walked_and_says_so(rng):
    noisy = np.array([-6, -5, -7, -4, 30, 1, 1, 1, 1, 1])
    found = nonnegative_tables(LatticeLaplace("1").on(Lattice.of(10, np.ones((1, 10)))), noisy, 2000, rng)
    assert found.exact == 0
    assert found.connected
    assert (found.draws >= 0).all()
    assert (found.draws.sum(axis=1) == noisy.sum()).all()
    assert found.r_hat < 1.05
    assert 50 < found.ess <= 2500


def test_a_fibre_of_one_point_has_converged(rng):
    noisy = np.array([-30, 10, 10, 10])
    found = nonnegative_tables(LatticeLaplace("1").on(Lattice.of(4, np.ones((1, 4)))), noisy, 100, rng)
    assert (found.draws == 0).all()
    assert (found.exact, found.r_hat, found.ess) == (0, 1, 100)


@pytest.mark.parametrize("case", CASES)
def test_the_mode_is_nearest(case):
    matrix, dependent, noisy = CASES[case]
    x, _ = posterior(matrix, dependent, noisy, lambda v: -np.abs(v).sum(axis=1))
    best = np.abs(x - noisy).sum(axis=1).min()
    found = fibre.fibre_mode(matrix, noisy)
    assert (found >= 0).all()
    assert np.array_equal(matrix @ found, matrix @ noisy)
    assert np.abs(found - noisy).sum() == best


def test_the_posterior_mean_is_nearer_than_the_noisy_table(rng):
    """On the 4 x 4 table of delinquent children at epsilon 1/4."""
    truth = np.array([15, 1, 3, 1, 20, 10, 10, 15, 3, 10, 10, 2, 12, 14, 7, 2])
    law = LatticeLaplace("1/4").on(Lattice.of(16, table_margins(4, 4)))
    raw, mean = [], []
    for noise in law.bound.draw(25, rng.bytes).vectors:
        noisy = truth + noise
        raw.append(((noisy - truth) ** 2).mean())
        mean.append(((nonnegative_tables(law, noisy, 100, rng).mean - truth) ** 2).mean())
    assert np.mean(mean) < 0.85 * np.mean(raw)


def test_bad_input_is_refused(rng):
    law = LatticeLaplace("1").on(Lattice.of(4, [[1, 1, 1, 0], [0, 0, 0, 1]]))
    with pytest.raises(DataError, match="one per cell"):
        nonnegative_tables(law, np.zeros(3, int), 10, rng)
    with pytest.raises(DataError, match="determine is negative"):
        nonnegative_tables(law, np.array([1, 1, 1, -1]), 10, rng)
    for unfit in (LatticeLaplace("1"), LatticeL2Laplace("1").on(Lattice.of(4, [[1, 1, 1, 1]]))):
        with pytest.raises(SpecError, match="not bound to a lattice"):
            nonnegative_tables(unfit, np.zeros(4, int), 10, rng)
