"""The bound on what windows leave out, against sums over windows so wide that nothing is left out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from trueup.kernel.messages import plan_pairs
from trueup.kernel.messages.pmf import OPEN, no_splits
from trueup.kernel.messages.solve import settle_tilts, solve, tilt
from trueup.kernel.messages.tails import log_growth
from trueup.layouts.factors import FactorTable
from trueup.noise import law_named

TREE = np.array([1, 4, 7, 9, 10, 10, 10, 10, 10, 10, 10])
"""A root with three children; three, two and one grandchildren: the last is its parent over again."""
N = len(TREE) - 1
WIDE = 220
"""Counts to each side of what was measured, where a sum over all counts may end."""
LAWS = ("discrete-laplace:1/3", "discrete-laplace:1", "discrete-gaussian:9")


def build(child_ptr, law, values, measured, depth):
    """Factors of counts of 0 or more, some nodes measured."""
    n = len(child_ptr) - 1
    table = FactorTable(np.zeros(n, np.int64), np.full(n, OPEN))
    table.add_law(law, measured, values[measured], np.full(len(measured), depth))
    return table.build()


def problem(rng, base, *, split):
    """Leaves about `base` with noisy values of most nodes; the first leaf is not measured. Parameters of splits, or none.

    Where they are `even`, the root's children have large ones.
    """
    truth = np.zeros(N, np.int64)
    truth[4:] = base * rng.uniform(1, 10, N - 4) + rng.integers(0, 12, N - 4)
    for v in range(3, -1, -1):
        truth[v] = truth[TREE[v] : TREE[v + 1]].sum()
    kind, parameter = LAWS[rng.integers(len(LAWS))].split(":")
    law = law_named(kind)(parameter)
    values = truth + law.quantile(rng.random(N)).astype(np.int64) + rng.integers(-8, 9, N)
    alpha, total = np.ones(N), np.ones(N)
    if split:
        alpha[1:] = np.exp(rng.normal(0, 1, N - 1))
        alpha[1:4] *= np.exp(rng.uniform(4, 11)) if split == "even" else 1
        total[:4] = [alpha[TREE[v] : TREE[v + 1]].sum() for v in range(4)]
    return law, values, alpha, total


def log_evidence(*problem, **more):
    """Of all that is known."""
    _, log = log_messages(*problem, **more)[0]
    return log.max() + np.log(np.exp(log - log.max()).sum())


def log_messages(law, values, alpha, total, child_ptr=TREE, unmeasured=4, wide=WIDE):
    """Of every node, counts and the log of all that is known at it and below, on windows of `wide` to each side.

    A tilt of the root's children that the root takes back keeps sums from underflowing where splits are even.
    """
    messages, middle = {}, max(values[0], 1)
    tilt = np.log(middle / (middle + total[0]))
    for v in range(len(child_ptr) - 2, -1, -1):
        first, last = child_ptr[v], child_ptr[v + 1]
        if first == last:
            middle = values[1] - values[5:7].sum() if v == unmeasured else values[v]
            reach = 3 * wide if v == unmeasured else wide
            low = max(middle - reach, 0)
            log = np.zeros(max(middle + reach, low) - low + 1)
        else:
            low, masses, scale = 0, np.ones(1), 0.0
            for c in range(first, last):
                start, part = messages[c]
                low, masses, scale = (
                    low + start,
                    np.convolve(masses, np.exp(part - part.max())),
                    scale + part.max(),
                )
            with np.errstate(divide="ignore"):
                log = np.log(masses) + scale
        counts = low + np.arange(len(log))
        log = log - (tilt * counts if v == 0 else 0.0)
        if v != unmeasured:
            log = log + law.logpmf(values[v] - counts)
        a, b = alpha[v], total[v]
        if child_ptr[0] <= v < child_ptr[1]:
            log = log + tilt * counts
        messages[v] = low, log + gammaln(counts + a) - gammaln(a) - gammaln(counts + b) + gammaln(b)
    for v, (low, log) in messages.items():
        counts = low + np.arange(len(log))
        messages[v] = counts, log - (tilt * counts if child_ptr[0] <= v < child_ptr[1] else 0.0)
    return messages


@pytest.mark.parametrize("split", ["uneven", "even"])
def test_no_message_is_above_its_largest_multiple_of_the_split(split, rng):
    nearest = np.inf
    for _ in range(40):
        law, values, alpha, total = problem(rng, 30, split=split)
        factors = build(TREE, law, values, np.delete(np.arange(N), 4), rng.uniform(2, 25))
        solved = solve(TREE, factors._replace(alpha=alpha, total=total))
        if solved.dropped == 1:
            continue
        known = log_messages(law, values, alpha, total)
        scale = solved.tilted.top + solved.messages.evidence[:N]
        for v in range(N - 1, 0, -1):
            counts, log = known[v]
            a, below = alpha[v], scale[at_and_below(v)].sum()
            split_log = gammaln(counts + a) - gammaln(a) - gammaln(counts + 1)
            gap = solved.messages.largest[v] + below - (log - split_log).max()
            assert gap > -1e-8
            nearest = min(nearest, gap) if TREE[v] < TREE[v + 1] else nearest
    assert nearest < 0.01, "a bound that is never near says nothing"


def at_and_below(v):
    """The node and all below it."""
    return np.concatenate([[v], *(at_and_below(c) for c in range(TREE[v], TREE[v + 1]))]).astype(int)


@pytest.mark.parametrize(
    ("base", "split"), [*product([0, 30, 1_000_000], [None, "uneven"]), (0, "even"), (30, "even")]
)
def test_the_loss_is_never_above_its_bound(base, split, rng):
    nearest = 0.0
    for _ in range(40):
        law, values, alpha, total = problem(rng, base, split=split)
        factors = build(TREE, law, values, np.delete(np.arange(N), 4), rng.uniform(2, 25))
        factors = factors._replace(alpha=alpha, total=total)
        tilted = tilt(TREE, factors)
        if (tilted.low > tilted.high).any():
            continue
        solved = settle_tilts(plan_pairs(TREE), tilted, 1e-9)
        wanted = log_evidence(law, values, alpha, total)
        lost = -np.expm1(solved.evidence - wanted) if np.isfinite(solved.evidence) else 1.0
        assert lost <= solved.dropped * (1 + 1e-9) + 1e-8
        if 1e-6 < solved.dropped < 1:
            nearest = max(nearest, lost / solved.dropped)
    assert nearest > 0.02, "a bound that is never near says nothing"


@pytest.mark.thorough
@pytest.mark.parametrize("concentration", [1.0, 100.0, 1e3, 1e5, 1e7])
def test_regions_that_are_alike_need_no_deeper_tables_than_others(concentration, rng):
    """Ten regions of fifty places, of which nine in ten are empty: their splits rise for longer than tables are deep."""
    regions, places = 10, 50
    child_ptr = np.array([1, *(1 + regions + places * np.arange(regions + 1)), *[511] * 500])
    truth = np.zeros(511, np.int64)
    truth[11:] = rng.poisson(20.0, 500) * (rng.random(500) < 0.1)
    truth[1:11] = truth[11:].reshape(regions, places).sum(axis=1)
    truth[0] = truth[1:11].sum()
    law = law_named("discrete-laplace")("1/3")
    values = truth + law.quantile(rng.random(511)).astype(np.int64)
    table = FactorTable(np.zeros(511, np.int64), np.full(511, OPEN))
    table.add_law(law, np.arange(511), values, np.where(np.arange(511) < 11, 960.0, 50.0))
    alpha, total = np.repeat([1.0, concentration, 0.05], [1, 10, 500]), np.ones(511)
    total[:11] = np.repeat([10 * concentration, 2.5], [1, 10])
    table.add_splits((alpha, total, *no_splits(len(alpha))[2:]))
    solved = solve(child_ptr, table.build())
    assert solved.dropped <= 1e-9
    wanted = log_evidence(law, values, alpha, total, child_ptr, None, 90)
    assert solved.evidence == pytest.approx(wanted, abs=1e-8 * max(concentration, 1.0) ** 0.5)


@pytest.mark.parametrize("base", [1_000, 3_000_000])
def test_large_counts_lose_no_more_than_small_ones(base, rng):
    """The bound rests on distances from what was measured, not on how large counts are."""
    states, each = 8, 20
    child_ptr = np.concatenate(
        [[1], 1 + states + each * np.arange(states + 1), np.full(states * each, 1 + states * (each + 1))]
    )
    child_ptr[1] = 1 + states
    n = len(child_ptr) - 1
    law = law_named("discrete-laplace")("1/3")
    truth = np.zeros(n, np.int64)
    truth[1 + states :] = base * rng.uniform(1, 5, states * each)
    for v in range(states, -1, -1):
        truth[v] = truth[child_ptr[v] : child_ptr[v + 1]].sum()
    values = truth + law.quantile(rng.random(n)).astype(np.int64)
    factors = build(child_ptr, law, values, np.arange(n), 60.0)
    assert solve(child_ptr, factors).dropped <= 1e-9


def test_growth_at_any_tilt_equals_the_sum_in_logs(rng):
    """Masses down to where floating-point numbers end, some of them 0, and tilts up to 200 a count."""
    for _ in range(300):
        masses = np.exp(-rng.exponential(rng.choice([1, 50, 400]), rng.integers(1, 900)))
        masses[rng.random(len(masses)) < 0.1] = 0
        theta, offset = rng.choice([-1, 1]) * 10 ** rng.uniform(-4, 2.3), int(rng.integers(0, 5000))
        with np.errstate(divide="ignore"):
            summed = logsumexp(np.log(masses) + theta * (offset + np.arange(len(masses))))
        assert log_growth(masses, offset, theta) == pytest.approx(summed, rel=1e-12, abs=1e-9)
