"""Whole counts under any linear constraints, by integer programming."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.linear.fit import Fit
from trueup.kernel.linear.polyhedron import Polyhedron
from trueup.kernel.linear.programs import Answer, constrained_least_squares
from trueup.kernel.linear.secants import FitLoss
from trueup.kernel.linear.whole_fit import in_any_order, whole_fit
from trueup.kernel.status import Status
from trueup.layouts.linear import LinearProblem
from trueup.model.constraints import STRUCTURES
from trueup.reconciling.linear_method import LinearMethod


@dataclass(frozen=True)
class GeneralInteger(LinearMethod):
    """Whole counts under any linear constraints: the projection, then the nearest whole point by integer programming.

    Attributes
    ----------
    objective
        What the whole point is near to: `rounding` the continuous projection (cells and measured sums alike),
        `l2` or `l1` the measurements themselves. The latter two can sit far from the continuous projection.
    seconds
        Time limit of branch and bound; if it is met, the status says so and the gap is reported. The gap is measured
        from a lower bound that is proved for the whole problem, not for counts near the projection only.
    """

    objective: Literal["rounding", "l2", "l1"] = "rounding"
    seconds: float = 60.0

    name: ClassVar[str] = "general-integer"
    title: ClassVar[str] = "whole counts under any linear constraints: projection, then integer programming"
    structures: ClassVar[frozenset[str]] = frozenset(STRUCTURES)

    def project(self, state: LinearProblem, values: NDArray, rng: np.random.Generator) -> Answer:
        """Nearest whole point for one row of values."""
        answer = in_any_order(self._nearest, state.polyhedron(values), state.fit(values), rng)
        return state.refused(answer, values, integer=True)

    def _nearest(self, polyhedron: Polyhedron, fit: Fit) -> Answer:
        continuous = constrained_least_squares(polyhedron, fit)
        if not np.isfinite(continuous.x).all():
            return continuous
        answer = whole_fit(polyhedron, *self._goal(fit, continuous.x), continuous.x, seconds=self.seconds)
        proved = (
            continuous.status is Status.SOLVED and continuous.gap == 0.0
        ) or self.objective != "rounding"  # near what is the optimum, else near something
        return answer if proved else replace(answer, gap=None)

    def _goal(self, fit: Fit, x: NDArray) -> tuple[Fit, FitLoss]:
        """What to be near to, as a fit with whole values, and the loss of deviations from it."""
        if self.objective == "l1":
            return fit, FitLoss.absolutes(fit.weights)
        if self.objective == "l2":
            return fit, FitLoss.squares(fit.weights)
        wanted = fit.matrix @ x
        floor = np.floor(wanted + 1e-7)
        return Fit(fit.matrix, floor, fit.weights), FitLoss.squares(fit.weights, wanted - floor)
