"""Draws of true counts behind a multinomial release: independent behind a mode, chains behind a draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.inferring.released.redrawn import redrawn_tables
from trueup.inferring.released.summed import summed_tables
from trueup.kernel.released.draw import gibbs
from trueup.kernel.released.events import Events, find_events
from trueup.kernel.released.mode import draw_near_mode
from trueup.kernel.released.tables import Tables, Total
from trueup.layouts.released import ReleasedSum

Integers = NDArray[np.int64]


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
        """List the events of a release.

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
        """Draw true counts `(d, n)`; also return the share of proposals accepted."""
        return draw_near_mode(self.problem.counts, self.tables, self.total, self.events, draws, rng)


def draw_posterior(
    problem: ReleasedSum, chains: int, draws: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw true counts `(chains, d, n)` behind a multinomial draw; nearly independent.

    Raises
    ------
    SpecError
        If the laws are not supported.
    """
    refuse_zero(problem)
    tables, total = redrawn_tables(problem) if problem.redrawn else _tabulate_parts(problem)
    return gibbs(problem.counts, tables, total, chains, draws, rng, problem.empty == "uniform")


def _tabulate_parts(problem: ReleasedSum) -> tuple[Tables, Total]:
    """Tabulate the parts and the total."""
    if problem.listed:
        return summed_tables(problem)
    radius = problem.radius()
    tables = problem.tables(on_sum=radius >= 0)
    return tables, problem.likelihood(tables.tilt, radius)


def refuse_zero(problem: ReleasedSum) -> None:
    """Refuse a total of zero, whose posterior `trueup.inferring.released.zero` computes."""
    if problem.trials == 0:
        raise SpecError("the released total is zero", needed="at least one released count above zero")
