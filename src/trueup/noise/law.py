"""The base of all laws of noise: mass, moments, exact sampler, and exact privacy cost.

One file: what a law has to state, and what follows from it for every law.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from fractions import Fraction
from inspect import signature
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import DataError, SpecError
from trueup.noise.losses import Losses

Currency = Literal["epsilon", "rho"]


@dataclass(frozen=True)
class Sensitivity:
    """The largest distance between the count vectors of two neighbouring databases, in L1 and squared L2 norm.

    Attributes
    ----------
    l1
        Largest L1 distance between the vectors of two neighbours (counts).
    l2_squared
        Largest squared L2 distance between them (counts squared).

    Examples
    --------
    >>> Sensitivity.of(cells=2, each=1)
    Sensitivity(l1=Fraction(2, 1), l2_squared=Fraction(2, 1))
    """

    l1: Fraction
    l2_squared: Fraction

    @classmethod
    def of(cls, cells: int, each: int) -> Sensitivity:
        """Return the sensitivity if one unit changes at most `cells` counts, each by at most `each`."""
        return cls(Fraction(cells * each), Fraction(cells * each * each))


@dataclass(frozen=True)
class Cost:
    """Privacy loss of releasing one count vector: epsilon with a delta, or rho (zCDP).

    Examples
    --------
    >>> Cost("epsilon", Fraction(1, 10)).amount * 10 == 1
    True
    """

    currency: Currency
    amount: Fraction
    delta: Fraction = Fraction(0)


Integers = NDArray[np.int64]
Reals = NDArray[np.float64]
NO_LIMIT = np.int64(1) << 60
"""A bound that does not bind."""
MAX_TABLE_ENTRIES = 1 << 24
"""Most entries of one table (counts)."""
Words = Callable[[int], bytes]
"""`words(k)` returns `k` fresh random bytes. Only `measure` owns a source of them."""


class Tail(NamedTuple):
    """A bound on the absolute value of noise.

    Attributes
    ----------
    counts
        Smallest count known that the noise exceeds in size with at most the probability asked about.
    exact
        True if it is the smallest one, up to the rounding of doubles; else it is a bound that is proved.
    """

    counts: int
    exact: bool


class Form(NamedTuple):
    """The form `-slope |x| - curvature x^2` of a law's log mass or density, up to a constant."""

    slope: float
    curvature: float
    reach: float


class Law:
    """A distribution of noise on one count, symmetric about zero.

    A law is a frozen dataclass; its fields are its exact (rational) parameters.

    Attributes
    ----------
    discrete
        True if the law is on the integers.
    exact
        True if the law adds nothing.
    additive
        True if it is added noise: the published value less the true count has a law of its own.
    joint
        True if it is drawn as a whole vector, which keeps invariants.
    factors
        True if the mass of a vector is a product over its counts, so that one count has a law of its own.
    same_records
        True if cells with the same records are published with the same value.
    numeric
        True if the published value is always a number, not a code for an interval.
    attained
        True if some change loses as much as the cost; else the cost is a bound.
    """

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
    def fourth_moment(self) -> float:
        """Return the mean of the fourth power of one draw (counts^4)."""
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
        between = range(reach // 2 + 1, reach)
        reach = between.start + bisect_left(between, depth, key=lambda k: peak - float(self.logpmf(k)))
        whole = int(np.floor(published))
        reach = int(min(reach, most)) + (published > whole)
        return whole - reach, np.asarray(self.logpmf(published - whole - np.arange(-reach, reach + 1)))

    def says(self, published: float) -> str:
        """Return words for what a published value says about the true count."""
        low, high = (int(end) for end in self.bounds(published))
        if low == high:
            return f"published as {published}" + (f" (exactly {low})" if low != published else "")
        return f"published as {published} (from {low} to {high})"

    def cdf(self, noise: ArrayLike) -> Reals:
        """Return the probability that a draw is at most `noise`."""
        raise NotImplementedError

    def quantile(self, probability: ArrayLike) -> Reals:
        """Return the smallest `k` with `P(X <= k)` of at least `probability`."""
        raise NotImplementedError

    def tail(self, probability: float) -> Tail:
        """Return the count that the absolute value of a draw exceeds with at most the given probability."""
        raise NotImplementedError

    def sample(self, size: int, words: Words) -> Integers:
        """Return `size` independent exact draws, or raise an error if the law is continuous."""
        raise NotImplementedError

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Return the privacy loss of adding this noise to a count vector of the given sensitivity."""
        raise NotImplementedError

    def sentence(self) -> str:
        """Return a sentence on the law for reports and certificates."""
        raise NotImplementedError

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
        # A law that drew noise states all its parameters; a law that others used may leave out a default.
        least = {f.name for f in fields(cls) if cls.additive or f.default is MISSING}  # pyright: ignore[reportArgumentType]
        if not least <= set(parameters) <= set(_parameter_names(cls)):
            raise SpecError(
                f"law {cls.name!r} is given the parameters {', '.join(map(repr, parameters)) or 'none'}",
                needed=f"the parameters {', '.join(map(repr, _parameter_names(cls))) or 'none'}",
            )
        return cls(**parameters)


def _parameter_names(law: Any) -> list[str]:
    return [field.name for field in fields(law)]
