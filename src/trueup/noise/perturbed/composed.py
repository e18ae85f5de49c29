"""Laws after one another: counts hidden before a law publishes them, published values hidden after it.

Let H be the true counts that are never given to the law p(y | x), and P the published values that are replaced by a code.
What is seen of x is a value y, with probability `[x not in H] p(y | x)` for y outside P; the code of H, with probability
`[x in H]`; or the code of P, with probability `[x not in H] sum_(y in P) p(y | x)`. These sum to one for every x.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import SpecError
from trueup.noise.law import Integers, Reals
from trueup.noise.laws.base import LONGEST
from trueup.noise.perturbed.base import ByChange, Perturbation

Range = tuple[float, float]
"""Smallest and largest number of a range, minus and plus infinity where there is none."""
DEPTH = 700.0
"""Log mass below its peak at which the table of noise ends: smaller ones are no doubles."""
WHOLE = 2000
"""Entries of the table of noise up to which all that a double can hold is tabulated, so that its window is closed."""


def read_ranges(given: Any) -> tuple[Range, ...]:
    """Read ranges from pairs of numbers, or from their JSON text.

    Examples
    --------
    >>> read_ranges('[[1, 4], [null, 89]]')
    ((1.0, 4.0), (-inf, 89.0))
    """
    pairs = json.loads(given) if isinstance(given, str) else given
    return tuple((-np.inf if a is None else float(a), np.inf if b is None else float(b)) for a, b in pairs)


def in_ranges(numbers: ArrayLike, ranges: Iterable[Range]) -> NDArray[np.bool_]:
    """Tell which numbers lie in one of some ranges.

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


def _written(ranges: Iterable[Range]) -> str:
    return json.dumps([[None if np.isinf(end) else end for end in each] for each in ranges])


def range_text(ranges: Iterable[Range]) -> str:
    """Say ranges in words.

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


class _Of(Perturbation):
    """What laws after one another share: the law in their middle, and counts hidden before it."""

    law: Any
    hidden: Any

    def _settle(self) -> None:
        object.__setattr__(self, "law", _law_of(self.law))
        object.__setattr__(self, "hidden", read_ranges(self.hidden))

    @property
    def same_records(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether cells with the same records are published with the same value."""
        return self.law.same_records

    def parameters(self) -> dict[str, str]:
        """Exact parameters as strings, for manifests."""
        law = json.dumps({"name": self.law.name, **self.law.parameters()})
        return {"law": law, "hidden": _written(self.hidden)}

    @cached_property
    def open_ended(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether true counts beyond a table are possible too: where noise has no end and all that a double holds is too long."""
        law = self.law
        return bool(law.additive and law.open_ended and len(law.table(0, DEPTH)[1]) > WHOLE)

    def table(self, published: float, depth: float = np.inf) -> tuple[int, Reals]:
        """Tabulate what a value says of the true count: the first count, and log masses down to `depth` below the peak."""
        low, log = super().table(published, depth)
        may = (
            np.flatnonzero(log >= log.max(initial=-np.inf) - depth)
            if self.open_ended
            else np.arange(len(log))
        )
        return (low, log) if not len(may) else (low + int(may[0]), log[may[0] : may[-1] + 1])

    def _shown(self, true: ArrayLike) -> NDArray[np.bool_]:
        x = np.asarray(true, np.float64)
        return (x >= 0) & ~in_ranges(x, self.hidden)


def _law_of(given: Any) -> Any:
    """A law, or one read from its JSON text."""
    if not isinstance(given, str):
        return given
    from trueup.noise import law_named  # that module lists this one

    entry = json.loads(given)
    return law_named(entry.pop("name")).from_parameters(entry)


@dataclass(frozen=True)
class ShownCounts(_Of):
    """A value under a law that is given no count of some ranges: those are hidden before.

    Parameters
    ----------
    law
        The law of the values.
    hidden
        Ranges of true counts that are not shown.

    Examples
    --------
    >>> from trueup.noise.perturbed import Rounded
    >>> law = ShownCounts(Rounded(5), ((1, 7),))
    >>> law.bounds([0, 10]), law.possible([5]).tolist()
    ((array([0, 8]), array([ 0, 12])), [False])
    """

    name: ClassVar[str] = "shown-counts"
    title: ClassVar[str] = "A law of counts of which some are hidden before"
    law: Any
    hidden: Any

    def __post_init__(self) -> None:
        self._settle()

    @property
    def discrete(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether its values are whole."""
        return self.law.discrete

    def log_mass(self, published: ArrayLike, true: ArrayLike) -> Reals:
        """Log probability of published values given true counts (broadcast together)."""
        with np.errstate(divide="ignore"):
            return np.where(self._shown(true), self.law.log_mass(published, true), -np.inf)

    def bounds(self, published: ArrayLike) -> tuple[Integers, Integers]:
        """Smallest and largest true count that a published value may stand for; crossed where there is none."""
        values, back = np.unique(np.asarray(published), return_inverse=True)
        ends = np.array([self._ends(value) for value in values.tolist()], np.int64).reshape(-1, 2)
        shape = np.shape(published)
        return ends[back, 0].reshape(shape), ends[back, 1].reshape(shape)

    def _ends(self, value: float) -> tuple[int, int]:
        if self.law.additive:
            first, log = self.law.table(value, DEPTH)
            low, high = first, first + len(log) - 1
        else:
            low, high = (int(end) for end in self.law.bounds(value))
        counts = np.arange(max(low, 0), high + 1)
        may = counts[np.isfinite(self.log_mass(value, counts))]
        return (int(may[0]), int(may[-1])) if len(may) else (1, 0)

    def mean(self, true: ArrayLike) -> Reals:
        """Mean of the published value given a true count that is shown."""
        return np.asarray(true, np.float64) if self.law.additive else self.law.mean(true)

    def variance_at(self, true: ArrayLike) -> Reals:
        """Variance of the published value given a true count that is shown (counts squared)."""
        return self.law.variance_at(true)

    @property
    def variance(self) -> float:
        """Mean squared error of a published value, less its shift, over large true counts (counts squared)."""
        return self.law.variance

    @property
    def shift(self) -> float:
        """Mean of published value minus true count over large true counts."""
        return 0.0 if self.law.additive else self.law.shift

    @property
    def reach(self) -> int:
        """Largest distance of a published number from the true count (counts)."""
        return self.law.tail(0.0).counts if not self.law.additive else len(self.law.table(0, DEPTH)[1]) // 2

    def tail(self, probability: float) -> Any:
        """How far a published number is from the true count, but with that probability at most."""
        return self.law.tail(probability)

    def sentence(self) -> str:
        """Describe the law in one plain sentence."""
        return f"Counts {range_text(self.hidden)} were hidden; of all others: {self.law.sentence()}"


@dataclass(frozen=True)
class HiddenValues(_Of):
    """A code in the place of a published value that lies in some ranges, or of a true count that does.

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
    numeric: ClassVar[bool] = False
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
                "a code stands for published values without an upper end",
                needed="an upper end, or a range of the true count such as '10+'",
            )

    def parameters(self) -> dict[str, str]:
        """Exact parameters as strings, for manifests."""
        more = {"published": _written(self.published), "counts": _written(self.counts)}
        return super().parameters() | more

    @property
    def same_records(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Codes of cells with the same records are the same, and said twice they say no more."""
        return False

    def log_mass(self, published: ArrayLike, true: ArrayLike) -> Reals:
        """Log probability of the code given true counts."""
        x = np.asarray(true, np.int64) + np.zeros(np.shape(published), np.int64)
        mass = np.where(self._shown(x), self._falls(np.maximum(x, 0)), 0.0)
        mass = np.where((x >= 0) & in_ranges(x, self.counts), 1.0, mass)
        with np.errstate(divide="ignore"):
            return np.log(np.minimum(mass, 1.0))

    def _falls(self, x: Integers) -> Reals:
        """Probability that the published value lies in the ranges."""
        return np.sum([_between(self.law, x, low, high) for low, high in self.published], axis=0)

    @cached_property
    def _window(self) -> tuple[int, int]:
        """Smallest and largest count of any mass that a double can hold."""
        top = 1
        ends = [high for _, high in (*self.published, *self.counts, *self.hidden) if not np.isinf(high)]
        least = max(int(max(ends)), 0)  # beyond all of them it falls
        while least + top < LONGEST and self.log_mass(0, least + top)[()] > -DEPTH:
            top *= 2
        counts = np.arange(max(least + top, 0) + 1)
        may = counts[self.log_mass(0, counts) > -DEPTH]
        return (int(may[0]), int(may[-1])) if len(may) else (1, 0)

    @cached_property
    def _moments(self) -> tuple[float, float]:
        """Mean and variance of the count, all counts as probable beforehand."""
        low, high = self._window
        counts = np.arange(low, high + 1)
        mass = np.exp(self.log_mass(0, counts))
        mean = float(mass @ counts / mass.sum())
        return mean, float(mass @ (counts - mean) ** 2 / mass.sum())

    def bounds(self, published: ArrayLike) -> tuple[Integers, Integers]:
        """Smallest and largest true count, whatever value stands for the code."""
        low, high = self._window
        shape = np.shape(published)
        return np.full(shape, low, np.int64), np.full(shape, high, np.int64)

    def kinds(self, published: ArrayLike) -> Reals:
        """Equal numbers: the table is the same whatever value stands for the code."""
        return np.asarray(published, np.float64)

    def says(self, published: float) -> str:
        """Describe what the code says of the true count."""
        seen = f"published as a code for a value {range_text(self.published)}" if self.published else "hidden"
        return f"{seen} (from {self._window[0]} to {self._window[1]})"

    @property
    def centre(self) -> int:
        """The count that stands for the code among numbers."""
        return round(self._moments[0])

    def mean(self, true: ArrayLike) -> Reals:
        """Mean of the value that stands for the code."""
        return np.full(np.shape(true), float(self.centre))

    def variance_at(self, true: ArrayLike) -> Reals:
        """Variance of the value that stands for the code: none."""
        return np.zeros(np.shape(true))

    @property
    def variance(self) -> float:
        """Variance of the count that the code leaves, all alike beforehand (counts squared)."""
        return max(self._moments[1], 1 / 12)

    @property
    def shift(self) -> float:
        """By how much `centre`, which is whole, differs from the mean."""
        return self.centre - self._moments[0]

    @property
    def reach(self) -> int:
        """Largest distance of the value that stands for the code from a possible count."""
        return max(self._window[1] - self.centre, self.centre - self._window[0])

    def publish(self, true: ArrayLike, keys: ArrayLike) -> Integers:
        """Return the value that stands for the code."""
        return np.full(np.broadcast(true, keys).shape, self.centre, np.int64)

    def sentence(self) -> str:
        """Describe the law in one plain sentence."""
        hid = f"counts {range_text(self.hidden)} were hidden; " if self.hidden else ""
        return (
            f"In the place of values {range_text(self.published)} a code was published; {hid}before it: "
            + self.law.sentence()
        )


def _between(law: Any, x: Integers, low: float, high: float) -> Reals:
    """Probability that a law publishes a number from `low` to `high` of each true count."""
    if isinstance(law, ByChange):
        y = x[..., None] + np.arange(-law.reach, law.reach + 1)
        with np.errstate(under="ignore"):
            mass = np.exp(law.log_mass(y, x[..., None]))
        return np.where((y >= low) & (y <= high), mass, 0.0).sum(axis=-1)
    if law.exact:
        return ((x >= low) & (x <= high)).astype(np.float64)
    if not law.additive:
        raise SpecError(
            f"values of law '{law.name}' are not hidden by what is published", needed="another law"
        )
    step = 1 if law.discrete else 0  # of a continuous law both ends have no mass
    below, above = low - step - x, high - x
    # Each tail is exact to its last digits where it is small, so the smaller ones are subtracted.
    left = law.cdf(above) - (0.0 if np.isinf(low) else law.cdf(below))
    right = (1.0 if np.isinf(low) else law.sf(below)) - law.sf(above)
    return np.maximum(np.where(below > 0, right, left), 0.0)
