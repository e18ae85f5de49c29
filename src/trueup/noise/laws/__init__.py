"""Noise distributions, and the code that all of them share.

One file: the base of all laws, and what laws on the integers and continuous ones have beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from fractions import Fraction
from inspect import signature
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.digits import rational
from trueup.errors import DataError, PrivacyError, SpecError
from trueup.noise.law import NO_LIMIT, Cost, Form, Integers, Reals, Sensitivity, Tail, Words
from trueup.noise.losses import Losses

MAX_SCALE = 2**28
"""Largest scale or standard deviation (counts). Beyond it sums of noisy counts could leave int64."""
MIN_SCALE = Fraction(1, MAX_SCALE)
"""Smallest one. Below it noise is zero but with a probability that no double can hold."""
MAX_TABLE_ENTRIES = 1 << 24
"""Most entries of one table (counts)."""


class Sampler(Protocol):
    def draw(self, words: Words) -> int: ...

    def sample(self, size: int, words: Words) -> Integers: ...


class BaseLaw:
    """Base of the laws, which are frozen dataclasses with exact parameters as fields."""

    name: ClassVar[str]
    title: ClassVar[str]
    discrete: ClassVar[bool]
    exact: ClassVar[bool] = False
    additive: ClassVar[bool] = True
    joint: ClassVar[bool] = False
    factors: ClassVar[bool] = True
    same_records: ClassVar[bool] = False
    numeric: ClassVar[bool] = True
    attained: ClassVar[bool] = True

    @property
    def form(self) -> Form | None:
        """Return the slope, curvature and reach of the log mass, or None if it has another form."""
        return None

    @property
    def rate(self) -> float | None:
        """Return the rate of a law with mass proportional to `exp(-rate |k|)`, or None for other laws."""
        form = self.form
        return form.slope if self.discrete and form and form == (form.slope, 0.0, np.inf) else None

    def scaled(self, factor: Fraction) -> Self:
        """Return the law of the same kind with `factor` times the privacy cost."""
        raise SpecError(
            f"the budget of the noise '{self.name}' cannot be planned",
            needed="noise 'discrete-laplace' or 'discrete-gaussian'",
        )

    def characteristic(self, t: Reals) -> Reals:
        """Return the mean of `cos(t noise)` at frequencies `t` (per count).

        Raises
        ------
        SpecError
            If the distribution is not known.
        """
        raise SpecError(
            f"the characteristic function of the noise '{self.name}' is not known",
            needed="noise for which it is known, such as 'discrete-laplace' or 'discrete-gaussian'",
        )

    def losses(self, change: int, cut: float) -> Losses:
        """Return the distribution of the privacy loss of one count that changes by at most `change`.

        Parameters
        ----------
        change
            In whole counts, one or more.
        cut
            Probability of large losses that may count as infinite.
        """
        raise SpecError(
            f"the distribution of privacy losses of the noise '{self.name}' is not known",
            needed="noise for which it is known, such as 'discrete-laplace' or 'discrete-gaussian'",
        )

    def pmf(self, noise: ArrayLike) -> Reals:
        """Return the mass (density for a continuous law) at `noise`."""
        return np.exp(self.logpmf(noise))

    def logpmf(self, noise: ArrayLike) -> Reals:
        """Return the log mass (log density for a continuous law) at `noise`."""
        raise NotImplementedError

    def variance_at(self, true: ArrayLike) -> Reals:
        """Return the variance of the published value (counts squared), which is that of the noise."""
        return np.full(np.shape(true), float(self.variance))

    @property
    def variance(self) -> float:
        """Return the variance of the noise of one count (counts squared)."""
        raise NotImplementedError

    @property
    def support(self) -> tuple[float, float]:
        """Return the smallest and largest possible draw (counts)."""
        return -np.inf, np.inf

    @property
    def open_ended(self) -> bool:
        """Return True if true counts beyond the tabulated ones are also possible."""
        return bool(np.isinf(self.support[1]))

    def log_mass(self, published: ArrayLike, true: ArrayLike) -> Reals:
        """Return the log mass (log density) of published values given true counts (broadcast together)."""
        return self.logpmf(np.subtract(published, true))

    def bounds(self, published: ArrayLike) -> tuple[Integers, Integers]:
        """Return the smallest and largest true count for each published value, or `NO_LIMIT`."""
        least, most = self.support
        low, high = np.ceil(np.subtract(published, most)), np.floor(np.subtract(published, least))
        wide = float(NO_LIMIT)
        return np.clip(low, -wide, wide).astype(np.int64), np.clip(high, -wide, wide).astype(np.int64)

    def possible(self, published: ArrayLike) -> NDArray[np.bool_]:
        """Return a mask of the values that may be published for some nonnegative true count."""
        low, high = self.bounds(published)
        return np.asarray((low <= high) & (high >= 0))

    def kinds(self, published: ArrayLike) -> Reals:
        """Return one number per published value; the likelihoods of equal numbers differ only by a shift."""
        values = np.asarray(published, np.float64)
        return values - np.floor(values)

    def table(self, published: float, depth: float) -> tuple[int, Reals]:
        """Return a published value's likelihood of true counts: the first count, and the log masses.

        It reaches `depth` nats below the peak.

        Raises
        ------
        DataError
            If the noise is so wide that the table would not fit.
        """
        reach, most = 1, self.support[1]
        peak = float(self.logpmf(0))
        while reach < most and peak - float(self.logpmf(reach)) < depth:
            reach *= 2
            if reach > MAX_TABLE_ENTRIES:
                raise DataError(
                    f"the noise of law '{self.name}' is spread over more than {MAX_TABLE_ENTRIES:,} counts",
                    needed="noise that is less spread, which takes a larger budget",
                )
        low = reach // 2
        while reach - low > 1:
            middle = (low + reach) // 2
            low, reach = (middle, reach) if peak - float(self.logpmf(middle)) < depth else (low, middle)
        whole = int(np.floor(published))
        reach = int(min(reach, most)) + (published > whole)
        return whole - reach, np.asarray(self.logpmf(published - whole - np.arange(-reach, reach + 1)))

    def says(self, published: float) -> str:
        """Return words for what a published value says about the true count."""
        low, high = (int(end) for end in self.bounds(published))
        if low == high:
            return f"published as {published}" + (f" (exactly {low})" if low != published else "")
        return f"published as {published} (from {low} to {high})"

    @classmethod
    def for_budget(cls, amount: Fraction, sensitivity: Sensitivity, **options: Any) -> Self:
        """Return the law with the loss `amount` on a count vector of the given sensitivity."""
        raise NotImplementedError

    @classmethod
    def budgeted(cls, amount: Fraction, sensitivity: Sensitivity, options: Mapping[str, Any]) -> Self:
        """Return the law for a budget and further parameters, as a spec gives them."""
        known = list(signature(cls.for_budget).parameters)[2:]
        if unknown := [str(name) for name in options if name not in known]:
            raise SpecError(
                f"law {cls.name!r} has no option {unknown[0]!r}",
                needed=f"one of the options {', '.join(known)}" if known else "no options",
            )
        return cls.for_budget(amount, sensitivity, **options)

    def parameters(self) -> dict[str, str]:
        """Return the exact parameters as strings, for manifests."""
        return {name: str(getattr(self, name)) for name in _parameter_names(type(self))}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """Return the law with the parameters that `parameters()` wrote as strings."""
        # What noise was drawn with is never filled in; of others' laws a default may be left out.
        least = {f.name for f in fields(cls) if cls.additive or f.default is MISSING}  # pyright: ignore[reportArgumentType]
        if not least <= set(parameters) <= set(_parameter_names(cls)):
            raise SpecError(
                f"law {cls.name!r} is given the parameters {', '.join(map(repr, parameters)) or 'none'}",
                needed=f"the parameters {', '.join(map(repr, _parameter_names(cls))) or 'none'}",
            )
        return cls(**parameters)


def _parameter_names(law: Any) -> list[str]:
    return [field.name for field in fields(law)]


class ContinuousLaw(BaseLaw):
    """Base of the continuous laws, which serve to analyse published data and never draw noise."""

    discrete: ClassVar[bool] = False

    def sf(self, noise: ArrayLike) -> Reals:
        """Return the probability that a draw exceeds `noise`, accurate in the upper tail."""
        return self.cdf(np.negative(noise))

    def cdf(self, noise: ArrayLike) -> Reals:
        """Return the probability that a draw is at most `noise`."""
        raise NotImplementedError

    def quantile(self, probability: ArrayLike) -> Reals:
        """Return the value `x` with `P(X <= x) = probability`."""
        raise NotImplementedError

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


class IntegerLaw(BaseLaw):
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
