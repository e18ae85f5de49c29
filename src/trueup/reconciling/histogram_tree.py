"""Reconciliation of histograms on a hierarchy: least squares on the whole tree, then final tables from the top down.

Also here: the common parts of methods that fix tables from the top down: parameters, chunks of rows, and figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel import Status, largest
from trueup.kernel.histogram import Marginal
from trueup.kernel.histogram.spine import Lower
from trueup.kernel.settling.descend import SettledTables, Settling
from trueup.kernel.settling.nearest import tolerance_for
from trueup.layouts import refuses_on_histogram
from trueup.layouts.histogram import (
    MAX_PROJECTION_ERROR_COUNTS,
    HistogramProblem,
    histogram_problem,
    histogram_standard_errors,
)
from trueup.layouts.linear import LinearProblem
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.reconciling.general_projection import at_once, invariants_kept
from trueup.reconciling.method import Method, Solution

if TYPE_CHECKING:
    from trueup.reconciling.segments import SegmentPlan

CHUNK_CELLS = 500_000
"""Cells up to which rows of values are solved together."""


@dataclass(frozen=True)
class FromTheTop(Method):
    """Base of the methods that fix the final tables of each level from the top down."""

    rounding: Literal["controlled", "none"] = "controlled"
    estimates: Literal["posterior-means", "least-squares"] = "posterior-means"

    @property
    def integer(self) -> bool:
        """Return True if the method returns whole numbers."""
        return self.rounding == "controlled"

    @property
    def posterior(self) -> bool:
        """Return True if final tables are fitted to posterior means instead of least-squares estimates."""
        return self.estimates == "posterior-means"

    def refuses_parts(self) -> str | None:
        """Return why the method needs all places together, or None if it does not."""
        return None if self.integer else super().refuses_parts()

    def settling(self, first: Sequence[Marginal] = (), drawn: np.random.Generator | None = None) -> Settling:
        """Return the options with which final tables are computed."""
        return Settling(integer=self.integer, posterior=self.posterior, first=first, drawn=drawn)


def in_chunks(
    values: NDArray,
    cells: int,
    rng: np.random.Generator,
    solve: Callable[[NDArray, NDArray], Solution],
    *,
    together: bool = False,
) -> Solution:
    """Solve for rows of measured values `(q,)` or `(b, q)` in chunks that fit in memory.

    Parameters
    ----------
    cells
        Cells of one row's solution.
    solve
        Takes rows `(k, q)` and seeds `(k,)`; returns cells `(k, cells)`.
    together
        True if all rows are solved at once.
    """
    rows = np.atleast_2d(values)
    seeds = rng.integers(2**63, size=len(rows), dtype=np.uint64)
    size = len(rows) if together else max(1, CHUNK_CELLS // cells)
    parts = [slice(i, i + size) for i in range(0, len(rows), size)]
    done = [solve(rows[part], seeds[part]) for part in parts]
    counts = np.concatenate([each.values for each in done]).reshape(*values.shape[:-1], cells)
    stats = {key: largest(each.stats[key] for each in done) for key in done[0].stats}
    return Solution(counts, Status.worst(each.status for each in done), stats)


def settling_stats(*tables: SettledTables) -> dict[str, float]:
    """Return figures on how final tables were found: residuals, relaxed margins and iterations."""
    return {
        "largest optimality residual (counts)": largest(t.residual for t in tables),
        "units without a place": sum(t.misplaced for t in tables),
        "parents settled without their margins": sum(t.relaxed for t in tables),
        "most iterations": max((t.iterations for t in tables), default=0),
    }


def all_settled(stats: Mapping[str, float], values: NDArray) -> bool:
    """Return True if the tables with these `settling_stats` keep all sums, for counts as large as given values."""
    residual = stats["largest optimality residual (counts)"]
    return not stats["units without a place"] and residual <= tolerance_for(
        values, MAX_PROJECTION_ERROR_COUNTS
    )


@dataclass(frozen=True)
class HistogramTree(FromTheTop):
    """Reconciliation of histograms on a hierarchy that are measured by several marginals.

    Weighted least squares over all places and marginals at once, split into independent ANOVA components. The root's total
    and every marginal that is measured somewhere are settled before its cells are held at zero. Then, from the top, each
    parent's children are settled: their totals first, then nested marginals, then cells, rounded with every sum kept.

    With `posterior-means` they are settled at their posterior means given their estimates and the parent's settled table,
    under a Dirichlet-multinomial split of the total and of each child's cells around the parent's composition.
    Concentrations are estimated from the noisy values, parent by parent. Sums are kept in the metric of the posterior
    variances. Small counts are biased downwards, zeros upwards; the errors of nearly all classes are smaller than those of
    `least-squares`. With `least-squares` they are the nearest nonnegative tables in the metric of the estimates'
    covariance. So are always the root, which has no parent, and the children of a parent whose rules leave the means no
    table, whose children would exceed an upper bound, or that has more than 320 cells that are not zero. Children far
    above their siblings keep their estimates.

    Attributes
    ----------
    rounding
        `controlled` for whole numbers, `none` for the continuous solution.
    estimates
        `posterior-means` or `least-squares`: the estimates at which the tables of a parent's children are fixed.
    """

    name: ClassVar[str] = "histogram-tree"
    title: ClassVar[str] = (
        "histograms on a hierarchy: least squares in the ANOVA basis, then final tables from the top down"
    )
    structures: ClassVar[frozenset[str]] = frozenset({"histogram", "margins"})

    def refuses(self, constraints: Constraints) -> str | None:
        """Return why bounds and invariants that cross each other cannot be kept, or None if they can."""
        return refuses_on_histogram(constraints, upper=True)

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> HistogramProblem:
        """Return the problem prepared for least squares, with covariances of all estimates."""
        return histogram_problem(constraints, headers, folded=True)

    def apply(self, state: HistogramProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Reconcile values `(q,)` or `(b, q)` into counts, with ties of rounding broken at random."""
        return solution(state, values, state.chains, rng, self.settling(state.first))

    def divide(self, constraints: Constraints, headers: Sequence[Measured]) -> SegmentPlan:
        """Return the plan that is shared by all segments into which the tree of places is divided."""
        from trueup.reconciling.segments import segment_plan

        return segment_plan(constraints, headers, posterior=self.posterior)

    def errors(self, state: HistogramProblem) -> dict[Margin, NDArray]:
        """Return the standard errors (counts) of the least-squares estimates of every measured margin."""
        return histogram_standard_errors(state)


class Within(NamedTuple):
    """Marginals with known tables, and lower bounds, within which the final tables are fitted.

    Attributes
    ----------
    fixed
        A (folded) marginal whose tables are known, and these per level.
    lower
        Lower bounds per level.
    """

    fixed: tuple[Marginal, Sequence[NDArray]] | None
    lower: tuple[Lower, ...]


def solution(
    problem: HistogramProblem,
    values: NDArray,
    chains: Sequence[Sequence[Marginal]],
    rng: np.random.Generator,
    how: Settling,
    within: Within | None = None,
) -> Solution:
    """Solve for measured values `(q,)` or `(b, q)`: least squares, then final tables from the top down."""
    tiled = cache(problem.tiled)

    def solve(rows: NDArray, seeds: NDArray) -> Solution:
        return Solution(*_solve(tiled(len(rows)), rows, chains, seeds, how, within))

    return in_chunks(values, problem.cells.n, rng, solve, together=within is not None)


def _solve(
    problem: HistogramProblem,
    values: NDArray,
    chains,
    seeds: NDArray,
    how: Settling,
    within: Within | None,
) -> tuple[NDArray, Status, dict]:
    fixed = None
    if within is not None:
        problem, fixed = replace(problem, lower=within.lower), within.fixed
    fit, left = problem.least_squares(values)
    settled = problem.settle(fit, chains, seeds, how, fixed)
    stats = settling_stats(settled) | {
        "left on structural zeros by least squares (counts)": left,
        "tables solved by a general program": 0,
    }
    folded = settled.values[-1].astype(np.int64) if how.integer else settled.values[-1]
    counts = problem.fold.unfold(folded).reshape(len(values), -1)
    whole = how.integer and how.leaves is None
    exact = invariants_kept(problem.cells, problem.headers, values, counts) if whole else True
    kept = np.full(len(values), exact)
    settled_all = all_settled(stats, values)
    if settled_all and kept.all():
        return counts, Status.SOLVED, stats
    if (
        within is not None or how.drawn is not None
    ):  # a general program knows of no other tables, and draws none
        return counts, Status.UNSOLVED, stats
    return _handed_over(problem, values, counts, seeds, stats, kept & settled_all)


def _handed_over(
    problem: HistogramProblem,
    values: NDArray,
    counts: NDArray,
    seeds: NDArray,
    stats: dict,
    kept: NDArray[np.bool_],
) -> tuple[NDArray, Status, dict]:
    """Solve, by a general solver, the rows of values for which fixing tables from the top down failed.

    Parents are fixed one at a time, so a parent may get a table that no tables of its children add up to, although
    another table would do. The general solver finds a table as near to the projection of everything measured.
    """
    whole = counts.dtype.kind == "i"
    if error := problem.conflict(values):
        raise error
    linear = LinearProblem(problem.constraints, problem.headers)
    again = [
        i for i in np.flatnonzero(~kept) if not whole or linear.polyhedron(values[i]).residual(counts[i])
    ]
    answers = []
    for i in again:
        rng = np.random.default_rng(seeds[i])
        answers.append(at_once(problem.constraints, problem.headers, values[i], rng, whole=whole))
        if answers[-1].status is Status.SOLVED:
            x = np.maximum(answers[-1].x, linear.lowest)
            counts[i] = np.rint(x) if whole else x
    more = {
        "tables solved by a general program": len(again),
        "largest optimality residual (counts)": largest(a.residual for a in answers),
        "units without a place": 0,
    }
    return counts, Status.worst(a.status for a in answers), {**stats, **more}
