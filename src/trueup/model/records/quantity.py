"""One quantity of a posterior: a count, a sum over an area, a ratio, a rank."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trueup.model.records.marginals import Reals
from trueup.model.tables import probability_of


@dataclass(frozen=True, eq=False)
class Quantity:
    """Draws of one quantity: a count, a sum over an area, a ratio, a rank.

    Means, intervals and probabilities are conditional on the quantity being defined, as a ratio is where its denominator is
    not 0; `undefined` says how probable the opposite is.

    Attributes
    ----------
    name
        As the user wrote it.
    draws
        `(chains, draws)` values, NaN where undefined.

    Examples
    --------
    >>> q = Quantity("a", np.arange(100).reshape(1, 100))
    >>> q.mean, q.interval(0.9), q.probability(below=50)
    (49.5, (4.0, 94.0, 0.91), 0.5)
    >>> share = Quantity("a / b", np.array([[0.5, np.nan, 0.5, 0.25]]))
    >>> share.undefined, round(share.mean, 4)
    (0.25, 0.4167)
    """

    name: str
    draws: NDArray

    @property
    def undefined(self) -> float:
        """Return the share of draws without a value."""
        return float(np.mean(np.isnan(self.draws)))

    @cached_property
    def _known(self) -> NDArray:
        known = self.draws[~np.isnan(self.draws)]
        return known if known.size else np.full(1, np.nan)

    @property
    def mean(self) -> float:
        """Return the posterior mean."""
        return float(self._known.mean())

    @property
    def sd(self) -> float:
        """Return the posterior standard deviation."""
        return float(self._known.std())

    @property
    def median(self) -> float:
        """Return the posterior median."""
        return float(np.quantile(self._known, 0.5, method="inverted_cdf"))

    def interval(self, level: float | str = 0.9) -> tuple[float, float, float]:
        """Return low, high and the share of draws inside: equal tails, at least `level`."""
        low, high = equal_tails(self._known, level)
        return float(low), float(high), self._share((self._known >= low) & (self._known <= high))

    def probability(self, *, below: float = np.inf, above: float = -np.inf) -> float:
        """Return the share of draws strictly below and strictly above the limits."""
        return self._share((self._known < below) & (self._known > above))

    def _share(self, holds: NDArray[np.bool_]) -> float:
        return float("nan") if np.isnan(self._known).any() else float(np.mean(holds))


@dataclass(frozen=True)
class Ratio:
    """A ratio of two sums of cells at every place: `(under18 + over18) / families`.

    Without a denominator it is the sum itself.
    """

    name: str
    numerator: str
    denominator: str = ""


def quotients(above: NDArray, below: NDArray) -> Reals:
    """Return ratios, NaN where the denominator is 0."""
    return np.divide(above, below, out=np.full(np.shape(below), np.nan), where=np.asarray(below) != 0)


def equal_tails(draws: NDArray, level: float | str) -> tuple[NDArray, NDArray]:
    """Return the interval with at most `(1 - level) / 2` of the draws outside on each side.

    Parameters
    ----------
    draws
        `(draws, ...)`.
    level
        Probability in (0, 1).

    Examples
    --------
    >>> [float(end) for end in equal_tails(np.arange(1, 101), 0.9)]
    [5.0, 95.0]
    """
    level = probability_of(level)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0, method="inverted_cdf")
    return low, high


def quantile_at(count: int, probability: float) -> int:
    """Return the position of a quantile among so many sorted draws: the first that reaches the probability.

    Examples
    --------
    >>> quantile_at(100, 0.05), quantile_at(3, 0.5), quantile_at(1, 0.95)
    (4, 1, 0)
    """
    return min(max(int(np.ceil(count * probability - 1e-9)) - 1, 0), count - 1)
