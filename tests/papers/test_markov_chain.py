"""The paper's chain has the right law once it has converged, and its coupled diagnostics tell the truth."""

from __future__ import annotations

import numpy as np
import pytest

from papers import markov_chain as chain
from tests.reference.lattice import law_of, p_value, points, table_margins, three_crossing_sums
from trueup.errors import ConvergenceError

SUM3 = np.ones((1, 3), np.int64)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("norm", "rate", "log_weight"),
    [
        (chain.L1, 1.0, lambda v: -np.abs(v).sum(axis=-1)),
        (chain.L2, 1.5, lambda v: -1.5 * np.linalg.norm(v, axis=-1)),
        (chain.SQUARED, 0.25, lambda v: -(v**2).sum(axis=-1) / 4),
    ],
)
def test_the_chain_has_the_target_law(norm, rate, log_weight, rng):
    target = chain.ChainTarget(chain.smith_basis(SUM3), norm, rate)
    states, rate = chain.run_lattice_chain(rng, target, 1.0, np.zeros(2, np.int64), 30_000 * 60, 60)
    vectors = points(SUM3, [2], 25)
    assert not states.sum(axis=1).any()
    assert 0.1 < rate < 0.9
    assert p_value(states[10:], vectors, law_of(vectors, log_weight)) > 1e-6


@pytest.mark.thorough
def test_coupled_jumps_have_the_law_of_jumps(rng):
    scale, apart, draws = 2.0, 3, 60_000
    pairs = np.array(
        [
            (j, chain._coupled(rng, scale, j, apart))
            for j in [chain._double_geometric.py_func(rng, scale) for _ in range(draws)]
        ]
    )
    ratio = np.exp(-1 / scale)
    k = np.arange(-12, 13)
    mass = (1 - ratio) / (1 + ratio) * ratio ** np.abs(k)
    for column in pairs.T:
        found = (column[:, None] == k).sum(axis=0)
        deviation = (found - draws * mass) / np.sqrt(draws * mass * (1 - mass))
        assert np.abs(deviation).max() < 6
    together = (pairs[:, 1] == pairs[:, 0] + apart).mean()
    whole = np.arange(-60, 61)
    best = (
        np.minimum(ratio ** np.abs(whole), ratio ** np.abs(whole + apart)).sum() * (1 - ratio) / (1 + ratio)
    )
    assert abs(together - best) < 6 * np.sqrt(best / draws)


@pytest.mark.thorough
def test_the_bound_covers_the_true_distance(rng):
    """On one sum of three the law at each time is estimated from many chains and compared with the target."""
    target = chain.ChainTarget(chain.smith_basis(SUM3), chain.L1, 1.0)
    times = chain.meeting_times(rng, target, 1.0, 4.0, 40, 400, 100_000)
    vectors = points(SUM3, [2], 25)
    probability = dict(zip(map(tuple, vectors.tolist()), law_of(vectors, lambda v: -np.abs(v).sum(axis=-1))))
    for at in (2, 10, 30):
        ends = [
            tuple(chain.run_lattice_chain(rng, target, 1.0, chain._start(rng, 2, 4.0), at, at)[0][0].tolist())
            for _ in range(20_000)
        ]
        found, counts = np.unique(np.array(ends), axis=0, return_counts=True)
        excess = sum(
            max(c / 20_000 - probability.get(tuple(v), 0.0), 0) for v, c in zip(found.tolist(), counts)
        )
        bound = chain.total_variation(times, 40, [at])[0]
        assert bound > excess - 0.05


@pytest.mark.thorough
def test_starting_at_zero_looks_better_than_it_is(rng):
    """From the mode the meeting times are shorter: the bound is about the start, so the start must be dispersed."""
    target = chain.ChainTarget(chain.smith_basis(table_margins(3, 3)), chain.L1, 0.5)
    zero = chain.meeting_times(rng, target, 1.0, 0.0, 100, 100, 100_000)
    dispersed = chain.meeting_times(rng, target, 1.0, 12.0, 100, 100, 100_000)
    assert chain.steps_for(zero, 100, 0.1) < chain.steps_for(dispersed, 100, 0.1)


@pytest.mark.thorough
def test_curves_fall_and_agree_between_lags(rng):
    target = chain.ChainTarget(chain.smith_basis(three_crossing_sums(1)), chain.L1, 0.5)
    at = np.array([0, 200, 500, 1000, 2000, 4000])
    curves = []
    for lag in (500, 1000):
        times = chain.meeting_times(rng, target, 0.7, 6.0, lag, 150, 200_000)
        curves.append(chain.total_variation(times, lag, at))
        assert np.all(np.diff(curves[-1]) <= 0)
    assert curves[0][-1] < 0.2
    assert abs(curves[0][3] - curves[1][3]) < 0.5


@pytest.mark.thorough
def test_pairs_that_have_not_met_certify_nothing(rng):
    target = chain.ChainTarget(chain.smith_basis(table_margins(4, 4)), chain.L1, 0.25)
    times = chain.meeting_times(rng, target, 1.0, 10.0, 10, 3, 12)
    with pytest.raises(ConvergenceError, match="have not met"):
        chain.total_variation(times, 10, [5])


def test_two_hundred_pairs_certify_no_better_than_the_rule_of_three():
    best = chain.certify([11] * 200, 10, 1000, 0.5)
    assert best.eta == 0
    assert best.eta_upper == pytest.approx(0.015)
    assert best.delta == pytest.approx(0.015 * (1 + np.exp(0.5)))
