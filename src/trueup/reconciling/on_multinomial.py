"""Common code of the multinomial methods: estimates on a tree, split from the top."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trueup.layouts.tree import refuse_unmeasured, tree_problem
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.prior import COUNT_PRIORS, CountPrior, settle_priors
from trueup.reconciling.estimates import EstimateLayout, Estimator, layout
from trueup.reconciling.method import Method, Solution


class Multinomial(Method):
    """A method that splits each total among its parts."""

    total: Literal["independent", "summed"]
    monte_carlo: int
    prior: CountPrior
    prior_total: CountPrior

    def __post_init__(self) -> None:
        settle_priors(self, COUNT_PRIORS)

    def refuses(self, constraints: Constraints) -> str | None:
        """Return the reason if bounds other than zero are given, or None."""
        if constraints.bounds:
            return "it knows invariants and structural zeros, but no other bounds"
        return None if constraints.nonnegative else "it makes counts nonnegative"

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> EstimateLayout:
        """Lay out the tree and its measurements."""
        problem = tree_problem(constraints, headers)
        refuse_unmeasured(problem)
        return layout(problem, self.total, self.prior, self.prior_total, self.monte_carlo)

    def apply(self, state: EstimateLayout, values: NDArray, rng: np.random.Generator) -> Solution:
        """Split from the top; equal values and an equal `rng` give equal counts."""
        estimator = Estimator(state, rng)
        rows = np.atleast_2d(values).astype(np.int64)
        nodes = np.stack([self._split(estimator, row) for row in rows])
        return Solution(state.problem.finest(nodes).reshape(*values.shape[:-1], -1))

    @abstractmethod
    def _split(self, estimator: Estimator, row: NDArray) -> NDArray[np.int64]:
        """Return counts of all nodes from one row of measured values."""
