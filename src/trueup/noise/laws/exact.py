"""The law of an invariant: no noise at all."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from trueup.errors import SpecError
from trueup.noise.cost import Cost, Sensitivity
from trueup.noise.law import Integers, Reals, Words
from trueup.noise.laws.base import IntegerLaw, draws


@dataclass(frozen=True)
class Exact(IntegerLaw):
    """A count published without noise, because it is declared an invariant: variance 0, nothing to draw.

    Its cost is 0 only under a guarantee among databases that share the invariant.

    Examples
    --------
    >>> Exact().variance, Exact().cdf([-1, 0]).tolist()
    (0.0, [0.0, 1.0])
    """

    name: ClassVar[str] = "exact"
    title: ClassVar[str] = "No noise (a declared invariant)"
    exact: ClassVar[bool] = True

    @classmethod
    def for_budget(cls, amount: Fraction, sensitivity: Sensitivity) -> Exact:
        """Refuse, because an invariant spends nothing, so that a budget for it is a mistake."""
        if amount != 0:
            raise SpecError(
                f"an invariant is given the budget {amount}",
                needed="no budget where the law is 'exact'",
                remedy="remove the budget, or choose a law that adds noise",
            )
        return cls()

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Return no loss, in the sense of a guarantee among databases that share the invariant."""
        return Cost("epsilon", Fraction(0))

    @property
    def support(self) -> tuple[float, float]:
        """Return the smallest and largest possible draw: 0."""
        return 0.0, 0.0

    @property
    def variance(self) -> float:
        """Return 0, the variance."""
        return 0.0

    @property
    def fourth_moment(self) -> float:
        """Return 0, the mean of the fourth power."""
        return 0.0

    def _logpmf(self, k: Reals) -> Reals:
        return np.zeros_like(k)

    def _lower(self, k: Reals) -> Reals:
        return np.zeros_like(k)

    def _lower_quantile(self, probability: Reals) -> Reals:
        return np.zeros_like(probability)

    def sample(self, size: int, words: Words) -> Integers:
        """Return `size` zeros; no random word is read."""
        return np.zeros(draws(size), dtype=np.int64)

    def says(self, published: float) -> str:
        """Return in words what a value implies about the true count."""
        return f"= {published}"

    def sentence(self) -> str:
        """Return the law in one plain sentence."""
        return "Each count is published exactly, as a declared invariant."
