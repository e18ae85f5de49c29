"""The multinomial mode is exact: mode condition in fractions, equality with the literal loop."""

from __future__ import annotations

from fractions import Fraction
from math import lgamma, log

import numpy as np
import pytest

from tests.reference.finucan import finucan, greedy, is_mode
from trueup.errors import DataError, InfeasibleError, SpecError
from trueup.kernel.multinomial.mode import LARGEST_COUNT, multinomial_mode, multinomial_mode_tree


def random_tables(rng, tables):
    """Small tables, full of ties and zeros, with totals that are short, exact, over or unrelated."""
    for _ in range(tables):
        cells = int(rng.integers(1, 9))
        weights = rng.integers(0, rng.choice([2, 4, 12, 1000]), cells)
        if not weights.any():
            weights[rng.integers(cells)] = 1
        total = int(weights.sum())
        trials = [
            total,
            max(total + int(rng.integers(-cells, cells + 1)), 0),
            int(rng.integers(0, 3 * total + 2)),
        ]
        yield weights, trials[rng.integers(3)]


def test_equals_the_literal_loop_on_thousands_of_tables(rng):
    ties = 0
    for weights, trials in random_tables(rng, 4000):
        counts = multinomial_mode(weights, trials)
        assert is_mode(weights, counts)
        assert counts.sum() == trials
        assert counts.tolist() == finucan(weights, trials)
        ties += counts.tolist() != finucan(weights, trials, add_lowest=False, remove_lowest=False)
    assert ties > 400, "the tables must tell tie rules apart"


@pytest.mark.parametrize("wrong", [{"add_lowest": False}, {"remove_lowest": False}])
def test_tells_each_phase_of_the_tie_rule_apart(rng, wrong):
    assert any(multinomial_mode(w, m).tolist() != finucan(w, m, **wrong) for w, m in random_tables(rng, 500))


def test_no_other_counts_are_likelier():
    weights = [3, 1, 4]
    for trials in range(9):
        best = multinomial_mode(weights, trials)
        likelihoods = [
            sum(k * log(w) - lgamma(k + 1) for k, w in zip((a, b, trials - a - b), weights))
            for a in range(trials + 1)
            for b in range(trials + 1 - a)
        ]
        ours = sum(k * log(w) - lgamma(k + 1) for k, w in zip(best.tolist(), weights))
        assert ours >= max(likelihoods) - 1e-12


@pytest.mark.parametrize("cells", [300, 3000])
def test_large_values_and_tables_mix(rng, cells):
    for spread in (1, 3, 8):
        weights = np.floor(rng.lognormal(3, spread, cells)).astype(np.int64)
        weights[rng.random(cells) < 0.3] = 0
        total = int(weights.sum())
        for trials in (total, total + 5, total - 7, total // 3, 2 * total, total - cells):
            counts = multinomial_mode(weights, trials)
            assert counts.sum() == trials
            assert is_mode(weights, counts)


def test_many_equal_large_cells_share_by_the_tie_rule():
    weights = np.full(1000, 10**9)
    short = multinomial_mode(weights, 10**12 - 3)
    assert (short[:3] == 10**9 - 1).all()
    assert (short[3:] == 10**9).all()
    start_below = multinomial_mode(weights, 10**12 - 700)
    assert (start_below[:300] == 10**9).all()
    assert (start_below[300:] == 10**9 - 1).all()
    half = multinomial_mode(weights, 1001)
    assert half.sum() == 1001
    assert is_mode(weights, half)


def test_exact_at_the_largest_counts(rng):
    for _ in range(200):
        weights = [int(w) for w in rng.integers(2**57, 2**58, 5)]
        weights[1] = weights[0] + int(rng.integers(-1, 2))
        for trials in (sum(weights) - 2, sum(weights) + 3, LARGEST_COUNT - 1, 12345):
            counts = multinomial_mode(weights, trials)
            assert sum(counts.tolist()) == trials
            assert is_mode(weights, counts)


def test_a_comparison_in_doubles_would_be_wrong_here():
    big = 2**59
    counts = multinomial_mode([big, big + 1], 2 * big + 2)
    assert Fraction(big + 1, big + 2) > Fraction(big, big + 1)
    assert counts.tolist() == [big, big + 2]


def test_total_as_published_examples():
    assert multinomial_mode([1, 9], 11).tolist() == [1, 10]
    assert multinomial_mode([5, 5, 5], 14).tolist() == [4, 5, 5]
    assert multinomial_mode([0, 3, 0], 7).tolist() == [0, 7, 0]
    assert multinomial_mode([], 0).tolist() == []


TREE = np.array([1, 3, 6, 8, 8, 8, 8, 8, 8])  # root; 1, 2; leaves 3 4 5 under 1, 6 7 under 2


def test_tree_goes_from_the_top(rng):
    for _ in range(300):
        weights = rng.integers(0, 9, 8) + 1
        counts = multinomial_mode_tree(TREE, weights, 20)
        assert counts[0] == 20
        assert counts[1:3].tolist() == finucan(weights[1:3], 20)
        assert counts[3:6].tolist() == finucan(weights[3:6], counts[1])
        assert counts[6:].tolist() == finucan(weights[6:], counts[2])


def test_exact_nodes_keep_their_count_and_bound_their_ancestors(rng):
    exact = np.full(8, -1)
    exact[[4, 6]] = 7, 5
    for _ in range(300):
        weights = rng.integers(1, 9, 8)
        counts = multinomial_mode_tree(TREE, weights, 20, exact=exact)
        assert counts[4] == 7
        assert counts[6] == 5
        assert counts[1:3].tolist() == pytest.approx(greedy(weights[1:3], 20, [7, 5]), abs=1)
        assert max(weights[i] / (counts[i] + 1) for i in (1, 2)) <= min(
            [weights[i] / counts[i] for i in (1, 2) if counts[i] > (7, 5)[i - 1]], default=np.inf
        )
        assert counts[3:6].sum() == counts[1]
        assert counts[[3, 5]].tolist() == finucan(weights[[3, 5]], counts[1] - 7)
        assert counts[6:].sum() == counts[2]


def test_contradictory_exact_nodes_are_refused():
    exact = np.full(8, -1)
    exact[[2, 6, 7]] = 4, 3, 3
    with pytest.raises(InfeasibleError, match="node 2"):
        multinomial_mode_tree(TREE, np.ones(8, int), 20, exact=exact)
    exact[2] = 6
    assert multinomial_mode_tree(TREE, np.ones(8, int), 5, exact=exact)[0] == 6


def test_no_weight_is_an_error_or_uniform():
    with pytest.raises(InfeasibleError, match="uniform"):
        multinomial_mode([0, 0], 3)
    assert multinomial_mode([0, 0], 0).tolist() == [0, 0]
    assert multinomial_mode([0, 0, 0], 4, empty="uniform").tolist() == finucan([1, 1, 1], 4)


def test_bad_counts_are_refused():
    for weights in ([-1, 2], [0.5, 1], [2**62, 2**62], [True, False]):
        with pytest.raises(DataError):
            multinomial_mode(weights, 1)
    with pytest.raises(DataError):
        multinomial_mode([1], -1)
    with pytest.raises(SpecError):
        multinomial_mode([0], 1, empty="split")
