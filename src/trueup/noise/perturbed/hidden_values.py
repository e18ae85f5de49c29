"""Codes that replace some of the published values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from trueup.errors import SpecError
from trueup.noise.law import MAX_TABLE_ENTRIES, Integers, Reals
from trueup.noise.perturbed import ByChange, OneValue
from trueup.noise.perturbed.after_noise import AfterNoise
from trueup.noise.perturbed.composed import NOISE_DEPTH_NATS, LawOfShown
from trueup.noise.perturbed.ranges import in_ranges, range_text, read_ranges, write_ranges


@dataclass(frozen=True)
class HiddenValues(OneValue, LawOfShown):
    """Law of a code that replaces published values, or true counts, in some ranges.

    Whatever value stands for the code says the same.

    Parameters
    ----------
    law
        The law of the published value.
    published
        Ranges of published values that the code stands for.
    hidden
        Ranges of true counts that are hidden before the law.
    counts
        Those of them that this code stands for too.

    Examples
    --------
    >>> from trueup.noise import law_named
    >>> law = HiddenValues(law_named("discrete-laplace")("1"), ((-np.inf, 9),))
    >>> np.exp(law.log_mass(0, [9, 10])).round(4).tolist()
    [0.7311, 0.2689]
    """

    name: ClassVar[str] = "hidden-values"
    title: ClassVar[str] = "A code in the place of a published value"
    law: Any
    published: Any
    hidden: Any = ()
    counts: Any = ()

    def __post_init__(self) -> None:
        self._settle()
        object.__setattr__(self, "published", read_ranges(self.published))
        object.__setattr__(self, "counts", read_ranges(self.counts))
        if any(np.isinf(high) for _, high in (*self.published, *self.counts)):
            raise SpecError(
                "a code stands for published values that have no upper end",
                needed="an upper limit of the published values; or the range of the true count instead, which may be open, such "
                "as '10+'",
            )

    def parameters(self) -> dict[str, str]:
        """Return the exact parameters as strings, for manifests."""
        more = {"published": write_ranges(self.published), "counts": write_ranges(self.counts)}
        return super().parameters() | more

    @property
    def same_records(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return False, because equal codes for the same records are separate information."""
        return False

    def log_mass(self, published: ArrayLike, true: ArrayLike) -> Reals:
        """Return the log probability of the code given true counts."""
        x = np.asarray(true, np.int64) + np.zeros(np.shape(published), np.int64)
        falls = [_between(self.law, np.maximum(x, 0), low, high) for low, high in self.published]
        mass = np.where(self._shown(x), np.sum(falls, axis=0), 0.0)
        mass = np.where((x >= 0) & in_ranges(x, self.counts), 1.0, mass)
        with np.errstate(divide="ignore"):
            return np.log(np.minimum(mass, 1.0))

    @cached_property
    def _window(self) -> tuple[int, int]:
        """Return the smallest and largest true count at which the code's probability is not negligible."""
        top = 1
        ends = [high for _, high in (*self.published, *self.counts, *self.hidden) if not np.isinf(high)]
        least = max(int(max(ends)), 0)  # beyond all of them it falls
        while least + top < MAX_TABLE_ENTRIES and self.log_mass(0, least + top)[()] > -NOISE_DEPTH_NATS:
            top *= 2
        counts = np.arange(max(least + top, 0) + 1)
        may = counts[self.log_mass(0, counts) > -NOISE_DEPTH_NATS]
        return (int(may[0]), int(may[-1])) if len(may) else (1, 0)

    @cached_property
    def _moments(self) -> tuple[float, float]:
        """Return the mean and variance of the true count given the code, under a flat prior."""
        low, high = self._window
        counts = np.arange(low, high + 1)
        mass = np.exp(self.log_mass(0, counts))
        mean = float(mass @ counts / mass.sum())
        return mean, float(mass @ (counts - mean) ** 2 / mass.sum())

    def bounds(self, published: ArrayLike) -> tuple[Integers, Integers]:
        """Return the smallest and largest true count for which the code may stand."""
        low, high = self._window
        shape = np.shape(published)
        return np.full(shape, low, np.int64), np.full(shape, high, np.int64)

    def kinds(self, published: ArrayLike) -> Reals:
        """Return the published values unchanged, because all codes have the same likelihood."""
        return np.asarray(published, np.float64)

    def says(self, published: float) -> str:
        """Return words for what the code says about the true count."""
        seen = f"published as a code for a value {range_text(self.published)}" if self.published else "hidden"
        low, high = self._window
        return f"{seen} ({f'from {low} to {high}' if low < high else f'exactly {low}'})"

    @property
    def centre(self) -> int:
        """Return the whole number that represents the code in sums: the rounded mean count."""
        return round(self._moments[0])

    @property
    def variance(self) -> float:
        """Return the variance (counts squared) of the true count given the code, under a flat prior."""
        return max(self._moments[1], 1 / 12)

    @property
    def shift(self) -> float:
        """Return the whole number `centre` minus the exact mean count."""
        return self.centre - self._moments[0]

    @property
    def reach(self) -> int:
        """Return the largest distance between the number that represents the code and a possible count."""
        return max(self._window[1] - self.centre, self.centre - self._window[0])

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        hid = f"counts {range_text(self.hidden)} were hidden; " if self.hidden else ""
        return (
            f"In the place of values {range_text(self.published)} a code was published; {hid}before it: "
            + self.law.sentence()
        )


def _between(law: Any, x: Integers, low: float, high: float) -> Reals:
    """Return, for each true count, the probability that a law publishes a number from `low` to `high`."""
    if isinstance(law, AfterNoise):
        return law.within(low, high, x)
    if isinstance(law, ByChange):
        y = x[..., None] + np.arange(-law.reach, law.reach + 1)
        with np.errstate(under="ignore"):
            mass = np.exp(law.log_mass(y, x[..., None]))
        return np.where((y >= low) & (y <= high), mass, 0.0).sum(axis=-1)
    if law.exact:
        return ((x >= low) & (x <= high)).astype(np.float64)
    if not law.additive:
        raise SpecError(
            f"law '{law.name}' cannot be combined with a rule that hides small published values",
            needed="a law that adds noise, rounds it, or is exact",
        )
    step = 1 if law.discrete else 0  # of a continuous law both ends have no mass
    below, above = low - step - x, high - x
    # Each tail is exact to its last digits where it is small, so the smaller ones are subtracted.
    left = law.cdf(above) - (0.0 if np.isinf(low) else law.cdf(below))
    right = (1.0 if np.isinf(low) else law.sf(below)) - law.sf(above)
    return np.maximum(np.where(below > 0, right, left), 0.0)
