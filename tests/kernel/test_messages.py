"""Tree messages against enumeration, for every law, prior and kind of knowledge."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernel.message_trees import LAWS, build, leaves_of, logs, p_value
from tests.reference.posterior import enumerate_tree, marginal
from trueup.kernel.messages import downward as downward_module
from trueup.kernel.messages.downward import downward, products
from trueup.kernel.messages.pmf import OPEN
from trueup.kernel.messages.solve import joint_draws, marginals, mode, solve
from trueup.kernel.messages.tails import beyond
from trueup.kernel.messages.upward import upward
from trueup.model.prior import Bounded, FlatTotal, Masses, NegativeBinomial, Poisson
from trueup.noise import law_named

STAR = np.array([1, 4, 4, 4, 4])
DEEP = np.array([1, 3, 6, 7, 7, 7, 7, 7])
"""A root with two children; three grandchildren under the first, one under the second."""


def agree(child_ptr, factors, log_factors, ranges, tolerance=1e-9):
    """Compare every node's marginal with enumeration."""
    solved = solve(child_ptr, factors)
    assert solved.dropped <= 1e-9
    start, offset, masses = marginals(solved)
    nodes, mass = enumerate_tree(child_ptr, log_factors, ranges)
    for v in range(len(child_ptr) - 1):
        values, wanted = marginal(nodes[:, v], mass)
        window = masses[start[v] : start[v + 1]]
        at = values - offset[v]
        inside = (at >= 0) & (at < len(window))
        found = np.where(inside, window[np.clip(at, 0, len(window) - 1)], 0.0)
        np.testing.assert_allclose(found, wanted, atol=tolerance)
    return solved, nodes, mass


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("child_ptr", [STAR, DEEP], ids=["star", "deep"])
def test_marginals_equal_enumeration_for_every_law(name, child_ptr, rng):
    law = LAWS[name]
    reach = 12 if len(leaves_of(child_ptr)) == 4 else 40
    n = len(child_ptr) - 1
    measured = {v: [(law, int(rng.integers(-2, 6)))] for v in range(1, n)} | {0: [(law, 7)]}
    short = law_named("discrete-gaussian")("1/2")  # keeps the enumeration small
    for leaf in leaves_of(child_ptr):
        measured[int(leaf)] = [*measured[int(leaf)], (short, int(rng.integers(0, 4)))]
    ranges = [range(reach)] * len(leaves_of(child_ptr))
    agree(child_ptr, build(child_ptr, measured), logs(measured), ranges)


@pytest.mark.parametrize(
    "prior",
    [Bounded(7), Poisson(2.5), Poisson((1.0, 2.0, 5.0)), NegativeBinomial(2.0, 0.6), NegativeBinomial(3.0, 4.0),
     Masses((0.5, 0.2, 0.0, 0.3))],
    ids=repr,
)  # fmt: skip
def test_priors_equal_enumeration(prior):
    law = law_named("discrete-gaussian")("2")
    measured = {0: [(law, 9)], 1: [(law, 1)], 2: [(law, 4)], 3: [(law, -1)]}
    extra = {}
    for cell, leaf in enumerate((1, 2, 3)):

        def log(x, cell=cell, leaf=leaf):
            return law.logpmf(measured[leaf][0][1] - x) + prior.at(cell).logpmf(x)

        extra[leaf] = log
    agree(STAR, build(STAR, measured, prior=prior), logs(measured, extra), [range(25)] * 3)


@pytest.mark.parametrize("split", ["uniform", "multinomial"])
def test_a_flat_prior_on_the_total_is_flat(split):
    """Without measurements the total's marginal is the prior itself, and parts follow the stated law."""
    prior = FlatTotal(9, split)
    solved = solve(STAR, build(STAR, {}, prior=prior))
    start, offset, masses = marginals(solved)
    assert offset[0] == 0
    np.testing.assert_allclose(masses[: start[1]], 0.1, atol=1e-12)
    mean = masses[start[1] : start[2]] @ np.arange(start[2] - start[1])
    assert mean == pytest.approx(1.5)


def test_invariants_bounds_and_unmeasured_nodes():
    law = law_named("discrete-laplace")("1/2")
    measured = {3: [(law, 2)], 4: [(law, 5)], 2: [(law, 3)]}  # leaves 5 and 6, node 1 and the root unmeasured
    lower, upper = np.zeros(7, np.int64), np.full(7, OPEN)
    lower[0] = upper[0] = 14  # an invariant
    lower[1], upper[5] = 6, 3
    extra = {
        0: lambda x: np.where(x == 14, 0.0, -np.inf),
        1: lambda x: np.where(x >= 6, 0.0, -np.inf),
        5: lambda x: np.where(x <= 3, 0.0, -np.inf),
    }
    factors = build(DEEP, measured, lower=lower, upper=upper)
    solved, _, _ = agree(DEEP, factors, logs(measured, extra), [range(15)] * 4)
    assert (joint_draws(solved, 50, np.random.default_rng(0))[:, 0] == 14).all()


def test_a_precise_total_far_from_its_parts():
    """Parts add up to 60 standard deviations more than the total; untilted sums would underflow."""
    loose, tight = law_named("discrete-gaussian")("4"), law_named("discrete-gaussian")("1/4")
    parts = np.array([40, 42, 44])
    measured = {0: [(tight, 9)], **{k + 1: [(loose, int(p))] for k, p in enumerate(parts)}}
    factors = build(STAR, measured, depth=2000.0)
    agree(STAR, factors, logs(measured), [range(20)] * 3)


def test_the_bound_on_dropped_mass_holds():
    law = law_named("discrete-laplace")("1/2")
    measured = {0: [(law, 30)], 1: [(law, 6)], 2: [(law, 9)], 3: [(law, 12)]}
    exact = solve(STAR, build(STAR, measured))
    rough = solve(STAR, build(STAR, measured, depth=6.0), tolerance=0.5)
    wide, narrow = marginals(exact), marginals(rough)
    assert rough.dropped > 1e-6
    for v in range(4):
        first = narrow[1][v] - wide[1][v]
        size = narrow[0][v + 1] - narrow[0][v]
        kept = wide[2][wide[0][v] + first : wide[0][v] + first + size].sum()
        assert 1 - kept <= rough.dropped


@pytest.mark.thorough
def test_fast_convolutions_agree_with_direct_ones_within_their_bound(rng, monkeypatch):
    law = law_named("discrete-laplace")("1/50")
    noisy = rng.integers(0, 400, 40)
    child_ptr = np.array([1, *[41] * 41])
    measured = {0: [(law, int(noisy.sum()) - 900)], **{k + 1: [(law, int(y))] for k, y in enumerate(noisy)}}
    solved = solve(child_ptr, build(child_ptr, measured))
    assert solved.dropped <= 1e-9
    share = np.full(len(solved.plan.left), 1e-18)
    direct = upward(solved.plan, solved.tilted, share, 1 << 30)
    down, rounding = downward(solved.plan, solved.tilted, direct, direct=1 << 30)
    assert rounding == 0
    by_terms = products(direct.masses, direct.offset, down, 0, 41)
    start, offset, masses = marginals(solved)
    for v in range(41):
        ours = masses[start[v] : start[v + 1]] @ (offset[v] + np.arange(start[v + 1] - start[v]))
        size = by_terms[0][v + 1] - by_terms[0][v]
        theirs = by_terms[2][by_terms[0][v] : by_terms[0][v + 1]] @ (by_terms[1][v] + np.arange(size))
        assert ours == pytest.approx(theirs, rel=1e-9)
    fast, bound = downward(solved.plan, solved.tilted, direct)
    apart = [0.5 * np.abs(fast[v] - down[v]) @ np.asarray(direct.masses[v]) for v in range(41)]
    assert 0 < max(apart) <= bound < 1e-11
    assert marginal_bound(monkeypatch, solved, direct) == 0


def marginal_bound(monkeypatch, solved, messages):
    """The bound where hardly any rounding is allowed: convolutions are by terms then."""
    monkeypatch.setattr(downward_module, "ROUNDED", 1e-300)
    return downward(solved.plan, solved.tilted, messages)[1]


def joint_problem():
    law = law_named("discrete-laplace")("1")
    measured = {0: [(law, 6)], 1: [(law, 2)], 2: [(law, 1)], 3: [(law, 1)]}
    solved, nodes, mass = agree(STAR, build(STAR, measured), logs(measured), [range(40)] * 3)
    return law, measured, solved, nodes, mass


def test_joint_draws_follow_the_posterior(rng):
    _, _, solved, nodes, mass = joint_problem()
    assert p_value(joint_draws(solved, 40_000, rng), nodes, mass) > 1e-6


@pytest.mark.parametrize("mutant", ["noise 10 % too wide", "total ignored", "total off by one"])
def test_the_joint_test_rejects_wrong_samplers(mutant, rng):
    law, measured, _, nodes, mass = joint_problem()
    wrong = dict(measured)
    if mutant == "noise 10 % too wide":
        wide = law_named("discrete-laplace")("9/10")
        wrong = {v: [(wide, value)] for v, [(_, value)] in measured.items()}
    if mutant == "total ignored":
        del wrong[0]
    if mutant == "total off by one":
        wrong[0] = [(law, 5)]
    draws = joint_draws(solve(STAR, build(STAR, wrong)), 40_000, rng)
    assert p_value(draws, nodes, mass) < 1e-6


def test_draws_are_whole_additive_and_inside_bounds(rng):
    law = law_named("discrete-laplace")("1/10")
    measured = {v: [(law, int(rng.integers(-20, 20)))] for v in range(7)}
    draws = joint_draws(solve(DEEP, build(DEEP, measured)), 500, rng)
    assert draws.dtype == np.int64
    assert (draws >= 0).all()
    assert (draws[:, 0] == draws[:, 1:3].sum(axis=1)).all()
    assert (draws[:, 1] == draws[:, 3:6].sum(axis=1)).all()
    assert (draws[:, 2] == draws[:, 6]).all()


@pytest.mark.parametrize("child_ptr", [STAR, DEEP], ids=["star", "deep"])
def test_the_mode_is_a_mode(child_ptr, rng):
    law = law_named("discrete-gaussian")("3")
    for _ in range(5):
        measured = {v: [(law, int(rng.integers(-3, 9)))] for v in range(len(child_ptr) - 1)}
        solved, nodes, mass = agree(
            child_ptr,
            build(child_ptr, measured),
            logs(measured),
            [range(14)] * len(leaves_of(child_ptr)),
            1e-4,
        )
        found = mode(solved)
        at = np.flatnonzero((nodes == found).all(axis=1))
        assert mass[at[0]] == pytest.approx(mass.max(), rel=1e-9)


@pytest.mark.parametrize("size", [0.2, 0.7, 1.0, 3.0])
@pytest.mark.parametrize("depth", [3.0, 8.0])
def test_the_mass_beyond_a_prior_is_bounded(size, depth):
    """Negative binomials below size 1 are not log-concave; a bound that takes them so is too small."""
    prior, counts = NegativeBinomial(mean=50.0, size=size), np.arange(200_000)
    law = law_named("discrete-laplace")("1/10")
    for measured in ({}, {1: [(law, 40)]}, {1: [(law, 4)]}):
        factors = build(np.array([1, 2, 2]), measured, prior=prior, depth=depth)
        tilted = solve(np.array([1, 2, 2]), factors).tilted._replace(slope=np.zeros(2), top=np.zeros(2))
        logs_of_noise = [x.logpmf(y - counts) for x, y in measured.get(1, [])]
        masses = np.exp(np.sum([prior.logpmf(counts), *logs_of_noise], axis=0))
        actual = masses.sum() - masses[tilted.low[1] : tilted.high[1] + 1].sum()
        assert actual <= np.exp(beyond(tilted, 1, 0.0)) * (1 + 1e-9)
        if size < 1 and not measured:
            bent = tilted._replace(factors=factors._replace(open_ended=np.ones(len(factors.open_ended))))
            assert actual > np.exp(beyond(bent, 1, 0.0))


PAIRS = np.array([1, 3, 5, 7, 7, 7, 7, 7])
"""A root with two children of two children each."""


@pytest.mark.parametrize("values", [[30, 0, 0, 16, 0, 1, 0], [34, 14, 0, 16, 0, 1, 0], [6, 3, 9, 8, 0, 1, 0]])
def test_narrow_laws_that_contradict_each_other(values):
    """Less probable above a node than any double, with nothing lost below: 0 times infinity is nothing lost."""
    law = law_named("discrete-laplace")("40")
    measured = {v: [(law, value)] for v, value in enumerate(values)}
    factors = build(PAIRS, measured, depth=960.0)
    leaves = [range(22), range(8), range(22), range(8)]
    agree(PAIRS, factors, logs(measured), leaves)
