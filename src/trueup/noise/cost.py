"""The cost of a draw of noise, in exact fractions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Currency = Literal["epsilon", "rho"]


@dataclass(frozen=True)
class Sensitivity:
    """The largest distance that one unit of privacy can move a vector of counts.

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
        """Return the sensitivity when a unit changes `cells` counts by at most `each`."""
        return cls(Fraction(cells * each), Fraction(cells * each * each))


@dataclass(frozen=True)
class Cost:
    """Privacy loss of one release of one vector: pure epsilon (with delta) or zCDP rho.

    Examples
    --------
    >>> Cost("epsilon", Fraction(1, 10)).amount * 10 == 1
    True
    """

    currency: Currency
    amount: Fraction
    delta: Fraction = Fraction(0)
