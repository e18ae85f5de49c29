"""Ranges that are published instead of counts: intervals, and suppressed small counts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import SpecError
from trueup.noise.law import NO_LIMIT, Integers, Reals
from trueup.noise.perturbed import OneValue, Perturbation, whole_number

Range = tuple[float, float]
"""Smallest and largest number of a range, minus and plus infinity where there is none."""


def read_ranges(given: Any) -> tuple[Range, ...]:
    """Return ranges of counts from pairs of numbers, or from JSON text of such pairs.

    Examples
    --------
    >>> read_ranges('[[1, 4], [null, 89]]')
    ((1.0, 4.0), (-inf, 89.0))
    """
    pairs = json.loads(given) if isinstance(given, str) else given
    return tuple((-np.inf if a is None else float(a), np.inf if b is None else float(b)) for a, b in pairs)


def in_ranges(numbers: ArrayLike, ranges: Iterable[Range]) -> NDArray[np.bool_]:
    """Return a mask of the numbers that lie in at least one of the ranges.

    Examples
    --------
    >>> in_ranges([0, 1, 5], [(1, 4)]).tolist()
    [False, True, False]
    """
    x = np.asarray(numbers, np.float64)
    found = np.zeros(x.shape, bool)
    for low, high in ranges:
        found |= (x >= low) & (x <= high)
    return found


def write_ranges(ranges: Iterable[Range]) -> str:
    """Return ranges as the JSON text that `read_ranges` reads."""
    return json.dumps([[None if np.isinf(end) else end for end in each] for each in ranges])


def range_text(ranges: Iterable[Range]) -> str:
    """Return ranges in words, such as `from 1 to 4, up to 89`.

    Examples
    --------
    >>> range_text([(1, 4), (-np.inf, 89), (7, 7)])
    'from 1 to 4, up to 89, 7'
    """
    return ", ".join(
        f"{low:g}"
        if low == high
        else f"up to {high:g}"
        if np.isinf(low)
        else f"from {low:g}" + ("" if np.isinf(high) else f" to {high:g}")
        for low, high in ranges
    )


@dataclass(frozen=True)
class CountInterval(OneValue, Perturbation):
    """A published interval of counts, such as "1-9", "<5" or "10 or more".

    Whatever value stands for the code says the same.

    Parameters
    ----------
    low
        Smallest count, from 0.
    high
        Largest count; None where there is no limit.

    Examples
    --------
    >>> law = CountInterval(1, 9)
    >>> np.exp(law.log_mass(0, [0, 1, 9, 10])).tolist(), round(law.variance, 3), law.centre
    ([0.0, 1.0, 1.0, 0.0], 6.667, 5)
    """

    name: ClassVar[str] = "interval"
    title: ClassVar[str] = "An interval in the place of a count"
    low: int
    high: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", whole_number(self.low, "the lower end of an interval", 0, 2**53))
        high = None if self.high in (None, "None") else whole_number(self.high, "its upper end", 0, 2**53)
        object.__setattr__(self, "high", high)
        if high is not None and high < self.low:
            raise SpecError(
                f"an interval is given from {self.low} to {high}",
                needed="a lower end that is at most the upper end",
            )

    @property
    def centre(self) -> int:
        """Return the whole number that represents the interval in sums: its middle, rounded down."""
        return self.low if self.high is None else (self.low + self.high) // 2

    def log_mass(self, published: ArrayLike, true: ArrayLike) -> Reals:
        """Return the log probability of the code given true counts: 0 inside, minus infinity outside."""
        x = np.asarray(true, np.float64) + 0 * np.asarray(published, np.float64)
        inside = (x >= self.low) & (x <= (np.inf if self.high is None else self.high))
        return np.where(inside, 0.0, -np.inf)

    def bounds(self, published: ArrayLike) -> tuple[Integers, Integers]:
        """Return the smallest and largest true count that the code may stand for."""
        high = NO_LIMIT if self.high is None else self.high
        shape = np.shape(published)
        return np.full(shape, self.low, np.int64), np.full(shape, high, np.int64)

    def table(self, published: float, depth: float = np.inf) -> tuple[int, Reals]:
        """Return the interval's first count and equal log masses, or no masses if it has no upper end."""
        return (self.low, np.zeros(0)) if self.high is None else super().table(published, depth)

    def says(self, published: float) -> str:
        """Return words for what the code says about the true count."""
        return f"from {self.low}" + ("" if self.high is None else f" to {self.high}")

    @property
    def variance(self) -> float:
        """Return the mean squared distance of the interval's counts from its middle (counts squared)."""
        return np.inf if self.high is None else ((self.high - self.low + 1) ** 2 - 1) / 12

    @property
    def shift(self) -> float:
        """Return the whole number `centre` minus the exact middle of the interval."""
        return 0.0 if self.high is None else self.centre - (self.low + self.high) / 2

    @property
    def reach(self) -> int:
        """Return the largest distance between the number that represents the code and a count of the interval."""
        return int(NO_LIMIT) if self.high is None else self.high - self.centre

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        says = f"it is {self.low} or more" if self.high is None else f"it lies from {self.low} to {self.high}"
        return f"Of each count it was published that {says}. No formal guarantee is known."


HIDDEN = -1
"""The value of a count that is not shown."""


@dataclass(frozen=True)
class Suppressed(Perturbation):
    """Suppression of counts below a threshold, where all other counts are published exactly.

    Parameters
    ----------
    threshold
        Smallest count that is shown, from 2.
    least
        Smallest count that is not: 1 where zeros are shown, else 0.

    Examples
    --------
    >>> law = Suppressed(10)
    >>> law.publish([0, 3, 9, 10], 0.5).tolist(), law.bounds([-1, 12])
    ([0, -1, -1, 10], (array([ 1, 12]), array([ 9, 12])))
    """

    name: ClassVar[str] = "suppressed"
    title: ClassVar[str] = "Suppression of counts below a threshold"
    numeric: ClassVar[bool] = False
    threshold: int
    least: int = 1

    def __post_init__(self) -> None:
        at = whole_number(self.threshold, f"the threshold of law '{self.name}'", 2)
        object.__setattr__(self, "threshold", at)
        object.__setattr__(self, "least", whole_number(self.least, "the smallest count not shown", 0))
        if self.least > at - 1:
            raise SpecError(
                f"the threshold {at} hides no count, because counts begin at {self.least}",
                needed=f"a threshold above {self.least}",
            )

    def _hides(self, x: Integers):
        return (x >= self.least) & (x < self.threshold)

    def log_mass(self, published: ArrayLike, true: ArrayLike) -> Reals:
        """Return the log probability of published values given true counts (broadcast together): 0 or minus infinity."""
        y, x = np.asarray(published, np.int64), np.asarray(true, np.int64)
        return np.where(y == np.where(self._hides(x), HIDDEN, np.where(x < 0, HIDDEN - 1, x)), 0.0, -np.inf)

    def bounds(self, published: ArrayLike) -> tuple[Integers, Integers]:
        """Return the smallest and largest true count for each value, in reverse order if there is none."""
        y = np.asarray(published, np.int64)
        never = (y != HIDDEN) & (self._hides(y) | (y < 0))
        low, high = np.where(y == HIDDEN, self.least, y), np.where(y == HIDDEN, self.threshold - 1, y)
        return low, np.where(never, y - 1, high)

    def numeral(self, published: ArrayLike) -> NDArray[np.bool_]:
        """Return a mask of the published values that are numbers."""
        return np.asarray(published) != HIDDEN

    def numbers(self, published: ArrayLike) -> Reals:
        """Return the published values, with the middle of the hidden interval in place of the code."""
        y = np.asarray(published, np.float64)
        return np.where(y == HIDDEN, (self.least + self.threshold - 1) / 2, y)

    def mean(self, true: ArrayLike) -> Reals:
        """Return, for each true count, the published value, with the middle of the hidden interval in place of the code."""
        return self.numbers(self.publish(true, 0.0))

    def variance_at(self, true: ArrayLike) -> Reals:
        """Return the variance of the published value given the true count, which is zero."""
        return np.zeros(np.shape(true))

    @property
    def variance(self) -> float:
        """Return the mean squared distance of hidden counts from the middle of their interval (counts squared)."""
        return max(((self.threshold - self.least) ** 2 - 1) / 12, 0.25)

    @property
    def reach(self) -> int:
        """Return the largest distance of a hidden count from the middle of the interval, rounded up."""
        return (self.threshold - self.least) // 2

    def publish(self, true: ArrayLike, keys: ArrayLike) -> Integers:
        """Return the published values of true counts, which do not depend on the keys."""
        x = np.asarray(true, np.int64) + 0 * np.asarray(keys, np.int64)
        return np.where(self._hides(x), HIDDEN, x)

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        return (
            f"Counts from {self.least} to {self.threshold - 1} are not shown; all others are exact. "
            "No formal guarantee is known."
        )
