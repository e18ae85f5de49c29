"""The exact multinomial mode, against Finucan's loop as published (doubles)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit

from benchmarks.harness import Case, Harness
from trueup.kernel.multinomial.mode import multinomial_mode


def cases(harness: Harness) -> Iterator[Case]:
    rng = np.random.default_rng(1)
    for cells in (10**3, 10**5, 10**6, 10**7):
        weights = _skewed(rng, cells)
        trials = int(weights.sum()) + cells // 100
        slow = None if cells <= 10**5 or (harness.full and cells <= 10**6) else "quadratic: not run above 1e5"
        yield from harness.compare(
            f"{cells:,} parts",
            lambda: multinomial_mode(weights, trials),  # noqa: B023
            {"literal loop, compiled": slow or (lambda: literal_loop(weights, trials))},  # noqa: B023
            difference=lambda ours, peer: _objective_gap(weights, ours, peer),  # noqa: B023
        )
    distinct = rng.integers(10**8, 10**9, 10**6)
    yield from harness.compare(
        "1,000,000 parts, all distinct and large",
        lambda: multinomial_mode(distinct, int(distinct.sum() * 1.01)),
        {"literal loop, compiled": "quadratic: not run above 1e5"},
    )


def _skewed(rng: np.random.Generator, cells: int) -> np.ndarray:
    """Lognormal counts with a third of zeros."""
    counts = np.floor(rng.lognormal(3, 1.5, cells)).astype(np.int64)
    counts[rng.random(cells) < 0.35] = 0
    return counts


def _objective_gap(weights: np.ndarray, ours: np.ndarray, peer: np.ndarray) -> float:
    """By how much the peer's log likelihood falls short of (or, in rounding, exceeds) ours."""
    from scipy.special import gammaln, xlogy

    return float(sum(s * (xlogy(k, weights) - gammaln(k + 1.0)).sum() for s, k in ((1, ours), (-1, peer))))


@njit(cache=True)
def literal_loop(weights, trials):
    """Wang & Reiter (2021), section 2.2, line by line; zeros are guarded, or counts fall below zero."""
    c = trials + weights.size / 2
    total = weights.sum()
    k, f = np.empty(weights.size), np.empty(weights.size)
    placed = 0
    for i in range(weights.size):
        k[i] = np.floor(c * weights[i] / total)
        f[i] = c * weights[i] / total - k[i]
        placed += int(k[i])
    while placed < trials:
        a = np.argmin((1 - f) / (k + 1))
        k[a] += 1
        f[a] -= 1
        placed += 1
    while placed > trials:
        a, best = -1, np.inf
        for i in range(k.size):
            if k[i] > 0 and f[i] / k[i] < best:
                a, best = i, f[i] / k[i]
        k[a] -= 1
        f[a] += 1
        placed -= 1
    return k
