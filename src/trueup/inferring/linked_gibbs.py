"""Markov chains for persons and their households jointly, under the hierarchical prior at every level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.chain_driver import (
    Longer,
    OfWalk,
    ask_for_less,
    out_of_time,
    refuse_forecast,
    until_long_enough,
)
from trueup.inferring.chains import (
    AIMED_EFFECTIVE_SIZE,
    MIN_DIAGNOSED_DRAWS,
    ChainLimit,
    OutOfTimeError,
    refuses_settings,
)
from trueup.inferring.linked_walk import BURN_IN_SWEEPS, LinkedWalk
from trueup.inferring.method import InferenceMethod, Progress, announce
from trueup.layouts.linked import LinkedProblem, refuses_linked
from trueup.layouts.prior_inputs import numbers_of_places
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, split
from trueup.model.prior import HIERARCHICAL, Hierarchical, SplitPrior
from trueup.model.records.drawn import Drawn
from trueup.run import Deadline, cores

FIRST_THINNING_SWEEPS = 2
"""Sweeps between draws where places are neither drawn whole nor exchange households."""
NEARLY, MORE = 2.0, 1.15
"""Times that a run is made longer at most, rather than begun anew with more steps; by how much more than seems to be needed."""
HELPED, THINNER = 1.5, 8
"""Factor by which more steps must raise the smallest effective size, else draws lie further apart; so many times at most."""
LONGER = "allow more minutes, or infer one place (`--within`)"
"""Remedy for chains that are too short."""


@dataclass(frozen=True)
class LinkedGibbs(InferenceMethod):
    """The posterior of persons and households, or of two counts whose ratio has public limits.

    The prior: a flat total of households; the number of each place is split among its parts by a Dirichlet-multinomial law
    with a concentration for each level, in equal shares or those of public numbers;
    kinds of households at a lowest place are Dirichlet-multinomial around the composition of
    the place above, and so are kinds of persons given their number, which households determine, or which is beta-binomial
    between the fewest and the most persons that households can hold. Concentrations and compositions are drawn with the counts.

    Draws come from chains that agree: every count of every level, and persons per household, have an effective size of 400 or,
    if time is spent, the size that their intervals need (`chain_driver`). Chains that time ends earlier are kept as tier
    `approximate` if their R-hat is at most 2; else they are refused.

    Attributes
    ----------
    prior
        `hierarchical`; with `concentrations` of totals and of compositions, two numbers, these are given.
    chains
        Number of chains.

    References
    ----------
    Janicki et al., "Bayesian methods to improve the accuracy of differentially private measurements of constrained
    parameters", section 3, for the rules; its prior is flat.
    """

    prior: SplitPrior = HIERARCHICAL
    chains: int = 4

    name: ClassVar[str] = "linked-gibbs"
    title: ClassVar[str] = "persons and households jointly: Markov chains under the hierarchical prior"
    structures: ClassVar[frozenset[str]] = frozenset({"joined", "general"})
    priors: ClassVar[tuple[type, ...]] = (Hierarchical,)

    def refuses(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """Return the reason why this method does not fit the constraints and laws, or None."""
        wrong = refuses_settings(self.prior, "compositions", self.chains)
        return wrong or refuses_linked(constraints, headers)

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> Any:
        """Return constraints and headers unchanged, because the chains prepare them with the values."""
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
        """Return draws of Markov chains that are run until they agree.

        Raises
        ------
        SpecError
            If even the shortest run is predicted to take longer than is left of the deadline, or more memory than there is.
        ConvergenceError
            If time is spent before anything can be said.
        """
        constraints, headers = state
        deadline = deadline or Deadline.of()
        public = numbers_of_places(self.prior, constraints.cells.tree)
        parts = tuple(split(values, headers, constraints.cells))
        problem = LinkedProblem(constraints, headers, parts, public)
        announce(progress, "finding starting tables")
        walk = LinkedWalk.of(problem, rng.spawn(self.chains), self.prior.concentrations)
        walk.limit = ChainLimit(deadline)
        kept = -(-max(draws, MIN_DIAGNOSED_DRAWS) // self.chains)
        chains = _Chains(
            walk, kept, 1 if problem.whole or problem.exchanged else FIRST_THINNING_SWEEPS, progress
        )
        try:
            judged = until_long_enough(chains, chains.first, draws, progress)
        except OutOfTimeError:
            raise out_of_time(self.name, walk.sweeps, deadline, LONGER) from None
        drawn = judged.drawn(draws, walk.sweeps, LONGER, weak=judged.rough, connected=problem.connected)
        return replace(drawn, tables=tuple(walk.margins))


@dataclass(eq=False)
class _Chains(OfWalk):
    """The Markov chains of linked tables, in the form in which runs are made and lengthened.

    A run that is nearly long enough goes on; else places that move slowly get more steps, and where that does not help draws lie
    further apart.
    """

    walk: LinkedWalk
    kept: int
    thin: int
    progress: Progress
    least: float = 0.0

    @property
    def chains(self) -> int:
        """Return the number of parallel chains."""
        return len(self.walk.states)

    def first(self, tell: Progress) -> NDArray:
        """Measure the time of a sweep, run the burn-in, and return the first draws."""
        announce(self.progress, "measuring the time of a sweep")
        self.walk.begin()
        self._refuse()
        announce(self.progress, f"burn-in: {BURN_IN_SWEEPS} sweeps")
        self.walk.warm_up()
        self._refuse()  # places that move slowly get more steps
        return self.walk.run(self.kept, self.thin, tell)

    def _refuse(self) -> None:
        """Announce the predicted cost of the chains, and refuse a run that takes too long."""
        text, seconds, memory = self.walk.forecast(self.kept, self.thin)
        refuse_forecast(
            text, seconds, memory, self.limit.deadline, ask_for_less(self.walk.problem.cells.tree)
        )
        announce(self.progress, f"{text}; {self.limit.deadline.in_all(seconds)}")

    def diagnosed(self, run: NDArray) -> dict[str, Any]:
        """Return the convergence diagnostics of all counts, and of persons per household."""
        return self.walk.diagnosed(run)

    def longer(self, run: NDArray, found: Mapping[str, Any]) -> Longer:
        """Return a longer run, with more draws, more steps at slow places, or more sweeps between draws."""
        walk, lacks = self.walk, MORE * AIMED_EFFECTIVE_SIZE / found["smallest_ess"] - 1.0
        nearly = lacks < NEARLY and found["largest_r_hat"] <= found["r_hat_allowed"]
        more, apart = 1.0, 1
        if not nearly and found["smallest_ess"] > HELPED * self.least:
            more, self.least = walk.prolonged(), found["smallest_ess"]
            apart = 2 if more < HELPED else 1
        elif not nearly:  # what moves slowly is not a place
            more, apart, self.least = walk.shortened(), int(np.clip(np.ceil(lacks), 2, THINNER)), np.inf
        length = int(np.ceil(lacks * run.shape[1])) if nearly else self.kept

        def run_on(tell: Progress) -> NDArray:
            self.thin *= apart
            fresh = walk.run(length, self.thin, tell)
            # Moved as before, what is there may stay.
            return np.concatenate([run, fresh], axis=1) if nearly else fresh

        seconds = walk.seconds * min(self.chains, cores()) * length * self.thin * apart * more
        return Longer(seconds, f"{more * apart * length / self.kept:.1f} times the steps", run_on)
