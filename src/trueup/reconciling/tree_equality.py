"""Weighted least squares on a tree under additivity alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.tree.least_squares import least_squares
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
class TreeEquality(Method):
    """Solve min sum (x - y)^2 / variance over counts that add up and keep exact values.

    The linear unbiased estimate of least variance of every count, and of every sum of counts. It knows
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
    structures: ClassVar[frozenset[str]] = frozenset({"sum", "tree"})

    @property
    def integer(self) -> bool:
        """Whether it returns whole numbers."""
        return self.rounding == "controlled"

    @property
    def nonnegative(self) -> bool:
        """It does not keep counts from falling below zero."""
        return False

    def refuses(self, constraints: Constraints) -> str | None:
        """Bounds are beyond it; it ignores nonnegativity only where the result is not a release."""
        if constraints.bounds:
            return "it knows no bounds"
        if self.integer and constraints.nonnegative:
            return "its counts may be negative: set nonnegative = false, or choose 'tree-topdown'"
        return None

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> TreeProblem:
        """Lay out the tree."""
        problem = tree_problem(constraints, headers)
        refuse_unidentified(problem)
        return problem

    def apply(self, state: TreeProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Reconcile values `(q,)` or `(b, q)`; the rng settles ties of rounding."""
        nodes = state.values(values)
        refuse_conflicts(state, nodes)
        x = least_squares(state.child_ptr, state.variance, nodes)
        stats = {"largest adjustment": largest_adjustment(state, nodes, x)}
        return Solution(state.finest(whole_values(state, x, rng) if self.integer else x), stats=stats)

    def errors(self, state: TreeProblem) -> dict[Margin, NDArray]:
        """Standard errors of every margin of the chain."""
        return tree_standard_errors(state)
