"""The continuous Laplace law, for the analysis of others' data."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import log
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from trueup.noise.cost import Cost, Sensitivity
from trueup.noise.law import Form, Reals
from trueup.noise.laws.base import ContinuousLaw, probabilities, refuse_extreme_width
from trueup.noise.rational import rational


@dataclass(frozen=True)
class Laplace(ContinuousLaw):
    """Noise with density `exp(-|x| / scale) / (2 scale)`: a likelihood only, never drawn.

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
        """Return the law that spends the pure epsilon `amount` on a vector of that sensitivity."""
        return cls(rational(sensitivity.l1, "the L1 sensitivity") / rational(amount, "epsilon"))

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Return the pure epsilon: L1 sensitivity over the scale."""
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
        """Return slope, curvature and reach of its log density."""
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
        """Return the value that a draw exceeds with probability `1 - probability`."""
        p = probabilities(probability)
        with np.errstate(divide="ignore"):
            lower = np.log(2 * np.minimum(p, 1 - p)) * float(self.scale)
        return np.where(p < 0.5, lower, -lower)[()]

    def sentence(self) -> str:
        """Return the law in one plain sentence."""
        return f"Each value carries independent Laplace noise of scale {float(self.scale):.6g}."
