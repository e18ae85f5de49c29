"""Posteriors of true counts given tables that somebody perturbed: against enumeration, and calibrated."""

from __future__ import annotations

import numpy as np
import pytest

from tests.inferring.perturbed_problems import enumerated, random_problem
from trueup.inferring import infer
from trueup.inferring.lattice_moves import LatticeMoves
from trueup.inferring.tree_exact import TreeExact
from trueup.model.prior import FLAT


def furthest(cells, posterior, tables, mass):
    """Largest difference of any marginal probability from enumeration, over all margins."""
    gaps = []
    for margin, exact in posterior.drawn.marginals.items():
        sums = np.stack([cells.sum(table, margin) for table in tables])
        for group in range(sums.shape[1]):
            want = np.bincount(sums[:, group], mass)
            counts = np.arange(exact.offset[group], exact.offset[group] + np.diff(exact.start)[group])
            found = exact.masses[exact.start[group] : exact.start[group + 1]]
            inside = counts < len(want)
            gaps += [
                np.abs(found[inside] - want[counts[inside]]).max(initial=0),
                found[~inside].sum(),
                want.sum() - want[counts[inside]].sum(),
            ]
    return max(gaps)


def compared(seed, method):
    """How far a method is from enumeration on one random problem."""
    cells, constraints, measured, _ = random_problem(np.random.default_rng([7, seed]), seed % 3 == 0)
    posterior = infer(measured, method, spec=constraints, draws=2)
    assert posterior.drawn.independent
    return furthest(cells, posterior, *enumerated(cells, measured))


@pytest.mark.parametrize("seed", range(24))
def test_listed_pieces_equal_enumeration(seed):
    assert compared(seed, LatticeMoves(enumerate=200_000)) < 1e-10


@pytest.mark.parametrize("seed", [s for s in range(36) if s % 3])
def test_trees_equal_enumeration(seed):
    assert compared(seed, TreeExact(prior=FLAT)) < 1e-10


@pytest.mark.slow
def test_300_problems_equal_enumeration():
    for seed in range(100, 400):
        assert compared(seed, LatticeMoves(enumerate=200_000)) < 1e-10
        if seed % 3:
            assert compared(seed, TreeExact(prior=FLAT)) < 1e-10


def worst_z(cells, posterior, tables, mass):
    """Largest standardised difference of a cell's posterior mean or second moment from enumeration."""
    from trueup.kernel.statistics.diagnostics import diagnose

    draws = posterior.draws.astype(float)
    found = []
    for values, exact in ((draws, tables), (draws**2, tables**2)):
        _, ess = diagnose(values)
        mean = mass @ exact
        spread = np.sqrt(np.maximum(mass @ (exact - mean) ** 2, 0))
        free = spread > 1e-12
        gaps = np.abs(values.mean(axis=(0, 1)) - mean)
        assert (gaps[~free] < 1e-9).all()
        found.append((gaps[free] / (spread[free] / np.sqrt(ess[free]))).max(initial=0))
    return max(found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_markov_chains_agree_with_enumeration(seed):
    cells, constraints, measured, _ = random_problem(np.random.default_rng([8, seed]), seed % 2 == 0)
    posterior = infer(measured, LatticeMoves(enumerate=0), spec=constraints, draws=4000)
    if posterior.drawn.independent:  # nothing but one table
        return
    tables, mass = enumerated(cells, measured)
    if posterior.drawn.connected:
        assert worst_z(cells, posterior, tables, mass) < 5.5
