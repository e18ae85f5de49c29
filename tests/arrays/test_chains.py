"""Chains on a lattice that are judged: the bound against the exact distance, and against the chain of the papers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp

from papers import markov_chain
from tests.reference.lattice import table_margins
from trueup.arrays import judge_chain
from trueup.errors import PrivacyError, SpecError

PAIR = [[1, 1]]


def exact_distances(epsilon, jump, spread, steps, radius=80):
    """Total variation of the chain on `v = u (1, -1)` after 0, 1, ... steps, from its transition matrix."""
    u = np.arange(-radius, radius + 1)
    q, start = np.exp(-1 / jump), np.exp(-np.abs(u) / spread)
    target = np.exp(-2 * epsilon * np.abs(u))
    law, target = start / start.sum(), target / target.sum()
    jumps = (1 - q) / (1 + q) * q ** np.abs(u[:, None] - u)
    moves = jumps * np.minimum(1, target / target[:, None])
    np.fill_diagonal(moves, 0)
    np.fill_diagonal(moves, 1 - moves.sum(axis=1))
    found = []
    for _ in range(steps + 1):
        found.append(np.abs(law - target).sum() / 2)
        law = law @ moves
    return np.array(found)


def test_the_bound_is_no_smaller_than_the_exact_distance_and_falls_with_it(rng):
    true = exact_distances(0.25, 1.2, 4.0, 200)
    judged = judge_chain(PAIR, epsilon=0.25, spread=4, lag=60, pairs=2000, steps=2000, rng=rng)
    assert judged.met == 2000
    bound = judged.distance(np.arange(201))
    assert (bound > true - 4 * np.sqrt(bound / 2000) - 1e-3).all()  # a pair counts once or, seldom, twice
    near = np.argmax(bound < 0.01)
    assert true[0] > 0.2
    assert 0 < near < 200
    assert true[near] < 0.01
    assert judged.r_hat.max() < 1.05


@pytest.mark.slow
def test_pairs_meet_as_those_of_the_papers_chain_do(rng):
    A, lag = table_margins(3, 3), 100
    judged = judge_chain(A, epsilon=0.5, lag=lag, pairs=150, steps=3000, rng=rng)
    theirs = markov_chain.ChainTarget(
        np.ascontiguousarray(np.kron(*[np.eye(2, 3, dtype=np.int64) - np.eye(2, 3, 1, dtype=np.int64)] * 2)),
        1,
        0.5,
    )
    times = markov_chain.meeting_times(rng, theirs, 1.2, 10.0, lag, 150, 3000)
    assert ks_2samp(judged.meeting, times)[1] > 1e-6
    other = markov_chain.meeting_times(rng, theirs, 0.5, 10.0, lag, 150, 3000)  # shorter jumps
    assert ks_2samp(judged.meeting, other)[1] < 1e-6


def test_a_chain_that_hardly_moves_is_told(rng):
    judged = judge_chain(table_margins(3, 3), epsilon=0.5, jump=0.1, lag=100, pairs=20, steps=600, rng=rng)
    assert judged.met < 20
    assert (judged.distance([0, 10**6]) == 1).all()
    assert judged.r_hat.max() > 1.1
    assert f"{judged.met} of 20 pairs met" in judged._repr_svg_()


def test_moves_of_ones_own_are_taken_where_they_reach_every_table(rng):
    judged = judge_chain([[1, 1, 1]], epsilon=1, moves=[[1, -1, 0], [1, 0, -1]], lag=50, steps=800, rng=rng)
    assert judged.met == 200
    for moves in (
        [[1, 0, 0]],
        [[1, -1, 0], [2, -2, 0]],
        [[0.5, -0.5, 0]],
        [[1, -1, 0]],
        [[1, -1, 0], [1, 1, -2]],
    ):
        with pytest.raises(
            SpecError, match="moves"
        ):  # of the last two one holds a cell, one reaches half the tables
            judge_chain([[1, 1, 1]], epsilon=1, moves=moves, rng=rng)
    with pytest.raises(PrivacyError, match="every cell"):
        judge_chain(np.eye(2, dtype=int), epsilon=1, rng=rng)


def test_chains_that_never_moved_have_no_r_hat(rng):
    judged = judge_chain(PAIR, epsilon=1, jump=1e6, spread=0, lag=5, pairs=5, steps=200, rng=rng)
    assert np.isnan(judged.r_hat).all()


@pytest.mark.parametrize(
    "given",
    [
        {"lag": 50}, {"lag": 1.5}, {"lag": "a"}, {"pairs": True}, {"pairs": np.nan}, {"steps": np.inf}, {"steps": None},
        {"jump": np.inf}, {"jump": "a"}, {"jump": 1e30}, {"jump": 0}, {"spread": [1]}, {"spread": 1j}, {"spread": -1},
    ],
)  # fmt: skip
def test_numbers_that_describe_no_chain_are_refused(rng, given):
    with pytest.raises(SpecError):
        judge_chain(PAIR, epsilon=1, rng=rng, **{"lag": 5, "pairs": 5, "steps": 50} | given)
