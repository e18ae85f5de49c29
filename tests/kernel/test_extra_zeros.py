"""Splits whose parts have extra zeros: against convolution, enumeration and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernel.message_trees import leaves_of
from tests.kernel.test_splits import TREES, distance, log_w, problem
from tests.reference.extra_zeros import part, sum_of_parts
from trueup.kernel.messages.extra_zeros import divisors, mean_zeros, with_divisors
from trueup.kernel.messages.partition import take_factors
from trueup.kernel.messages.pmf import OPEN, reach_all
from trueup.kernel.messages.solve import marginals, solve
from trueup.kernel.messages.splits import mean_rises
from trueup.kernel.messages.tilting import bounds
from trueup.layouts.factors import FactorTable
from trueup.noise import law_named

EVEN = {name: TREES[name] for name in ("star", "deep", "one child")}


@pytest.mark.parametrize("k", [1, 2, 7, 40])
@pytest.mark.parametrize("a", [0.05, 1.0, 12.0])
@pytest.mark.parametrize("log_odds", [-9.0, 0.0, 6.0])
def test_divisors_equal_convolution(k, a, log_odds):
    wanted = np.log(sum_of_parts(k, a, np.exp(log_odds), 300)) - log_w(np.arange(301), k * a)
    for low in (0, 1, 90):
        ours = divisors(k, a, log_odds, low, 301 - low, False)[0]
        np.testing.assert_allclose(ours, wanted[low:], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("k", [1, 3, 30])
@pytest.mark.parametrize("a", [0.1, 4.0])
def test_derivatives_equal_differences(k, a):
    h, at, size = 1e-5, 2.0 - a, 200
    found = divisors(k, a, at, 0, size, True)
    x = np.arange(size)

    def log(a, log_odds):
        return divisors(k, a, log_odds, 0, size, False)[0] + log_w(x, k * a)

    np.testing.assert_allclose(found[1], (log(a, at + h) - log(a, at - h)) / (2 * h), atol=1e-5)
    np.testing.assert_allclose(
        found[2], (log(a * np.exp(h), at) - log(a * np.exp(-h), at)) / (2 * h), atol=1e-4
    )


def test_terms_of_many_parts_at_few_counts_stay_within_floating_point_numbers():
    """The terms of one count may be far from those of the next: each count alone gives the same."""
    for k, a, log_odds in ((200_000, 0.01, 3.0), (1_000, 50.0, 40.0), (30_000, 2.0, -12.0)):
        every = divisors(k, a, log_odds, 1, 400, True)
        alone = np.hstack([divisors(k, a, log_odds, t, 1, True) for t in range(1, 401, 57)])
        np.testing.assert_allclose(every[:, ::57], alone, rtol=1e-9)


def with_zeros(child_ptr, rng, log_odds=None):
    """A problem of `tests.kernel.test_splits` whose leaves are alike and have extra zeros; factors, and plain functions."""
    factors, logs = problem(child_ptr, rng)
    a, n = float(np.exp(rng.normal(0, 1))), len(child_ptr) - 1
    log_odds = rng.normal(0, 2) if log_odds is None else log_odds
    leaves = leaves_of(child_ptr)
    alpha, total, parts = factors.alpha.copy(), factors.total.copy(), np.zeros(n, np.int64)
    before = alpha.copy(), total.copy()
    alpha[leaves] = a
    for v in range(n):
        if child_ptr[v] < child_ptr[v + 1] and child_ptr[v] in leaves:
            parts[v] = child_ptr[v + 1] - child_ptr[v]
            total[v] = parts[v] * a
    zeros = np.where((parts > 0) | np.isin(np.arange(n), leaves), log_odds, -np.inf)
    factors = factors._replace(alpha=alpha, total=total, zeros=zeros, parts=parts)
    factors = with_divisors(factors, *bounds(child_ptr, *reach_all(factors)))

    def log(v):
        def value(x):
            plain = logs[v](x) - log_w(x, before[0][v]) + log_w(x, before[1][v])
            if v in leaves:
                return plain + np.log(part(x, a, np.exp(log_odds)))
            if parts[v]:
                sums = sum_of_parts(parts[v], a, np.exp(log_odds), 80)
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


@pytest.mark.parametrize("name", EVEN)
def test_posteriors_equal_enumeration(name, rng):
    for _ in range(60):
        assert distance(EVEN[name], *with_zeros(EVEN[name], rng)) < 1e-10


@pytest.mark.parametrize("wrong", ["odds a thousandth larger", "divisor forgotten"])
def test_the_comparison_rejects_wrong_extra_zeros(wrong, rng):
    child_ptr = EVEN["deep"]
    factors, logs = with_zeros(child_ptr, rng, 0.0)
    if wrong == "divisor forgotten":
        factors = without_divisors(factors)
    else:
        leaf = factors.parts == 0
        factors = factors._replace(zeros=np.where(leaf, factors.zeros + 1e-3, factors.zeros))
    assert distance(child_ptr, factors, logs) > 1e-8


def test_the_gradient_equals_differences_of_the_evidence(rng):
    child_ptr = EVEN["deep"]
    factors, _ = with_zeros(child_ptr, rng, 0.5)
    plain = take_factors(factors, np.arange(len(factors.parts)))
    h = 1e-4

    def evidence(by_odds, by_a):
        leaf = np.isin(np.arange(len(plain.alpha)), leaves_of(child_ptr))
        bare = without_divisors(plain)._replace(
            zeros=plain.zeros + by_odds,
            alpha=np.where(leaf, plain.alpha * np.exp(by_a), plain.alpha),
            total=np.where(plain.parts > 0, plain.total * np.exp(by_a), plain.total),
        )
        return solve(child_ptr, with_divisors(bare, *bounds(child_ptr, *reach_all(bare))), 1e-13).evidence

    exact = marginals(solve(child_ptr, factors, 1e-13))
    zeros, rises = mean_zeros(*exact, factors)
    assert zeros.sum() == pytest.approx((evidence(h, 0) - evidence(-h, 0)) / (2 * h), abs=1e-6)
    leaf = np.isin(np.arange(len(plain.alpha)), leaves_of(child_ptr))
    of_leaves = (factors.alpha * mean_rises(*exact, factors.alpha))[leaf].sum()
    slope = of_leaves - np.nansum(rises * factors.total)
    assert slope == pytest.approx((evidence(0, h) - evidence(0, -h)) / (2 * h), abs=1e-6)


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
    zeros = np.repeat([-np.inf, log_odds], [1, n - 1])
    table.add_splits((alpha, total, zeros, np.repeat([0, places, 0], [1, 6, n - 7])))
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
