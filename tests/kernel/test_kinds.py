"""Splits whose parts are of two kinds: against convolution, enumeration and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernel.message_trees import leaves_of
from tests.kernel.test_splits import TREES, distance, log_w, problem
from tests.reference.kinds import part, sum_of_parts
from trueup.kernel.messages.kinds import divisors, mean_slopes, with_divisors
from trueup.kernel.messages.partition import take_factors
from trueup.kernel.messages.pmf import OPEN, reach_all
from trueup.kernel.messages.solve import marginals, solve
from trueup.kernel.messages.tilting import bounds
from trueup.layouts.factors import FactorTable
from trueup.noise import law_named

EVEN = {name: TREES[name] for name in ("star", "deep", "one child")}


@pytest.mark.parametrize("k", [1, 2, 7, 40])
@pytest.mark.parametrize("a", [0.05, 1.0, 12.0])
@pytest.mark.parametrize("lower", [1e-9, 0.02, 0.7])
@pytest.mark.parametrize("log_odds", [-9.0, 0.0, 6.0])
def test_divisors_equal_convolution(k, a, lower, log_odds):
    b = a * lower
    wanted = np.log(sum_of_parts(k, a, b, np.exp(log_odds), 300)) - log_w(np.arange(301), k * a)
    for low in (0, 1, 90):
        ours = divisors(k, a, b, log_odds, low, 301 - low, False)[0]
        np.testing.assert_allclose(ours, wanted[low:], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("k", [1, 3, 30])
@pytest.mark.parametrize("a", [0.1, 4.0])
@pytest.mark.parametrize("lower", [0.001, 0.3])
def test_derivatives_equal_differences(k, a, lower):
    h, size = 1e-5, 200
    at = np.array([2.0 - a, np.log(a), np.log(a * lower)])
    x = np.arange(size)

    def log(theta):
        a, b = np.exp(theta[1:])
        return divisors(k, a, b, theta[0], 0, size, False)[0] + log_w(x, k * a)

    found = divisors(k, a, a * lower, at[0], 0, size, True)
    for i, step in enumerate(h * np.eye(3)):
        np.testing.assert_allclose(found[i + 1], (log(at + step) - log(at - step)) / (2 * h), atol=1e-4)


def test_terms_of_many_parts_at_few_counts_stay_within_floating_point_numbers():
    """The terms of one count may be far from those of the next: each count alone gives the same."""
    for k, a, b, odds in ((200_000, 0.01, 1e-6, 3.0), (1_000, 50.0, 2.0, 40.0), (30_000, 2.0, 0.1, -12.0)):
        every = divisors(k, a, b, odds, 1, 400, True)
        alone = np.hstack([divisors(k, a, b, odds, t, 1, True) for t in range(1, 401, 57)])
        np.testing.assert_allclose(every[:, ::57], alone, rtol=1e-9)


def of_two_kinds(child_ptr, rng, log_odds=None):
    """A problem of `tests.kernel.test_splits` whose leaves are alike and of two kinds; factors, and plain functions."""
    factors, logs = problem(child_ptr, rng)
    a, n = float(np.exp(rng.normal(0, 1))), len(child_ptr) - 1
    b = a * float(rng.uniform() ** 3)
    log_odds = rng.normal(0, 2) if log_odds is None else log_odds
    leaves = leaves_of(child_ptr)
    alpha, total, parts = factors.alpha.copy(), factors.total.copy(), np.zeros(n, np.int64)
    before = alpha.copy(), total.copy()
    alpha[leaves] = a
    for v in range(n):
        if child_ptr[v] < child_ptr[v + 1] and child_ptr[v] in leaves:
            parts[v] = child_ptr[v + 1] - child_ptr[v]
            total[v] = parts[v] * a
    split = (parts > 0) | np.isin(np.arange(n), leaves)
    second, odds = np.where(split, b, 1.0), np.where(split, log_odds, -np.inf)
    factors = factors._replace(alpha=alpha, total=total, second=second, odds=odds, parts=parts)
    factors = with_divisors(factors, *bounds(child_ptr, *reach_all(factors)))

    def log(v):
        def value(x):
            plain = logs[v](x) - log_w(x, before[0][v]) + log_w(x, before[1][v])
            if v in leaves:
                return plain + np.log(part(x, a, b, np.exp(log_odds)))
            if parts[v]:
                sums = sum_of_parts(parts[v], a, b, np.exp(log_odds), 80)
                return plain + log_w(x, alpha[v]) - np.log(sums[np.asarray(x)])
            return logs[v](x)

        return value

    return factors, {v: log(v) for v in range(n)}


def without_divisors(factors):
    """The factors without their last table of each sum: that of its divisor."""
    rows = np.repeat(np.arange(len(factors.parts)), np.diff(factors.ptr))
    kept = np.ones(len(rows), bool)
    kept[factors.ptr[1:][factors.parts > 0] - 1] = False
    sizes = np.bincount(rows[kept], minlength=len(factors.parts))
    return factors._replace(
        ptr=np.concatenate([[0], np.cumsum(sizes)]), base=factors.base[kept], table=factors.table[kept]
    )


@pytest.mark.thorough
@pytest.mark.parametrize("name", EVEN)
def test_posteriors_equal_enumeration(name, rng):
    for _ in range(60):
        assert distance(EVEN[name], *of_two_kinds(EVEN[name], rng)) < 1e-10


@pytest.mark.parametrize("wrong", ["odds a thousandth larger", "divisor forgotten"])
def test_the_comparison_rejects_wrong_kinds(wrong, rng):
    child_ptr = EVEN["deep"]
    factors, logs = of_two_kinds(child_ptr, rng, 0.0)
    if wrong == "divisor forgotten":
        factors = without_divisors(factors)
    else:
        leaf = factors.parts == 0
        factors = factors._replace(odds=np.where(leaf, factors.odds + 1e-3, factors.odds))
    assert distance(child_ptr, factors, logs) > 1e-8


def test_the_gradient_equals_differences_of_the_evidence(rng):
    child_ptr = EVEN["deep"]
    factors, _ = of_two_kinds(child_ptr, rng, 0.5)
    plain = take_factors(factors, np.arange(len(factors.parts)))
    h = 1e-4

    leaf = np.isin(np.arange(len(plain.alpha)), leaves_of(child_ptr))

    def evidence(by_odds, by_a, by_b):
        bare = without_divisors(plain)._replace(
            odds=plain.odds + by_odds,
            alpha=np.where(leaf, plain.alpha * np.exp(by_a), plain.alpha),
            total=np.where(plain.parts > 0, plain.total * np.exp(by_a), plain.total),
            second=plain.second * np.exp(by_b),
        )
        return solve(child_ptr, with_divisors(bare, *bounds(child_ptr, *reach_all(bare))), 1e-13).evidence

    slopes = mean_slopes(*marginals(solve(child_ptr, factors, 1e-13)), factors)
    for slope, step in zip(slopes, h * np.eye(3)):
        assert slope.sum() == pytest.approx((evidence(*step) - evidence(*-step)) / (2 * h), abs=1e-6)


def test_tilts_far_from_the_posterior_lose_no_mass_in_silence(rng):
    """Under them all parts are next to zero, and what is trimmed is below floating-point numbers at the steepest probes."""
    regions, places = 6, 40
    n = 1 + regions + regions * places
    child_ptr = np.concatenate([[1], 7 + places * np.arange(regions + 1), np.full(regions * places, n)])
    truth = np.zeros(n, np.int64)
    truth[7:] = rng.poisson(20.0, n - 7) * (rng.random(n - 7) < 0.1)
    truth[1:7] = truth[7:].reshape(regions, places).sum(axis=1)
    truth[0] = truth[1:7].sum()
    law, table = law_named("discrete-laplace")("1/3"), FactorTable(np.zeros(n, np.int64), np.full(n, OPEN))
    values = truth + law.quantile(rng.random(n)).astype(np.int64)
    table.add_law(law, np.arange(n), values, np.where(np.arange(n) < 7, 960.0, 100.0))
    a, log_odds = 17.0, 16.0
    alpha, total = np.repeat([1.0, 3.5, a], [1, 6, n - 7]), np.repeat([21.0, places * a, 1.0], [1, 6, n - 7])
    odds = np.repeat([-np.inf, log_odds], [1, n - 1])
    table.add_splits((alpha, total, np.full(n, 1e-6), odds, np.repeat([0, places, 0], [1, 6, n - 7])))
    factors = table.build()
    factors = with_divisors(factors, *bounds(child_ptr, *reach_all(factors)))
    good = solve(child_ptr, factors, 1e-9)
    assert good.dropped <= 1e-9
    for steep in (2.0, 4.0, 8.0):
        slope = good.tilted.slope.copy()
        slope[1:7] = steep
        found = solve(child_ptr, factors, 1e-9, good.tilted._replace(slope=slope))
        off = abs(found.evidence - good.evidence)
        assert off <= 1e-7 or -np.expm1(-off) <= found.dropped
