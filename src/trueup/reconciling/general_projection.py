"""Projection under any linear constraints, in continuous counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.linear.absolute_deviations import least_absolute
from trueup.kernel.linear.programs import Answer, constrained_least_squares
from trueup.layouts.linear import LinearProblem
from trueup.model.constraints import STRUCTURES
from trueup.reconciling.linear_method import LinearMethod


@dataclass(frozen=True)
class GeneralProjection(LinearMethod):
    """Nearest counts under equalities, inequalities, invariants, bounds and zeros, by a general solver.

    For constraints that no faster method handles: it uses no structure. Least squares by PIQP or Clarabel (extra
    `solvers`), least absolute deviations by HiGHS with the least squares among the optima.

    Attributes
    ----------
    norm
        `l2` weights squares by 1 / variance, `l1` weights absolute deviations by it.
    """

    norm: Literal["l2", "l1"] = "l2"

    name: ClassVar[str] = "general-projection"
    title: ClassVar[str] = (
        "projection under any linear constraints (quadratic or linear programming), continuous"
    )
    structures: ClassVar[frozenset[str]] = frozenset(STRUCTURES)

    @property
    def integer(self) -> bool:
        """Whether it returns whole numbers: no."""
        return False

    def project(self, state: LinearProblem, values: NDArray, rng: np.random.Generator) -> Answer:
        """Project one row of values; nothing is drawn."""
        solve = constrained_least_squares if self.norm == "l2" else least_absolute
        return state.refused(solve(state.polyhedron(values), state.fit(values)), values)
