"""The interface of laws of noise: mass, moments, exact sampler, and exact privacy cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


@runtime_checkable
class Law(Protocol):
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
    exact: ClassVar[bool]
    additive: ClassVar[bool]
    joint: ClassVar[bool]
    factors: ClassVar[bool]
    same_records: ClassVar[bool]
    numeric: ClassVar[bool]
    attained: ClassVar[bool]

    @property
    def form(self) -> Form | None:
        """Return the form of the law's log mass, or None if it has no such form."""
        ...

    @property
    def variance(self) -> float:
        """Return the variance of one draw (counts squared)."""
        ...

    def variance_at(self, true: ArrayLike) -> Reals:
        """Return the variance of the published value given the true count (counts squared)."""
        ...

    @property
    def rate(self) -> float | None:
        """Return the rate of a law with mass proportional to `exp(-rate |k|)`, or None for other laws."""
        ...

    def scaled(self, factor: Fraction) -> Law:
        """Return the law of the same kind with `factor` times the privacy cost, or raise SpecError."""
        ...

    def characteristic(self, t: Reals) -> Reals:
        """Return the mean of `cos(t noise)` at frequencies `t` (per count), or raise SpecError."""
        ...

    def losses(self, change: int, cut: float) -> Losses:
        """Return the distribution of the loss if one count changes by `change`, or raise SpecError."""
        ...

    def logpmf(self, noise: ArrayLike) -> Reals:
        """Return the log mass (log density for a continuous law) at `noise`."""
        ...

    def log_mass(self, published: ArrayLike, true: ArrayLike) -> Reals:
        """Return the log mass (log density) of published values given true counts (broadcast together)."""
        ...

    def bounds(self, published: ArrayLike) -> tuple[Integers, Integers]:
        """Return the smallest and largest true count for each published value, or `NO_LIMIT`."""
        ...

    def kinds(self, published: ArrayLike) -> Reals:
        """Return one number per published value; the likelihoods of equal numbers differ only by a shift."""
        ...

    def table(self, published: float, depth: float) -> tuple[int, Reals]:
        """Return a published value's likelihood of true counts: the first count, and the log masses."""
        ...

    @property
    def open_ended(self) -> bool:
        """Return True if true counts beyond the tabulated ones are also possible."""
        ...

    def says(self, published: float) -> str:
        """Return words for what a published value says about the true count."""
        ...

    def cdf(self, noise: ArrayLike) -> Reals:
        """Return the probability that a draw is at most `noise`."""
        ...

    def quantile(self, probability: ArrayLike) -> Reals:
        """Return the smallest `k` with `P(X <= k)` of at least `probability`."""
        ...

    def tail(self, probability: float) -> Tail:
        """Return the count that the absolute value of a draw exceeds with at most the given probability."""
        ...

    def sample(self, size: int, words: Words) -> Integers:
        """Return `size` independent exact draws, or raise an error if the law is continuous."""
        ...

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Return the privacy loss of adding this noise to a count vector of the given sensitivity."""
        ...

    def parameters(self) -> dict[str, str]:
        """Return the exact parameters as strings for manifests, such as `{"epsilon": "1/2"}`."""
        ...

    def sentence(self) -> str:
        """Return a sentence on the law for reports and certificates."""
        ...
