"""Dirichlet-multinomial splits on trees against enumeration, and their gradient against finite differences."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import digamma as scipy_digamma
from scipy.special import gammaln

from tests.kernel.message_trees import build, leaves_of
from tests.reference.posterior import enumerate_tree, leaves_below, marginal
from trueup.kernel.messages import digamma, log_ratio, mean_rises
from trueup.kernel.messages.pmf import OPEN
from trueup.kernel.messages.solve import joint_draws, marginals, solve
from trueup.kernel.messages.tails import beyond
from trueup.noise import law_named

TREES = {
    "star": np.array([1, 4, 4, 4, 4]),
    "deep": np.array([1, 3, 5, 6, 6, 6, 6]),
    "one child": np.array([1, 2, 4, 4, 4]),
}
LAWS = ("discrete-laplace:1", "discrete-gaussian:2", "truncated-geometric:1")


def log_w(x, a):
    return gammaln(x + a) - gammaln(a) - gammaln(x + 1)


def parameters(child_ptr, rng):
    """Random `alpha`, and `total` as it follows: the prior's normaliser must not be free."""
    n = len(child_ptr) - 1
    alpha, total = np.exp(rng.normal(0, 1.5, n)), np.ones(n)
    alpha[0] = 1.0
    for v in range(n):
        if child_ptr[v] < child_ptr[v + 1]:
            total[v] = alpha[child_ptr[v] : child_ptr[v + 1]].sum()
    return alpha, total


def problem(child_ptr, rng):
    """Random narrow measurements of some nodes, bounds of some; factors, and the same as plain functions."""
    n = len(child_ptr) - 1
    kind, parameter = LAWS[rng.integers(len(LAWS))].split(":")
    law = law_named(kind)(parameter, 6) if kind.startswith("trunc") else law_named(kind)(parameter)
    short = law_named("discrete-gaussian")("1/2")
    measured = {v: [(law, int(rng.integers(-1, 6)))] for v in range(n) if v == 0 or rng.random() < 0.8}
    for leaf in leaves_of(child_ptr):
        measured.setdefault(int(leaf), []).append((short, int(rng.integers(0, 4))))
    upper = np.full(n, OPEN)
    if rng.random() < 0.4:
        upper[leaves_of(child_ptr)[0]] = rng.integers(0, 4)
    alpha, total = parameters(child_ptr, rng)
    factors = build(child_ptr, measured, upper=upper, depth=60.0)._replace(alpha=alpha, total=total)

    def log(v):
        def value(x):
            out = log_w(x, alpha[v]) - log_w(x, total[v])
            out = out + sum(law.logpmf(y - x) for law, y in measured.get(v, []))
            return np.where(x <= upper[v], out, -np.inf)

        return value

    return factors, {v: log(v) for v in range(n)}


def distance(child_ptr, factors, logs, reach=13):
    """Largest total variation of a node's marginal from enumeration."""
    solved = solve(child_ptr, factors, 1e-12)
    assert solved.dropped <= 1e-12
    start, offset, masses = marginals(solved)
    nodes, mass = enumerate_tree(child_ptr, logs, [range(reach)] * len(leaves_of(child_ptr)))
    worst = 0.0
    for v in range(len(child_ptr) - 1):
        values, wanted = marginal(nodes[:, v], mass)
        dense = np.zeros(max(values.max(), offset[v] + np.diff(start)[v]) + 1)
        dense[values] = wanted
        dense[offset[v] + np.arange(np.diff(start)[v])] -= masses[start[v] : start[v + 1]]
        worst = max(worst, 0.5 * np.abs(dense).sum())
    return worst


@pytest.mark.thorough
@pytest.mark.parametrize("name", TREES)
def test_splits_equal_enumeration(name, rng):
    for _ in range(100):
        assert distance(TREES[name], *problem(TREES[name], rng)) < 1e-10


@pytest.mark.parametrize("wrong", ["alpha a thousandth larger", "normaliser forgotten"])
def test_the_comparison_rejects_wrong_splits(wrong, rng):
    child_ptr = TREES["deep"]
    factors, logs = problem(child_ptr, rng)
    if wrong == "normaliser forgotten":
        factors = factors._replace(total=np.ones(len(factors.total)))
    else:
        factors = factors._replace(alpha=factors.alpha * 1.001)
    assert distance(child_ptr, factors, logs) > 1e-8


def test_alpha_one_everywhere_is_the_flat_prior(rng):
    """With as many below each node as its parameter says, all ways to fill the leaves are equally likely given the root."""
    child_ptr = TREES["deep"]
    below = leaves_below(child_ptr).sum(axis=1).astype(float)
    factors, logs = problem(child_ptr, rng)
    flat = factors._replace(alpha=np.where(below == 1, 1.0, below), total=below)
    flat.alpha[0] = 1.0
    plain = {
        v: (lambda x, f=f, v=v: f(x) - log_w(x, factors.alpha[v]) + log_w(x, factors.total[v]))
        for v, f in logs.items()
    }
    plain[0] = lambda x, f=plain[0], v=0: f(x) - log_w(x, 4.0 if below[0] == 4 else below[0])
    assert distance(child_ptr, flat, plain) < 1e-10


def test_evidence_is_the_sum_over_all_counts(rng):
    child_ptr = TREES["deep"]
    factors, logs = problem(child_ptr, rng)
    leaves = np.array(list(product(range(14), repeat=len(leaves_of(child_ptr)))))
    nodes = leaves @ leaves_below(child_ptr).T
    log = np.sum([f(nodes[:, v]) for v, f in logs.items()], axis=0)
    wanted = log.max() + np.log(np.exp(log - log.max()).sum())
    assert solve(child_ptr, factors, 1e-12).evidence == pytest.approx(wanted, abs=1e-9)


def test_fishers_identity_equals_finite_differences(rng):
    child_ptr = TREES["deep"]
    factors, _ = problem(child_ptr, rng)
    solved = solve(child_ptr, factors, 1e-12)
    exact = marginals(solved)
    rises, totals = mean_rises(*exact, factors.alpha), mean_rises(*exact, factors.total)
    parent = np.concatenate([[0], np.repeat(np.arange(len(rises)), np.diff(child_ptr))])
    for v in range(1, len(rises)):
        values = []
        for h in (-1e-4, 1e-4):
            alpha, total = factors.alpha.copy(), factors.total.copy()
            alpha[v] += h
            total[parent[v]] += h
            values.append(solve(child_ptr, factors._replace(alpha=alpha, total=total), 1e-13).evidence)
        assert rises[v] - totals[parent[v]] == pytest.approx((values[1] - values[0]) / 2e-4, abs=1e-5)


def test_digamma_and_ratios_of_gammas():
    x = np.array([1e-6, 0.01, 0.5, 1.0, 3.7, 8.0, 1e3, 1e8])
    np.testing.assert_allclose([digamma(v) for v in x], scipy_digamma(x), rtol=1e-13)
    for low in (0, 1, 63, 64, 5000):
        wanted = gammaln(low + 0.3) - gammaln(0.3) - gammaln(low + 7.0) + gammaln(7.0)
        assert log_ratio(low, 0.3, 7.0) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize(("alpha", "total"), [(0.2, 1.0), (1.0, 3.0), (0.5, 20.0), (3.0, 1.0), (2.0, 0.5)])
@pytest.mark.parametrize("value", [4, 40])
def test_the_mass_beyond_a_split_is_bounded(alpha, total, value):
    law, counts = law_named("discrete-laplace")("1/10"), np.arange(20_000)
    child_ptr = np.array([1, 2, 2])
    factors = build(child_ptr, {1: [(law, value)]}, depth=3.0)._replace(
        alpha=np.array([1.0, alpha]), total=np.array([1.0, total])
    )
    tilted = solve(child_ptr, factors).tilted._replace(slope=np.zeros(2), top=np.zeros(2))
    masses = np.exp(log_w(counts, alpha) - log_w(counts, total) + law.logpmf(value - counts))
    actual = masses.sum() - masses[tilted.low[1] : tilted.high[1] + 1].sum()
    assert actual <= np.exp(beyond(tilted, 1, 0.0)) * (1 + 1e-9)


def test_draws_of_a_split_add_up(rng):
    factors, _ = problem(TREES["deep"], rng)
    draws = joint_draws(solve(TREES["deep"], factors), 200, rng)
    assert (draws >= 0).all()
    assert (draws[:, 0] == draws[:, 1:3].sum(axis=1)).all()
