"""Laws combined with hiding: some counts are hidden before a law, or some published values after it.

Let H be the true counts that are never given to the law p(y | x), and P the published values that are replaced by a code.
What is seen of x is a value y, with probability `[x not in H] p(y | x)` for y outside P; the code of H, with probability
`[x in H]`; or the code of P, with probability `[x not in H] sum_(y in P) p(y | x)`. These sum to one for every x.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.noise.law import Integers, Reals
from trueup.noise.perturbed import Perturbation
from trueup.noise.perturbed.ranges import in_ranges, range_text, read_ranges, write_ranges

NOISE_DEPTH_NATS = 700.0
"""Log mass below its peak at which the table of noise ends: smaller ones are no doubles."""
MAX_WHOLE_ENTRIES = 2000
"""Entries of the table of noise up to which all that a double can hold is tabulated, so that its window is closed."""


class LawOfShown(Perturbation):
    """Base of the laws combined with hiding: a law of published values, and the counts hidden before it."""

    law: Any
    hidden: Any

    def _settle(self) -> None:
        object.__setattr__(self, "law", _law_of(self.law))
        if self.hidden:
            object.__setattr__(self, "hidden", read_ranges(self.hidden))

    @property
    def same_records(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return True if cells with the same records have the same published value."""
        return self.law.same_records

    def parameters(self) -> dict[str, str]:
        """Return the exact parameters as strings, for manifests."""
        law = json.dumps({"name": self.law.name, **self.law.parameters()})
        return {"law": law, "hidden": write_ranges(self.hidden)}

    @cached_property
    def open_ended(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return True if true counts beyond the tabulated ones are possible."""
        law = self.law
        return bool(
            law.additive and law.open_ended and len(law.table(0, NOISE_DEPTH_NATS)[1]) > MAX_WHOLE_ENTRIES
        )

    def table(self, published: float, depth: float = np.inf) -> tuple[int, Reals]:
        """Return a published value's likelihood of true counts: the first count, and the log masses."""
        low, log = super().table(published, depth)
        may = (
            np.flatnonzero(log >= log.max(initial=-np.inf) - depth)
            if self.open_ended
            else np.arange(len(log))
        )
        return (low, log) if not len(may) else (low + int(may[0]), log[may[0] : may[-1] + 1])

    def bounds(self, published: ArrayLike) -> tuple[Integers, Integers]:
        """Return the smallest and largest true count for each value, in reverse order if there is none."""
        values, back = np.unique(np.asarray(published), return_inverse=True)
        ends = np.array([self._ends(value) for value in values.tolist()], np.int64).reshape(-1, 2)
        shape = np.shape(published)
        return ends[back, 0].reshape(shape), ends[back, 1].reshape(shape)

    def _ends(self, value: float) -> tuple[int, int]:
        """Return the smallest and largest true count for one published value."""
        raise NotImplementedError

    def _shown(self, true: ArrayLike) -> NDArray[np.bool_]:
        x = np.asarray(true, np.float64)
        return (x >= 0) & ~in_ranges(x, self.hidden)


def _law_of(given: Any) -> Any:
    """Return a law that is given as an object or as JSON text."""
    if not isinstance(given, str):
        return given
    from trueup.noise import law_named  # that module lists this one

    entry = json.loads(given)
    return law_named(entry.pop("name")).from_parameters(entry)


@dataclass(frozen=True)
class ShownCounts(LawOfShown):
    """A law that never receives the counts in some ranges, because they are hidden.

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
        """Return True if the published values are whole numbers."""
        return self.law.discrete

    def log_mass(self, published: ArrayLike, true: ArrayLike) -> Reals:
        """Return the log probability of published values given true counts (broadcast together)."""
        with np.errstate(divide="ignore"):
            return np.where(self._shown(true), self.law.log_mass(published, true), -np.inf)

    def _ends(self, value: float) -> tuple[int, int]:
        if self.law.additive:
            first, log = self.law.table(value, NOISE_DEPTH_NATS)
            low, high = first, first + len(log) - 1
        else:
            low, high = (int(end) for end in self.law.bounds(value))
        counts = np.arange(max(low, 0), high + 1)
        may = counts[np.isfinite(self.log_mass(value, counts))]
        return (int(may[0]), int(may[-1])) if len(may) else (1, 0)

    def mean(self, true: ArrayLike) -> Reals:
        """Return the mean of the published value given a true count that is shown."""
        return np.asarray(true, np.float64) if self.law.additive else self.law.mean(true)

    def variance_at(self, true: ArrayLike) -> Reals:
        """Return the variance of the published value given a true count that is shown (counts squared)."""
        return self.law.variance_at(true)

    @property
    def variance(self) -> float:
        """Return the variance of a published value's error, over large true counts (counts squared)."""
        return self.law.variance

    @property
    def shift(self) -> float:
        """Return the mean difference between published value and true count, over large true counts."""
        return 0.0 if self.law.additive else self.law.shift

    @property
    def reach(self) -> int:
        """Return the largest distance of a published number from the true count (counts)."""
        return (
            self.law.tail(0.0).counts
            if not self.law.additive
            else len(self.law.table(0, NOISE_DEPTH_NATS)[1]) // 2
        )

    def tail(self, probability: float) -> Any:
        """Return the distance of a published number from the true count that is exceeded with at most the given probability."""
        return self.law.tail(probability)

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        return f"Counts {range_text(self.hidden)} were hidden; of all others: {self.law.sentence()}"
