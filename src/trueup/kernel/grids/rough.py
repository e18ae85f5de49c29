"""Rough posterior of a tree's counts before any grid: least squares up, then nonnegative counts down."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.tree import sweep_up

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

NODES = 96
"""Points of the quadrature of one count."""
SHARES = 3
"""How often what a sum lacks is shared out: parts that would fall below 0 leave the rest to the others."""
MAX_INTEGRATED_MEAN = 40.0
"""Prior means and standard deviations up to which a count is integrated over."""


def rough_posterior(
    child_ptr: Integers, variance: Reals, values: Reals, gain: Reals, spread: Reals
) -> tuple[Reals, Reals]:
    """Return rough posterior means and standard deviations of all nodes.

    Given its parent's, a count has a gamma law with the mean and the variance of a uniform split (concentration 1), times a
    normal law for what its own subtree's values say of it.

    Parameters
    ----------
    variance, values
        `(n,)` of measurements: 0 exact, infinite unmeasured.
    gain, spread
        `trueup.kernel.tree.messages`.
    """
    below = np.where(np.isfinite(values), values, 0.0)
    sweep_up(child_ptr, gain, below)
    return _down(child_ptr, below, spread)


@njit(cache=True)
def _down(child_ptr, below, spread):
    middle, width = np.zeros(len(below)), np.zeros(len(below))
    middle[0], width[0] = _mean_and_sd(below[0], spread[0], np.inf, np.inf)
    for v in range(len(child_ptr) - 1):
        children = child_ptr[v + 1] - child_ptr[v]
        for c in range(child_ptr[v], child_ptr[v + 1]):
            total = max(middle[v], 0.5)
            mean = total / children
            split = mean * (1.0 - 1.0 / children) * (total + children) / (1.0 + children)
            prior = split + (width[v] / children) ** 2
            middle[c], width[c] = _mean_and_sd(below[c], spread[c], mean, np.sqrt(prior))
        if children > 0:
            _add_up(
                middle[child_ptr[v] : child_ptr[v + 1]],
                width[child_ptr[v] : child_ptr[v + 1]],
                middle[v],
                width[v],
            )
    return middle, width


@njit(cache=True)
def _add_up(middle, width, total, doubt):
    """Move the means of parts towards their sum, in proportion to their variances, none below 0."""
    for _ in range(SHARES):
        lacks = total - middle.sum()
        free = 0.0
        for c in range(len(middle)):
            free += width[c] ** 2 if middle[c] > 0.0 or lacks > 0.0 else 0.0
        if not free > 0.0:
            return
        gain = lacks / (free + doubt**2)
        for c in range(len(middle)):
            if middle[c] > 0.0 or lacks > 0.0:
                middle[c] = max(middle[c] + gain * width[c] ** 2, 0.0)


@njit(cache=True)
def _mean_and_sd(value, variance, mean, sd):
    """Return mean and standard deviation of a count with a gamma law of a mean and sd, given a value with normal noise."""
    if variance == 0.0:
        return value, 0.0
    if mean == np.inf or sd == np.inf:
        return max(value, 0.0), np.sqrt(variance)
    noise = np.sqrt(variance)
    if noise == np.inf or sd == 0.0:
        return mean, sd
    low = max(0.0, value - 8.0 * noise)
    high = value + 8.0 * noise
    if low > mean + MAX_INTEGRATED_MEAN * sd or high <= low:
        return max(value, 0.0), noise
    high = max(min(high, mean + MAX_INTEGRATED_MEAN * sd), low + 1.0)
    shape, rate = (mean / sd) ** 2, mean / sd**2
    x, logs = np.empty(NODES), np.empty(NODES)
    for k in range(NODES):  # closer together near the lower end, where the gamma law may have its mass
        x[k] = low + (high - low) * ((k + 0.5) / NODES) ** 2
        logs[k] = (shape - 1.0) * np.log(x[k] + 0.5) - rate * x[k] - 0.5 * ((x[k] - value) / noise) ** 2
        logs[k] += np.log((k + 0.5) / NODES)
    p = np.exp(logs - logs.max())
    p /= p.sum()
    found = (p * x).sum()
    return found, np.sqrt((p * (x - found) ** 2).sum()) + 0.1 * min(noise, sd)
