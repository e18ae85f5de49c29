"""Masses, cdfs, quantiles and moments against sums at 100 digits; parameters and prices."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from tests.reference import noise_laws as slow
from trueup.errors import PrivacyError, SpecError
from trueup.noise import (
    LAWS,
    Cost,
    DiscreteGaussian,
    DiscreteLaplace,
    Exact,
    Gaussian,
    Laplace,
    Law,
    Sensitivity,
    TruncatedGeometric,
    law_named,
)

DISCRETE = [
    *(DiscreteLaplace(e) for e in ("1/4", "1/2", "1", "5", "300")),
    *(DiscreteGaussian(s) for s in ("1/10000", "1/5", "1/2", "0.99", "1", "8.9", "9.1", "1000")),
    *(
        TruncatedGeometric(e, b)
        for e, b in (("1", 50), ("1/10", 20), ("1/1000000", 40), ("30", 5), ("0.4", 1))
    ),
]
ALL = [*DISCRETE, Exact(), Laplace("3/2"), Gaussian("7/2")]
ONE, TWO = Sensitivity.of(1, 1), Sensitivity.of(2, 1)


def points(law) -> np.ndarray:
    """Return integers where the mass is a normal double."""
    reach = int(min(law.reach(1e-290), law.support[1]))
    return np.unique(
        np.concatenate([np.arange(-min(reach, 6), min(reach, 6) + 1), np.linspace(-reach, reach, 41)])
    ).round()


@pytest.mark.parametrize("law", DISCRETE, ids=str)
def test_masses_and_tails_agree_with_sums_of_the_definition(law):
    mp.mp.dps = 340  # the tails down to 1e-290
    try:
        k = np.unique(points(law))
        mass, reach = slow.mass_of(law), int(law.support[1]) if np.isfinite(law.support[1]) else None
        reach = reach if reach is not None else int(2 * np.abs(k).max()) + 60
        masses = {j: mass(j) for j in range(-reach, reach + 1)}
        whole = mp.fsum(masses.values())
        tails, total = {-reach - 1: mp.mpf(0)}, mp.mpf(0)
        for j, m in masses.items():
            total += m / whole
            tails[j] = total
        ours = law.logpmf(k), law.cdf(k), law.sf(k)
        for x, logpmf, cdf, sf in zip(k.astype(int).tolist(), *ours):
            assert logpmf == pytest.approx(float(mp.log(masses[x] / whole)), rel=1e-13, abs=1e-13)
            assert cdf == pytest.approx(float(tails[x]), rel=1e-12)
            assert sf == pytest.approx(float(tails[-x - 1]), rel=1e-12)
        second = mp.fsum(j**2 * m for j, m in masses.items()) / whole
        fourth = mp.fsum(j**4 * m for j, m in masses.items()) / whole
        assert law.variance == pytest.approx(float(second), rel=1e-12)
        assert law.fourth_moment == pytest.approx(float(fourth), rel=1e-12)
    finally:
        mp.mp.dps = 100


@pytest.mark.parametrize("epsilon", ["1/1000000", "1/1000", "1000", "268435456"])
def test_the_discrete_laplace_at_extreme_widths(epsilon):
    law, e = DiscreteLaplace(epsilon), slow.number(Fraction(epsilon))
    q = mp.exp(-e)
    assert law.variance == pytest.approx(float(2 * q / (1 - q) ** 2), rel=1e-13)
    for k in (0, 1, 3, int(2 / float(law.epsilon)), int(600 / float(law.epsilon))):
        assert law.logpmf(k) == pytest.approx(float(mp.log(mp.tanh(e / 2)) - e * k), rel=1e-13, abs=1e-14)
        assert law.sf(k) == pytest.approx(float(q ** (k + 1) / (1 + q)), rel=1e-10)


@pytest.mark.parametrize("sigma2", [2**20 + 1, 10**9, 10**12, 2**56])
def test_the_wide_discrete_gaussian_joins_the_table_and_the_normal_law(sigma2):
    law, sigma = DiscreteGaussian(sigma2), np.sqrt(float(sigma2))
    assert law.variance == pytest.approx(sigma2)
    for z in (0.0, 0.5, 2.0, 10.0, 30.0):
        a = np.ceil(z * sigma)
        # Far above the unit spacing the tail is the normal law's at the half-integer, to order 1 / sigma^2.
        assert law.sf(a) == pytest.approx(stats.norm.sf((a + 0.5) / sigma), rel=1e-3 * (1 + z) ** 2 / sigma)
    assert law.quantile(law.cdf(-3 * np.floor(sigma))) == -3 * np.floor(sigma)


def test_both_ways_to_sum_gaussian_tails_agree_where_they_meet():
    from trueup.noise.laws.discrete_gaussian import TABLE_UP_TO, wide_tail_probability

    k = np.arange(1.0, 38_000.0, 111.0)
    table = DiscreteGaussian(TABLE_UP_TO).cdf(-k)
    np.testing.assert_allclose(wide_tail_probability(float(TABLE_UP_TO), k), table, rtol=1e-11)


@pytest.mark.parametrize("law", DISCRETE, ids=str)
def test_quantiles_are_the_smallest_integers_that_reach(law, rng):
    p = np.concatenate([rng.random(200), 10.0 ** rng.uniform(-250, 0, 200), law.cdf(np.arange(-3, 1))])
    p = p[(p > 0) & (p < 1)]
    k = law.quantile(p)
    assert np.all(k == np.round(k))
    assert np.all(law.cdf(k) >= p)
    assert np.all(law.cdf(k - 1) < p)
    assert law.quantile([0, 1]).tolist() == list(law.support)


@pytest.mark.parametrize("law", DISCRETE, ids=str)
def test_reach_leaves_less_than_asked(law):
    for probability in (0.3, 1e-3, 1e-12):
        r = law.reach(probability)
        assert 2 * law.sf(r) <= probability * (1 + 1e-12)
        assert r == 0 or 2 * law.sf(r - 1) > probability * (1 - 1e-12)


@pytest.mark.parametrize("law", DISCRETE, ids=str)
def test_nothing_off_the_integers_or_the_support(law):
    assert law.pmf([0.5, -1.25]).tolist() == [0, 0]
    assert law.cdf(1.7) == law.cdf(1)
    high = law.support[1]
    if np.isfinite(high):
        assert law.pmf([high + 1, -high - 1]).tolist() == [0, 0]
        assert law.cdf([-high - 1, high, high + 3]).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("law", "peer"),
    [(Laplace("3/2"), stats.laplace(scale=1.5)), (Gaussian("7/2"), stats.norm(scale=np.sqrt(3.5)))],
)
def test_continuous_laws_agree_with_scipy(law, peer, rng):
    x, p = rng.normal(size=50) * 5, rng.random(50)
    np.testing.assert_allclose(law.logpmf(x), peer.logpdf(x), rtol=1e-12)
    np.testing.assert_allclose(law.cdf(x), peer.cdf(x), rtol=1e-12)
    np.testing.assert_allclose(law.sf(x), peer.sf(x), rtol=1e-12)
    np.testing.assert_allclose(law.quantile(p), peer.ppf(p), rtol=1e-10)
    assert (law.variance, law.fourth_moment) == pytest.approx((peer.var(), peer.moment(4)))
    with pytest.raises(PrivacyError, match="floating-point"):
        law.sample(3, rng.bytes)


@pytest.mark.parametrize("law", ALL, ids=str)
def test_a_law_is_read_back_from_its_parameters(law):
    assert isinstance(law, Law)
    assert law_named(law.name).from_parameters(law.parameters()) == law
    assert all(isinstance(value, str) for value in law.parameters().values())
    assert law.sentence().endswith(".")
    assert hash(law) == hash(type(law).from_parameters(law.parameters()))


@pytest.mark.parametrize("law", LAWS)
def test_a_law_spends_its_budget_exactly(law):
    if law is Exact:
        assert law.for_budget(Fraction(0), ONE).cost(ONE) == Cost("epsilon", Fraction(0))
        return
    for amount, cells, each in product((Fraction(1, 10), Fraction(7, 3)), (1, 2, 5), (1, 3)):
        sensitivity = Sensitivity.of(cells, each)
        cost = law.for_budget(amount, sensitivity).cost(sensitivity)
        assert cost.amount == amount
        assert (cost.delta > 0) == (law is TruncatedGeometric)


def test_ten_tenths_are_one():
    assert sum(DiscreteLaplace("0.1").cost(ONE).amount for _ in range(10)) == 1


@pytest.mark.parametrize(("epsilon", "bound"), [("1", 50), ("1/10", 20), ("1/1000", 4), ("2", 3)])
@pytest.mark.parametrize("moves", [(1,), (1, 1), (2,), (2, 1), (1, 1, 1, 1)])
def test_the_truncated_laws_delta_bounds_the_true_one_closely(epsilon, bound, moves):
    """Delta of the product over moved cells, at epsilon times the L1 distance, by its definition."""
    law = TruncatedGeometric(epsilon, bound)
    sensitivity = Sensitivity(Fraction(sum(moves)), Fraction(sum(m * m for m in moves)))
    k = np.arange(-bound - max(moves), bound + max(moves) + 1)
    joint = np.array([(1.0, 1.0)])
    for move in moves:
        pair = np.stack([law.pmf(k), law.pmf(k - move)], axis=1)
        joint = (joint[:, None, :] * pair[None, :, :]).reshape(-1, 2)
        joint = joint[joint.any(axis=1)]
        joint = aggregated(joint)
    cost = law.cost(sensitivity)
    delta = np.sum(np.maximum(joint[:, 0] - np.exp(float(cost.amount)) * joint[:, 1] * (1 + 1e-12), 0))
    assert delta <= float(cost.delta)
    if len(set(moves)) == 1:
        # The sensitivity of four moves by one also allows one move by two.
        furthest = int(np.sqrt(float(sensitivity.l2_squared)))
        worst = max(len(moves) * law.sf(bound - moves[0]), law.sf(bound - furthest))
        assert float(cost.delta) < 1.001 * worst


def aggregated(joint: np.ndarray) -> np.ndarray:
    """Merge outcomes of the same likelihood ratio."""
    with np.errstate(divide="ignore"):
        ratio = np.round(np.log(joint[:, 0]) - np.log(joint[:, 1]), 9)
    _, group = np.unique(ratio, return_inverse=True)
    return np.stack([np.bincount(group, joint[:, i]) for i in (0, 1)], axis=1)


def test_a_move_across_the_whole_support_is_not_protected():
    assert TruncatedGeometric("1", 2).cost(Sensitivity.of(1, 5)).delta == 1


def test_names_and_their_alias():
    assert LAWS.names[:2] == ("discrete-laplace", "discrete-gaussian")
    assert law_named("two-sided-geometric") is DiscreteLaplace
    with pytest.raises(SpecError, match="did you mean 'discrete-gaussian'"):
        law_named("discrete_gausian")
