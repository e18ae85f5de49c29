"""One total and its parts released by a multinomial method, prepared for their posterior."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.released import Tables, Total, released_tilts, tabulate, tabulate_redrawn
from trueup.model.prior import FLAT, CountPrior, Flat, Poisson
from trueup.noise.sums import MassTable, convolved

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

TABLE_MASS_LEFT_OUT = 1e-18
"""Mass of a law beyond its table."""
MAX_HALF_WIDTH = 2**16
"""Largest half width of a table (counts)."""

WIDEST_DRAWN = 2**11
"""Largest half width of a table of counts drawn from a posterior (counts), twice that of the noise."""

MOST_MASSES = 2**20
"""Largest table of prior masses by kinds of parts and counts."""

MAX_RELEASED_COUNT = 2**31
"""Released counts stay below it, so that products of two of them fit 64 bits."""


@dataclass(frozen=True, eq=False)
class ReleasedSum:
    """One total and its parts that a multinomial method released.

    Attributes
    ----------
    counts
        (n,) released parts.
    laws, total_law
        Laws of the noise that was added to each part and to the total before the release; the
        total's is None where it was not measured, and the release took the noisy parts' sum.
    total
        The way in which the release estimated the total.
    prior, prior_total
        Priors on each part, and on the total with all ways to split it equally likely. At most
        one of them is not flat, but for Poisson parts: they split the total as a multinomial with their means.
    empty
        The rule of the release for parts whose noisy counts are all zero.
    algorithm
        2: total and weights are the noisy counts, negative ones taken as zero. 1: they are draws
        from the posteriors of the counts given the noisy ones (Wang 2020; for multinomial draws).
    ties
        The rule by which the mode broke ties: in the order of the parts (`first`) or a random one (`shuffled`).
    """

    counts: Integers
    laws: Sequence
    total_law: Any  # a discrete law; None where the total was not measured
    total: Literal["independent", "summed"] = "independent"
    prior: CountPrior = FLAT
    prior_total: CountPrior = FLAT
    empty: Literal["error", "uniform"] = "uniform"
    algorithm: Literal[1, 2] = 2
    ties: Literal["first", "shuffled"] = "first"

    def __post_init__(self) -> None:
        if self.counts.size and not 0 <= self.counts.min() <= self.counts.max() < MAX_RELEASED_COUNT:
            raise SpecError("the released counts are out of range", needed="counts from 0 to 2^31")
        if not isinstance(self.prior, Flat | Poisson) and not isinstance(self.prior_total, Flat):
            raise SpecError(
                "priors are given on both the parts and their total",
                needed="a prior on the parts or on the total",
            )
        refuse_laws(set(self.laws), self.algorithm)
        refuse_laws({self.total_law} - {None}, 2)

    @property
    def trials(self) -> int:
        """Return the released total, which is the sum of the released parts."""
        return int(self.counts.sum())

    @property
    def summed(self) -> bool:
        """Return True if the released total combines its own noisy count with those of the parts."""
        return self.total_law is not None and self.total == "summed" and self.total_law.variance > 0

    @property
    def listed(self) -> bool:
        """Return True if the total's noise is not geometric, so that its estimates must be listed."""
        return self.summed and any(law.rate is None for law in self.every_law())

    @property
    def redrawn(self) -> bool:
        """Return True if the released total was drawn, given the sum of the noisy parts."""
        return self.algorithm == 1 and (self.total_law is None or self.summed)

    @cached_property
    def _parts(self) -> tuple[dict[tuple[Any, CountPrior], int], Integers]:
        """Return the distinct pairs of a noise law and a prior, and the number of each part's pair."""
        of_each = [(law, self.prior.at(part)) for part, law in enumerate(self.laws)]
        distinct = {pair: number for number, pair in enumerate(dict.fromkeys(of_each))}
        return distinct, np.array([distinct[pair] for pair in of_each])

    @property
    def kinds(self) -> tuple[list, Integers]:
        """Return the noise law of each kind of part, and the number of each part's kind."""
        distinct, kind = self._parts
        return [law for law, _ in distinct], kind

    @property
    def spread(self) -> float:
        """Return the standard deviation (counts) of the sum of all noise in the parts."""
        twice = 2 if self.algorithm == 1 else 1
        return float(np.sqrt(twice * sum(law.variance for law in self.laws) + 0.25))

    def sum_of_noise(self, distance: int) -> MassTable:
        """Return log masses of the sum of the parts' noise, out to `distance` (counts)."""
        return convolved({((law, 0),): count for law, count in Counter(self.laws).items()}, distance)

    @property
    def reach(self) -> float:
        """Return the largest distance (counts) considered between noisy sum and released total."""
        slowest = max(self.width(law) for law in self.every_law())
        return 2 * (12 * self.spread + slowest)

    def width(self, law) -> int:
        """Return the largest distance (counts) considered between a true count and the count drawn for it."""
        return half_width(law) * (2 if self.algorithm == 1 else 1)

    def radius(self) -> int:
        """Return the largest distance of the released total from the noisy parts' sum; -1 for no limit."""
        if self.total_law is None:
            return 0
        if not self.summed:
            return -1
        distinct, _ = self.kinds
        if self.total_law.rate >= min(law.rate for law in distinct):
            return -1  # the law of the sum is nowhere steeper than the total's: the mode is n itself
        far = 64
        while True:
            # the released total given n far above n*: the mode of log p(n - N) + log p(n* - N)
            log = self.sum_of_noise(far).at(np.arange(far)) + self.total_law.rate * np.arange(far)
            plateau = np.flatnonzero(log >= log.max() - 1e-9)
            if plateau[-1] < far - 1:
                return int(plateau[(plateau.size - 1) // 2])
            far *= 2

    def tables(self, *, on_sum: bool) -> Tables:
        """Return tables of the parts' probability masses under each exponential tilt."""
        distinct, kind = self.kinds
        prior, largest = self._prior_masses()
        tilt = self.tilts()
        if self.algorithm == 2:
            pmfs = [law.pmf(np.arange(half_width(law) + 1)) for law in distinct]
            return tabulate(pmfs, kind, tilt, prior, largest, on_sum)
        width = max(self.width(law) for law in distinct)
        far, true, drawn = 3 * width, np.arange(2 * width + 1), np.arange(width + 1)
        pmfs = [redrawn(law, np.array([far]), far + drawn)[0] for law in distinct]
        edge = [redrawn(law, true, drawn).T for law in distinct]
        return tabulate(pmfs, kind, tilt, prior, largest, on_sum, edge)

    def tables_of_noisy(self, tilt: Reals, lean: Reals) -> Tables:
        """Return tables of the parts' masses for a sampler that also draws the noisy counts."""
        distinct, kind = self.kinds
        pmfs = [law.pmf(np.arange(half_width(law) + 1)) for law in distinct]
        return tabulate_redrawn(pmfs, kind, tilt, *self._prior_masses(), lean)

    def tilts(self) -> Reals:
        """Return the exponential tilts (1 / counts) from which the sampler chooses."""
        slowest = min(
            -(law.logpmf(half_width(law)) - law.logpmf(half_width(law) - 1))
            for law in self.every_law()
            if half_width(law) > 1
        )
        return released_tilts(self.spread, float(slowest))

    def _prior_masses(self) -> tuple[Reals | None, int]:
        """Return prior masses `(kinds, P)` or None if flat, and the largest count that tables must cover."""
        if isinstance(self.prior, Flat):
            return None, 0
        priors = [prior for _, prior in self._parts[0]]
        high = max(*((prior.window() or (0, 0))[1] for prior in priors), int(self.counts.max() + self.reach))
        if len(priors) * high > MOST_MASSES:
            raise SpecError(
                f"{len(priors)} parts have different priors, and counts up to {high} are possible: together this needs "
                "too much memory",
                needed="the same prior for most parts",
                remedy="give parts the same prior, or a prior with smaller counts",
            )
        masses = np.exp([prior.logpmf(np.arange(high + 1)) for prior in priors])
        return masses, high + max(map(self.width, self.kinds[0]))

    def every_law(self) -> list:
        """Return the distinct noise laws of the parts and of the total."""
        return [*self.kinds[0], *([self.total_law] if self.total_law else [])]

    def likelihood(self, tilt: Reals, radius: int) -> Total:
        """Return the likelihood of the true total, multiplied by its prior."""
        m, law = self.trials, self.total_law
        width = int(self.reach) + max(radius, 0)
        low = max(m - width, 0)
        counts = np.arange(low, m + width + 1)
        rows = np.ones((4, counts.size))
        if law is not None:
            below, above = law.cdf(m - counts), law.cdf(counts - m)  # n <= m, and n >= m by symmetry
            rows[:3] = law.pmf(m - counts), above, below
            if self.algorithm == 1 and law.variance > 0:
                rows[0] = redrawn(law, counts, np.array([m]))[:, 0]
        with np.errstate(divide="ignore"):
            log = np.log(rows[:1] if radius < 0 else rows)
        log = log + self.log_prior_of_split(counts)
        on_total = (log[0] - np.multiply.outer(tilt, counts - m)).max(axis=1)
        ceiling = on_total if radius < 0 else log.max() + np.abs(tilt) * radius
        return Total(log, low, radius, ceiling)

    def sum_of_parts(self) -> Poisson:
        """Return the prior of the sum of the parts if each part has a Poisson prior."""
        return Poisson(float(np.broadcast_to(self.prior.mean, len(self.laws)).sum()))  # pyright: ignore[reportAttributeAccessIssue]

    def log_prior_of_split(self, total: Integers) -> Reals:
        """Return the log prior of each total, minus the log weight of all its splits into parts."""
        from scipy.special import gammaln

        log, n = self.prior_total.logpmf(total), len(self.laws)
        if isinstance(self.prior_total, Flat):
            return log
        if isinstance(self.prior, Poisson):  # given their sum, Poisson parts are a multinomial
            return log - self.sum_of_parts().logpmf(total)
        return log - (gammaln(total + n) - gammaln(total + 1.0) - gammaln(n))


def refuse_laws(laws: Iterable, algorithm: int) -> None:
    """Refuse noise laws that are continuous, or too wide to be tabulated."""
    widest = MAX_HALF_WIDTH if algorithm == 2 else WIDEST_DRAWN // 2
    for law in laws:
        if not law.discrete:
            raise SpecError(
                f"law '{law.name}' is continuous", needed="a law of whole numbers, such as 'discrete-laplace'"
            )
        if not law.reach(TABLE_MASS_LEFT_OUT) <= widest:
            raise SpecError(
                f"the noise of law '{law.name}' often exceeds {widest:,} counts, which is too much for this method",
                needed=f"noise that is practically always within {widest:,} counts",
                remedy="correct the law if the release used less noise; else infer from its noisy measurements",
            )


def half_width(law) -> int:
    """Return the half width (counts) of the window in which a noise law is tabulated."""
    return int(law.reach(TABLE_MASS_LEFT_OUT)) + 1


def redrawn(law, true: Integers, drawn: Integers) -> Reals:
    """Return the probabilities `(t, a)` of each drawn count given each true count.

    Parameters
    ----------
    true, drawn
        `(t,)` true counts and `(a,)` draws, of 0 or more.

    Returns
    -------
    ndarray, shape (t, a)
        `sum_n p(n - N) p(a - n) / P(noise <= n)`: under a flat prior on 0, 1, ... the posterior of
        a count given n is the law about n, cut off below zero.

    Notes
    -----
    Wang (2020), equation (5) and section 3.1.1, step 4.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from trueup.noise.laws.geometric import DiscreteLaplace
    >>> mass = redrawn(DiscreteLaplace(Fraction(2)), np.arange(2), np.arange(40))
    >>> mass.sum(axis=1).round(9).tolist()
    [1.0, 1.0]
    """
    width = half_width(law)
    noisy = np.arange(min(true[0], drawn[0]) - width, max(true[-1], drawn[-1]) + width + 1)
    given = law.pmf(noisy[None, :] - true[:, None])
    return given @ (law.pmf(drawn[None, :] - noisy[:, None]) / law.cdf(noisy)[:, None])
