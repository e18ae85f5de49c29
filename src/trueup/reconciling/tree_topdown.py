"""The default for trees: least squares upward, one projection per parent downward, rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.tree.topdown import topdown
from trueup.layouts.tree import (
    TreeProblem,
    largest_adjustment,
    refuse_conflicts,
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
class TreeTopDown(Method):
    """Reconcile nested margins from the top, and round under control.

    One upward pass gives every node its weighted least-squares estimate from its own subtree; going
    down, the children of each parent are projected, in the metric of their variances, on the sum
    and the bounds they must keep; controlled rounding then moves no node by one or more.

    Attributes
    ----------
    rounding
        `controlled` for whole numbers, `none` for the continuous solution.
    """

    rounding: Literal["controlled", "none"] = "controlled"

    name: ClassVar[str] = "tree-topdown"
    title: ClassVar[str] = "least squares up, one bounded projection per parent down, controlled rounding"
    structures: ClassVar[frozenset[str]] = frozenset({"sum", "tree"})
    raw: ClassVar[bool] = False

    @property
    def integer(self) -> bool:
        """Whether it returns whole numbers."""
        return self.rounding == "controlled"

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> TreeProblem:
        """Lay out the tree."""
        problem = tree_problem(constraints, headers)
        refuse_unidentified(problem)
        return problem

    def apply(self, state: TreeProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Reconcile values `(q,)` or `(b, q)`; the rng settles ties of rounding."""
        nodes = state.values(values)
        x, bad = topdown(state.child_ptr, state.variance, state.lower, state.upper, nodes, raw=self.raw)
        if bad >= 0:
            refuse_conflicts(state, nodes)
        stats = {"largest adjustment": largest_adjustment(state, nodes, x)}
        return Solution(state.finest(whole_values(state, x, rng) if self.integer else x), stats=stats)

    def errors(self, state: TreeProblem) -> dict[Margin, NDArray]:
        """Standard errors of every margin of the chain."""
        return tree_standard_errors(state)
