"""The default for trees: least squares upward, one projection per parent downward, rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.bounds import conflict
from trueup.kernel.rounding import controlled_rounding
from trueup.kernel.topdown import topdown
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.measurements import Measured
from trueup.model.release import Solution
from trueup.reconcile.method import Method
from trueup.reconcile.on_tree import TreeProblem, refuse_unmeasured, standard_errors, tree_problem


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

    @property
    def integer(self) -> bool:
        """Whether it returns whole numbers."""
        return self.rounding == "controlled"

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> TreeProblem:
        """Lay out the tree."""
        problem = tree_problem(constraints, headers)
        refuse_unmeasured(problem)
        return problem

    def apply(self, state: TreeProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Reconcile values `(q,)` or `(b, q)`; the rng settles ties of rounding."""
        nodes = state.values(values)
        x, bad = topdown(state.child_ptr, state.variance, state.lower, state.upper, nodes)
        if bad >= 0:
            raise _conflict(state, nodes, bad)
        moved = float(np.abs(x - nodes)[..., np.isfinite(state.variance)].max(initial=0.0))
        if self.rounding == "none":
            return Solution(state.finest(x), stats={"largest adjustment": moved})
        with np.errstate(divide="ignore"):
            weight = np.where(state.variance > 0, 1 / state.variance, 0.0)
        seeds = rng.integers(2**63, size=values.shape[:-1], dtype=np.uint64)
        whole = controlled_rounding(state.child_ptr, weight, x, seeds)
        return Solution(state.finest(whole), stats={"largest adjustment": moved})

    def errors(self, state: TreeProblem) -> dict[Margin, NDArray]:
        """Standard errors of every margin of the chain."""
        return standard_errors(state)


def _conflict(state: TreeProblem, nodes: NDArray, bad: int):
    row = np.atleast_2d(nodes)[0]
    exact = state.variance == 0
    lower, upper = np.where(exact, row, state.lower), np.where(exact, row, state.upper)
    return state.conflict(conflict(state.child_ptr, lower, upper, bad))
