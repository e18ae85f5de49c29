"""Reconciliation of trees: bounded projection of children from the top down, or least squares."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.tree import least_squares
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
class RoundedTreeMethod(Method):
    """Base of the methods for nested margins: counts in real numbers, then optional controlled rounding."""

    rounding: Literal["controlled", "none"] = "controlled"

    structures: ClassVar[frozenset[str]] = frozenset({"sum", "tree"})

    @property
    def integer(self) -> bool:
        """Return True if the method returns whole numbers."""
        return self.rounding == "controlled"

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> TreeProblem:
        """Return the tree of the nested margins with its measurements."""
        problem = tree_problem(constraints, headers)
        refuse_unidentified(problem)
        return problem

    @abstractmethod
    def solve(self, state: TreeProblem, nodes: NDArray) -> Solution:
        """Return real counts of all nodes `(..., nodes)`, given the measured values of the nodes."""

    def apply(self, state: TreeProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Reconcile values `(q,)` or `(b, q)` into counts, with ties of rounding broken at random."""
        nodes = state.values(values)
        solved = self.solve(state, nodes)
        stats = {"largest adjustment": largest_adjustment(state, nodes, solved.values), **solved.stats}
        del nodes  # as large as the whole answer
        counts = whole_values(state, solved.values, rng) if self.integer else solved.values
        return Solution(state.finest(counts), solved.status, stats)

    def errors(self, state: TreeProblem) -> dict[Margin, NDArray]:
        """Return the least-squares standard errors (counts) of every nested margin."""
        return tree_standard_errors(state)


@dataclass(frozen=True)
class TreeTopDown(RoundedTreeMethod):
    """Top-down reconciliation of nested margins: bounded projection of children, then controlled rounding.

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
        """Return real counts of all nodes by one upward and one downward pass."""
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


@dataclass(frozen=True)
class TreeEquality(RoundedTreeMethod):
    """Weighted least squares on nested margins: counts add up and keep exact values, but may be negative.

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
        """Return False, because counts may be negative."""
        return False

    def refuses(self, constraints: Constraints) -> str | None:
        """Return why the method cannot keep bounds or nonnegative counts, or None if it can."""
        if constraints.bounds:
            return "it supports no bounds"
        if self.integer and constraints.nonnegative:
            return "its counts may be negative: set nonnegative = false, or choose 'tree-topdown'"
        return None

    def solve(self, state: TreeProblem, nodes: NDArray) -> Solution:
        """Return least-squares counts of all nodes by one upward and one downward pass."""
        refuse_conflicts(state, nodes)
        return Solution(least_squares(state.child_ptr, state.variance, nodes))
