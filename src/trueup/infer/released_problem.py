"""From laws of noise to the tables that the posterior of released counts needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.released_draw import gibbs
from trueup.kernel.released_events import Events, find_events
from trueup.kernel.released_mode import draw
from trueup.kernel.released_tables import Tables, Total, tabulate, tilts
from trueup.kernel.released_two import draw_table, mode_table, posterior_two
from trueup.model.prior import FLAT, CountPrior, Flat
from trueup.noise import DiscreteLaplace
from trueup.reconcile.sums import convolved

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

LEFT_OUT = 1e-18
"""Mass of a law beyond its table."""
WIDEST = 2**16
"""Largest half width of a table (counts)."""

LARGEST = 2**31
"""Released counts stay below it, so that products of two of them fit 64 bits."""


@dataclass(frozen=True, eq=False)
class ReleasedSum:
    """One total and its parts, released by a multinomial method.

    Attributes
    ----------
    counts
        (n,) released parts.
    laws, total_law
        Laws of the noise that was added to each part and to the total before the release; the
        total's is None where it was not measured, and the release took the noisy parts' sum.
    total
        How the release estimated the total.
    prior, prior_total
        Priors on each part, and on the total with all ways to split it equally likely. At most
        one of them is not flat.
    empty
        What the release did where all noisy parts were zero.
    """

    counts: Integers
    laws: Sequence
    total_law: Any  # a discrete law; None where the total was not measured
    total: Literal["independent", "summed"] = "independent"
    prior: CountPrior = FLAT
    prior_total: CountPrior = FLAT
    empty: Literal["error", "uniform"] = "uniform"

    def __post_init__(self) -> None:
        if self.counts.size and not 0 <= self.counts.min() <= self.counts.max() < LARGEST:
            raise SpecError("released counts out of range", needed="counts from 0 to 2^31")
        if not isinstance(self.prior, Flat) and not isinstance(self.prior_total, Flat):
            raise SpecError("priors on both the parts and the total", needed="one of them")
        for law in {self.total_law, *self.laws} - {None}:
            if not law.discrete:
                raise SpecError(f"law '{law.name}' is continuous", needed="a law on the integers")
            if not law.reach(LEFT_OUT) <= WIDEST:
                raise SpecError(
                    f"noise of law '{law.name}' reaches too far to tabulate",
                    needed=f"at most {WIDEST} counts",
                )

    @property
    def trials(self) -> int:
        """The released total."""
        return int(self.counts.sum())

    @property
    def kinds(self) -> tuple[list, Integers]:
        """Distinct laws of the parts, and which one each part has."""
        distinct = list(dict.fromkeys(self.laws))
        return distinct, np.array([distinct.index(law) for law in self.laws])

    @property
    def spread(self) -> float:
        """Standard deviation of the sum of the parts' noise (counts)."""
        return float(np.sqrt(sum(law.variance for law in self.laws) + 0.25))

    @property
    def reach(self) -> float:
        """How far the noisy parts' sum may be from the released total (counts)."""
        slowest = max(half_width(law) for law in self.every_law())
        return 2 * (12 * self.spread + slowest)

    def radius(self) -> int:
        """How far the released total can be from the noisy parts' sum; -1 where it is not bound to it."""
        if self.total_law is None:
            return 0
        if self.total == "independent" or self.total_law.variance == 0:
            return -1
        distinct, kind = self.kinds
        if not all(isinstance(law, DiscreteLaplace) for law in (self.total_law, *distinct)):
            raise SpecError("a summed total with other laws than discrete-laplace", needed="discrete-laplace")
        if self.total_law.epsilon >= min(law.epsilon for law in distinct):
            return -1  # the law of the sum is nowhere steeper than the total's: the mode is n itself
        shapes = {((law, 0),): int(count) for law, count in zip(distinct, np.bincount(kind))}
        far = 64
        while True:
            # the released total given n far above n*: the mode of log p(n - N) + log p(n* - N)
            log = convolved(shapes, far).at(np.arange(far)) + float(self.total_law.epsilon) * np.arange(far)
            plateau = np.flatnonzero(log >= log.max() - 1e-9)
            if plateau[-1] < far - 1:
                return int(plateau[(plateau.size - 1) // 2])
            far *= 2

    def tables(self, *, on_sum: bool) -> Tables:
        """Tilted masses of the parts."""
        distinct, kind = self.kinds
        slowest = min(
            -(law.logpmf(half_width(law)) - law.logpmf(half_width(law) - 1)) for law in self._slopes()
        )
        prior, largest = None, 0
        if not isinstance(self.prior, Flat):
            window = self.prior.window()
            assert window is not None
            high = max(window[1], int(self.counts.max() + self.reach))
            prior = np.exp(self.prior.logpmf(np.arange(high + 1)))
            largest = high + max(half_width(law) for law in distinct)
        pmfs = [law.pmf(np.arange(half_width(law) + 1)) for law in distinct]
        return tabulate(pmfs, kind, tilts(self.spread, float(slowest)), prior, largest, on_sum)

    def _slopes(self) -> list:
        return [law for law in self.every_law() if half_width(law) > 1]

    def every_law(self) -> list:
        """Distinct laws of the parts and the total."""
        return [*self.kinds[0], *([self.total_law] if self.total_law else [])]

    def likelihood(self, tilt: Reals, radius: int) -> Total:
        """Likelihood, and prior, of the true total."""
        from scipy.special import gammaln

        m, law = self.trials, self.total_law
        width = int(self.reach) + max(radius, 0)
        low = max(m - width, 0)
        counts = np.arange(low, m + width + 1)
        rows = np.ones((4, counts.size))
        if law is not None:
            below, above = law.cdf(m - counts), law.cdf(counts - m)  # n <= m, and n >= m by symmetry
            rows[:3] = law.pmf(m - counts), above, below
        with np.errstate(divide="ignore"):
            log = np.log(rows[:1] if radius < 0 else rows)
        log = log + self.prior_total.logpmf(counts)
        if not isinstance(self.prior_total, Flat):  # all ways to split a total are equally likely
            n = len(self.laws)
            log = log - (gammaln(counts + n) - gammaln(counts + 1.0) - gammaln(n))
        on_total = (log[0] - np.multiply.outer(tilt, counts - m)).max(axis=1)
        ceiling = on_total if radius < 0 else log.max() + np.abs(tilt) * radius
        return Total(log, low, radius, ceiling)


def two_parts(problem: ReleasedSum, *, drawn: bool = False) -> tuple[Integers, Integers, Reals]:
    """Return the exact posterior of two parts: their windows of counts, and the masses.

    Parameters
    ----------
    problem
        A release of two parts.
    drawn
        Whether it was a multinomial draw (Algorithm 2) instead of the mode.

    Notes
    -----
    A window reaches as far from the released count as noise does, which leaves out about 1e-18 of
    the mass: noisy and true counts are bound to the released ones by the three noise terms
    together.

    Examples
    --------
    >>> from fractions import Fraction
    >>> law = DiscreteLaplace(Fraction(1))
    >>> first, second, mass = two_parts(ReleasedSum(np.array([250, 357]), [law, law], law))
    >>> print(round(float(mass[first == 250, second == 357][0]), 4))
    0.2136
    """
    if len(problem.laws) != 2 or problem.trials == 0:
        raise SpecError("an exact table", needed="two parts with a positive total")
    radius = problem.radius()
    total = problem.likelihood(np.zeros(1), radius)
    widths = [half_width(law) for law in problem.laws]
    reach = max(half_width(law) for law in problem.every_law()) + 2 + max(radius, 0)
    if drawn:
        reach += int(12 * (problem.trials + 1) ** 0.5)
    noisy = [_noisy_window(int(k), reach) for k in problem.counts]
    true = [np.arange(max(int(k) - reach, 0), int(k) + reach + 1) for k in problem.counts]
    weights = [np.maximum(y, 0) for y in noisy]
    release = (draw_table if drawn else mode_table)(weights[0], weights[1], problem.counts)
    if problem.empty == "uniform":
        release = release + _even(weights, problem.counts, drawn)
    pmfs = tuple(law.pmf(np.arange(w + 1)) for law, w in zip(problem.laws, widths))
    mass = posterior_two((true[0], true[1]), (noisy[0], noisy[1]), pmfs, release, total, problem.trials)
    mass = mass * np.multiply.outer(
        np.exp(problem.prior.logpmf(true[0])), np.exp(problem.prior.logpmf(true[1]))
    )
    return true[0], true[1], mass / mass.sum()


def _noisy_window(k: int, reach: int) -> Integers:
    """Noisy counts near a released one, and all that are released as zero."""
    return np.arange(-reach if k <= reach else k - reach, k + reach + 1)


def _even(weights: list[Integers], k: Integers, drawn: bool) -> Reals:
    """Probability of the release where both noisy counts are zero or less and the total is split evenly."""
    one = np.ones(1, np.int64)
    both = (weights[0][:, None] == 0) & (weights[1][None, :] == 0)
    return both * (draw_table if drawn else mode_table)(one, one, k).astype(float)


def half_width(law) -> int:
    """Half width of a law's table."""
    return int(law.reach(LEFT_OUT)) + 1


@dataclass(frozen=True, eq=False)
class ModePosterior:
    """Independent draws of the true counts behind a multinomial mode.

    Attributes
    ----------
    left_out
        Estimate of the posterior mass of events beyond those that were listed.

    Examples
    --------
    >>> from fractions import Fraction
    >>> law = DiscreteLaplace(Fraction(1))
    >>> posterior = ModePosterior.of(ReleasedSum(np.array([3, 5]), [law, law], law))
    >>> draws, accepted = posterior.draw(4, np.random.default_rng(0))
    >>> draws.shape, bool(draws.min() >= 0)
    ((4, 2), True)
    """

    problem: ReleasedSum
    tables: Tables
    total: Total
    events: Events

    @classmethod
    def of(cls, problem: ReleasedSum) -> ModePosterior:
        """List the events of a release.

        Raises
        ------
        InfeasibleError
            If no noisy counts lead to these released counts.
        SpecError
            If the laws are not supported.
        """
        refuse_zero(problem)
        radius = problem.radius()
        tables = problem.tables(on_sum=radius >= 0)
        total = problem.likelihood(tables.tilt, radius)
        uniform = problem.empty == "uniform"
        events = find_events(problem.counts, tables, total, problem.reach, uniform)
        return cls(problem, tables, total, events)

    @property
    def left_out(self) -> float:
        return self.events.left_out

    def draw(self, draws: int, rng: np.random.Generator) -> tuple[Integers, float]:
        """Draw true counts `(d, n)`; also return the share of proposals accepted."""
        return draw(self.problem.counts, self.tables, self.total, self.events, draws, rng)


def draw_posterior(
    problem: ReleasedSum, chains: int, draws: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw true counts `(chains, d, n)` behind a multinomial draw (Algorithm 2); nearly independent.

    Raises
    ------
    SpecError
        If the laws are not supported.
    """
    refuse_zero(problem)
    radius = problem.radius()
    tables = problem.tables(on_sum=radius >= 0)
    return gibbs(problem.counts, tables, problem.likelihood(tables.tilt, radius), chains, draws, rng)


def refuse_zero(problem: ReleasedSum) -> None:
    """Refuse a total of zero: it says nothing of the parts' noisy counts."""
    if problem.trials == 0:
        raise SpecError("a released total of zero", needed="at least one released count above zero")
