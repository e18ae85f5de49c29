"""The interval that is stated for a quantity, from exact masses or from draws: equal tails, or all of the lower values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trueup.model.tables import probability_of

LOWEST, NEARER = 20, 5
"""Number of lowest draws (a tenth at most) that say if a quantity may be 0, and how many times the smallest they then reach."""


def shorter_ends(
    quantile: Callable[[float], NDArray], least: NDArray, level: float
) -> tuple[NDArray, NDArray]:
    """Return the ends of equal tails, or where that is shorter, of an interval from the least possible value.

    Equal tails leave out the least value wherever it has less than `(1 - level) / 2` of the probability, even if values nearby
    are the most probable: where noise is wide, no interval would ever hold a true count of 0. If values fall off from
    the least one, the interval from there is the shortest.

    Parameters
    ----------
    quantile
        The smallest values that reach a probability.
    least
        The least possible values.

    Examples
    --------
    >>> from statistics import NormalDist
    >>> normal = NormalDist(1.0)  # cut at 0: a count measured as one standard deviation of its noise
    >>> below = normal.cdf(0.0)
    >>> ends = shorter_ends(lambda p: np.array(normal.inv_cdf(below + p * (1 - below))), np.array(0.0), 0.9)
    >>> [round(float(end), 2) for end in ends]
    [0.0, 2.38]
    """
    low, high, upper = (quantile(p) for p in ((1 - level) / 2, (1 + level) / 2, level))
    shorter = upper - least < high - low
    return np.where(shorter, least, low), np.where(shorter, upper, high)


def interval_of_draws(draws: NDArray, level: float | str) -> tuple[NDArray, NDArray]:
    """Return the ends of the interval that holds at least `level` of draws `(draws, ...)`, by `shorter_ends`.

    Examples
    --------
    >>> [float(end) for end in interval_of_draws(np.arange(1, 101), 0.9)]
    [5.0, 95.0]
    >>> [float(end) for end in interval_of_draws(np.arange(100) ** 2, 0.9)]
    [0.0, 7921.0]
    """
    return ends_of_sorted(np.sort(draws, axis=0), probability_of(level))


def ends_of_sorted(draws: NDArray, level: float) -> tuple[NDArray, NDArray]:
    """Return the ends of `interval_of_draws` for draws that are sorted along the first axis.

    The least possible value is the smallest draw; or 0, where draws get down to it: were 0 possible and small values about
    equally likely, the smallest draw would be about a twentieth of the 21st smallest, and above a fifth of it once in 90 cases.
    """
    first, count = draws[0], len(draws)
    near = (first >= 0) & (NEARER * first <= draws[min(LOWEST, count // 10)])
    least = np.where(near, 0, first)
    return shorter_ends(lambda p: draws[quantile_at(count, p)], least, level)


def quantile_at(count: int, probability: float) -> int:
    """Return the position of a quantile among so many sorted draws: the first that reaches the probability.

    Examples
    --------
    >>> quantile_at(100, 0.05), quantile_at(3, 0.5), quantile_at(1, 0.95)
    (4, 1, 0)
    """
    return min(max(int(np.ceil(count * probability - 1e-9)) - 1, 0), count - 1)
