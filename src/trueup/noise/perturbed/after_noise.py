"""Noise that is rounded, or replaced by zero where the published number would be negative.

Let z = x + noise be the noisy count. It is published as a multiple y of the base with probability r(y | z), and y < 0 as 0:
`p(y | x) = sum_z r(y | z) q(z - x)` for y > 0, and all that is left for y = 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from trueup.errors import SpecError
from trueup.noise.law import Integers, Reals
from trueup.noise.perturbed import whole_number
from trueup.noise.perturbed.composed import NOISE_DEPTH_NATS, LawOfShown
from trueup.noise.perturbed.rounding import TIES

AT_RANDOM = "random"


@dataclass(frozen=True)
class AfterNoise(LawOfShown):
    """Noise whose results are rounded to multiples of a base, or replaced by zero if negative.

    Parameters
    ----------
    law
        The noise.
    base
        The number whose multiples are published; 1 for whole numbers, None if nothing is rounded.
    ties
        To which multiple the middle goes, as of `rounded`; `random` for rounding at random.
    nonnegative
        True if 0 is published in the place of negative numbers.
    shown_from
        The smallest noisy number that is published at all, before it is rounded; None where all are.

    Examples
    --------
    >>> from trueup.noise import law_named
    >>> law = AfterNoise(law_named("discrete-laplace")("1"), 5, "up", True)
    >>> np.exp(law.log_mass([0, 5, 10], 1)).round(4).tolist(), law.possible([0, 3, -5]).tolist()
    ([0.9011, 0.0983, 0.0007], [True, False, False])
    """

    name: ClassVar[str] = "after-noise"
    title: ClassVar[str] = "Noise, then rounding or zeros for negative numbers"
    law: Any
    base: Any = None
    ties: str = "up"
    nonnegative: Any = False
    shown_from: Any = None
    hidden: ClassVar[tuple[()]] = ()

    def __post_init__(self) -> None:
        self._settle()
        base = None if self.base in (None, "None") else whole_number(self.base, "the base of a rounding", 1)
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "nonnegative", self.nonnegative in (True, "True"))
        least = None if self.shown_from in (None, "None") else whole_number(self.shown_from, "a threshold", 1)
        object.__setattr__(self, "shown_from", least)
        if not self.law.additive or self.law.exact:
            raise SpecError(f"the law '{self.law.name}' does not add noise", needed="a law that adds noise")
        if self.ties not in (*TIES, AT_RANDOM):
            raise SpecError(
                f"the option `ties` of a rounding is {str(self.ties)[:30]!r}",
                needed=f"one of {', '.join(TIES)}",
            )
        if self.ties == AT_RANDOM and not self.law.discrete:
            raise SpecError(
                f"random rounding is given after the law '{self.law.name}', whose values are fractions",
                needed="the law 'rounded', or a law of whole-number noise before the random rounding",
            )

    def parameters(self) -> dict[str, str]:
        """Return the exact parameters as strings, for manifests."""
        more = {"base": str(self.base), "ties": self.ties, "nonnegative": str(self.nonnegative)}
        more["shown_from"] = str(self.shown_from)
        return {"law": super().parameters()["law"], **more}

    @property
    def discrete(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return True if the published values are whole numbers."""
        return self.base is not None or self.law.discrete

    @property
    def same_records(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return False, because the noise of every published value is drawn separately."""
        return False

    def log_mass(self, published: ArrayLike, true: ArrayLike) -> Reals:
        """Return the log probability (or density) of published values given true counts."""
        y, x = np.broadcast_arrays(np.asarray(published, np.float64), np.asarray(true, np.float64))
        mass = self._rounded(y, x)
        if self.nonnegative:
            mass = np.where(y == 0, self.at_most(0.0, x), np.where(y < 0, 0.0, mass))
        whole = (y % self.base == 0) if self.base else np.ones(y.shape, bool)
        with np.errstate(divide="ignore"):
            return np.log(np.where(whole & (x >= 0), np.minimum(mass, 1.0) if self.discrete else mass, 0.0))

    def _rounded(self, y: Reals, x: Reals) -> Reals:
        """Return the probability of rounding to the multiple `y` of the base, before negatives become 0."""
        least = -np.inf if self.shown_from is None else self.shown_from
        if not self.base or (self.base == 1 and self.law.discrete):
            return np.where(y >= least, self.law.pmf(y - x), 0.0)
        if not self.law.discrete:
            low, high = np.maximum(y - self.base / 2, least), y + self.base / 2
            return np.where(high > least, self._between(low - x, high - x), 0.0)
        reach = self.base - 1 if self.ties == AT_RANDOM else self.base // 2
        away = range(-reach, reach + 1)
        terms = (self._goes(y, d) * np.where(y + d >= least, self.law.pmf(y + d - x), 0.0) for d in away)
        return sum(terms, np.zeros(y.shape))

    def _goes(self, y: Reals, d: int) -> Reals | float:
        """Return the probability that the whole number `y + d` is rounded to the multiple `y` of the base."""
        if self.ties == AT_RANDOM:
            return 1 - abs(d) / self.base
        if 2 * abs(d) < self.base:
            return 1.0
        even = (y / self.base) % 2 == 0
        return {"up": float(d < 0), "down": float(d > 0), "either": 0.5, "even": even.astype(float)}[
            self.ties
        ]

    def at_most(self, top: float, true: ArrayLike) -> Reals:
        """Return, for each true count, the probability that no number above `top` is published."""
        x = np.asarray(true, np.float64)
        if self.shown_from is not None and top < self.shown_from:
            return self.law.cdf(self.shown_from - self.law.discrete - x)
        if self.nonnegative and top < 0:
            return np.zeros(x.shape)
        if not self.base:
            return self.law.cdf(top - x)
        last = np.floor(top / self.base) * self.base
        if not self.law.discrete:
            return self.law.cdf(last + self.base / 2 - x)
        y = np.full(x.shape, last)
        above = range(1, self.base if self.ties == AT_RANDOM else self.base // 2 + 1)  # those that may fall
        more = (self._goes(y, d) * self.law.pmf(last + d - x) for d in above)
        return np.asarray(sum(more, self.law.cdf(last - x)))

    def within(self, low: float, high: float, true: ArrayLike) -> Reals:
        """Return, for each true count, the probability that a number from `low` to `high` is published."""
        x = np.asarray(true, np.float64)
        if np.isinf(low) or (self.nonnegative and low <= 0):
            return self.at_most(high, x)
        if not self.discrete:
            return self._between(low - x, high - x)
        step = self.base or 1
        values = np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step
        return sum((np.exp(self.log_mass(value, x)) for value in values), np.zeros(x.shape))

    def _between(self, low: Reals, high: Reals) -> Reals:
        """Return the probability that continuous noise lies between two numbers, computed from the smaller tails."""
        law = self.law
        return np.where(low > 0, law.sf(low) - law.sf(high), law.cdf(high) - law.cdf(low))

    def _ends(self, value: float) -> tuple[int, int]:
        reach = self._noise_reach + (self.base or 0)
        middle = int(np.floor(value))
        counts = np.arange(max(middle - reach, 0), max(middle + reach, 0) + 1)
        may = counts[self.log_mass(value, counts) > -NOISE_DEPTH_NATS]
        return (int(may[0]), int(may[-1])) if len(may) else (1, 0)

    @property
    def _noise_reach(self) -> int:
        return len(self.law.table(0, NOISE_DEPTH_NATS)[1]) // 2

    @property
    def variance(self) -> float:
        """Return the mean squared error of a published value over large true counts (counts squared)."""
        base = self.base or 0
        return self.law.variance + (base**2 - 1) / (6 if self.ties == AT_RANDOM else 12) * (base > 1)

    def _moments(self, true: ArrayLike) -> tuple[Reals, Reals]:
        """Return the mean error and the variance of the published value given each true count."""
        if self.shown_from is not None:
            return replace(self, shown_from=None)._moments(true)
        step = self.base or 1
        reach = -(-12 * (int(self.variance**0.5) + 1) // (2 * step)) * 2 * step
        x = np.asarray(true, np.int64)
        alike, back = np.unique(np.where(x < reach, x, reach + x % (2 * step)), return_inverse=True)
        y = np.arange(-reach // step, (2 * reach + 2 * step) // step + 1) * step
        mass = np.array([self._near(value, step, alike) for value in y.tolist()])
        mean = y @ mass
        variance = (y.astype(float) ** 2) @ mass - mean**2
        return (mean - alike)[back].reshape(x.shape), np.maximum(variance, 0.0)[back].reshape(x.shape)

    def _near(self, value: float, step: int, x: Integers) -> Reals:
        """Return the probability of a published value, or of values within half a step of it."""
        if self.discrete:
            return np.exp(self.log_mass(value, x))
        top = self.at_most(value + step / 2, x)
        return top if value == 0 and self.nonnegative else top - self.at_most(value - step / 2, x)

    def mean(self, true: ArrayLike) -> Reals:
        """Return the mean of the published value given the true count."""
        return np.asarray(true) + self._moments(true)[0]

    def variance_at(self, true: ArrayLike) -> Reals:
        """Return the variance of the published value given the true count (counts squared)."""
        return self._moments(true)[1]

    @property
    def reach(self) -> int:
        """Return the largest distance of a published number from the true count (counts)."""
        return self._noise_reach + (self.base or 0)

    def tail(self, probability: float) -> Any:
        """Return the distance of a published number from the true count that is exceeded with at most the given probability."""
        found = self.law.tail(probability)
        return found._replace(counts=found.counts + (self.base or 0), exact=False)

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        how = "at random" if self.ties == AT_RANDOM else f"to the nearest (ties: {self.ties})"
        rounded = f" Then it was rounded {how} to a multiple of {self.base}." if self.base else ""
        zero = " Negative numbers were published as 0." if self.nonnegative else ""
        least = f" Numbers below {self.shown_from} were not shown." if self.shown_from is not None else ""
        return f"{self.law.sentence()}{least}{rounded}{zero}"
