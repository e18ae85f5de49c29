"""Persons and the households that they live in, jointly: Markov chains under the hierarchical prior, at every level."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.chains import (
    ESS,
    FEWEST,
    chains_agree,
    chains_too_short,
    refuse_forecast,
    refuses_settings,
    thinned,
    told_in_draws,
)
from trueup.inferring.linked_walk import WARM_UP, LinkedWalk
from trueup.inferring.method import InferenceMethod, Progress, announce
from trueup.layouts.linked import LinkedProblem, refuses_linked
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, split
from trueup.model.prior import HIERARCHICAL, Hierarchical, SplitPrior
from trueup.model.records.drawn import Drawn
from trueup.run.deadline import Deadline

THIN = 2
"""Sweeps between draws where places are neither drawn whole nor exchange households."""
NEARLY, MORE = 2.0, 1.15
"""Times that a run is made longer at most, rather than begun anew with more steps; by how much more than seems to be needed."""
HELPED, THINNER = 1.5, 8
"""Factor by which more steps must raise the smallest effective size, else draws lie further apart; so many times at most."""
LONGER = "allow more `minutes`, or infer a place of its own (`--within`)"
"""What to do about chains that are too short."""


@dataclass(frozen=True)
class LinkedGibbs(InferenceMethod):
    """The posterior of persons and households, or of counts under rules `k households <= persons <= K households`.

    The prior: a flat total of households; the number of each place is split among its parts by a Dirichlet-multinomial law
    with a concentration for each level; kinds of households at a lowest place are Dirichlet-multinomial around the composition of
    the place above, and so are kinds of persons given their number, which households determine, or which is beta-binomial
    between what households hold at least and at most. Concentrations and compositions are drawn with the counts.

    Draws are those of chains that agree: every count of every level, and persons per household, with an effective size of 400;
    else they are refused.

    Attributes
    ----------
    prior
        `hierarchical`; with `concentrations` of totals and of compositions, two numbers, these are given.
    chains
        Number of chains.
    minutes
        Longest time that a run is made longer within.

    References
    ----------
    Janicki et al., "Bayesian methods to improve the accuracy of differentially private measurements of constrained
    parameters", section 3, for the rules; its prior is flat.
    """

    prior: SplitPrior = HIERARCHICAL
    chains: int = 4
    minutes: float = 10.0

    name: ClassVar[str] = "linked-gibbs"
    title: ClassVar[str] = "persons and households jointly: Markov chains under the hierarchical prior"
    structures: ClassVar[frozenset[str]] = frozenset({"joined", "general"})
    priors: ClassVar[tuple[type, ...]] = (Hierarchical,)

    def refuses(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """Nonnegative counts, pairs of rules alone, noise of unbounded laws."""
        wrong = refuses_settings(self.prior, self.chains, "compositions")
        return wrong or refuses_linked(constraints, headers)

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> Any:
        """Nothing depends on constraints and laws alone."""
        return constraints, tuple(headers)

    def apply(
        self,
        state: Any,
        values: NDArray,
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
        deadline: Deadline | None = None,
    ) -> Drawn:
        """Run chains longer until they agree; what was drawn with fewer steps is warm-up.

        Raises
        ------
        SpecError
            If even the shortest run is predicted to take longer than `minutes`, or more memory than there is.
        """
        constraints, headers = state
        problem = LinkedProblem(constraints, headers, tuple(split(values, headers, constraints.cells)))
        announce(progress, "finding tables to start from")
        walk = LinkedWalk.of(problem, rng.spawn(self.chains), self.prior.concentrations)
        thin, began = 1 if problem.whole or problem.exchanged else THIN, time.perf_counter()
        kept, tell = -(-max(draws, FEWEST) // self.chains), told_in_draws(progress, draws)
        announce(progress, "seeing how long a sweep takes")
        walk.begin()
        self._refuse(walk, kept, thin)
        announce(progress, f"warming up: {WARM_UP} sweeps")
        walk.warm_up()
        self._refuse(walk, kept, thin)  # places that move slowly get more steps
        run, least = walk.run(kept, thin, tell), 0.0
        while True:
            announce(progress, "comparing the chains")
            found = walk.diagnosed(run)
            enough = chains_agree(found)
            lacks = MORE * ESS / found["smallest_ess"] - 1.0
            nearly = lacks < NEARLY and found["largest_r_hat"] <= found["r_hat_allowed"]
            more, apart = 1.0, 1
            if not nearly and found["smallest_ess"] > HELPED * least:
                more, least = walk.prolonged(), found["smallest_ess"]
                apart = 2 if more < HELPED else 1
            elif not nearly:  # what moves slowly is not a place
                more, apart, least = walk.shortened(), int(np.clip(np.ceil(lacks), 2, THINNER)), np.inf
            length = int(np.ceil(lacks * run.shape[1])) if nearly else kept
            spent = time.perf_counter() - began
            if enough or spent + walk.seconds * length * thin * apart * more > 60 * self.minutes:
                break  # times decide what is refused, never what is drawn
            announce(progress, f"chains are too short: {more * apart * length / kept:.1f} times the steps")
            if nearly:  # moved as before, so that what is there may stay
                run = np.concatenate([run, walk.run(length, thin, tell)], axis=1)
                continue
            thin *= apart
            run = walk.run(kept, thin, tell)
        refused = "" if enough else chains_too_short(walk.sweeps, found, LONGER)
        stats = {"draws": draws, "interrupted": False, "chains": self.chains, **found}
        return Drawn(
            thinned(run, draws),
            independent=False,
            connected=problem.connected,
            refused=refused,
            stats=stats,
            tables=tuple(walk.margins),
        )

    def _refuse(self, walk: LinkedWalk, kept: int, thin: int) -> None:
        """Refuse what is predicted to take too long."""
        refuse_forecast(*walk.forecast(kept, thin), self.minutes, walk.problem.cells.tree)
