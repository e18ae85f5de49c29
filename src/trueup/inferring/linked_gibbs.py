"""Markov chains for persons and their households jointly, under the hierarchical prior at every level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.chain_driver import (
    out_of_time,
    until_long_enough,
)
from trueup.inferring.chains import (
    MIN_DIAGNOSED_DRAWS,
    ChainLimit,
    OutOfTimeError,
    refuses_settings,
)
from trueup.inferring.linked_walk import LinkedWalk
from trueup.inferring.method import InferenceMethod, Progress, announce
from trueup.layouts.linked import LinkedProblem, refuses_linked
from trueup.layouts.prior_inputs import numbers_of_places
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, split
from trueup.model.prior import HIERARCHICAL, Hierarchical, SplitPrior
from trueup.model.records.drawn import Drawn
from trueup.run import Deadline

FIRST_THINNING_SWEEPS = 2
"""Sweeps between draws where places are neither drawn whole nor exchange households."""
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
        walk.limit, walk.progress = ChainLimit(deadline), progress
        walk.kept = -(-max(draws, MIN_DIAGNOSED_DRAWS) // self.chains)
        walk.thin = 1 if problem.whole or problem.exchanged else FIRST_THINNING_SWEEPS
        try:
            judged = until_long_enough(walk, walk.first, draws, progress)
        except OutOfTimeError:
            raise out_of_time(self.name, walk.sweeps, deadline, LONGER) from None
        drawn = judged.drawn(draws, walk.sweeps, LONGER, weak=judged.rough, connected=problem.connected)
        return replace(drawn, tables=tuple(walk.margins))
