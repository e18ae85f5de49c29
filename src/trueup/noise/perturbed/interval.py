"""Counts published as an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from trueup.errors import SpecError
from trueup.noise.law import NO_LIMIT, Integers, Reals
from trueup.noise.perturbed.base import OneValue, Perturbation
from trueup.noise.perturbed.whole import whole_number


@dataclass(frozen=True)
class CountInterval(OneValue, Perturbation):
    """A published interval in place of a count: "1-9", "<5", "10 or more".

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
            raise SpecError(f"an interval is given from {self.low} to {high}", needed="the lower end first")

    @property
    def centre(self) -> int:
        """Return the count that represents the interval among numbers."""
        return self.low if self.high is None else (self.low + self.high) // 2

    def log_mass(self, published: ArrayLike, true: ArrayLike) -> Reals:
        """Return the log probability of the code given true counts: 0 inside, minus infinity outside."""
        x = np.asarray(true, np.float64) + 0 * np.asarray(published, np.float64)
        inside = (x >= self.low) & (x <= (np.inf if self.high is None else self.high))
        return np.where(inside, 0.0, -np.inf)

    def bounds(self, published: ArrayLike) -> tuple[Integers, Integers]:
        """Return the smallest and largest true count, whatever value represents the code."""
        high = NO_LIMIT if self.high is None else self.high
        shape = np.shape(published)
        return np.full(shape, self.low, np.int64), np.full(shape, high, np.int64)

    def table(self, published: float, depth: float = np.inf) -> tuple[int, Reals]:
        """Tabulate the counts of the interval; return an empty table if it has no upper end."""
        return (self.low, np.zeros(0)) if self.high is None else super().table(published, depth)

    def says(self, published: float) -> str:
        """Return in words what the code implies about the true count."""
        return f"from {self.low}" + ("" if self.high is None else f" to {self.high}")

    @property
    def variance(self) -> float:
        """Return the mean squared distance of counts in the interval from its middle (counts squared)."""
        return np.inf if self.high is None else ((self.high - self.low + 1) ** 2 - 1) / 12

    @property
    def shift(self) -> float:
        """Return the difference of the whole `centre` from the middle."""
        return 0.0 if self.high is None else self.centre - (self.low + self.high) / 2

    @property
    def reach(self) -> int:
        """Return the largest distance of the value that represents the code from a count of the interval."""
        return int(NO_LIMIT) if self.high is None else self.high - self.centre

    def sentence(self) -> str:
        """Return the law in one plain sentence."""
        says = f"it is {self.low} or more" if self.high is None else f"it lies from {self.low} to {self.high}"
        return f"Of each count it was published that {says}. No formal guarantee is known."
