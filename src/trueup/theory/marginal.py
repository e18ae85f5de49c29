"""The exact law of one count's error after projection onto a known total: Theorem 12 of Zhu et al.

The projection of noisy parts on their total, in the metric of their variances V_j, takes the share
`w = V_i / sum_j V_j` of what the parts are off together from part i, so with independent noise eta

    error_i = (1 - w) eta_i - w R,    R = sum of the noise of the other parts,

and w = 1/n for equal variances, as in the paper. For integer noise R is an integer, and

    P(error <= x) = sum_k P(eta_i = k) P(R >= ((1 - w) k - x) / w),

a sum of positive terms once the law of R is known (by one Fourier transform of its characteristic function).
For continuous noise the distribution function is a Fourier series on an interval [-L, L] beyond which almost no
mass is left (Fang and Oosterlee, 2008):

    P(error <= x) = (x + L) / (2 L) + (1 / pi) sum_{k >= 1} phi(k pi / L) sin(k pi x / L) / k,

phi the characteristic function. One transform gives it on a fine grid, another the density; between grid points
the cubic polynomial with these values and slopes errs by less than (grid / spread)^4 / 384.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, nan, pi, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import SpecError
from trueup.noise.law import Law, Reals

GRID_POINTS = 2**17
"""Points of the grid on which distribution functions of continuous errors are computed."""
ROUNDING = 64 * np.finfo(float).eps
"""By how much the terms of a bound may be off, relative to them: the share and two products."""

MASS_LEFT_OUT = 1e-18
"""Mass beyond either end of an integer law's table."""


def characteristic(law: Law, t: NDArray) -> Reals:
    """Return the mean of `cos(t noise)` at frequencies `t` (per count).

    Raises
    ------
    SpecError
        If no characteristic function is known for the law.

    Examples
    --------
    >>> from trueup.noise import Laplace
    >>> characteristic(Laplace("2"), np.array([0.0, 0.5]))
    array([1. , 0.5])
    """
    return law.characteristic(np.asarray(t, float))


@dataclass(frozen=True)
class MarginalError:
    """The law of one count's error after projection onto a known total.

    Attributes
    ----------
    own
        Noise of the count.
    others
        Noise laws of the other parts, each with the number of parts that have it.
    share
        Part w of the joint deviation that the count takes, between 0 and 1.

    Examples
    --------
    >>> from trueup.noise import Laplace
    >>> error = projected_error(Laplace("10"), 15)
    >>> round(error.variance, 2), error.cdf([-20.0, 0.0]).round(4)
    (186.67, array([0.063, 0.5  ]))
    """

    own: Law
    others: tuple[tuple[Law, int], ...]
    share: float

    @property
    def variance(self) -> float:
        """Return the variance (counts squared) of the error: for n equal parts, `(1 - 1/n)` times that of the noise."""
        rest = sum(count * law.variance for law, count in self.others)
        return (1 - self.share) ** 2 * self.own.variance + self.share**2 * rest

    @property
    def kurtosis(self) -> float:
        """Return the kurtosis of the error: its fourth central moment over the squared variance."""
        if not self.variance > 0:
            return nan
        excess = (1 - self.share) ** 4 * _fourth_cumulant(self.own)
        excess += sum(count * self.share**4 * _fourth_cumulant(law) for law, count in self.others)
        return 3 + excess / self.variance**2

    def cdf(self, error: ArrayLike) -> Reals:
        """Return the probability that the error is at most `error` (counts), within 1e-10 for n up to 1e6."""
        x = np.asarray(error, float)
        if not self.others:
            return self.own.cdf(x) if self.share == 0 else np.where(x >= 0, 1.0, 0.0)
        find = self._integer_cdf if self.discrete else self._continuous_cdf
        return np.clip(find(x.ravel()), 0.0, 1.0).reshape(x.shape)

    def density(self, error: ArrayLike) -> Reals:
        """Return the density (per count) of a continuous error at `error`."""
        if self.discrete or not self.others:
            kind = "of whole-number noise" if self.discrete else "of one part alone"
            raise SpecError(
                f"an error {kind} has no density here",
                remedy="use the distribution function `cdf`",
            )
        x = np.asarray(error, float)
        length, _, slopes = self._grid
        return np.interp(x, np.linspace(-length, length, len(slopes)), slopes, 0.0, 0.0)

    @property
    def discrete(self) -> bool:
        """Return True if the noise takes only integer values."""
        return self.own.discrete

    def characteristic(self, t: NDArray) -> Reals:
        """Return the mean of `cos(t error)` at frequencies `t` (per count)."""
        result = characteristic(self.own, (1 - self.share) * t)
        for law, count in self.others:
            result = result * characteristic(law, self.share * t) ** count
        return result

    def _continuous_cdf(self, x: Reals) -> Reals:
        length, values, slopes = self._grid
        width = 2 * length / GRID_POINTS
        at = np.clip((x + length) / width, 0, GRID_POINTS)
        j = np.minimum(at.astype(np.int64), GRID_POINTS - 1)
        u = at - j
        # The cubic with values and slopes at both ends (Hermite).
        rise = values[j + 1] - values[j]
        left, right = width * slopes[j] - rise, rise - width * slopes[j + 1]
        return values[j] + u * rise + u * (1 - u) * ((1 - u) * left + u * right)

    @cached_property
    def _grid(self) -> tuple[float, Reals, Reals]:
        """Return half width, distribution function and density of the error on a grid around 0."""
        length = _reach(self.variance, [self.own, *(law for law, _ in self.others)])
        k = np.arange(GRID_POINTS // 2 + 1)
        # (-1)^k starts the grid at -L
        phi = self.characteristic(k * pi / length) * np.where(k % 2, -1.0, 1.0)
        slopes = np.fft.irfft(phi, GRID_POINTS) * GRID_POINTS / (2 * length)
        waves = np.fft.irfft(np.append(0.0, -1j * phi[1:] / k[1:]), GRID_POINTS) * GRID_POINTS / (2 * pi)
        values = np.linspace(0, 1, GRID_POINTS + 1) + np.append(waves, waves[0])
        return length, values, np.append(slopes, slopes[0])

    def _integer_cdf(self, x: Reals) -> Reals:
        least = float(self.own.quantile(MASS_LEFT_OUT))
        k = np.arange(least, 1 - least)
        mass = self.own.pmf(k)
        pieces = np.array_split(x[:, None], 1 + len(x) * len(k) // 2**22)
        return np.concatenate([self._others_at_least((1 - self.share) * k, part) @ mass for part in pieces])

    def _others_at_least(self, own: Reals, x: Reals) -> Reals:
        """Return `P(R >= (own - x) / w)` for the sum R of the other parts' noise, near-integers rounded."""
        first, upper = self._others_tail
        rounding = ROUNDING * (np.abs(own) + np.abs(x))
        at = np.ceil((own - x - rounding) / self.share) - first
        return upper[np.clip(at, 0, len(upper) - 1).astype(np.int64)]

    @cached_property
    def _others_tail(self) -> tuple[int, Reals]:
        """Return the smallest tabulated value of the other parts' noise, and its upper tail probabilities."""
        variance = sum(count * law.variance for law, count in self.others)
        half = ceil(_reach(variance, [law for law, _ in self.others]))
        size = 1 << (2 * half + 1).bit_length()
        t = np.arange(size // 2 + 1) * 2 * pi / size
        phi = np.ones(len(t))
        for law, count in self.others:
            phi = phi * characteristic(law, t) ** count
        mass = np.maximum(np.fft.irfft(phi, size), 0.0)
        mass = np.roll(mass, size // 2)
        return -size // 2, np.append(np.cumsum(mass[::-1])[::-1], 0.0)


def projected_error(law: Law, n: int) -> MarginalError:
    """Return the law of one count's error after projection of n equal parts onto their known total.

    Theorem 12: with independent noise eta_1, ..., eta_n on the parts, the error of part i after program
    (P_S) is distributed as `((n - 1) eta_i - sum_{j != i} eta_j) / n`, of variance `(1 - 1/n) Var(eta)`.

    Parameters
    ----------
    law
        Noise of every part.
    n
        Number of parts.

    Raises
    ------
    SpecError
        If `n` is not a whole number above 0.

    References
    ----------
    Zhu, Van Hentenryck and Fioretto (2021), Theorem 12.

    Examples
    --------
    >>> from trueup.noise import DiscreteLaplace, Laplace
    >>> [round(projected_error(Laplace("10"), n).variance, 2) for n in (15, 254)]
    [186.67, 199.21]
    >>> projected_error(DiscreteLaplace("1"), 2).cdf([-0.5, -0.25, 0.0]).round(4)
    array([0.3598, 0.3598, 0.6402])
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise SpecError(f"the number of parts, n, is {n!r}", needed="a whole number of 1 or more")
    return MarginalError(law, ((law, int(n) - 1),) if n > 1 else (), 1 / int(n))


def weighted_error(laws: Sequence[Law], i: int) -> MarginalError:
    """Return the law of part i's error after projection of parts with unequal noise onto their known total.

    Theorem 12 for weighted least squares: part i takes the share `V_i / sum V` of the joint deviation, and
    its variance is `V_i (1 - V_i / sum V)`.

    Parameters
    ----------
    laws
        Noise of every part; all on the integers or all continuous.
    i
        Position of the part.

    Raises
    ------
    SpecError
        If integer and continuous laws are mixed, or part i has no noise.

    Examples
    --------
    >>> from trueup.noise import Gaussian
    >>> weighted_error([Gaussian("1"), Gaussian("3")], 0).variance
    0.75
    """
    if len({law.discrete for law in laws}) > 1:
        raise SpecError(
            "some parts have noise in whole numbers and others continuous noise",
            needed="one kind of noise for all parts",
        )
    variances = [law.variance for law in laws]
    if not variances[i] > 0:
        raise SpecError(f"part {i} has no noise, so it has no error", needed="a part with noise")
    rest = Counter(law for j, law in enumerate(laws) if j != i and variances[j] > 0)
    return MarginalError(laws[i], tuple(rest.items()), variances[i] / sum(variances))


def projected_variances(variances: ArrayLike) -> Reals:
    """Return the variances (counts squared) of the errors of all parts after weighted projection.

    Theorem 12 for unequal variances: `V_i (1 - V_i / sum V)`. Theorem 13: for n equal parts it is
    `V (1 - 1/n)`, which grows with n and tends to V, so a part among many siblings is less precise than one
    among few.

    Parameters
    ----------
    variances
        Noise variances (..., n), counts squared.

    Examples
    --------
    >>> projected_variances([200.0, 200.0, 100.0])
    array([120., 120.,  80.])
    """
    v = np.asarray(variances, float)
    total = v.sum(axis=-1, keepdims=True)
    return v * (1 - np.divide(v, total, out=np.zeros_like(v), where=total > 0))


def _fourth_cumulant(law: Law) -> float:
    return law.fourth_moment - 3 * law.variance**2


def _reach(variance: float, laws: Sequence[Law]) -> float:
    """Return a distance (counts) beyond which a weighted sum of given noise has negligible mass."""
    widest = max(-float(law.quantile(MASS_LEFT_OUT)) for law in laws)
    return max(widest, 10 * sqrt(variance)) + 2 * sqrt(variance) + 1.0
