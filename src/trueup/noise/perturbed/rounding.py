"""Rounding of counts to a multiple of a base, at random or to the nearest one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from trueup.errors import SpecError
from trueup.noise.law import Reals
from trueup.noise.perturbed import ByChange, whole_number


@dataclass(frozen=True)
class RandomRounding(ByChange):
    """A count rounded at random to one of the two neighbouring multiples of the base.

    The nearer one comes with probability `1 - d / base`, where d is the distance to it, so that the mean is the
    count (New Zealand and Canada: bases 3, 5 and 10).

    Parameters
    ----------
    base
        From 2.
    below
        The multiple of the base below which counts are rounded; others stay as they are. None if all counts are rounded.

    Examples
    --------
    >>> law = RandomRounding(3)
    >>> np.exp(law.log_mass(3, range(7))).round(3).tolist()
    [0.0, 0.333, 0.667, 1.0, 0.667, 0.333, 0.0]
    >>> law.bounds([0]), law.possible([3, 4]).tolist(), round(law.variance, 4)
    ((array([0]), array([2])), [True, False], 1.3333)
    >>> RandomRounding(3, below=3).bounds([0, 3, 4])
    (array([0, 1, 4]), array([2, 3, 4]))
    """

    name: ClassVar[str] = "random-rounding"
    title: ClassVar[str] = "Random rounding to a base"
    base: int
    below: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", whole_number(self.base, f"the base of law '{self.name}'", 2))
        if self.below in (None, "None"):  # as manifests write it
            object.__setattr__(self, "below", None)
            return
        below = whole_number(self.below, "the count from which all stay", self.base)
        if below % self.base:
            raise SpecError(
                f"`below` is {below}, which is not a multiple of the base {self.base}",
                needed=f"a multiple of {self.base}: counts from there on are published as they are",
            )
        object.__setattr__(self, "below", below)

    @property
    def period(self) -> int:
        """Return the number of last rows of the table that repeat for all larger counts."""
        return self.base if self.below is None else 1

    @cached_property
    def rows(self) -> Reals:
        """Return the probabilities `(rows, 2 base - 1)` of all changes, in one row for each count."""
        x = np.arange(self.base if self.below is None else self.below + 1)
        d, rows = x % self.base, np.zeros((len(x), 2 * self.base - 1))
        rows[x, self.base - 1 - d] = 1 - d / self.base
        rows[x[d > 0], (2 * self.base - 1 - d)[d > 0]] = d[d > 0] / self.base
        return rows

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        which = "Each count" if self.below is None else f"Each count below {self.below}"
        return (
            f"{which} was rounded at random to a multiple of {self.base} beside it, the nearer one with the higher "
            "probability, so that the mean is the count. No formal guarantee is known."
        )


TIES = ("up", "down", "even", "either")


@dataclass(frozen=True)
class Rounded(ByChange):
    """A count rounded to the nearest multiple of a base.

    Parameters
    ----------
    base
        From 2.
    ties
        Direction in which an even base rounds a count in the middle: `up`, `down`, to the `even` multiple, or `either` with the
        same probability (also where the rule is not known).

    Examples
    --------
    >>> Rounded(10).bounds([20]), Rounded(10, "down").bounds([20])
    ((array([15]), array([24])), (array([16]), array([25])))
    """

    name: ClassVar[str] = "rounded"
    title: ClassVar[str] = "Rounding to the nearest multiple of a base"
    base: int
    ties: str = "up"

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", whole_number(self.base, f"the base of law '{self.name}'", 2))
        if self.ties not in TIES:
            raise SpecError(
                f"the option `ties` of law '{self.name}' is {str(self.ties)[:30]!r}",
                needed=f"one of {', '.join(TIES)}",
            )

    @property
    def period(self) -> int:
        """Return the number of last rows of the table that repeat for all larger counts."""
        return 2 * self.base

    @cached_property
    def rows(self) -> Reals:
        """Return probabilities `(2 base, 2 (base // 2) + 1)` of all changes, in one row for each count."""
        base, reach = self.base, self.base // 2
        rows = np.zeros((2 * base, 2 * reach + 1))
        for x in range(2 * base):
            down = x % base
            if 2 * down == base:
                ups = {"up": 1.0, "down": 0.0, "even": float(x > base), "either": 0.5}
                rows[x, 2 * reach], rows[x, 0] = ups[self.ties], 1 - ups[self.ties]
            else:
                rows[x, reach + (-down if 2 * down < base else base - down)] = 1.0
        return rows

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        ties = f" (ties: {self.ties})" if self.base % 2 == 0 else ""
        return f"Each count was rounded to the nearest multiple of {self.base}{ties}. No formal guarantee is known."
