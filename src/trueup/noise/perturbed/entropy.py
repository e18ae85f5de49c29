"""Maximum-entropy laws on a few whole numbers, with mean zero and a given variance.

The distribution is p_j proportional to exp(a j + b j^2), where (a, b) minimises the convex function
log sum_j exp(a j + b j^2) - b V. Newton's method finds it; where V is the least or the largest variance that mean zero
allows on the support, it has two atoms (or one) and is written down.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.noise.law import Reals

MAX_NEWTON_STEPS = 200
AT_THE_END = 1e-9
"""Relative distance from the least or largest variance within which the distribution is that of the end."""


def maximum_entropy(support: NDArray[np.int64], variance: float) -> tuple[Reals, bool]:
    """Return the probabilities of a support, and whether they have the variance asked for.

    Where mean zero does not allow it on the support, they have the nearest variance that it does; where it allows
    none (the support lies on one side of zero), all mass is at the number nearest to zero.

    Examples
    --------
    >>> p, met = maximum_entropy(np.array([-1, 2]), 1.0)
    >>> p.round(4).tolist(), met
    ([0.6667, 0.3333], False)
    >>> p, met = maximum_entropy(np.arange(-3, 4), 1.5)
    >>> bool(abs(p @ np.arange(-3, 4)) < 1e-14), bool(abs(p @ np.arange(-3, 4) ** 2 - 1.5) < 1e-14), met
    (True, True, True)
    """
    j = support.astype(np.float64)
    if 0 in support and (j.min() == 0 or j.max() == 0):
        return (j == 0).astype(np.float64), False
    if j.min() > 0 or j.max() < 0:
        return (np.abs(j) == np.abs(j).min()).astype(np.float64), False
    ends = (0.0, 0.0) if 0 in support else (j[j < 0].max(), j[j > 0].min())
    least, largest = -ends[0] * ends[1], -j.min() * j.max()
    if variance >= largest * (1 - AT_THE_END):
        return _two(j, j.min(), j.max()), bool(abs(variance - largest) <= 1e-12 * largest)
    if variance <= least * (1 + AT_THE_END):
        return _two(j, *ends), bool(abs(variance - least) <= 1e-12 * least)
    top = (j * j).max()
    return _newton(np.stack([j, j * j / top]), np.array([0.0, variance / top])), True


def rising_entropy(support: NDArray[np.int64], variance: float) -> tuple[Reals, bool]:
    """Return maximum-entropy probabilities that rise from the left end to zero, with at most the given variance.

    These are the conditions of the R package ptable unless told otherwise. The probabilities exp(a j + b j^2), b <= 0, rise
    and then fall; so the condition binds at the last ones up to zero alone, and those are equal.

    Examples
    --------
    >>> p, met = rising_entropy(np.array([-1, 0, 1, 2]), 1.0)
    >>> p.round(4).tolist(), met
    ([0.3665, 0.3665, 0.1676, 0.0995], False)
    """
    j = support.astype(np.float64)
    exact, met = maximum_entropy(support, variance)
    if (
        j.min() >= 0 or j.max() <= 0 or (exact @ j**2 > variance and not met)
    ):  # nothing has so small a variance
        return exact, met
    last = int(np.searchsorted(support, 0)) + 1 if 0 in support else 0
    p = _pooled(j, variance, slice(0, 0))
    for first in range(last - 2, -1, -1):  # of the last ones up to zero, so many are equal
        if (np.diff(p[:last]) >= -1e-12).all():
            break
        p = _pooled(j, variance, slice(first, last))
    return p, bool(abs(p @ j**2 - variance) <= 1e-12 * variance)


def _pooled(j: Reals, variance: float, pool: slice) -> Reals:
    """Return the maximum-entropy law with mean zero, at most this variance, and equal probabilities in a pool."""
    features = np.stack([j, j * j])
    if pool.stop > pool.start:
        features[:, pool] = features[:, pool].mean(axis=1, keepdims=True)
    p = _newton(features[:1], np.zeros(1))
    if p @ j**2 <= variance:
        return p
    return _newton(features / np.array([[1.0], [(j * j).max()]]), np.array([0.0, variance / (j * j).max()]))


def _two(j: Reals, low: float, high: float) -> Reals:
    """Return the law on two atoms with mean zero."""
    p = np.zeros(len(j))
    p[j == low] += high / (high - low)
    p[j == high] -= low / (high - low)
    return p


def _newton(features: Reals, target: Reals) -> Reals:
    """Solve for the tilts of features by Newton's method with halved steps; moments are then right to rounding."""
    theta = np.zeros(len(target))
    value, p = _dual(theta, features, target)
    for _ in range(MAX_NEWTON_STEPS):
        mean = features @ p
        gap = features - mean[:, None]
        step = np.linalg.solve((gap * p) @ gap.T, target - mean)
        size = 1.0
        found = _dual(theta + step, features, target)
        while found[0] > value + 1e-14 * abs(value) and size > 1e-9:
            size /= 2
            found = _dual(theta + size * step, features, target)
        theta, (value, p) = theta + size * step, found
        if np.abs(size * step).max() < 1e-15 * max(1.0, np.abs(theta).max()):
            break
        if np.abs(features @ p - target).max() < 1e-16:
            break
    return p


def _dual(theta: Reals, features: Reals, target: Reals) -> tuple[float, Reals]:
    log = theta @ features
    top = log.max()
    weights = np.exp(log - top)
    total = weights.sum()
    return float(top + np.log(total) - theta @ target), weights / total
