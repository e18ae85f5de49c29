"""Random rounding to a multiple of a base."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from trueup.noise.law import Reals
from trueup.noise.perturbed.base import ByChange
from trueup.noise.perturbed.whole import whole_number


@dataclass(frozen=True)
class RandomRounding(ByChange):
    """A count published as one of the two neighbouring multiples of the base; multiples stay.

    The nearer one comes with probability `1 - d / base`, where d is the distance to it, so that the mean is the
    count (New Zealand and Canada: bases 3, 5 and 10).

    Parameters
    ----------
    base
        From 2.

    Examples
    --------
    >>> law = RandomRounding(3)
    >>> np.exp(law.log_mass(3, range(7))).round(3).tolist()
    [0.0, 0.333, 0.667, 1.0, 0.667, 0.333, 0.0]
    >>> law.bounds([0]), law.possible([3, 4]).tolist(), round(law.variance, 4)
    ((array([0]), array([2])), [True, False], 1.3333)
    """

    name: ClassVar[str] = "random-rounding"
    title: ClassVar[str] = "Random rounding to a base"
    base: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", whole_number(self.base, f"the base of law '{self.name}'", 2))

    @property
    def period(self) -> int:
        """Return how many of the last rows repeat for ever: as many as the base."""
        return self.base

    @cached_property
    def rows(self) -> Reals:
        """Return `(base, 2 base - 1)` probabilities of the changes of the counts 0, 1, ..."""
        d = np.arange(self.base)
        rows = np.zeros((self.base, 2 * self.base - 1))
        rows[d, self.base - 1 - d] = 1 - d / self.base
        rows[d[1:], 2 * self.base - 1 - d[1:]] = d[1:] / self.base
        return rows

    def sentence(self) -> str:
        """Return the law in one plain sentence."""
        return (
            f"Each count was rounded at random to a multiple of {self.base} beside it, the nearer one with the higher "
            "probability, so that the mean is the count. No formal guarantee is known."
        )
