"""The global least-squares optimum on a tree under nonnegativity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.status import Status
from trueup.kernel.tree.nonnegative import nonnegative, optimality_gap
from trueup.layouts.tree import TreeProblem, refuse_conflicts
from trueup.model.constraints import Constraints
from trueup.reconciling.method import Solution
from trueup.reconciling.tree_method import RoundedTreeMethod

OPTIMAL = 1e-6
"""Standard deviations by which prices that should agree may differ."""


@dataclass(frozen=True)
class TreeNonnegative(RoundedTreeMethod):
    """Solve min sum (x - y)^2 / variance over additive counts x >= 0, exactly.

    Optimal in the least-squares sense and biased for it: lifting the leaves that would be negative to zero
    pushes totals up. Where totals matter, `tree-topdown` is the better choice.

    Attributes
    ----------
    rounding
        `controlled` for whole numbers, `none` for the continuous optimum.
    """

    name: ClassVar[str] = "tree-nonnegative"
    title: ClassVar[str] = (
        "global nonnegative least-squares optimum, controlled rounding; biases totals upward"
    )

    def refuses(self, constraints: Constraints) -> str | None:
        """Its one bound is zero."""
        if constraints.bounds:
            return "it knows nonnegativity, invariants and structural zeros, but no other bounds"
        return None if constraints.nonnegative else "it makes counts nonnegative"

    def solve(self, state: TreeProblem, nodes: NDArray) -> Solution:
        """Find the optimum, and see that it is one."""
        refuse_conflicts(state, nodes)
        x, passes = nonnegative(state.child_ptr, state.variance, nodes)
        gap = _largest_gap(state, nodes, x)
        status = Status.SOLVED if gap <= _tolerance(state, nodes) else Status.UNSOLVED
        return Solution(x, status, {"passes": int(passes.max(initial=0)), "optimality gap": gap})


def _tolerance(state: TreeProblem, nodes: NDArray) -> float:
    """What rounding may leave of the conditions of optimality: prices are differences of counts over a variance."""
    noisy = state.variance[(state.variance > 0) & np.isfinite(state.variance)]
    narrowest = float(np.sqrt(noisy.min(initial=np.inf)))
    return OPTIMAL + 100 * np.finfo(float).eps * float(np.abs(nodes).max(initial=0.0)) / narrowest


def _largest_gap(state: TreeProblem, nodes: NDArray, x: NDArray) -> float:
    rows = zip(np.atleast_2d(nodes), np.atleast_2d(x))
    return max((optimality_gap(state.child_ptr, state.variance, y, row) for y, row in rows), default=0.0)
