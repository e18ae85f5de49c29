"""The default for trees: least squares upward, one projection per parent downward, rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from numpy.typing import NDArray

from trueup.kernel.tree.topdown import topdown
from trueup.layouts.tree import TreeProblem, refuse_conflicts
from trueup.reconciling.method import Solution
from trueup.reconciling.tree_method import RoundedTreeMethod


@dataclass(frozen=True)
class TreeTopDown(RoundedTreeMethod):
    """Reconcile nested margins from the top, and round under control.

    One upward pass gives every node its weighted least-squares estimate from its own subtree; going
    down, the children of each parent are projected, in the metric of their variances, on the sum
    and the bounds they must keep; controlled rounding then moves no node by one or more.

    Attributes
    ----------
    rounding
        `controlled` for whole numbers, `none` for the continuous solution.
    small_counts
        `kept` as projected, or `shrunk`: where siblings are raised to their bounds, and their estimates have standard
        deviations of 6 counts or more, those within some deviations of the bounds are lowered by up to a tenth, and the
        others gain as much.
    """

    small_counts: Literal["kept", "shrunk"] = "shrunk"

    name: ClassVar[str] = "tree-topdown"
    title: ClassVar[str] = "least squares up, one bounded projection per parent down, controlled rounding"

    def solve(self, state: TreeProblem, nodes: NDArray) -> Solution:
        """Estimate from the leaves up, and project from the top."""
        bounds = state.bounds()
        x, bad = topdown(
            state.child_ptr,
            state.variance,
            *bounds,
            nodes,
            weights=state.messages,
            overwrite_bounds=True,
            shrink=self.small_counts == "shrunk",
        )
        if bad >= 0:
            refuse_conflicts(state, nodes)
        return Solution(x)
