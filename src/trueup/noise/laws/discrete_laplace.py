"""The discrete Laplace law, also known as two-sided geometric."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from trueup.noise.cost import Cost, Sensitivity
from trueup.noise.law import Form, Reals
from trueup.noise.laws.base import IntegerLaw, refuse_extreme_width
from trueup.noise.losses import Losses, laplace_losses
from trueup.noise.rational import rational
from trueup.noise.samplers.geometric import TwoSidedGeometric, two_sided_geometric


@dataclass(frozen=True)
class DiscreteLaplace(IntegerLaw):
    """Noise on the integers with mass `tanh(epsilon/2) exp(-epsilon |k|)` (pure differential privacy).

    Parameters
    ----------
    epsilon
        Inverse scale, exact: `Fraction(1, 2)` or the text `"1/2"` or `"0.5"`; from 2^-28 to 2^28.

    Raises
    ------
    SpecError
        If `epsilon` is not an exact positive number of that size.

    Notes
    -----
    Ghosh, Roughgarden and Sundararajan (2012), "Universally utility-maximizing privacy mechanisms",
    section 2.

    Examples
    --------
    >>> law = DiscreteLaplace("1/2")
    >>> law
    DiscreteLaplace(epsilon=Fraction(1, 2))
    >>> print(f"{law.variance:.3f} {float(law.cdf(0)):.3f}")
    7.835 0.622
    """

    name: ClassVar[str] = "discrete-laplace"
    title: ClassVar[str] = "Discrete Laplace (two-sided geometric), pure epsilon"
    epsilon: Fraction

    def __post_init__(self) -> None:
        epsilon = rational(self.epsilon, "epsilon")
        refuse_extreme_width(1 / epsilon**2, "epsilon", epsilon)
        object.__setattr__(self, "epsilon", epsilon)

    @classmethod
    def for_budget(cls, amount: Fraction, sensitivity: Sensitivity) -> Self:
        """Return the law that spends the pure epsilon `amount` on a vector of that sensitivity."""
        return cls(rational(amount, "epsilon") / rational(sensitivity.l1, "the L1 sensitivity"))

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Return the pure epsilon: inverse scale times L1 sensitivity."""
        return Cost("epsilon", self.epsilon * sensitivity.l1)

    @property
    def variance(self) -> float:
        """Return the variance of one draw, `2 q / (1 - q)^2` with `q = exp(-epsilon)` (counts squared)."""
        rate = float(self.epsilon)
        return float(2 * np.exp(-rate) / np.expm1(-rate) ** 2)

    @property
    def fourth_moment(self) -> float:
        """Return the mean of the fourth power of one draw (counts^4)."""
        # From the characteristic function, E X^4 = 2 q (1 + 10 q + q^2) / (1 - q)^4.
        q, gap = np.exp(-float(self.epsilon)), -np.expm1(-float(self.epsilon))
        return float(2 * q * (1 + 10 * q + q * q) / gap**4)

    @property
    def form(self) -> Form:
        """Return slope, curvature and reach of its log mass."""
        return Form(float(self.epsilon), 0.0, np.inf)

    def scaled(self, factor: Fraction) -> Self:
        """Return the same noise at `factor` times its epsilon."""
        return replace(self, epsilon=self.epsilon * factor)

    def characteristic(self, t: Reals) -> Reals:
        """Return the mean of `cos(t noise)` at frequencies `t` (per count)."""
        # tanh^2 / (tanh^2 cos^2 + sin^2) at half angles: exact at small t, where 1 - 2 a cos t + a^2 cancels.
        square, half = np.tanh(float(self.epsilon) / 2) ** 2, 0.5 * t
        return square / (square * np.cos(half) ** 2 + np.sin(half) ** 2)

    def losses(self, change: int, cut: float) -> Losses:
        """Return the distribution of the privacy loss of one count that changes by at most so much."""
        return laplace_losses(self.epsilon, change)

    def _logpmf(self, k: Reals) -> Reals:
        rate = float(self.epsilon)
        return np.log(-np.expm1(-rate)) - np.log1p(np.exp(-rate)) - rate * np.abs(k)

    def _lower(self, k: Reals) -> Reals:
        rate = float(self.epsilon)
        return np.exp(rate * k) / (1 + np.exp(-rate))

    def _lower_quantile(self, probability: Reals) -> Reals:
        rate = float(self.epsilon)
        return np.ceil((np.log(probability) + np.log1p(np.exp(-rate))) / rate)

    @property
    def sampler(self) -> TwoSidedGeometric:
        """Return the exact sampler, its tables kept for the next draw."""
        return two_sided_geometric(self.epsilon)

    def sentence(self) -> str:
        """Return the law in one plain sentence."""
        return (
            f"Each count receives independent integer noise with probability proportional to "
            f"exp(-{self.epsilon} |noise|), standard deviation {np.sqrt(self.variance):.4g}."
        )
