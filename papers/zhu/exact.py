"""The bias of program (P+) on one known total, exactly, for noise on the integers.

(P+) on parts that add up to T gives `x_i = max(z_i - t, 0)`, z the noisy parts and t the price at which they add up to T.
With `S(s) = sum_j max(z_j - s, 0)`, which falls in s, part i comes out at y > 0 or more exactly if `S(z_i - y) <= T`. The
other parts' sum is independent of z_i, so that

    E x_i  =  sum_z p_i(z) integral_{y > 0} P(S_others(z - y) <= T - y) dy.

Let `z - y = m + f` with m whole and f in (0, 1). With N the others above m, and A the sum of their `z_j - m`, the condition
is `A - f N <= T - z + m + f`, which holds for a share `clip(1 - (A - T + z - m) / (N + 1), 0, 1)` of all f. So the integral
is a sum over m of that share's mean, over the joint law of A and N: a product of the parts' Fourier transforms.
"""

from __future__ import annotations

from math import ceil, exp, log

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

NEGLIGIBLE = 1e-16
PRICES = 25
"""Prices (counts) are nearer to zero than this, but for a probability below 1e-12 with 20 parts or more at epsilon 1/2."""


def noise_masses(epsilon: float) -> tuple[Integers, Reals]:
    """Values and masses of two-sided geometric noise, by its formula, up to what is negligible.

    Examples
    --------
    >>> values, masses = noise_masses(0.5)
    >>> print(f"{masses.sum():.12f} {(masses * values**2).sum():.4f}")
    1.000000000000 7.8354
    """
    a, reach = exp(-epsilon), ceil(-log(NEGLIGIBLE) / epsilon)
    values = np.arange(-reach, reach + 1)
    return values, (1 - a) / (1 + a) * a ** np.abs(values)


def biases(counts: Integers, epsilon: float, places: Integers, prices: int = PRICES) -> Reals:
    """Bias (counts) of chosen places after (P+) on the known total of all counts `(n,)`.

    Examples
    --------
    >>> biases(np.array([0, 0]), 1.0, np.array([0, 1])).round(9) + 0.0  # a total of 0 leaves no choice
    array([0., 0.])
    """
    values, masses = noise_masses(epsilon)
    total = int(counts.sum())
    size = 1 << int(total + prices * counts.size + values[-1] + 2 * counts.size).bit_length()
    means = np.zeros(len(places))
    for m in range(-prices, prices):
        laws = _laws(counts, values, masses, m, size)
        for k, i in enumerate(places):
            beyond = counts[i] + values - m  # z - m, of which only what is above 0 counts
            above = beyond > 0
            means[k] += masses[above] @ _shares(laws, i, total - beyond[above])
    beyond = np.maximum(counts[places][:, None] + values - prices, 0)  # above all prices the condition holds
    return means + beyond @ masses - counts[places]


def _laws(counts: Integers, values: Integers, masses: Reals, m: int, size: int) -> NDArray[np.complex128]:
    """Fourier transforms `(n, size, width)` of every part's excess over m and of whether there is one."""
    width = 1 << int(counts.size + 1).bit_length()
    laws = np.zeros((counts.size, size, width))
    for j, count in enumerate(counts):
        excess = count + values - m
        laws[j, 0, 0] = masses[excess <= 0].sum()
        laws[j, excess[excess > 0], 1] = masses[excess > 0]
    return np.fft.rfft2(laws, axes=(2, 1))


def _shares(laws: NDArray[np.complex128], place: int, rest: Integers) -> Reals:
    """Mean share of f for which the others' excess is at most `rest` `(k,)`: a mean of `P(A <= rest + k)` over k = 0 .. N."""
    others = np.fft.irfft2(np.delete(laws, place, axis=0).prod(axis=0), axes=(1, 0))
    size, width = others.shape
    sums = np.vstack([np.zeros(width), np.cumsum(np.cumsum(others, axis=0), axis=0)])  # row r: sum over A < r
    number = np.arange(width)
    low, high = (np.clip(rest[:, None] + shift, 0, size) for shift in (np.zeros(width, np.int64), number + 1))
    return ((sums[high, number] - sums[low, number]) / (number + 1)).sum(axis=1)
