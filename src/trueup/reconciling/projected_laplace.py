"""The projected discrete Laplace mechanism: the L1-nearest whole counts that obey the constraints."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.linear.programs import Answer
from trueup.kernel.linear.whole_fit import in_any_order, whole_nearest
from trueup.layouts.linear import LinearProblem, log_slope
from trueup.model.constraints import STRUCTURES
from trueup.reconciling.linear_method import LinearMethod


@dataclass(frozen=True)
class ProjectedDiscreteLaplace(LinearMethod):
    """Move noisy counts to the nearest whole counts in L1 that obey the constraints.

    The comparison mechanism of Dharangutte, Gao, Gong & Yu: two-sided geometric noise, then an L1 projection in whole
    numbers. The L1-nearest point is seldom unique; among all of them one of least squares is taken, which spreads
    a gap as evenly as it can be spread. Which of these is left to an order of the cells drawn from the rng: by the
    order given, the first of 102 counties would be half a person too low and the last half a person too high.
    Deviations are weighted by the slope of the law's log mass, 1 / scale under two-sided geometric noise, so that the
    point is the mode of the law given the noisy counts; see `log_slope`.

    Attributes
    ----------
    seconds
        Time limit of branch and bound. Least squares among equally near points have ten of these seconds at most; where
        they are not found in time one of the nearest points is returned, and the certificate says so.
    """

    seconds: float = 60.0

    name: ClassVar[str] = "projected-discrete-laplace"
    title: ClassVar[str] = "L1 projection in whole numbers (projected discrete Laplace mechanism)"
    structures: ClassVar[frozenset[str]] = frozenset(STRUCTURES)
    effort: ClassVar[int] = 2000

    def project(self, state: LinearProblem, values: NDArray, rng: np.random.Generator) -> Answer:
        """L1-nearest whole point for one row of values."""
        solve = partial(whole_nearest, seconds=self.seconds)
        answer = in_any_order(solve, state.polyhedron(values), state.fit(values, log_slope), rng)
        return state.refused(answer, values, integer=True)
