"""The default for histograms on a hierarchy: least squares over the whole tree, then settled from the top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.histogram.anova import Marginal
from trueup.layouts.histogram import (
    UNSETTLED,
    HistogramProblem,
    histogram_problem,
    refuses_on_histogram,
    standard_errors,
)
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.reconciling.method import Method, Solution


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


CHUNK_CELLS = 500_000  # rows of values are solved together up to this many cells


def solution(
    problem: HistogramProblem,
    values: NDArray,
    chains: Sequence[Sequence[Marginal]],
    rng: np.random.Generator,
    *,
    integer: bool,
) -> Solution:
    """Least squares, then settling, for values `(q,)` or `(b, q)`; many rows of a small problem at once."""
    rows = np.atleast_2d(values)
    seeds = rng.integers(2**63, size=len(rows), dtype=np.uint64)
    size = max(1, CHUNK_CELLS // problem.cells.n)
    parts = [rows[i : i + size] for i in range(0, len(rows), size)]
    tiled = {len(part): problem.tiled(len(part)) for part in parts}
    starts = range(0, len(rows), size)
    done = [
        _solve(tiled[len(part)], part, chains, seeds[i : i + size], integer)
        for i, part in zip(starts, parts, strict=True)
    ]
    counts = problem.fold.unfold(np.concatenate([counts for counts, _, _ in done])).reshape(
        *values.shape[:-1], problem.cells.n
    )
    status = next((s for _, s, _ in done if s != "solved"), "solved")
    return Solution(counts, status, {key: max(s[key] for _, _, s in done) for key in done[0][2]})


def _solve(
    problem: HistogramProblem, values: NDArray, chains, seeds: NDArray, integer: bool
) -> tuple[NDArray, str, dict]:
    fit, left = problem.least_squares(values)
    settled = problem.settle(fit, chains, seeds, integer=integer)
    stats = {
        "largest optimality residual (counts)": settled.residual,
        "units without a place": settled.misplaced,
        "parents settled without their margins": settled.relaxed,
        "most iterations": settled.iterations,
        "left on structural zeros by least squares (counts)": left,
    }
    status = "solved"
    if settled.misplaced or settled.residual > UNSETTLED:
        if error := problem.conflict(values):
            raise error
        status = "invariants, bounds or structural zeros leave no room under some place"
    counts = settled.values[-1].reshape(len(values), problem.cells.shape[0], -1)
    return (counts.astype(np.int64) if integer else counts), status, stats
