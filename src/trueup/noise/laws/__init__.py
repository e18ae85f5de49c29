"""Bases of the laws on the integers, of the continuous ones, and of those with a squared scale."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from trueup.digits import rational
from trueup.errors import PrivacyError, SpecError
from trueup.noise.law import Cost, Form, Integers, Law, Reals, Sensitivity, Tail, Words

MAX_SCALE = 2**28
"""Largest scale or standard deviation (counts). Beyond it sums of noisy counts could leave int64."""
MIN_SCALE = Fraction(1, MAX_SCALE)
"""Smallest one. Below it noise is zero but with a probability that no double can hold."""


class Sampler(Protocol):
    def draw(self, words: Words) -> int: ...

    def sample(self, size: int, words: Words) -> Integers: ...


class ContinuousLaw(Law):
    """Base of the continuous laws, which serve to analyse published data and never draw noise."""

    discrete: ClassVar[bool] = False

    def sf(self, noise: ArrayLike) -> Reals:
        """Return the probability that a draw exceeds `noise`, accurate in the upper tail."""
        return self.cdf(np.negative(noise))

    def tail(self, probability: float) -> Tail:
        """Return the whole count that the noise of one count exceeds with at most a given probability."""
        return Tail(int(np.ceil(self.quantile(1 - probability / 2))), exact=True)

    def sample(self, size: int, words: Words) -> Integers:
        """Raise an error, because a continuous law draws no noise.

        Raises
        ------
        PrivacyError
            Always: the gaps between floating-point numbers would depend on the true count.
        """
        raise PrivacyError(
            f"law {self.name} is continuous; its draws would be rounded to floating-point numbers, and the possible "
            "roundings reveal the true count (Mironov 2012)",
            needed="a law of whole numbers",
            remedy=f"use 'discrete-{self.name}'; '{self.name}' is only for analysing data that were published with it",
        )


class IntegerLaw(Law):
    """Base of the laws on the integers.

    A law states three functions of integers `k < 0` as float arrays: the log mass (of any `k`), the lower
    tail `P(X <= k)`, and a guess of the `k` at which the lower tail reaches a probability.
    """

    discrete: ClassVar[bool] = True

    def characteristic(self, t: Reals) -> Reals:
        """Return the mean of `cos(t noise)` at frequencies `t`, without the last 1e-18 of the mass."""
        k = np.arange(1, self.reach(2e-18) + 1)
        mass = 2 * self.pmf(k)
        sums = [mass @ np.cos(k * each) for each in np.ravel(t)]
        return float(self.pmf(0)) + np.reshape(np.array(sums), np.shape(t))

    def _logpmf(self, k: Reals) -> Reals:
        raise NotImplementedError

    def _lower(self, k: Reals) -> Reals:
        raise NotImplementedError

    def _lower_quantile(self, probability: Reals) -> Reals:
        raise NotImplementedError

    @property
    def sampler(self) -> Sampler:
        """Return the exact sampler of the law from a cache."""
        raise NotImplementedError

    def logpmf(self, noise: ArrayLike) -> Reals:
        """Return the log mass at `noise`, which is minus infinity off the support."""
        k = np.asarray(noise, dtype=np.float64)
        inside = (k == np.floor(k)) & (np.abs(k) <= self.support[1])
        return np.where(inside, self._logpmf(np.where(inside, k, 0.0)), -np.inf)[()]

    def cdf(self, noise: ArrayLike) -> Reals:
        """Return the probability that a draw is at most `noise`."""
        k = np.floor(np.asarray(noise, dtype=np.float64))
        # P(X <= k) = 1 - P(X <= -k - 1), and of k and -k - 1 just one is negative.
        lower = self._lower(np.minimum(k, -k - 1))
        return np.where(k < 0, lower, 1 - lower)[()]

    def sf(self, noise: ArrayLike) -> Reals:
        """Return the probability that a draw exceeds `noise`, computed in the upper tail."""
        return self.cdf(-np.floor(np.asarray(noise, dtype=np.float64)) - 1)

    def quantile(self, probability: ArrayLike) -> Reals:
        """Return the smallest `k` with `P(X <= k)` of at least `probability`."""
        p = probabilities(probability)
        inner = np.clip(p, np.nextafter(0, 1), np.nextafter(1, 0))
        guess = self._lower_quantile(np.minimum(inner, 1 - inner))
        k = np.where(inner <= 0.5, guess, -guess)
        while np.any(down := self.cdf(k - 1) >= inner):
            k = k - down
        while np.any(up := self.cdf(k) < inner):
            k = k + up
        low, high = self.support
        return np.where(p == 0, low, np.where(p == 1, high, k + 0.0))[()]

    def reach(self, probability: float) -> float:
        """Return the smallest `r >= 0` (counts) with `P(|X| > r) <= probability`."""
        return float(max(0.0, -self.quantile(probability / 2)))

    def tail(self, probability: float) -> Tail:
        """Return the smallest count that the absolute value of a draw exceeds with at most `probability`."""
        return Tail(int(self.reach(probability)), exact=True)

    def sample(self, size: int, words: Words) -> Integers:
        """Return `size` independent draws, which are exact.

        Parameters
        ----------
        size
            Number of draws `d`.
        words
            Source of fresh random bytes.

        Returns
        -------
        int64 array of shape `(d,)`.
        """
        if draws(size) == 1:
            return np.array([self.sampler.draw(words)])
        return self.sampler.sample(int(size), words)


class SquaredScale:
    """Base of the laws with log mass `-k^2 / (2 sigma2)` up to a constant."""

    sigma2: Fraction

    def __post_init__(self) -> None:
        sigma2 = rational(self.sigma2, "sigma2")
        refuse_extreme_width(sigma2, "sigma2", sigma2)
        object.__setattr__(self, "sigma2", sigma2)

    @classmethod
    def for_budget(cls, amount: Fraction, sensitivity: Sensitivity) -> Self:
        """Return the law with the zCDP loss `amount` (rho) on a count vector of the given sensitivity."""
        scale = rational(sensitivity.l2_squared, "the L2 sensitivity") / (2 * rational(amount, "rho"))
        return cls(scale)  # pyright: ignore[reportCallIssue]

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Return the zCDP loss rho: the squared L2 sensitivity over `2 sigma2`."""
        return Cost("rho", sensitivity.l2_squared / (2 * self.sigma2))

    @property
    def form(self) -> Form:
        """Return the slope, curvature and reach of the log mass (density)."""
        return Form(0.0, float(1 / (2 * self.sigma2)), np.inf)


def draws(size: int) -> int:
    """Return a number of draws after checking that it is a whole number of 0 or more."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer):
        raise SpecError(f"the size is of type {type(size).__name__}", needed="a whole number of draws")
    if size < 0:
        raise SpecError(f"the size is {size}", needed="a whole number of draws, 0 or more")
    return int(size)


def probabilities(probability: ArrayLike) -> Reals:
    """Return probabilities as an array after checking that they are between 0 and 1."""
    try:
        p = np.asarray(probability, dtype=np.float64)
    except (TypeError, ValueError):
        raise SpecError("a probability is not a number", needed="probabilities between 0 and 1") from None
    if not np.all((p >= 0) & (p <= 1)):
        raise SpecError("a probability is outside [0, 1]", needed="probabilities between 0 and 1")
    return p


def refuse_extreme_width(scale_squared: Fraction, what: str, value: Fraction) -> None:
    """Raise an error for noise too wide for 64-bit sums of counts, or too narrow to protect anybody."""
    if not MIN_SCALE**2 <= scale_squared <= MAX_SCALE**2:
        shown = f" {value}" if len(str(value)) <= 24 else ""
        effect = "practically no noise" if scale_squared < 1 else "noise wider than any count"
        raise SpecError(
            f"{what}{shown} makes {effect}",
            needed=f"a scale (or standard deviation) between 1/{MAX_SCALE:,} and {MAX_SCALE:,} counts",
        )
