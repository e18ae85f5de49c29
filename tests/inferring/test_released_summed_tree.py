"""Released counts of a tree whose totals rest on the noisy parts below as well: against enumeration, and from releases."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tests.inferring.problems import states, tree_constraints
from tests.inferring.released import HALF, p_value, ranks_within, uniform_p_value
from tests.inferring.test_released_tree import KINDS, headers_of, posterior_of, released, tree_of
from tests.reference.released import enumerate_summed_tree
from trueup.errors import ConvergenceError, SpecError
from trueup.inferring.released.summed import SummedTreeChain
from trueup.inferring.released.summed_splits import compatible_order, refuse_large_splits
from trueup.inferring.released.tree import draw_tree
from trueup.inferring.released_multinomial import ReleasedMultinomial
from trueup.kernel.multinomial.mode import multinomial_mode
from trueup.model.prior import FLAT, Bounded, Poisson, Prior
from trueup.noise import DiscreteGaussian, DiscreteLaplace, TruncatedGeometric
from trueup.reconciling.multinomial import MultinomialMode, MultinomialSample
from trueup.run import Deadline

LEVELS = ("nation", "state", "county")
LAWS = tuple(TruncatedGeometric(epsilon, 1) for epsilon in ("1/2", "1", "3/4"))
OTHER = tuple(TruncatedGeometric(epsilon, 1) for epsilon in ("2", "1", "3/4"))
ENDS = (1, 1, 1)
"""Bounds of the noise of the levels."""
OPEN_LAWS = (DiscreteLaplace(Fraction(1)), DiscreteLaplace(Fraction(5, 2)), DiscreteGaussian(Fraction(1, 2)))
FAR = (18, 7, 5)
METHODS = {
    "mode": MultinomialMode(total="summed"),
    "shuffled": MultinomialMode(total="summed", ties="shuffled"),
    "draw": MultinomialSample(total="summed"),
    "algorithm 1": MultinomialSample(total="summed", algorithm=1),
}
RELEASED = [((1, 2), (2, 0)), ((3, 1), (0, 0)), ((2, 2), (1, 2))]


def summed_tree(k, kind, prior: Prior = FLAT, sizes=(2, 2), laws=LAWS):
    return replace(tree_of(k, kind, prior, sizes, **dict(zip(LEVELS, laws))), summed=True)


def every_node(leaves):
    """Counts of the nation, two states and four counties."""
    in_states = leaves[:, ::2] + leaves[:, 1::2]
    return np.hstack([in_states.sum(axis=1, keepdims=True), in_states, leaves])


U = 1.3
"""An auxiliary number of every split behind a draw."""


def weighed(a, k):
    """What weights are worth behind a draw given its auxiliary number."""
    if not any(a):
        least = sum(max(x, 1) for x in k)
        return (least / len(k)) ** sum(k) * np.exp(-least * U)
    return float(np.prod([float(x) ** y * np.exp(-U * x) for x, y in zip(a, k)]))


def distance(one, other):
    """Total variation of two lists of masses, each up to a constant."""
    return 0.5 * np.abs(one / one.sum() - other / other.sum()).sum()


@pytest.mark.slow
@pytest.mark.parametrize("k", RELEASED)
def test_behind_modes_the_posterior_is_that_of_every_noise(k, rng):
    true = np.array(list(product(range(5), repeat=4)))
    chain = SummedTreeChain(summed_tree(sum(k, ()), "mode"), rng)
    ours = np.exp([chain.log_likelihood(row) for row in every_node(true)])
    masses = enumerate_summed_tree(k, LAWS, ENDS, true, KINDS["mode"][2])
    assert distance(ours, masses) < 1e-10
    assert ours.sum() == pytest.approx(masses.sum(), rel=1e-10)
    for mutant in (
        enumerate_summed_tree(k, LAWS, ENDS, true, KINDS["mode"][2], summed=False),
        enumerate_summed_tree(k, OTHER, ENDS, true, KINDS["mode"][2]),
    ):
        assert distance(ours, mutant) > 0.01


@pytest.mark.thorough
@pytest.mark.parametrize("k", RELEASED)
def test_behind_draws_it_is_so_given_the_auxiliary_numbers(k, rng):
    true = np.array(list(product(range(4), repeat=4)))
    chain = SummedTreeChain(summed_tree(sum(k, ()), "draw"), rng)
    chain.rate = dict.fromkeys(chain.rate, U)
    ours = np.exp([chain.log_likelihood(row) for row in every_node(true)])
    assert distance(ours, enumerate_summed_tree(k, LAWS, ENDS, true, weighed)) < 1e-10


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "release"), [("mode", KINDS["mode"][2]), ("draw", weighed)])
@pytest.mark.parametrize("k", RELEASED[:2])
def test_noise_without_bounds_is_noise_that_ends_far_out(kind, release, k, rng):
    """Beyond the ends lies 1e-8 of it. Totals that rest on their own noisy counts alone are told apart."""
    true = np.array([row for row in product(range(4), repeat=4) if abs(sum(row) - 4) < 3][::12])
    chain = SummedTreeChain(summed_tree(sum(k, ()), kind, laws=OPEN_LAWS), rng)
    chain.rate = dict.fromkeys(chain.rate, U)
    ours = np.exp([chain.log_likelihood(row) for row in every_node(true)])
    masses = enumerate_summed_tree(k, OPEN_LAWS, FAR, true, release)
    assert distance(ours, masses) < 1e-11
    if kind == "mode":
        assert ours.sum() == pytest.approx(masses.sum(), rel=1e-7)
    assert distance(ours, enumerate_summed_tree(k, OPEN_LAWS, FAR, true, release, summed=False)) > 0.01


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 5])
def test_chains_behind_draws_of_many_records_go_on(seed):
    """A first u far from its posterior, or tables of noise 60 nats deep, once ended them: no noisy counts were possible."""
    rng, cells = np.random.default_rng(seed), states((5,) * 4)
    laws = tuple(DiscreteLaplace(Fraction(epsilon)) for epsilon in ("1/4", "1/2", "1"))
    headers = headers_of(cells, **dict(zip(LEVELS, laws)))
    k = released(rng.poisson(20, 20), cells, headers, METHODS["draw"], rng)
    chain = SummedTreeChain(summed_tree(k, "draw", sizes=(5,) * 4, laws=laws), rng)
    assert min(chain.step().min() for _ in range(40)) >= 0


def test_chains_that_would_outlast_the_time_are_refused(rng):
    tree = summed_tree((1, 2, 2, 0), "mode")
    left = Deadline(time.monotonic() + 2, 60.0)
    with pytest.raises(
        SpecError, match=r"1,400 steps of Markov chains are predicted to take .* of 1 minutes"
    ):
        draw_tree(tree, 100, rng, 1000, lambda *_: None, left, SlowChain)
    with pytest.raises(ConvergenceError, match="less than a step"):
        SummedTreeChain(tree, rng, Deadline(time.monotonic() - 1, 60.0)).step()


class SlowChain(SummedTreeChain):
    """A chain whose steps take a hundredth of a second more."""

    def step(self):
        time.sleep(0.01)
        return super().step()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mode", "shuffled", "draw"])
def test_chains_follow_the_enumerated_posterior(kind, rng):
    """Wrong versions are rejected: the other release, and totals that rest on their own noisy counts alone."""
    k, true = RELEASED[0], np.array(list(product(range(6), repeat=4)))
    tree, draws = summed_tree(sum(k, ()), kind, Bounded(5)), []
    chain = SummedTreeChain(tree, rng)
    for step in range(-50, 1500 * 4):
        counts = chain.step()
        if step >= 0 and step % 4 == 0:
            draws.append(counts[tree.problem.nested.nodes[-1]])

    def p_of(release, summed=True):
        masses = enumerate_summed_tree(k, LAWS, ENDS, true, release, summed)
        return p_value(np.array(draws), (masses / masses.sum()).reshape((6,) * 4))

    assert p_of(KINDS[kind][2]) > 1e-6
    assert p_of(KINDS["mode" if kind == "draw" else "draw"][2]) < 1e-6
    if kind != "draw":
        assert p_of(KINDS[kind][2], summed=False) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("laws", [LAWS, (HALF,)])
def test_releases_are_calibrated(kind, laws, rng):
    """Ranks of one of five small counts: zeros, ties and empty splits are common."""
    cells, ranks = states((2, 3)), []
    for _ in range(600):
        true = rng.poisson(1.5, 5)
        k = released(true, cells, headers_of(cells, **dict(zip(LEVELS, laws))), METHODS[kind], rng)
        tree, draws = summed_tree(k, kind, Poisson(1.5), (2, 3), laws), []
        chain = SummedTreeChain(tree, rng)
        for step in range(-20, 31 * 5):
            counts = chain.step()
            if step >= 0 and step % 5 == 0:
                draws.append(counts[tree.problem.nested.nodes[-1]])
        ranks.append(ranks_within(np.array(draws), true, rng)[rng.integers(5)])
    assert uniform_p_value(ranks) > 1e-6


def test_noisy_counts_beyond_the_end_of_a_law_have_no_draws(rng):
    """Algorithm 1 draws a weight from no posterior where the noisy count is too far below zero."""
    chain = SummedTreeChain(summed_tree((1, 2, 0, 0), "algorithm 1"), rng)
    assert np.isfinite(chain.log_likelihood(every_node(np.array([[1, 2, 0, 0]]))[0]))
    assert chain.step().min() >= 0


@pytest.mark.slow
def test_the_verb_gives_draws_that_add_up_and_have_mixed():
    method, laws = ReleasedMultinomial(total="summed"), dict(zip(LEVELS, LAWS))
    posterior = posterior_of([30, 12, 0, 7], method, METHODS["mode"], draws=100, **laws)
    assert posterior.draws.shape == (4, 25, 4)
    assert posterior.drawn.stats["smallest_ess"] >= 400
    assert abs(posterior.draws.sum(axis=-1).mean() - 49) <= 2


def test_a_random_order_of_ties_leads_to_what_was_released(rng):
    for _ in range(300):
        weights = rng.integers(0, 4, 5)
        trials = int(rng.integers(1, 12))
        a = weights if weights.any() else np.ones(5, int)
        shuffle = rng.permutation(5)
        k = np.empty(5, np.int64)
        k[shuffle] = multinomial_mode(a[shuffle], trials)
        order = compatible_order(k, weights, rng)
        assert sorted(order) == list(range(5))
        assert np.array_equal(multinomial_mode(a[order], trials), k[order])


def test_noise_at_the_end_of_its_law_is_no_sign_of_more(rng):
    """A bound that noise often reaches once passed for the edge of a table."""
    law = TruncatedGeometric("1/10", 20)
    tree = tree_of((30, 12, 9, 7), "mode", **dict.fromkeys(LEVELS, law))
    assert np.isinf(tree.edges()).all()


def test_splits_that_do_not_fit_tables_are_refused():
    with pytest.raises(SpecError, match="fewer parts"):
        refuse_large_splits(2**26)


def test_trees_are_read_with_summed_totals():
    cells = states((2, 2))
    headers = headers_of(cells, **dict(zip(LEVELS, LAWS)))
    assert ReleasedMultinomial(total="summed").refuses(tree_constraints(cells), headers) is None
