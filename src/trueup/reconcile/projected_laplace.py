"""The projected discrete Laplace mechanism: the L1-nearest whole counts that obey the constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from numpy.typing import NDArray

from trueup.kernel.programs import Answer, whole_nearest
from trueup.model.constraints import STRUCTURES
from trueup.reconcile.on_linear import LinearMethod, LinearProblem


@dataclass(frozen=True)
class ProjectedDiscreteLaplace(LinearMethod):
    """Move noisy counts to the nearest whole counts in L1 that obey the constraints.

    The comparison mechanism of Dharangutte, Gao, Gong & Yu: two-sided geometric noise, then an L1 projection in whole
    numbers. The L1-nearest point is seldom unique; among all of them the one of least squares is taken, which spreads
    a gap as evenly as it can be spread, and what then remains is left to the solver's deterministic order.
    Deviations are weighted by 1 / variance.

    Attributes
    ----------
    seconds
        Time limit of branch and bound.
    """

    seconds: float = 60.0

    name: ClassVar[str] = "projected-discrete-laplace"
    title: ClassVar[str] = "L1 projection in whole numbers (projected discrete Laplace mechanism)"
    structures: ClassVar[frozenset[str]] = frozenset(STRUCTURES)

    def project(self, state: LinearProblem, values: NDArray) -> Answer:
        """L1-nearest whole point for one row of values."""
        answer = whole_nearest(state.polyhedron(values), state.fit(values), seconds=self.seconds)
        return state.refused(answer, values, integer=True)
