"""Common code of the methods for nested margins."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.layouts.tree import (
    TreeProblem,
    largest_adjustment,
    refuse_unidentified,
    tree_problem,
    tree_standard_errors,
    whole_values,
)
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.reconciling.method import Method, Solution


@dataclass(frozen=True)
class RoundedTreeMethod(Method):
    """A method for nested margins that solves for real counts, which controlled rounding may then make whole."""

    rounding: Literal["controlled", "none"] = "controlled"

    structures: ClassVar[frozenset[str]] = frozenset({"sum", "tree"})

    @property
    def integer(self) -> bool:
        """Return True if it returns whole numbers."""
        return self.rounding == "controlled"

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> TreeProblem:
        """Lay out the tree."""
        problem = tree_problem(constraints, headers)
        refuse_unidentified(problem)
        return problem

    @abstractmethod
    def solve(self, state: TreeProblem, nodes: NDArray) -> Solution:
        """Return real counts of all nodes `(..., nodes)`, given their measured values."""

    def apply(self, state: TreeProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Reconcile values `(q,)` or `(b, q)`; the rng settles ties of rounding."""
        nodes = state.values(values)
        solved = self.solve(state, nodes)
        stats = {"largest adjustment": largest_adjustment(state, nodes, solved.values), **solved.stats}
        del nodes  # as large as the whole answer
        counts = whole_values(state, solved.values, rng) if self.integer else solved.values
        return Solution(state.finest(counts), solved.status, stats)

    def errors(self, state: TreeProblem) -> dict[Margin, NDArray]:
        """Return the standard errors of every margin of the chain."""
        return tree_standard_errors(state)
