"""Moments and histograms of batches of draws, which are added up batch by batch.

Sums of powers are central and are combined as in Chan, Golub and LeVeque (1979), to the fourth order as in
Pebay (2008, "Formulas for robust, one-pass parallel computation of covariances and arbitrary-order
statistical moments", equations 1.1 to 1.6): nothing large is subtracted from anything large.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and central moments of `n` quantities over some replicates.

    Attributes
    ----------
    count
        Number of replicates.
    mean
        `(n,)` means.
    powers
        `(order - 1, n)` sums of the second, third, .. powers of the deviations from the mean.

    Examples
    --------
    >>> both = Moments.of(np.array([[1.0], [2.0]])) + Moments.of(np.array([[6.0]]))
    >>> both.mean.tolist(), both.variance.tolist()
    ([3.0], [7.0])
    """

    count: int
    mean: Reals
    powers: Reals

    @classmethod
    def of(cls, batch: NDArray, order: int = 2) -> Moments:
        """Return the moments of a batch `(b, n)`, up to order 2 or 4."""
        mean = batch.mean(axis=0, dtype=np.float64)
        deviations = batch - mean
        power, sums = deviations, []
        for _ in range(order - 1):
            power = power * deviations
            sums.append(power.sum(axis=0))
        return cls(len(batch), mean, np.stack(sums))

    def __add__(self, other: Moments) -> Moments:
        a, b = self.count, other.count
        whole, gap = a + b, other.mean - self.mean
        powers = self.powers + other.powers
        powers[0] += gap**2 * (a * b / whole)
        if len(powers) > 1:
            self._add_higher(other, gap, powers)
        return Moments(whole, self.mean + gap * (b / whole), powers)

    def _add_higher(self, other: Moments, gap: Reals, powers: Reals) -> None:
        a, b = self.count, other.count
        n = a + b
        two, three = (self.powers[0], other.powers[0]), (self.powers[1], other.powers[1])
        powers[1] += gap**3 * (a * b * (a - b) / n**2) + 3 * gap * (a * two[1] - b * two[0]) / n
        powers[2] += gap**4 * (a * b * (a * a - a * b + b * b) / n**3)
        powers[2] += 6 * gap**2 * (a * a * two[1] + b * b * two[0]) / n**2
        powers[2] += 4 * gap * (a * three[1] - b * three[0]) / n

    @property
    def variance(self) -> Reals:
        """Return the unbiased variances `(n,)`."""
        return self.powers[0] / (self.count - 1)

    @property
    def error(self) -> Reals:
        """Return the Monte Carlo standard errors `(n,)` of the means."""
        return np.sqrt(self.variance / self.count)


@dataclass(frozen=True, eq=False)
class Scatter:
    """Mean and covariance of a vector of `k` quantities over some replicates.

    Attributes
    ----------
    count
        Number of replicates.
    mean
        `(k,)` means.
    products
        `(k, k)` sums of products of deviations.

    Examples
    --------
    >>> both = Scatter.of(np.array([[1.0, 0.0], [2.0, 1.0]])) + Scatter.of(np.array([[6.0, 5.0]]))
    >>> both.mean.tolist(), both.covariance.tolist()
    ([3.0, 2.0], [[7.0, 7.0], [7.0, 7.0]])
    """

    count: int
    mean: Reals
    products: Reals

    @classmethod
    def of(cls, batch: NDArray) -> Scatter:
        """Return the mean and covariance of a batch `(b, k)`."""
        mean = batch.mean(axis=0)
        deviations = batch - mean
        return cls(len(batch), mean, deviations.T @ deviations)

    def __add__(self, other: Scatter) -> Scatter:
        whole, gap = self.count + other.count, other.mean - self.mean
        products = self.products + other.products
        products += np.outer(gap, gap) * (self.count * other.count / whole)
        return Scatter(whole, self.mean + gap * (other.count / whole), products)

    @property
    def covariance(self) -> Reals:
        """Return the unbiased covariances `(k, k)`."""
        return self.products / (self.count - 1)

    @property
    def error_covariance(self) -> Reals:
        """Return the covariances `(k, k)` of the Monte Carlo errors of the means."""
        return self.covariance / self.count

    @property
    def error(self) -> Reals:
        """Return the Monte Carlo standard errors `(k,)` of the means."""
        return np.sqrt(np.diag(self.error_covariance))


# --- histograms whose bins grow with the size of the value -----------------------------------------

BINS_A_DOUBLING = 64
"""Bins to every doubling: a value is cut by at most 1/64 of its size, and whole numbers below 128 not at all."""
_FIRST, _LAST = -3, 44  # binary exponents: below 2^-4 a value counts as 0, beyond 2^44 as 2^44
_SIDE = (_LAST - _FIRST + 1) * BINS_A_DOUBLING
BINS = 2 * _SIDE + 1


def bins_of(values: NDArray) -> NDArray[np.int64]:
    """Return the number of each value's bin, `0 .. BINS - 1`, after rounding towards zero.

    Examples
    --------
    >>> value_of(bins_of(np.array([-127.0, 0.0, 3.0, 1000.0]))).tolist()
    [-127.0, 0.0, 3.0, 1000.0]
    >>> value_of(bins_of(np.array([1007.5, 0.01]))).tolist()
    [1000.0, 0.0]
    """
    mantissa, exponent = np.frexp(np.abs(values))  # |value| = mantissa 2^exponent, 1/2 <= mantissa < 1
    step = ((mantissa - 0.5) * (2 * BINS_A_DOUBLING)).astype(np.int64)
    side = np.clip((exponent - _FIRST) * BINS_A_DOUBLING + step + 1, 0, _SIDE)
    return _SIDE + np.sign(values).astype(np.int64) * np.where(values == 0, 0, side)


def value_of(bins: NDArray[np.int64]) -> Reals:
    """Return that end of each bin which is nearer to zero."""
    side = np.abs(np.asarray(bins) - _SIDE)
    exponent, step = np.divmod(side - 1, BINS_A_DOUBLING)
    size = np.ldexp(0.5 + step / (2 * BINS_A_DOUBLING), (exponent + _FIRST).astype(np.int32))
    return np.sign(np.asarray(bins) - _SIDE) * np.where(side == 0, 0.0, size)


def histogram(values: NDArray, group: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    """Return the counts `(groups, BINS)` of values `(b, n)` by the group of their cell and by bin."""
    index = bins_of(values) + group * BINS
    return np.bincount(index.ravel(), minlength=groups * BINS).reshape(groups, BINS)


def histogram_quantiles(counts: NDArray[np.int64], probabilities: NDArray) -> Reals:
    """Return quantiles `(groups, p)` of histograms: the smallest values that reach each probability."""
    running = np.cumsum(counts, axis=1)
    wanted = np.ceil(np.multiply.outer(running[:, -1], probabilities))
    return value_of(np.stack([np.searchsorted(row, want) for row, want in zip(running, wanted)]))
