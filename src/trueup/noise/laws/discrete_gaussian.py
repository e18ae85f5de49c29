"""The discrete Gaussian law."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import exp, log, log1p, pi, sqrt
from typing import ClassVar, Self

import numpy as np

from trueup.noise.law import Reals
from trueup.noise.laws import IntegerLaw, Sampler, SquaredScale
from trueup.noise.losses import Losses, gaussian_losses
from trueup.noise.samplers.gaussian import GaussianTable, GaussianWide

TABLE_UP_TO = 2**20
"""Largest sigma2 (counts squared) that is drawn and summed from a table of its own."""


@dataclass(frozen=True)
class DiscreteGaussian(SquaredScale, IntegerLaw):
    """Noise on the integers with mass proportional to `exp(-k^2 / (2 sigma2))` (zero-concentrated privacy).

    Parameters
    ----------
    sigma2
        Squared scale, exact (counts squared): a Fraction or text such as `"1/2"`; from 2^-56 to 2^56.
        The variance is slightly smaller when it is below about 1.

    Raises
    ------
    SpecError
        If `sigma2` is not an exact positive number of that size.

    Notes
    -----
    Canonne, Kamath and Steinke (2020), "The discrete Gaussian for differential privacy", definition 1 and
    theorem 4.

    Examples
    --------
    >>> law = DiscreteGaussian("4")
    >>> print(f"{law.variance:.6f} {float(law.cdf(0)):.6f} {float(law.pmf(0)):.6f}")
    4.000000 0.599736 0.199471
    """

    name: ClassVar[str] = "discrete-gaussian"
    title: ClassVar[str] = "Discrete Gaussian, zCDP"
    sigma2: Fraction

    @property
    def variance(self) -> float:
        """Return the variance of one draw (counts squared)."""
        return _moment(float(self.sigma2), 2)

    @property
    def fourth_moment(self) -> float:
        """Return the mean of the fourth power of one draw (counts^4)."""
        return _moment(float(self.sigma2), 4)

    def scaled(self, factor: Fraction) -> Self:
        """Return the law of the same kind with `factor` times the loss rho."""
        return replace(self, sigma2=self.sigma2 / factor)

    def characteristic(self, t: Reals) -> Reals:
        """Return the mean of `cos(t noise)` at frequencies `t` (per count)."""
        if self.sigma2 < 1:
            return super().characteristic(t)
        sigma2, turns = float(self.sigma2), 2 * np.pi * np.arange(-2, 3)
        nearest = t - 2 * np.pi * np.rint(t / (2 * np.pi))
        curves = np.exp(-0.5 * sigma2 * np.subtract.outer(nearest, turns) ** 2).sum(axis=-1)
        return curves / np.exp(-0.5 * sigma2 * turns**2).sum()

    def losses(self, change: int, cut: float) -> Losses:
        """Return the distribution of the privacy loss of one count that changes by at most `change`."""
        return gaussian_losses(self.sigma2, change, _log_normaliser(float(self.sigma2)), cut)

    def _logpmf(self, k: Reals) -> Reals:
        sigma2 = float(self.sigma2)
        return -k * k / (2 * sigma2) - _log_normaliser(sigma2)

    def _lower(self, k: Reals) -> Reals:
        if self.sigma2 > TABLE_UP_TO:
            return wide_tail_probability(float(self.sigma2), -k)
        tails = _tails(float(self.sigma2))
        return tails[np.minimum(-k, len(tails) - 1).astype(np.int64)]

    def _lower_quantile(self, probability: Reals) -> Reals:
        from scipy.special import ndtri

        return np.ceil(sqrt(self.sigma2) * ndtri(probability) - 0.5)

    @property
    def sampler(self) -> Sampler:
        """Return the exact sampler of the law, whose tables stay in memory."""
        return _sampler(self.sigma2)

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        return (
            "Each count receives independent integer noise with probability proportional to "
            f"exp(-noise^2 / (2 x {self.sigma2})), standard deviation {sqrt(self.variance):.4g}."
        )


@lru_cache(maxsize=64)
def _sampler(sigma2: Fraction) -> Sampler:
    """Return the exact sampler for `sigma2`, whose tables stay in memory."""
    return GaussianTable(sigma2) if sigma2 <= TABLE_UP_TO else GaussianWide(sigma2)


def _log_normaliser(sigma2: float) -> float:
    """Return the log of the sum of `exp(-k^2 / (2 sigma2))` over the integers."""
    if sigma2 < 1:
        return log1p(2 * sum(exp(-k * k / (2 * sigma2)) for k in range(1, 12)))
    # Poisson summation: the same sum is sqrt(2 pi sigma2) times that of exp(-2 pi^2 sigma2 j^2).
    return 0.5 * log(2 * pi * sigma2) + log1p(2 * exp(-2 * pi * pi * sigma2))


def _moment(sigma2: float, order: int) -> float:
    """Return the second or the fourth moment of the discrete Gaussian law."""
    if sigma2 >= 9:  # by Poisson summation within exp(-2 pi^2 9), which is no double, of the normal law's
        return sigma2 if order == 2 else 3 * sigma2 * sigma2
    k = np.arange(1.0, 120.0)
    return float(2 * np.sum(k**order * np.exp(-k * k / (2 * sigma2) - _log_normaliser(sigma2))))


@lru_cache(maxsize=64)
def _tails(sigma2: float) -> Reals:
    """Return `P(X >= k)` for `k = 0, 1, ..` until it underflows to 0."""
    k = np.arange(int(39 * sqrt(sigma2)) + 3)
    mass = np.exp(-k * k / (2 * sigma2) - _log_normaliser(sigma2))
    mass[-1] = 0.0
    return np.cumsum(mass[::-1])[::-1]


def wide_tail_probability(sigma2: float, k: Reals) -> Reals:
    """Return `P(X >= k)` for `k >= 1` and a large `sigma2`, with relative error below 1e-12."""
    from scipy.special import ndtr

    # Euler and Maclaurin's midpoint rule: the sum of f(k), f(k + 1), .. is the integral from a = k - 1/2
    # + f'(a)/24 - 7 f'''(a)/5760 + ..; the next term is 31/967680 (z/sigma)^6 of the sum, below 1e-13.
    z = (k - 0.5) / sqrt(sigma2)
    density = np.exp(-z * z / 2) / sqrt(2 * pi)
    return ndtr(-z) - density * z * (1 / (24 * sigma2) + 7 * (3 - z * z) / (5760 * sigma2 * sigma2))
