"""The posterior behind released counts: against enumeration, published tables, and calibration."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from tests.inferring.released import FIVE, HALF, ONE, TWO, alpha, p_value, ranks_within, uniform_p_value
from tests.parameters import one_in
from tests.reference.finucan import finucan
from tests.reference.released import (
    draw_release,
    enumerate_posterior,
    enumerate_summed,
    enumerate_summed_under,
    evenly,
    mode_release,
    redrawn,
    shuffled_release,
)
from trueup.errors import InfeasibleError, SpecError
from trueup.inferring.released import two_parts
from trueup.inferring.released.posterior import ModePosterior, draw_posterior
from trueup.inferring.released.zero import ZeroPosterior
from trueup.kernel.multinomial.mode import multinomial_mode
from trueup.layouts.released import ReleasedSum
from trueup.model.prior import FLAT, Bounded, Masses, Poisson
from trueup.noise import DiscreteGaussian, DiscreteLaplace, Laplace, TruncatedGeometric

SEVEN_TENTHS = DiscreteLaplace(Fraction(7, 10))
DRAWS = 60_000


def embedded(posterior, counts):
    """Put a table of two parts on counts 0..counts - 1."""
    first, second, mass = posterior
    out = np.zeros((counts, counts))
    rows, columns = first < counts, second < counts
    out[np.ix_(first[rows], second[columns])] = mass[np.ix_(rows, columns)]
    return out


CASES = [
    pytest.param((2, 2, 3), (ONE, ONE, ONE), ONE, marks=pytest.mark.slow),
    ((0, 1, 6), (ONE, TWO, ONE), SEVEN_TENTHS),
    ((4, 4, 4), (ONE, ONE, ONE), TWO),
    ((0, 3, 0), (SEVEN_TENTHS, ONE, ONE), ONE),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("k", "laws", "total"), CASES)
def test_three_parts_follow_the_enumerated_posterior(rng, k, laws, total):
    problem = ReleasedSum(np.array(k), laws, total, empty="error")
    posterior = ModePosterior.of(problem)
    assert posterior.left_out < 1e-10
    draws, _ = posterior.draw(DRAWS, rng)
    counts = 16
    masses = enumerate_posterior(k, [alpha(x) for x in laws], alpha(total), counts, mode_release())
    inside = draws[(draws < counts).all(axis=1)]
    assert len(inside) > 0.99 * DRAWS
    assert p_value(inside, masses) > 1e-6
    wrong_ties = mode_release(add_lowest=False, remove_lowest=False)
    other_total = alpha(total) ** 1.2
    mutants = [
        enumerate_posterior(k, [alpha(x) for x in laws], other_total, counts, mode_release()),
        enumerate_posterior(k, [alpha(x) ** 1.1 for x in laws], alpha(total), counts, mode_release()),
    ]
    if 0 not in k:
        mutants.append(enumerate_posterior(k, [alpha(x) for x in laws], alpha(total), counts, wrong_ties))
    for mutant in mutants:
        assert p_value(inside, mutant) < 1e-6


@pytest.mark.parametrize("k", [(3, 5), (0, 4), (6, 6)])
def test_two_parts_equal_enumeration(k):
    counts = 45
    masses = enumerate_posterior(k, [alpha(ONE), alpha(TWO)], alpha(ONE), counts, mode_release())
    ours = embedded(two_parts(ReleasedSum(np.array(k), (ONE, TWO), ONE, empty="error")), counts)
    assert np.abs(ours - masses).max() < 1e-9


def test_two_parts_behind_truncated_noise_equal_enumeration():
    """Their noise is as likely as not near its bound: a window of one bound would leave out 6e-5 of a mass."""
    own, of_total, k = TruncatedGeometric("1", 3), TruncatedGeometric("1/2", 3), (2, 1)
    true, noisy = np.arange(10), np.arange(13)
    given = own.pmf(noisy - true[:, None])
    given[:, 0] = own.cdf(-true)
    led = [[tuple(multinomial_mode([a, b], 3, empty="uniform")) == k for b in noisy] for a in noisy]
    masses = given @ np.array(led) @ given.T * of_total.pmf(3 - true[:, None] - true)
    ours = embedded(two_parts(ReleasedSum(np.array(k), (own, own), of_total)), 10)
    assert np.abs(ours - masses / masses.sum()).max() < 1e-12


@pytest.mark.parametrize("k", [(3, 5), (0, 4)])
def test_two_parts_behind_a_draw_equal_enumeration(k):
    counts = 60
    masses = enumerate_posterior(k, [alpha(ONE), alpha(TWO)], alpha(ONE), counts, draw_release)
    problem = ReleasedSum(np.array(k), (ONE, TWO), ONE, empty="error")
    assert np.abs(embedded(two_parts(problem, drawn=True), counts) - masses).max() < 1e-9


@pytest.mark.thorough
@pytest.mark.parametrize("k", [(3, 5), (0, 4), (1, 2)])
@pytest.mark.parametrize("empty", ["error", "uniform"])
def test_two_parts_behind_algorithm_1_equal_enumeration(k, empty):
    release = draw_release if empty == "error" else evenly(draw_release)
    masses = enumerate_posterior(k, [alpha(ONE), alpha(TWO)], alpha(ONE), 70, release, redrawn)
    problem = ReleasedSum(np.array(k), (ONE, TWO), ONE, empty=empty, algorithm=1)
    assert np.abs(embedded(two_parts(problem, drawn=True), 70) - masses).max() < 1e-9
    second = ReleasedSum(np.array(k), (ONE, TWO), ONE, empty=empty)
    assert np.abs(embedded(two_parts(second, drawn=True), 70) - masses).max() > 1e-3


def test_two_parts_with_shuffled_ties_equal_enumeration():
    masses = enumerate_posterior((3, 4), [alpha(ONE)] * 2, alpha(ONE), 45, shuffled_release)
    shuffled = ReleasedSum(np.array([3, 4]), (ONE, ONE), ONE, empty="error", ties="shuffled")
    assert np.abs(embedded(two_parts(shuffled), 45) - masses).max() < 1e-9
    first = ReleasedSum(np.array([3, 4]), (ONE, ONE), ONE, empty="error")
    assert np.abs(embedded(two_parts(first), 45) - masses).max() > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("k", one_in(3, [pytest.param(k) for k in ((2, 2, 3), (1, 1, 2), (0, 1, 1))]))
def test_three_parts_with_shuffled_ties_follow_the_enumerated_posterior(rng, k):
    release = evenly(shuffled_release)
    masses = enumerate_posterior(k, [alpha(ONE)] * 3, alpha(ONE), 14, release)
    problem = ReleasedSum(np.array(k), (ONE,) * 3, ONE, ties="shuffled")
    draws, _ = ModePosterior.of(problem).draw(DRAWS, rng)
    inside = draws[(draws < 14).all(axis=1)]
    assert len(inside) > 0.98 * DRAWS
    assert p_value(inside, masses) > 1e-6
    first = enumerate_posterior(k, [alpha(ONE)] * 3, alpha(ONE), 14, evenly(mode_release()))
    never_empty = enumerate_posterior(k, [alpha(ONE)] * 3, alpha(ONE), 14, shuffled_release)
    assert p_value(inside, first) < 1e-6
    if k != (2, 2, 3):  # which a split of nothing hardly ever gives
        assert p_value(inside, never_empty) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [1, 2])
@pytest.mark.parametrize("k", [(1, 1, 1), pytest.param((0, 3, 1), marks=pytest.mark.slow)])
def test_three_parts_behind_a_draw_follow_the_enumerated_posterior(rng, algorithm, k):
    """The chain knows both algorithms, and the split of noisy counts that are all zero.

    At a third of the draws the wrong laws have p values below 1e-80; at a sixth, 1e-9.
    """
    laws = {1: redrawn, 2: None}
    ranges = {a: enumerate_posterior(k, [alpha(ONE)] * 3, alpha(ONE), 15, evenly(draw_release), law)
              for a, law in laws.items()}  # fmt: skip
    problem = ReleasedSum(np.array(k), (ONE,) * 3, ONE, algorithm=algorithm)
    draws = draw_posterior(problem, 2, DRAWS // 3, rng).reshape(-1, 3)[::4]
    inside = draws[(draws < 15).all(axis=1)]
    assert len(inside) > 0.97 * len(draws)
    assert p_value(inside, ranges[algorithm]) > 1e-6
    assert p_value(inside, ranges[3 - algorithm]) < 1e-6
    if (k, algorithm) == ((1, 1, 1), 2):  # elsewhere too rare to be seen in so many draws
        never_empty = enumerate_posterior(k, [alpha(ONE)] * 3, alpha(ONE), 15, draw_release)
        assert p_value(inside, never_empty) < 1e-6


@pytest.mark.parametrize("laws", [(ONE, SEVEN_TENTHS), (TWO, HALF)])
@pytest.mark.parametrize("k", [(3, 5), (0, 4)])
def test_summed_totals_equal_enumeration(laws, k):
    part, total = laws
    problem = ReleasedSum(np.array(k), (part, part), total, total="summed", empty="error")
    assert problem.radius() >= 0
    masses = enumerate_summed(k, alpha(part), alpha(total), 26, noise=16)
    ours = embedded(two_parts(problem), 26)
    assert np.abs(ours / ours.sum() - masses).max() < 2e-5
    independent = embedded(two_parts(ReleasedSum(np.array(k), (part, part), total, empty="error")), 26)
    assert np.abs(independent - masses).max() > 1e-3


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("law", "total_law", "noise"),
    [
        (TruncatedGeometric("1", 4), TruncatedGeometric("1/4", 7), 7),
        (DiscreteGaussian("1"), DiscreteGaussian("9"), 13),
    ],
    ids=["truncated", "gaussian"],
)
def test_totals_summed_under_other_laws_follow_the_enumerated_posterior(rng, law, total_law, noise):
    k = (2, 4)
    problem = ReleasedSum(np.array(k), (law, law), total_law, total="summed", empty="error")
    draws, _ = ModePosterior.of(problem).draw(DRAWS // 2, rng)
    masses = enumerate_summed_under(k, law, total_law, 22, noise)
    assert p_value(draws, masses) > 1e-6
    own, _ = ModePosterior.of(ReleasedSum(np.array(k), (law, law), total_law, empty="error")).draw(
        DRAWS // 2, rng
    )
    assert p_value(own, masses) < 1e-6  # as if the total had been released from its own noisy count


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"total": "summed", "total_law": HALF},
        {"prior": Poisson(4.0)},
        {"prior": Masses((1.0, 0.0, 3.0, 1.0, 1.0, 2.0))},
        {"prior_total": Poisson(12.0)},
        {"prior_total": Masses((1.0,) * 40)},
        {"prior": Poisson((2.0, 5.0)), "prior_total": Masses((1.0,) * 12)},
        {"empty": "uniform", "counts": np.array([1, 2])},
        {"empty": "uniform", "counts": np.array([2, 1]), "total": "summed", "total_law": HALF},
        {"ties": "shuffled", "empty": "uniform", "counts": np.array([2, 1])},
        {"ties": "shuffled", "total": "summed", "total_law": HALF},
    ],
    ids=lambda o: "-".join(o) or "plain",
)
def test_draws_follow_the_table_of_two_parts(rng, options):
    problem = ReleasedSum(
        **{"counts": np.array([3, 5]), "laws": (ONE, TWO), "total_law": ONE, "empty": "error"} | options
    )
    first, second, mass = two_parts(problem)
    posterior = ModePosterior.of(problem)
    assert posterior.left_out < 1e-10
    draws, _ = posterior.draw(DRAWS // 2, rng)
    assert p_value(draws, mass, (first[0], second[0])) > 1e-6
    chains = draw_posterior(problem, 2, DRAWS // 8, rng)
    first, second, mass = two_parts(problem, drawn=True)
    assert p_value(chains.reshape(-1, 2)[::2], mass, (first[0], second[0])) > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"prior": Poisson(4.0)}, {"prior_total": Poisson(12.0)}, {"counts": np.array([1, 2])}],
    ids=lambda o: "-".join(o) or "plain",
)
def test_chains_behind_algorithm_1_follow_the_table_of_two_parts(rng, options):
    problem = ReleasedSum(
        **{"counts": np.array([3, 5]), "laws": (ONE, TWO), "total_law": ONE, "algorithm": 1} | options
    )
    first, second, mass = two_parts(problem, drawn=True)
    chains = draw_posterior(problem, 2, DRAWS // 8, rng)
    assert p_value(chains.reshape(-1, 2)[::4], mass, (first[0], second[0])) > 1e-6


def test_priors_are_priors():
    """A prior on parts multiplies the flat posterior; so does one on the total, over the ways to split it."""
    plain = ReleasedSum(np.array([3, 5]), (ONE, TWO), ONE)
    first, second, mass = two_parts(plain)
    prior = Poisson(4.0)
    both = np.outer(np.exp(prior.logpmf(first)), np.exp(prior.logpmf(second)))
    expected = mass * both
    ours = two_parts(ReleasedSum(np.array([3, 5]), (ONE, TWO), ONE, prior=prior))[2]
    assert np.abs(ours - expected / expected.sum()).max() < 1e-12
    sums = first[:, None] + second[None, :]
    expected = mass * np.exp(prior.logpmf(sums)) / (sums + 1)
    ours = two_parts(ReleasedSum(np.array([3, 5]), (ONE, TWO), ONE, prior_total=prior))[2]
    assert np.abs(ours - expected / expected.sum()).max() < 1e-12


def test_a_flat_total_with_a_multinomial_split_is_a_prior():
    """The flat posterior times the multinomial mass of each split, over every total up to the largest equally."""
    plain = ReleasedSum(np.array([3, 5]), (ONE, TWO), ONE)
    first, second, mass = two_parts(plain)
    sums = first[:, None] + second[None, :]
    expected = mass * binom.pmf(first[:, None], sums, 0.25) * (sums <= 12)
    prior = {"prior": Poisson((2.0, 6.0)), "prior_total": Bounded(12)}
    ours = two_parts(ReleasedSum(np.array([3, 5]), (ONE, TWO), ONE, **prior))[2]
    assert np.abs(ours - expected / expected.sum()).max() < 1e-12


# --- published tables -------------------------------------------------------------------------

TABLE_3 = {
    (250, 357): 0.2136, (251, 356): 0.1282, (251, 357): 0.0786, (250, 356): 0.0786, (249, 358): 0.0654,
    (250, 358): 0.0472, (249, 357): 0.0472, (251, 358): 0.0289, (249, 356): 0.0289, (252, 355): 0.0265,
}  # fmt: skip


def ten_highest(first, second, mass):
    best = np.argsort(-mass, axis=None, kind="stable")[:10]
    rows, columns = np.unravel_index(best, mass.shape)
    return {(int(first[i]), int(second[j])): round(float(mass[i, j]), 4) for i, j in zip(rows, columns)}


def test_table_3_of_wang_and_reiter():
    problem = ReleasedSum(np.array([250, 357]), (ONE, ONE), ONE)
    assert ten_highest(*two_parts(problem)) == TABLE_3
    printed = [0.21, 0.13, 0.08, 0.08, 0.07, 0.05, 0.05, 0.03, 0.03, 0.03]
    assert [round(p, 2) for p in TABLE_3.values()] == printed


@pytest.mark.parametrize("rule", [{}, {"remove_lowest": False}])
def test_table_3_pins_the_tie_rule(rule):
    """The published rows come out with the lowest index first, and with no other rule."""
    k = np.array([250, 357])
    counts = [np.arange(x - 30, x + 31) for x in k]
    mass = np.zeros((61, 61))
    for i, a in enumerate(counts[0]):
        # the mode is monotone in the second weight: a band around the proportional one holds all of B
        for j in np.flatnonzero(np.abs(counts[1] * 250 - a * 357) <= 1300):
            mass[i, j] = finucan([a, counts[1][j]], 607, **rule) == [250, 357]
    given = [alpha(ONE) ** np.abs(x[:, None] - x[None, :]).astype(float) for x in counts]
    sums = counts[0][:, None] + counts[1][None, :]
    posterior = given[0] @ mass @ given[1].T * alpha(ONE) ** np.abs(sums - 607)
    table = ten_highest(counts[0], counts[1], posterior / posterior.sum())
    assert (table == TABLE_3) == (not rule)


def test_table_4_of_the_draft_is_not_what_its_setting_gives():
    """Same ten pairs in the same order as printed, but at .015, not at .03 and .02."""
    problem = ReleasedSum(np.array([250, 357]), (ONE, ONE), ONE)
    table = ten_highest(*two_parts(problem, drawn=True))
    assert list(table) == [(250 + d, 357 - d) for d in (0, 1, -1, 2, -2, 3, -3, 4, -4, 5)]
    assert max(table.values()) < 0.016
    assert min(table.values()) > 0.013


# --- any number of parts ----------------------------------------------------------------------


def release(true, law, total_law, rng):
    noisy = true + law.sample(true.size, rng.bytes)
    total = max(int(true.sum() + total_law.sample(1, rng.bytes)[0]), 0)
    return multinomial_mode(np.maximum(noisy, 0), total, empty="uniform")


def calibration(rng, assumed, replicates):
    """Ranks of one part among independent draws, over replicates from the prior."""
    prior, ranks = Poisson(5.0), []
    while len(ranks) < replicates:
        true = rng.poisson(5.0, 6)
        k = release(true, ONE, ONE, rng)
        if not k.sum():
            continue
        posterior = ModePosterior.of(ReleasedSum(k, (assumed,) * 6, ONE, prior=prior))
        ranks.append(ranks_within(posterior.draw(31, rng)[0], true, rng)[rng.integers(6)])
    return uniform_p_value(ranks)


@pytest.mark.thorough
def test_calibrated_from_a_proper_prior(rng):
    assert calibration(rng, ONE, 250) > 1e-6


@pytest.mark.slow
def test_calibration_tells_wrong_noise_apart(rng):
    assert calibration(rng, ONE, 2000) > 1e-6
    assert calibration(rng, FIVE, 2000) < 1e-6


@pytest.mark.slow
def test_calibrated_behind_a_draw_and_not_as_if_it_were_a_mode(rng):
    prior, right, wrong = Poisson(40.0), [], []
    while len(right) < 300:
        true = rng.poisson(40.0, 3)
        noisy = np.maximum(true + ONE.sample(3, rng.bytes), 0)
        k = rng.multinomial(max(int(true.sum() + ONE.sample(1, rng.bytes)[0]), 1), noisy / noisy.sum())
        problem = ReleasedSum(k, (ONE,) * 3, ONE, prior=prior)
        part = rng.integers(3)
        right.append(ranks_within(draw_posterior(problem, 1, 124, rng)[0, ::4], true, rng)[part])
        wrong.append(ranks_within(ModePosterior.of(problem).draw(31, rng)[0], true, rng)[part])
    assert uniform_p_value(right) > 1e-6
    assert uniform_p_value(wrong) < 1e-6


SCENARIO_4 = np.repeat(
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 27, 36, 53, 435],
    [7, 5, 3, 6, 3, 2, 2, 4, 4, 1, 1, 1, 1, 2, 1, 2, 2, 1, 1, 1],
)


@pytest.mark.slow
def test_coverage_of_the_largest_count_of_scenario_4(rng):
    """Nominal 90 % intervals cover; a naive margin (the noise's own 93 %) around the release does not."""
    covered, naive = 0, 0
    for _ in range(400):
        k = release(SCENARIO_4, ONE, ONE, rng)
        draws, _ = ModePosterior.of(ReleasedSum(k, (ONE,) * 50, ONE)).draw(200, rng)
        low, high = np.quantile(draws[:, -1], [0.05, 0.95], method="inverted_cdf")
        covered += low <= 435 <= high
        naive += abs(int(k[-1]) - 435) <= 2
    assert covered / 400 > 0.9 - 5 * 0.015
    assert naive / 400 < 0.8


def test_draws_are_vectors_that_fit(rng):
    k = release(SCENARIO_4, ONE, ONE, rng)
    posterior = ModePosterior.of(ReleasedSum(k, (ONE,) * 50, ONE))
    draws, accepted = posterior.draw(2000, rng)
    assert draws.shape == (2000, 50)
    assert draws.min() >= 0
    assert abs(draws.sum(axis=1) - k.sum()).max() < 30
    assert accepted > 0.01
    assert posterior.left_out < 1e-10


def test_large_counts_are_not_cut_short(rng):
    """Counts in the millions: exact intervals, the total pinned by its own noise."""
    true = np.array([9_818_605, 5_194_675, 12_345, 0, 3])
    k = release(true, ONE, ONE, rng)
    draws, _ = ModePosterior.of(ReleasedSum(k, (ONE,) * 5, ONE)).draw(4000, rng)
    assert np.abs(draws.mean(axis=0) - true).max() < 12
    spread = draws.std(axis=0)
    assert spread[:3].max() < 3
    assert spread[:3].min() > 0.8


def test_impossible_and_unsupported_releases_are_refused():
    only_zero = Masses((1.0,))  # and noise of at most a few dozen
    impossible = ReleasedSum(np.array([500, 900]), (ONE, ONE), ONE, prior=only_zero)
    with pytest.raises(InfeasibleError, match="cannot have released"):
        ModePosterior.of(impossible)
    with pytest.raises(SpecError, match="range"):
        ReleasedSum(np.array([-1, 2]), (ONE, ONE), ONE)
    with pytest.raises(SpecError, match="continuous"):
        ReleasedSum(np.array([1, 2]), (Laplace(Fraction(1)), ONE), ONE)
    with pytest.raises(SpecError, match="zero"):
        ModePosterior.of(ReleasedSum(np.array([0, 0]), (ONE, ONE), ONE))
    with pytest.raises(SpecError, match="both"):
        ReleasedSum(np.array([1, 2]), (ONE, ONE), ONE, prior=Masses((1.0, 1.0)), prior_total=Poisson(2.0))
    assert FLAT.window() is None


# --- calibration of every kind of release -----------------------------------------------------


def shuffled_mode(weights, total, rng):
    order = rng.permutation(weights.size)
    out = np.empty_like(weights)
    out[order] = multinomial_mode(weights[order], total, empty="uniform")
    return out


def drawn_split(weights, total, rng):
    shares = weights / weights.sum() if weights.any() else np.full(weights.size, 1 / weights.size)
    return rng.multinomial(total, shares)


def redraw(noisy, rng):
    """One draw from the posterior of each count, given its noisy version."""
    counts = np.arange(max(int(noisy.max()), 0) + 60)
    masses = ONE.pmf(noisy[:, None] - counts[None, :])
    return np.array([rng.choice(counts, p=row / row.sum()) for row in masses])


def split_of_redrawn(noisy, total, rng):
    return drawn_split(redraw(noisy, rng), int(redraw(np.array([total]), rng)[0]), rng)


KINDS = {
    "mode": ({}, lambda n, m, rng: multinomial_mode(np.maximum(n, 0), max(m, 0), empty="uniform")),
    "shuffled": ({"ties": "shuffled"}, lambda n, m, rng: shuffled_mode(np.maximum(n, 0), max(m, 0), rng)),
    "draw": ({}, lambda n, m, rng: drawn_split(np.maximum(n, 0), max(m, 0), rng)),
    "algorithm 1": ({"algorithm": 1}, split_of_redrawn),
}


CHAINS = {"draw", "algorithm 1"}


def calibrated(kind, rng, replicates, believed=None):
    """p value of the ranks of one of three small counts: zeros, ties and empty splits are common."""
    prior, ranks = Poisson(1.5), []
    options, release_of = KINDS[believed or kind][0], KINDS[kind][1]
    for _ in range(replicates):
        true = rng.poisson(1.5, 3)
        k = release_of(true + ONE.sample(3, rng.bytes), int(true.sum() + ONE.sample(1, rng.bytes)[0]), rng)
        problem = ReleasedSum(k, (ONE,) * 3, ONE, prior=prior, **options)
        if not k.any():
            draws = ZeroPosterior.of(problem).draw(31, rng)
        elif (believed or kind) in CHAINS:
            draws = draw_posterior(problem, 1, 124, rng)[0, ::4]
        else:
            draws = ModePosterior.of(problem).draw(31, rng)[0]
        ranks.append(ranks_within(draws, true, rng)[rng.integers(3)])
    return uniform_p_value(ranks)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_release_is_calibrated(kind, rng):
    assert calibrated(kind, rng, 60 if kind in CHAINS else 200) > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_release_is_calibrated_at_length(kind, rng):
    assert calibrated(kind, rng, 1000 if kind in CHAINS else 4000) > 1e-6


@pytest.mark.slow
def test_calibration_tells_algorithm_1_from_a_mode(rng):
    assert calibrated("algorithm 1", rng, 4000, believed="mode") < 1e-6
