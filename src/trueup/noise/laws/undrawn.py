"""Laws that never draw noise: that of an invariant, and continuous laws for published data."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import log, pi, sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from trueup.digits import rational
from trueup.errors import SpecError
from trueup.noise.law import Cost, Form, Integers, Reals, Sensitivity, Words
from trueup.noise.laws import (
    ContinuousLaw,
    IntegerLaw,
    SquaredScale,
    draws,
    probabilities,
    refuse_extreme_width,
)


@dataclass(frozen=True)
class Exact(IntegerLaw):
    """A count published without noise, because it is declared an invariant.

    Its cost is 0 only under a guarantee among databases that share the invariant.

    Examples
    --------
    >>> Exact().variance, Exact().cdf([-1, 0]).tolist()
    (0.0, [0.0, 1.0])
    """

    name: ClassVar[str] = "exact"
    title: ClassVar[str] = "No noise (a declared invariant)"
    exact: ClassVar[bool] = True

    @classmethod
    def for_budget(cls, amount: Fraction, sensitivity: Sensitivity) -> Exact:
        """Raise an error if the budget is not 0, because an invariant spends none."""
        if amount != 0:
            raise SpecError(
                f"an invariant is given the budget {amount}",
                needed="no budget, because the law 'exact' adds no noise",
                remedy="remove the budget, or choose a law that adds noise",
            )
        return cls()

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Return a privacy loss of zero, because all databases share the invariant."""
        return Cost("epsilon", Fraction(0))

    @property
    def support(self) -> tuple[float, float]:
        """Return the smallest and largest possible draw, both 0."""
        return 0.0, 0.0

    @property
    def variance(self) -> float:
        """Return the variance, which is 0."""
        return 0.0

    @property
    def fourth_moment(self) -> float:
        """Return the mean of the fourth power, which is 0."""
        return 0.0

    def _logpmf(self, k: Reals) -> Reals:
        return np.zeros_like(k)

    def _lower(self, k: Reals) -> Reals:
        return np.zeros_like(k)

    def _lower_quantile(self, probability: Reals) -> Reals:
        return np.zeros_like(probability)

    def sample(self, size: int, words: Words) -> Integers:
        """Return `size` zeros, without reading random bits."""
        return np.zeros(draws(size), dtype=np.int64)

    def says(self, published: float) -> str:
        """Return words for what a published value says about the true count."""
        return f"= {published}"

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        return "Each count is published exactly, as a declared invariant."


@dataclass(frozen=True)
class Gaussian(SquaredScale, ContinuousLaw):
    """Normal noise of variance `sigma2`: a likelihood, which is never drawn from.

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
        """Return the value `x` with `P(X <= x) = probability`."""
        from scipy.special import ndtri

        return ndtri(probabilities(probability)) * sqrt(self.variance)

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        return f"Each value carries independent normal noise of standard deviation {sqrt(self.variance):.6g}."


@dataclass(frozen=True)
class Laplace(ContinuousLaw):
    """Noise with density `exp(-|x| / scale) / (2 scale)`: a likelihood, which is never drawn from.

    Parameters
    ----------
    scale
        Mean absolute noise, exact (counts).

    Raises
    ------
    SpecError
        If `scale` is not an exact positive number.

    Notes
    -----
    Dwork, McSherry, Nissim and Smith (2006), "Calibrating noise to sensitivity in private data analysis".

    Examples
    --------
    >>> Laplace("2").variance, float(Laplace("2").cdf(0))
    (8.0, 0.5)
    """

    name: ClassVar[str] = "laplace"
    title: ClassVar[str] = "Continuous Laplace (analysis only)"
    scale: Fraction

    def __post_init__(self) -> None:
        scale = rational(self.scale, "scale")
        refuse_extreme_width(scale**2, "scale", scale)
        object.__setattr__(self, "scale", scale)

    @classmethod
    def for_budget(cls, amount: Fraction, sensitivity: Sensitivity) -> Laplace:
        """Return the law with the pure loss `amount` (epsilon) on a count vector of the given sensitivity."""
        return cls(rational(sensitivity.l1, "the L1 sensitivity") / rational(amount, "epsilon"))

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Return the pure loss epsilon: L1 sensitivity over the scale."""
        return Cost("epsilon", sensitivity.l1 / self.scale)

    @property
    def variance(self) -> float:
        """Return the variance of one draw (counts squared)."""
        return float(2 * self.scale**2)

    @property
    def fourth_moment(self) -> float:
        """Return the mean of the fourth power of one draw (counts^4)."""
        return float(24 * self.scale**4)

    @property
    def form(self) -> Form:
        """Return the slope, curvature and reach of the log density."""
        return Form(float(1 / self.scale), 0.0, np.inf)

    def characteristic(self, t: Reals) -> Reals:
        """Return the mean of `cos(t noise)` at frequencies `t` (per count)."""
        return 1 / (1 + (float(self.scale) * t) ** 2)

    def logpmf(self, noise: ArrayLike) -> Reals:
        """Return the log density at `noise`."""
        return -np.abs(np.asarray(noise, dtype=np.float64)) / float(self.scale) - log(2 * self.scale)

    def cdf(self, noise: ArrayLike) -> Reals:
        """Return the probability that a draw is at most `noise`."""
        x = np.asarray(noise, dtype=np.float64) / float(self.scale)
        lower = np.exp(-np.abs(x)) / 2
        return np.where(x < 0, lower, 1 - lower)[()]

    def quantile(self, probability: ArrayLike) -> Reals:
        """Return the value `x` with `P(X <= x) = probability`."""
        p = probabilities(probability)
        with np.errstate(divide="ignore"):
            lower = np.log(2 * np.minimum(p, 1 - p)) * float(self.scale)
        return np.where(p < 0.5, lower, -lower)[()]

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        return f"Each value carries independent Laplace noise of scale {float(self.scale):.6g}."
