"""Estimates that leave published zeros at zero, and what that does to totals and to errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.inferring.perturbed_problems import crossing_places, published_tables
from tests.inferring.problems import states
from trueup.errors import DataError
from trueup.inferring import infer
from trueup.inferring.questions import keep_zeros
from trueup.model.cells import Margin
from trueup.noise.perturbed import CellKey

KEY = CellKey(4, "2")


def sparse(rng, n):
    """Counts as categories of small places have them: most are zero or small."""
    return rng.poisson(rng.gamma(0.4, 5, n))


def rmse(found, truth):
    return np.sqrt(np.square(found - truth).mean())


@pytest.mark.thorough
def test_zeros_stay_totals_keep_their_means_and_errors_are_below_those_of_rescaling(rng):
    cells = states((5,) * 800)
    counts = sparse(rng, cells.n)
    counts[:5] = 0  # a state of which nothing is left to carry what its zeros may hide
    measured, constraints = published_tables(cells, counts, KEY, rng)
    posterior = infer(measured, spec=constraints, draws=1)
    kept, shown = keep_zeros(posterior), measured.values[-1]
    assert (kept[shown == 0] == 0).all()
    assert (kept >= 0).all()
    state = Margin(cells.tree.levels[1])
    means, sums = posterior.drawn.marginals[state].mean, cells.sum(kept, state)
    carried = cells.sum((shown != 0).astype(int), state) > 0
    assert (sums[~carried] == 0).all()
    assert (sums[carried] > means[carried] - 1e-9).all()
    assert sums.sum() == pytest.approx(
        posterior.drawn.marginals[Margin(cells.tree.levels[0])].mean[0], abs=1e-8
    )
    blocks = shown.reshape(-1, 5).astype(float)
    naive = (blocks * (measured.values[1] / np.maximum(blocks.sum(axis=1), 1))[:, None]).ravel()
    for low, high in ((1, 9), (10, 10**9)):
        at = (counts >= low) & (counts <= high)
        assert rmse(kept[at], counts[at]) < rmse(naive[at], counts[at])
    assert (
        rmse(kept[counts == 0], 0) == 0 < rmse(posterior.drawn.marginals[cells.finest].mean[counts == 0], 0)
    )


def test_where_tables_cross_totals_of_places_keep_their_means(rng):
    cells, margins = crossing_places(60)
    measured, constraints = published_tables(cells, sparse(rng, cells.n), KEY, rng, margins)
    posterior = infer(measured, spec=constraints, draws=200)
    kept, sexes = keep_zeros(posterior), Margin("place", ("sex",))
    assert (kept[measured.values[0] == 0] == 0).all()
    places = np.abs(cells.sum(kept, sexes) - posterior.drawn.marginals[sexes].mean)
    assert np.median(places) < 1


def test_a_posterior_without_published_values_of_cells_is_refused(rng):
    cells = states((2, 2))
    measured, constraints = published_tables(cells, np.array([3, 1, 0, 5]), KEY, rng)
    posterior = infer(measured, spec=constraints, draws=1)
    with pytest.raises(DataError, match="published values"):
        keep_zeros(replace(posterior, noisy=None))
