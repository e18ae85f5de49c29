"""The discrete Laplace law (two-sided geometric), and its truncation to a range."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import isqrt
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from trueup.digits import rational
from trueup.errors import SpecError
from trueup.noise.law import Cost, Form, Reals, Sensitivity
from trueup.noise.laws import IntegerLaw, refuse_extreme_width
from trueup.noise.losses import Losses, laplace_losses, truncated_losses

if TYPE_CHECKING:
    from trueup.noise.samplers import Inversion
    from trueup.noise.samplers.geometric import TwoSidedGeometric

LARGEST_BOUND = 2**14


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
    Ghosh, Roughgarden and Sundararajan (2012), "Universally utility-maximizing privacy mechanisms", section 2.

    Examples
    --------
    >>> law = DiscreteLaplace("1/2")
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
        """Return the law with the pure loss `amount` (epsilon) on a count vector of the given sensitivity."""
        return cls(rational(amount, "epsilon") / rational(sensitivity.l1, "the L1 sensitivity"))

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Return the pure loss epsilon: inverse scale times L1 sensitivity."""
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
        """Return the slope, curvature and reach of the log mass."""
        return Form(float(self.epsilon), 0.0, np.inf)

    def scaled(self, factor: Fraction) -> Self:
        """Return the law of the same kind with `factor` times the loss epsilon."""
        return replace(self, epsilon=self.epsilon * factor)

    def characteristic(self, t: Reals) -> Reals:
        """Return the mean of `cos(t noise)` at frequencies `t` (per count)."""
        # tanh^2 / (tanh^2 cos^2 + sin^2) at half angles: exact at small t, where 1 - 2 a cos t + a^2 cancels.
        square, half = np.tanh(float(self.epsilon) / 2) ** 2, 0.5 * t
        return square / (square * np.cos(half) ** 2 + np.sin(half) ** 2)

    def losses(self, change: int, cut: float) -> Losses:
        """Return the distribution of the privacy loss of one count that changes by at most `change`."""
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
        """Return the exact sampler of the law, whose tables stay in memory."""
        from trueup.noise.samplers.geometric import two_sided_geometric

        return two_sided_geometric(self.epsilon)

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        return (
            f"Each count receives independent integer noise with probability proportional to "
            f"exp(-{self.epsilon} |noise|), standard deviation {np.sqrt(self.variance):.4g}."
        )


@dataclass(frozen=True)
class TruncatedGeometric(IntegerLaw):
    """Noise with mass proportional to `exp(-epsilon |k|)` on `-bound .. bound`.

    It is not pure: an output at the edge excludes a neighbour, so it costs a delta as well.

    Parameters
    ----------
    epsilon
        Inverse scale, exact; from 2^-28 to 2^28.
    bound
        Largest absolute noise (counts), from 1 to 2^14; 50 in the source.

    Raises
    ------
    SpecError
        If a parameter is not of that kind and size.

    Notes
    -----
    Wang (2020), "Differentially private counts with additive constraints", section 2.1, which truncates at 50
    and claims pure epsilon. The loss here is (epsilon, delta).

    Examples
    --------
    >>> law = TruncatedGeometric("1")
    >>> law.cost(Sensitivity.of(cells=1, each=1)).delta < Fraction(1, 10**21)
    True
    """

    name: ClassVar[str] = "truncated-geometric"
    title: ClassVar[str] = "Two-sided geometric truncated to a bound, (epsilon, delta)"
    epsilon: Fraction
    bound: int = 50

    def __post_init__(self) -> None:
        epsilon, bound = rational(self.epsilon, "epsilon"), rational(self.bound, "bound")
        refuse_extreme_width(1 / epsilon**2, "epsilon", epsilon)
        if bound.denominator != 1 or bound > LARGEST_BOUND:
            raise SpecError(
                f"the bound of noise '{self.name}' is {bound if bound < 10**9 else 'beyond 10^9'}",
                needed=f"a whole number from 1 to {LARGEST_BOUND:,}",
                remedy="use 'discrete-laplace', which has no bound and no delta",
            )
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "bound", int(bound))

    @property
    def form(self) -> Form:
        """Return the slope, curvature and reach of the log mass."""
        return Form(float(self.epsilon), 0.0, float(self.bound))

    @classmethod
    def for_budget(cls, amount: Fraction, sensitivity: Sensitivity, bound: int = 50) -> TruncatedGeometric:
        """Return the law with the loss `amount` (epsilon) on a count vector of the given sensitivity."""
        return cls(rational(amount, "epsilon") / rational(sensitivity.l1, "the L1 sensitivity"), bound)

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Return the loss as (epsilon, delta), with delta rounded up.

        Where both neighbours can give an output, their odds differ by at most `epsilon` times the L1
        distance. A cell that moves by `e` reaches outputs that the other cannot with probability
        `d(e) = P(X > bound - e)`; delta is at most the sum of `d(e)` over the cells.
        """
        # Counts move by whole numbers e. With d(e) <= a e for all e that the sensitivity allows, the sum is
        # at most a l1; with d(e) <= b e^2 it is at most b l2_squared.
        moves = range(1, min(isqrt(int(sensitivity.l2_squared)), int(sensitivity.l1), 2 * self.bound + 1) + 1)
        excluded = self._excluded(moves)
        linear = sensitivity.l1 * max((d / e for d, e in zip(excluded, moves)), default=Fraction(0))
        square = sensitivity.l2_squared * max(
            (d / e**2 for d, e in zip(excluded, moves)), default=Fraction(0)
        )
        return Cost(
            "epsilon", self.epsilon * sensitivity.l1, min(Fraction(1), _rounded_up(min(linear, square)))
        )

    def losses(self, change: int, cut: float) -> Losses:
        """Return the distribution of the privacy loss of one count that changes by at most `change`."""
        beyond = float(np.nextafter(float(self._excluded(range(change, change + 1))[0]), np.inf))
        log_mass = self._logpmf(np.arange(self.bound + 1.0))
        return truncated_losses(self.epsilon, self.bound, change, log_mass, beyond)

    def _excluded(self, moves: range) -> list[Fraction]:
        """Return upper bounds on `P(X > bound - move)`, one for every move."""
        bits = min(1024, 64 + 2 * int(self.epsilon * (self.bound + 1)))
        from trueup.noise.samplers.geometric import GeometricTail

        tail = GeometricTail(self.epsilon, self.bound)
        bounds = [tail.cdf(move - self.bound - 1, bits) for move in moves]
        return [Fraction(bound.hi, 1 << bound.bits) for bound in bounds]

    @property
    def support(self) -> tuple[float, float]:
        """Return the smallest and largest possible draw (counts)."""
        return -float(self.bound), float(self.bound)

    @property
    def variance(self) -> float:
        """Return the variance of one draw (counts squared)."""
        return self._moment(2)

    @property
    def fourth_moment(self) -> float:
        """Return the mean of the fourth power of one draw (counts^4)."""
        return self._moment(4)

    def _moment(self, order: int) -> float:
        k = np.arange(1.0, self.bound + 1)
        return float(2 * np.sum(k**order * np.exp(self._logpmf(k))))

    def _gaps(self) -> tuple[float, float]:
        """Return `1 - q` and `(1 + q) - 2 q^(bound + 1)`, `q = exp(-epsilon)`, without cancellation."""
        gap = -np.expm1(-float(self.epsilon))
        return gap, -2 * np.expm1(-float(self.epsilon) * (self.bound + 1)) - gap

    def _logpmf(self, k: Reals) -> Reals:
        gap, whole = self._gaps()
        return np.log(gap) - np.log(whole) - float(self.epsilon) * np.abs(k)

    def _lower(self, k: Reals) -> Reals:
        # P(X <= -j) = (q^j - q^(bound + 1)) / whole
        rate, k = float(self.epsilon), np.maximum(k, -self.bound - 1)
        return np.exp(rate * k) * -np.expm1(-rate * (self.bound + 1 + k)) / self._gaps()[1]

    def _lower_quantile(self, probability: Reals) -> Reals:
        rate = float(self.epsilon)
        cut, share = np.expm1(-rate * (self.bound + 1)), probability * self._gaps()[1]
        guess = np.log1p(share + cut) if cut > -0.5 else np.log(share + (1 + cut))
        return np.clip(np.ceil(guess / rate), -self.bound, 0)

    @property
    def sampler(self) -> Inversion:
        """Return the exact sampler of the law, whose tables stay in memory."""
        from trueup.noise.samplers.geometric import geometric_within

        return geometric_within(self.epsilon, self.bound)

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        return (
            f"Each count receives independent integer noise between -{self.bound} and {self.bound} with "
            f"probability proportional to exp(-{self.epsilon} |noise|), standard deviation "
            f"{np.sqrt(self.variance):.4g}."
        )


def _rounded_up(value: Fraction) -> Fraction:
    """Return a fraction rounded up to about four decimal digits."""
    scale = 10 ** (4 + max(0, len(str(value.denominator)) - len(str(value.numerator))))
    return Fraction(-(-value.numerator * scale // value.denominator), scale)
