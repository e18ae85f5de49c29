"""Finucan's algorithm as Wang and Reiter print it (section 2.2), in double precision, on counts in a given order.

Rounding errors of the quotients settle some of the ties that exact arithmetic leaves to the order of the list, and the order
settles the others: the first of equal quotients is taken. Both matter, so the order of the list remains visible.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit

Integers = NDArray[np.int64]


def modes(noisy: Integers) -> Integers:
    """Release parts `(runs, n)` from noisy totals and parts `(runs, 1 + n)`; what is below zero counts as zero.

    Examples
    --------
    >>> modes(np.array([[11, 1, 9]]))
    array([[ 1, 10]])
    """
    return _loop(np.maximum(noisy, 0))


@njit(cache=True)
def _loop(noisy):
    runs, size = noisy.shape[0], noisy.shape[1] - 1
    released = np.zeros((runs, size), np.int64)
    for run in range(runs):
        trials, counts = noisy[run, 0], noisy[run, 1:]
        _mode(trials, counts, counts.sum(), released[run])
    return released


@njit(cache=True)
def _mode(trials, counts, total, k):
    """One pass; 0/0 of a part without weight is never the smallest quotient, as in R's `which.min`."""
    if total == 0:
        return
    size = len(counts)
    f = np.empty(size)
    for i in range(size):
        expected = (trials + size / 2) * (counts[i] / total)
        k[i] = math.floor(expected)
        f[i] = expected - k[i]
    given = k.sum()
    while given != trials:
        up = given < trials
        smallest, chosen = np.inf, -1
        for i in range(size):
            quotient = np.inf
            if up:
                quotient = (1.0 - f[i]) / (k[i] + 1)
            elif k[i] > 0:
                quotient = f[i] / k[i]
            if quotient < smallest:
                smallest, chosen = quotient, i
        step = 1 if up else -1
        k[chosen] += step
        f[chosen] -= step
        given += step
