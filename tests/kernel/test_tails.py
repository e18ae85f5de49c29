"""The bound on what windows leave out, against sums over windows so wide that nothing is left out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gammaln

from trueup.kernel.messages.pairs import plan_pairs
from trueup.kernel.messages.pmf import OPEN
from trueup.kernel.messages.solve import settle_tilts, solve, tilt
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
    """Leaves about `base` with noisy values of most nodes; the first leaf is not measured. Parameters of splits, or none."""
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
        total[:4] = [alpha[TREE[v] : TREE[v + 1]].sum() for v in range(4)]
    return law, values, alpha, total


def log_evidence(law, values, alpha, total):
    """Of all that is known, summed on windows of `WIDE` to each side."""
    messages = {}
    for v in range(N - 1, -1, -1):
        first, last = TREE[v], TREE[v + 1]
        if first == last:
            middle = values[1] - values[5:7].sum() if v == 4 else values[v]
            low = max(middle - (3 if v == 4 else 1) * WIDE, 0)
            log = np.zeros(middle + (3 if v == 4 else 1) * WIDE - low + 1)
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
        if v != 4:
            log = log + law.logpmf(values[v] - counts)
        a, b = alpha[v], total[v]
        messages[v] = low, log + gammaln(counts + a) - gammaln(a) - gammaln(counts + b) + gammaln(b)
    log = messages[0][1]
    return log.max() + np.log(np.exp(log - log.max()).sum())


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("base", [0, 30, 1_000_000])
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
