"""Large random trees and their sums."""

import numpy as np


def slow_sums(child_ptr, leaves):
    totals = leaves.copy()
    for v in reversed(range(leaves.size)):
        if child_ptr[v] < child_ptr[v + 1]:
            totals[v] = totals[child_ptr[v] : child_ptr[v + 1]].sum()
    return totals


def large(rng):
    """Three levels, 6,000 leaves, a third of them truly 0."""
    counts = np.concatenate([[20], rng.integers(1, 20, 20)])
    inner = 1 + counts.sum()
    counts = np.concatenate([counts, rng.integers(1, 60, inner - counts.size)])
    n = 1 + counts.sum()
    child_ptr = np.concatenate([[1], 1 + np.cumsum(counts), np.full(n - counts.size, n)]).astype(np.int64)
    truth = slow_sums(child_ptr, np.floor(rng.lognormal(1, 1.2, n)) * (rng.random(n) > 0.35))
    variance = rng.choice([1.0, 4.0, 30.0], n)
    return child_ptr, variance, truth + np.rint(rng.normal(size=n) * np.sqrt(variance))
