"""The default for histograms on a hierarchy: least squares over the whole tree, then settled from the top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.measurements import Measured
from trueup.model.release import Solution
from trueup.reconcile.method import Method
from trueup.reconcile.on_histogram import (
    HistogramProblem,
    histogram_problem,
    refuses_on_histogram,
    solution,
    standard_errors,
)


@dataclass(frozen=True)
class HistogramTree(Method):
    """Reconcile histograms on a hierarchy that several marginals measure.

    Weighted least squares over all places and marginals at once, split into independent ANOVA components; then, from
    the top, each parent's children are settled: their totals first, then nested marginals, then cells, each the
    nearest nonnegative tables in the metric of the estimates' covariance, rounded with every sum kept.

    Attributes
    ----------
    rounding
        `controlled` for whole numbers, `none` for the continuous solution.
    """

    rounding: Literal["controlled", "none"] = "controlled"

    name: ClassVar[str] = "histogram-tree"
    title: ClassVar[str] = "histograms on a hierarchy: least squares in the ANOVA basis, settled from the top"
    structures: ClassVar[frozenset[str]] = frozenset({"histogram"})
    upward: ClassVar[bool] = True

    @property
    def integer(self) -> bool:
        """Whether it returns whole numbers."""
        return self.rounding == "controlled"

    def refuses(self, constraints: Constraints) -> str | None:
        """Refuse bounds, and invariants that cross each other."""
        return refuses_on_histogram(constraints)

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> HistogramProblem:
        """Run the covariance recursion."""
        return histogram_problem(constraints, headers, upward=self.upward, folded=True)

    def apply(self, state: HistogramProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Reconcile values `(q,)` or `(b, q)`; the rng settles ties of rounding."""
        chains = [state.chain(level, [m for m, _ in plan]) for level, plan in enumerate(state.tree.plan)]
        return solution(state, values, chains, rng, integer=self.integer)

    def errors(self, state: HistogramProblem) -> dict[Margin, NDArray]:
        """Standard errors of the least-squares estimates of every measured margin."""
        return standard_errors(state)
