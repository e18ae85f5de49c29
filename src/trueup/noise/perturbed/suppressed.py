"""Suppression of small counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import SpecError
from trueup.noise.law import Integers, Reals
from trueup.noise.perturbed.base import Perturbation
from trueup.noise.perturbed.whole import whole_number

HIDDEN = -1
"""The value of a count that is not shown."""


@dataclass(frozen=True)
class Suppressed(Perturbation):
    """Suppression of counts below a threshold; all others are exact.

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
                f"counts from {self.least} and below {at} are not shown",
                needed="a threshold above that count",
            )

    def _hides(self, x: Integers):
        return (x >= self.least) & (x < self.threshold)

    def log_mass(self, published: ArrayLike, true: ArrayLike) -> Reals:
        """Return the log probability of published values given true counts (broadcast together): 0 or minus infinity."""
        y, x = np.asarray(published, np.int64), np.asarray(true, np.int64)
        return np.where(y == np.where(self._hides(x), HIDDEN, np.where(x < 0, HIDDEN - 1, x)), 0.0, -np.inf)

    def bounds(self, published: ArrayLike) -> tuple[Integers, Integers]:
        """Return the smallest and largest true count that a published value may stand for; crossed if there is none."""
        y = np.asarray(published, np.int64)
        never = (y != HIDDEN) & (self._hides(y) | (y < 0))
        low, high = np.where(y == HIDDEN, self.least, y), np.where(y == HIDDEN, self.threshold - 1, y)
        return low, np.where(never, y - 1, high)

    def numeral(self, published: ArrayLike) -> NDArray[np.bool_]:
        """Return a mask of the published values that are numbers: all that are shown."""
        return np.asarray(published) != HIDDEN

    def numbers(self, published: ArrayLike) -> Reals:
        """Return published values, with the middle of the interval in place of those not shown."""
        y = np.asarray(published, np.float64)
        return np.where(y == HIDDEN, (self.least + self.threshold - 1) / 2, y)

    def mean(self, true: ArrayLike) -> Reals:
        """Return the mean of the number that represents the published value."""
        return self.numbers(self.publish(true, 0.0))

    def variance_at(self, true: ArrayLike) -> Reals:
        """Return the variance of the published value given the true count: none, since nothing is random."""
        return np.zeros(np.shape(true))

    @property
    def variance(self) -> float:
        """Return the mean squared distance of the counts not shown from the middle (counts squared); others are exact."""
        return max(((self.threshold - self.least) ** 2 - 1) / 12, 0.25)

    @property
    def reach(self) -> int:
        """Return the largest distance of a count that is not shown from the middle of the interval, rounded up."""
        return (self.threshold - self.least) // 2

    def publish(self, true: ArrayLike, keys: ArrayLike) -> Integers:
        """Return the published values of true counts, independent of keys."""
        x = np.asarray(true, np.int64) + 0 * np.asarray(keys, np.int64)
        return np.where(self._hides(x), HIDDEN, x)

    def sentence(self) -> str:
        """Return the law in one plain sentence."""
        return (
            f"Counts from {self.least} to {self.threshold - 1} are not shown; all others are exact. "
            "No formal guarantee is known."
        )
