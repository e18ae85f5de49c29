"""Weighted least squares on a tree under additivity alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from numpy.typing import NDArray

from trueup.kernel.tree import least_squares
from trueup.layouts.tree import TreeProblem, refuse_conflicts
from trueup.model.constraints import Constraints
from trueup.reconciling.method import Solution
from trueup.reconciling.tree_topdown import RoundedTreeMethod


@dataclass(frozen=True)
class TreeEquality(RoundedTreeMethod):
    """Solve min sum (x - y)^2 / variance over counts that add up and keep exact values.

    The linear unbiased estimate of least variance of every count, and of every sum of counts. It uses
    no bounds: small counts come out negative.

    Attributes
    ----------
    rounding
        `none` for the continuous solution, `controlled` for whole numbers (refused where counts must not
        be negative).

    References
    ----------
    Hay, Rastogi, Miklau and Suciu (2010), section 4.1.
    """

    rounding: Literal["none", "controlled"] = "none"

    name: ClassVar[str] = "tree-equality"
    title: ClassVar[str] = "weighted least squares, additive only: unbiased, counts may be negative"

    @property
    def nonnegative(self) -> bool:
        """Return False: counts may fall below zero."""
        return False

    def refuses(self, constraints: Constraints) -> str | None:
        """Return the reason if bounds or nonnegativity are asked for, or None."""
        if constraints.bounds:
            return "it knows no bounds"
        if self.integer and constraints.nonnegative:
            return "its counts may be negative: set nonnegative = false, or choose 'tree-topdown'"
        return None

    def solve(self, state: TreeProblem, nodes: NDArray) -> Solution:
        """Solve by one sweep up and one down."""
        refuse_conflicts(state, nodes)
        return Solution(least_squares(state.child_ptr, state.variance, nodes))
