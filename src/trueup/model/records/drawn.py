"""Results of inference methods, their intervals, and contradictions found.

One file: an interval is read off what was drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import ConvergenceError, SpecError
from trueup.model.cells import Margin
from trueup.model.tables import probability_of

LOWEST, NEARER = 20, 5
"""Number of lowest draws (a tenth at most) that say if a quantity may be 0, and how many times the smallest they then reach."""


def shorter_ends(
    quantile: Callable[[float], NDArray], least: NDArray, level: float
) -> tuple[NDArray, NDArray]:
    """Return the ends of the equal-tailed interval, or of one that starts at the least possible value if that is shorter.

    Equal tails leave out the least value wherever it has less than `(1 - level) / 2` of the probability, even if values nearby
    are the most probable: where noise is wide, no interval would ever hold a true count of 0. If values fall off from
    the least one, the interval from there is the shortest.

    Parameters
    ----------
    quantile
        The smallest values that reach a probability.
    least
        The least possible values.

    Examples
    --------
    >>> from statistics import NormalDist
    >>> normal = NormalDist(1.0)  # cut at 0: a count measured as one standard deviation of its noise
    >>> below = normal.cdf(0.0)
    >>> ends = shorter_ends(lambda p: np.array(normal.inv_cdf(below + p * (1 - below))), np.array(0.0), 0.9)
    >>> [round(float(end), 2) for end in ends]
    [0.0, 2.38]
    """
    low, high, upper = (quantile(p) for p in ((1 - level) / 2, (1 + level) / 2, level))
    shorter = upper - least < high - low
    return np.where(shorter, least, low), np.where(shorter, upper, high)


def interval_of_draws(
    draws: NDArray, level: float | str, least: ArrayLike = np.nan
) -> tuple[NDArray, NDArray]:
    """Return the ends `(...)` of an interval that contains at least the share `level` of draws `(draws, ...)`.

    `least` is a lower limit of the quantity, NaN if none is known; see `ends_of_sorted`.

    Examples
    --------
    >>> [float(end) for end in interval_of_draws(np.arange(1, 101), 0.9, least=0)]
    [5.0, 95.0]
    >>> [float(end) for end in interval_of_draws(1 + np.arange(100) ** 2, 0.9, least=0)]
    [0.0, 7922.0]
    """
    return ends_of_sorted(np.sort(draws, axis=0), probability_of(level), least)


def ends_of_sorted(draws: NDArray, level: float, least: ArrayLike = np.nan) -> tuple[NDArray, NDArray]:
    """Return the ends of `interval_of_draws` for draws that are sorted along the first axis.

    The interval starts at the smallest draw; or at the lower limit, where draws get down to it: were it possible and values near
    it about equally likely, the smallest draw would exceed it by about a twentieth of what the 21st smallest does, and by more
    than a fifth of that once in 90 cases.
    """
    first, count, least = draws[0], len(draws), np.asarray(least, float)
    above = first - least
    near = (above >= 0) & (NEARER * above <= draws[min(LOWEST, count // 10)] - least)
    return shorter_ends(lambda p: draws[quantile_at(count, p)], np.where(near, least, first), level)


def floors_of_draws(draws: NDArray) -> NDArray:
    """Return the smallest of each count's draws `(chains, draws, n)`, or 0 for counts that may be 0 by their draws.

    Sums of counts are at least the sum of their floors. A count that is known, or is known to lie in a narrow range, has a floor;
    one whose smallest draw is below a fifth of its mean has none.

    Examples
    --------
    >>> floors_of_draws(np.array([[[7, 1, 5], [7, 30, 9]]])).tolist()
    [7, 0, 5]
    """
    smallest = draws.min(axis=(0, 1))
    return np.where(NEARER * smallest >= draws.mean(axis=(0, 1)), np.maximum(smallest, 0), 0)


def quantile_at(count: int, probability: float) -> int:
    """Return the position of a quantile among `count` sorted draws.

    Examples
    --------
    >>> quantile_at(100, 0.05), quantile_at(3, 0.5), quantile_at(1, 0.95)
    (4, 1, 0)
    """
    return min(max(int(np.ceil(count * probability - 1e-9)) - 1, 0), count - 1)


Reals = NDArray[np.float64]


Columns = dict[str, NDArray]


GROUPS_EVALUATED_AT_ONCE = 1 << 10
"""Groups of marginals that are asked at a time."""


@dataclass(frozen=True, eq=False)
class Marginals:
    """Exact probabilities of several counts, each on a window of possible values.

    Attributes
    ----------
    start
        `(groups + 1,)` where each group's masses start.
    offset
        `(groups,)` the count of each group's first mass.
    masses
        All masses end to end; each group's sum to 1.

    Examples
    --------
    >>> coin = Marginals(np.array([0, 2]), np.array([5]), np.array([0.5, 0.5]))
    >>> coin.mean.tolist(), coin.mass(5, 5).tolist(), coin.quantile(0.6).tolist()
    ([5.5], [0.5], [6])
    """

    start: NDArray[np.int64]
    offset: NDArray[np.int64]
    masses: Reals

    @classmethod
    def of_some(
        cls, exact: tuple[NDArray[np.int64], NDArray[np.int64], Reals], groups: NDArray[np.int64]
    ) -> Marginals:
        """Return the marginals of some counts, taken from the exact masses of all counts."""
        start, offset, masses = exact
        sizes = np.diff(start)[groups]
        ends = np.cumsum(sizes)
        at = np.arange(sizes.sum()) + np.repeat(start[groups] - (ends - sizes), sizes)
        return cls(np.concatenate([[0], ends]), offset[groups], masses[at])

    @cached_property
    def mean(self) -> Reals:
        """Return posterior means (counts)."""
        return self._blockwise(_Block.mean)

    @cached_property
    def sd(self) -> Reals:
        """Return posterior standard deviations (counts)."""
        return self._blockwise(_Block.sd)

    def cdf(self, count: ArrayLike) -> Reals:
        """Return the probability that each group's count is at most `count`."""
        up_to = np.broadcast_to(np.floor(count), self.offset.shape)
        return self._blockwise(lambda block: block.cdf(up_to[block.groups]))

    def mass(self, low: ArrayLike, high: ArrayLike) -> Reals:
        """Return the probability of `low <= count <= high` for each group."""
        return np.maximum(self.cdf(high) - self.cdf(np.ceil(low) - 1), 0.0)

    def quantile(self, probability: float) -> NDArray[np.int64]:
        """Return the smallest count whose cdf reaches `probability`, for each group."""
        return self._blockwise(lambda block: block.quantile(probability))

    def pmf(self, group: int) -> tuple[NDArray[np.int64], Reals]:
        """Return the counts of a group's window and their masses."""
        if isinstance(group, bool) or group not in range(self.offset.size):
            raise SpecError(
                f"there is no count number {group}", needed=f"a number from 0 to {self.offset.size - 1}"
            )
        masses = self.masses[self.start[group] : self.start[group + 1]]
        return self.offset[group] + np.arange(len(masses)), masses

    def interval(self, level: float | str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the ends of every count's interval: equal-tailed, or from the least possible count if that is shorter."""
        return shorter_ends(self.quantile, self.offset, probability_of(level))

    def describe(self, level: float) -> Columns:
        """Return the mean, sd, median, and the interval with its probability, for every count."""
        low, high = self.interval(level)
        return {
            "mean": self.mean,
            "sd": self.sd,
            "median": self.quantile(0.5),
            "low": low,
            "high": high,
            "mass": self.mass(low, high),
            "mcse": np.zeros(len(low)),
            "ess": np.full(len(low), np.inf),
            "r_hat": np.full(len(low), np.nan),
        }

    def _blockwise(self, each: Callable[[_Block], NDArray]) -> NDArray:
        """Return a figure for every group, evaluated in blocks to limit memory."""
        edges = np.append(np.arange(0, len(self.offset), GROUPS_EVALUATED_AT_ONCE), len(self.offset))
        found = [each(_Block.of(self, int(first), int(last))) for first, last in pairwise(edges)]
        return np.concatenate(found) if found else np.zeros(0)


class _Block(NamedTuple):
    """A block of groups of `Marginals`, with the running sum of the masses."""

    groups: slice
    start: NDArray[np.int64]
    offset: NDArray[np.int64]
    masses: Reals
    running: Reals

    @classmethod
    def of(cls, every: Marginals, first: int, last: int) -> _Block:
        start = every.start[first : last + 1]
        masses = every.masses[start[0] : start[-1]]
        running = np.concatenate([[0.0], np.cumsum(masses)])
        return cls(slice(first, last), start - start[0], every.offset[first:last], masses, running)

    @property
    def steps(self) -> NDArray[np.int64]:
        """Return the distance of each mass's count from the first count of its group."""
        return np.arange(len(self.masses)) - np.repeat(self.start[:-1], np.diff(self.start))

    def mean(self) -> Reals:
        # Masses may sum to 1 + 1e-13, which is ten counts of 10^14, and nothing of the steps.
        return self.offset.astype(float) + np.add.reduceat(self.masses * self.steps, self.start[:-1])

    def sd(self) -> Reals:
        mean = np.add.reduceat(self.masses * self.steps, self.start[:-1])
        centred = self.steps - np.repeat(mean, np.diff(self.start))
        return np.sqrt(np.add.reduceat(self.masses * centred**2, self.start[:-1]))

    def cdf(self, count: NDArray) -> Reals:
        ahead = np.clip(count - self.offset + 1, 0, np.diff(self.start)).astype(np.int64)
        return np.clip(self.running[self.start[:-1] + ahead] - self.running[self.start[:-1]], 0.0, 1.0)

    def quantile(self, probability: float) -> NDArray[np.int64]:
        reached = self.running[self.start[:-1]] + probability * (1 - 1e-12)
        at = np.searchsorted(self.running, reached, side="left") - 1
        return self.offset + np.clip(at - self.start[:-1], 0, np.diff(self.start) - 1)


@dataclass(frozen=True, eq=False)
class Drawn:
    """The result of an inference method: draws, exact marginals, and diagnostics.

    Attributes
    ----------
    draws
        `(chains, draws, n)` counts of the finest cells; of large trees in 32 bits, where all their sums and the square of
        each fit.
    independent
        True if draws are exact and independent (one chain); otherwise they are Markov chains.
    connected
        For Markov chains, True if their moves are proved to reach every possible table.
    marginals
        Exact marginals of margins, where the method has them.
    mode
        `(n,)` a most probable vector of counts, where the method has one.
    r_hat, ess
        `(n,)` diagnostics of chains; None for independent draws.
    refused
        Why the draws are no answer; empty where they passed every test.
    stats
        Dropped mass, acceptance rates, chains: what a reader must know of how it was computed.
    tables
        Margins to report besides those with exact marginals and the finest.
    approximate
        Words for the law that the draws approximate and how far they were checked; empty if it is the posterior itself.
    """

    draws: NDArray
    independent: bool
    marginals: Mapping[Margin, Marginals] = field(default_factory=dict)
    mode: NDArray | None = None
    r_hat: Reals | None = None
    ess: Reals | None = None
    refused: str = ""
    stats: Mapping[str, Any] = field(default_factory=dict)
    connected: bool = False
    tables: tuple[Margin, ...] = ()
    approximate: str = ""

    def accepted(self, method: str) -> Drawn:
        """Return the result if the draws passed every test of convergence; raise ConvergenceError otherwise."""
        if self.refused:
            raise ConvergenceError(f"method '{method}' did not converge: {self.refused}")
        return self

    @property
    def kind(self) -> str:
        """Return words for the kind of draws; they claim convergence only where it is proved.

        Examples
        --------
        >>> Drawn(np.zeros((4, 9, 1)), independent=False).kind
        'draws of Markov chains that agree; that they reach every possible table is not known'
        """
        if self.approximate and self.independent:
            return "independent draws of an approximation"
        if self.approximate:
            return "approximate draws of Markov chains of a fixed length"
        if self.independent:
            return "independent draws"
        known, unknown = "converged", "agree; that they reach every possible table is not known"
        return f"draws of Markov chains that {known if self.connected else unknown}"


class Conflict(NamedTuple):
    """A query whose noisy counts differ more from the posterior than chance explains.

    Attributes
    ----------
    margin, query
        The measured margin and its query.
    residual
        Root mean square of its residuals from the posterior means, in standard deviations of the noise.
    log_probability
        Upper bound on the log probability of residuals as large as these, if the truth follows the prior.
    """

    margin: str
    query: str
    residual: float
    log_probability: float

    def __str__(self) -> str:
        tenth = int(np.ceil(self.log_probability / np.log(10)))
        return (
            f"'{self.query}' of '{self.margin}' (residuals of {self.residual:.1f} standard deviations of the noise; "
            f"probability below 1e{tenth} if the truth follows the prior)"
        )
