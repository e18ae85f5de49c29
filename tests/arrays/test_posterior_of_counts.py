"""Draws of counts with known sums, beside all tables that have them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from trueup.arrays import (
    continuous_laplace,
    discrete_gaussian,
    discrete_laplace,
    noise_keeping,
    posterior_of_counts,
)
from trueup.errors import DataError, InfeasibleError, SpecError
from trueup.kernel.table_walks.moves import enumerate_fibre
from trueup.noise import Exact

THREE = np.vstack([np.kron(np.eye(3), np.ones(3)), np.kron(np.ones(3), np.eye(3))]).astype(int)
NOISY = np.array([-2, 17, 9, 19, -1, 6, 7, 8, 9])  # 52,975 tables have its sums, more than are listed
LAW = discrete_laplace("1/2")


def enumerated(tables, logs):
    """Return means and standard deviations of cells over all tables."""
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    mean = mass @ tables
    return mean, np.sqrt(mass @ tables**2 - mean**2)


def off(draws, mean, sd):
    """Return the largest difference of a mean in standard errors of the 400 effective draws that chains have at least."""
    return (np.abs(draws.mean(axis=0) - mean) / (sd / 20)).max()


@pytest.fixture(scope="module")
def tables():
    sums = THREE @ NOISY
    return enumerate_fibre(
        csr_array(THREE.astype(float)), sums - 0.5, sums + 0.5, (np.zeros(9), np.full(9, np.inf)), 100_000
    )


@pytest.mark.thorough
def test_chains_have_the_means_of_all_tables(rng, tables):
    """Of each cell within six standard errors; without the sums, or without the bounds, they are far off."""
    found = posterior_of_counts(NOISY, LAW, A=THREE, draws=4000, rng=rng)
    assert (found.independent, found.connected) == (False, True)
    assert (found.draws >= 0).all()
    assert (found.draws @ THREE.T == THREE @ NOISY).all()
    mean, sd = enumerated(tables, LAW.logpmf(NOISY - tables).sum(axis=1))
    assert off(found.draws, mean, sd) < 6
    assert off(np.maximum(NOISY, 0)[None], mean, sd) > 10
    free = posterior_of_counts(NOISY, LAW, A=THREE, lower=-np.inf, draws=4000, rng=rng)
    assert off(free.draws, mean, sd) > 10


@pytest.mark.thorough
def test_laws_of_each_cell_inequalities_and_other_sums_count(rng, tables):
    laws = [LAW, discrete_gaussian(sigma2=1)] * 4 + [LAW]
    found = posterior_of_counts(NOISY, laws, A=THREE, R=[[1, -1] + [0] * 7], least=[-12], draws=4000, rng=rng)
    kept = tables[tables[:, 0] - tables[:, 1] >= -12]
    logs = sum(law.logpmf(NOISY[k] - kept[:, k]) for k, law in enumerate(laws))
    mean, sd = enumerated(kept, logs)
    assert off(found.draws, mean, sd) < 6
    assert off(found.draws, *enumerated(kept, LAW.logpmf(NOISY - kept).sum(axis=1))) > 10
    other = posterior_of_counts([3, 4], LAW, A=[[1, 1]], sums=[11], rng=rng)
    assert other.independent
    assert (other.draws.sum(axis=1) == 11).all()


def test_tables_of_a_usual_size_are_drawn(rng):
    margins = np.vstack([np.kron(np.eye(5), np.ones(8)), np.kron(np.ones(5), np.eye(8))])
    counts = rng.poisson(30, 40)
    noisy = noise_keeping(counts, margins, epsilon=1).values
    found = posterior_of_counts(noisy, discrete_laplace(1), A=margins, draws=1000, rng=rng)
    assert found.draws.shape == (1000, 40)
    assert (found.draws @ margins.T == margins @ counts).all()


@pytest.mark.parametrize(
    ("more", "error", "said"),
    [
        ({"sums": [-1]}, InfeasibleError, "row 0 of A"),
        ({"laws": continuous_laplace(1)}, SpecError, "no equalities"),
        ({"laws": [LAW, None]}, SpecError, "has no noise"),
        ({"laws": [LAW, Exact()]}, SpecError, "has no noise"),
        ({"upper": 1, "sums": [7]}, InfeasibleError, "row 0 of A"),
        ({"sums": [1, 2]}, SpecError, "sums have shape"),
        ({"A": [[1, 1, 1]]}, SpecError, "3 columns"),
        ({"y": [], "A": None}, SpecError, "no noisy count is given"),
        ({"y": [1.5, 2]}, DataError, "not all whole"),
        ({"least": [1]}, SpecError, "least have shape"),
    ],
)
def test_what_cannot_be_drawn_is_refused(rng, more, error, said):
    with pytest.raises(error, match=said):
        posterior_of_counts(**{"y": [3, 4], "A": [[1, 1]], "laws": LAW, "rng": rng, **more})
