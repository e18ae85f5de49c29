"""Draws of true counts given a multinomial release: independent for a mode, by Markov chains for a draw.

Algorithm 1 with a total drawn given the noisy parts' sum: the likelihood of the true counts.
The total m was drawn from `p(n - M) eta(n* - M)`, M >= 0, eta being the law of the summed noise and
n the total's own noisy count; from `eta(n* - M)` alone where it has none (Wang 2020, section 2.2.2
and step 3.b of 3.1.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.inferring.released import refuse_wide, summed_tables
from trueup.inferring.released.zero import log_at_most
from trueup.kernel.released import Tables, Total, redrawn_total
from trueup.kernel.released.draw import gibbs, least_bound
from trueup.kernel.released.events import Events, find_events
from trueup.kernel.released.exact import draw_near_mode
from trueup.layouts.released import ReleasedSum, half_width
from trueup.model.prior import Flat

Reals = NDArray[np.float64]

_LEANS, _COARSE = 9, 8


def redrawn_tables(problem: ReleasedSum) -> tuple[Tables, Total]:
    """Return laws of the parts and the total, tilted so that most proposed draws are accepted.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from trueup.noise import DiscreteLaplace
    >>> law = DiscreteLaplace(Fraction(1))
    >>> tables, total = redrawn_tables(ReleasedSum(np.array([3, 5]), [law, law], None, algorithm=1))
    >>> float(tables.lean.max()), total.joint.shape[0]
    (0.0, 1)
    """
    log, low, low_sum = joint_likelihood(problem)
    tilt, on_noisy = problem.tilts(), _follows_sum(problem)

    def leaning(lean: float, tilt: Reals) -> tuple[Tables, Total]:
        tables = problem.tables_of_noisy(tilt, np.full(tilt.size, lean) if on_noisy else lean + tilt)
        return tables, redrawn_total(log, low, low_sum, problem.trials, tilt, lean, on_noisy)

    lean = 0.0
    if len(log) > 1:
        leans = np.linspace(-0.5, 0.5, _LEANS) * tilt[-1]
        lean = min(leans, key=lambda s: least_bound(problem.counts, *leaning(s, tilt[::_COARSE])))
    return leaning(float(lean), tilt)


def joint_likelihood(problem: ReleasedSum) -> tuple[Reals, int, int]:
    """Return the log likelihood `(N, n*)` of a true total N and a noisy sum n*, and the first N and n*.

    One row where nothing but n* matters.
    """
    m, reach = problem.trials, int(12 * problem.spread) + max(map(half_width, problem.kinds[0]))
    noisy = np.arange(m - reach, m + reach + 1)
    if problem.total_law is None:
        log, true = _given_sum(problem, noisy)[None, :], np.zeros(1, np.int64)
        width = int(problem.reach)
    else:
        width = 2 * half_width(problem.total_law)
        true = np.arange(max(m - width, 0), m + width + 1)
        refuse_wide(true.size * noisy.size)
        log = _given_noisy_total(problem, true, noisy)
    if isinstance(problem.prior_total, Flat):
        return log, int(true[0]), int(noisy[0])
    true = np.arange(max(m - width, 0), m + width + 1)
    refuse_wide(true.size * noisy.size)
    return log + problem.log_prior_of_split(true)[:, None], int(true[0]), int(noisy[0])


def _follows_sum(problem: ReleasedSum) -> bool:
    """Return True if the released total follows from the sum of noisy parts, not from its own noisy count."""
    law = problem.total_law
    return law is None or law.variance > sum(part.variance for part in problem.laws)


def _given_sum(problem: ReleasedSum, noisy: Integers) -> Reals:
    """Return, for each noisy sum, the log probability that a posterior draw gives the released total."""
    far = int(np.abs(noisy).max()) + problem.trials
    eta = problem.sum_of_noise(far)
    return eta.at(noisy - problem.trials) - log_at_most(eta.at(np.arange(far + 2)), noisy)


def _given_noisy_total(problem: ReleasedSum, true: Integers, noisy: Integers) -> Reals:
    """Return log probabilities `(N, n*)` of the released total, summed over its noisy count."""
    m, law = problem.trials, problem.total_law
    own = np.arange(m - half_width(law), m + half_width(law) + 1)
    every = np.arange(max(m - 2 * half_width(law), 0), m + 2 * half_width(law) + 1)
    eta = problem.sum_of_noise(int(np.abs(noisy).max()) + int(every[-1]))
    mass = law.pmf(own[:, None] - every) @ np.exp(eta.at(noisy - every[:, None]))
    drawn = np.multiply.outer(law.pmf(own - m), np.exp(eta.at(noisy - m)))
    drawn = np.divide(drawn, mass, out=np.zeros_like(drawn), where=mass > 0)
    with np.errstate(divide="ignore"):
        return np.log(law.pmf(true[:, None] - own) @ drawn)


Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ModePosterior:
    """Independent draws of true counts, given counts released by multinomial mode.

    Attributes
    ----------
    left_out
        Estimate of the posterior mass of events beyond those that were listed.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from trueup.noise import DiscreteLaplace
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
        """Return the posterior of released counts, with a list of the events that lead to them.

        Raises
        ------
        InfeasibleError
            If no noisy counts lead to these released counts.
        SpecError
            If the laws are not supported.
        """
        refuse_zero(problem)
        tables, total = _tabulate_parts(problem)
        uniform = problem.empty == "uniform"
        events = find_events(
            problem.counts, tables, total, problem.reach, uniform, problem.ties == "shuffled"
        )
        return cls(problem, tables, total, events)

    @property
    def left_out(self) -> float:
        return self.events.left_out

    def draw(self, draws: int, rng: np.random.Generator) -> tuple[Integers, float]:
        """Draw true counts `(d, n)`, and return them with the share of proposals accepted."""
        return draw_near_mode(self.problem.counts, self.tables, self.total, self.events, draws, rng)


def draw_posterior(
    problem: ReleasedSum, chains: int, draws: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw nearly independent true counts `(chains, d, n)`, given counts released by multinomial draw.

    Raises
    ------
    SpecError
        If the laws are not supported.
    """
    refuse_zero(problem)
    tables, total = redrawn_tables(problem) if problem.redrawn else _tabulate_parts(problem)
    return gibbs(problem.counts, tables, total, chains, draws, rng, problem.empty == "uniform")


def _tabulate_parts(problem: ReleasedSum) -> tuple[Tables, Total]:
    """Return tables of the laws of the parts, and the likelihood of the total."""
    if problem.listed:
        return summed_tables(problem)
    radius = problem.radius()
    tables = problem.tables(on_sum=radius >= 0)
    return tables, problem.likelihood(tables.tilt, radius)


def refuse_zero(problem: ReleasedSum) -> None:
    """Refuse a released total of zero, for which `trueup.inferring.released.zero` is needed."""
    if problem.trials == 0:
        raise SpecError("the released total is zero", needed="at least one released count above zero")
