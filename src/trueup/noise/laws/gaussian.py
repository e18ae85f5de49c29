"""The continuous Gaussian law, for the analysis of others' data."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import log, pi, sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from trueup.noise.law import Reals
from trueup.noise.laws.base import ContinuousLaw, SquaredScale, probabilities


@dataclass(frozen=True)
class Gaussian(SquaredScale, ContinuousLaw):
    """Normal noise of variance `sigma2`: a likelihood only, never drawn.

    Parameters
    ----------
    sigma2
        Variance, exact (counts squared).

    Raises
    ------
    SpecError
        If `sigma2` is not an exact positive number.

    Notes
    -----
    Its zCDP loss: Bun and Steinke (2016), "Concentrated differential privacy", proposition 6.

    Examples
    --------
    >>> Gaussian("4").variance, float(Gaussian("4").cdf(0))
    (4.0, 0.5)
    """

    name: ClassVar[str] = "gaussian"
    title: ClassVar[str] = "Continuous Gaussian (analysis only)"
    sigma2: Fraction

    @property
    def variance(self) -> float:
        """Return the variance of one draw (counts squared)."""
        return float(self.sigma2)

    @property
    def fourth_moment(self) -> float:
        """Return the mean of the fourth power of one draw (counts^4)."""
        return float(3 * self.sigma2**2)

    def characteristic(self, t: Reals) -> Reals:
        """Return the mean of `cos(t noise)` at frequencies `t` (per count)."""
        return np.exp(-0.5 * self.variance * t * t)

    def logpmf(self, noise: ArrayLike) -> Reals:
        """Return the log density at `noise`."""
        x = np.asarray(noise, dtype=np.float64)
        return -x * x / (2 * self.variance) - log(2 * pi * self.variance) / 2

    def cdf(self, noise: ArrayLike) -> Reals:
        """Return the probability that a draw is at most `noise`."""
        from scipy.special import ndtr

        return ndtr(np.asarray(noise, dtype=np.float64) / sqrt(self.variance))

    def quantile(self, probability: ArrayLike) -> Reals:
        """Return the value that a draw exceeds with probability `1 - probability`."""
        from scipy.special import ndtri

        return ndtri(probabilities(probability)) * sqrt(self.variance)

    def sentence(self) -> str:
        """Return the law in one plain sentence."""
        return f"Each value carries independent normal noise of standard deviation {sqrt(self.variance):.6g}."
