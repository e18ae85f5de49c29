"""Reconciliation of one table with crossing margins: projection onto the margins, then controlled rounding.

One file: the projection, and the rounding of what it finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.kernel import Status, largest
from trueup.kernel.histogram import Marginal
from trueup.kernel.linear import Fit, FitLoss
from trueup.kernel.linear.programs import Answer
from trueup.kernel.linear.whole_fit import whole_fit
from trueup.kernel.margins import Projection, inconsistent, margin_of, nearest, residual
from trueup.kernel.margins.whole import EXACT_CELLS, holding_margins, margins_polyhedron, whole_table
from trueup.kernel.settling.nearest import Metric, tolerance_for
from trueup.kernel.settling.refine import settle_marginals
from trueup.kernel.settling.transport import SNAP, round_children
from trueup.layouts.histogram import HistogramProblem, histogram_problem, histogram_standard_errors
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints, violations
from trueup.model.header import Measured, split
from trueup.reconciling.general_projection import at_once, invariants_kept, largest_gap
from trueup.reconciling.histogram_tree import HistogramTree
from trueup.reconciling.method import Method, Solution

Axes = tuple[int, ...]
ROUNDING_GAP = "relative gap of the rounding, proved for all whole tables with the sums it keeps"
SETTLED_GAP = (
    "relative gap of the rounding of settled margins, proved for all whole tables with the sums it keeps"
)


@dataclass(frozen=True)
class MarginsProjection(Method):
    """Projection of a table onto its exact margins and x >= 0, then rounding that keeps the margins.

    The weighted least-squares table given everything measured, and the nearest nonnegative one in the metric of its
    covariance. If only the finest cells carry noise and margins are exact, that is the projection P+ of Zhu,
    Van Hentenryck & Fioretto (2021), solved by semismooth Newton steps on the margins' multipliers.

    Before rounding, the total and every measured margin are fixed before any cell is held at zero: the total is
    that of least squares, and a margin the nearest that is not below zero, given the coarser ones. A two-way table rounds
    its total, then each margin, then the cells given both margins: every cell, row and column is then a floor or a
    ceiling, by a transportation problem that is solved exactly. Beyond two axes exact margins are kept by an integer
    program up to 1,000 cells; above, one or two of them exactly, more of them nearly, and how nearly is proved and
    reported: against all whole tables with the sums that the rounding keeps, which are the rows and columns of a two-way
    table, rounded before, and beyond two axes the exact margins, or the total if there are none. Where margins were
    settled before cells that would be below zero, another table may be nearer to the measurements than the projection is:
    then the gap is of the rounding of that projection alone, and is named so.

    Attributes
    ----------
    rounding
        `controlled` for whole numbers, `none` for the projection, in which no margin is fixed before the cells.
    seconds
        Time limit of an integer program. If it finds no table in time, the table of `histogram-tree` is taken, where that fits.
    """

    rounding: Literal["controlled", "none"] = "controlled"
    seconds: float = 60.0

    name: ClassVar[str] = "margins-projection"
    title: ClassVar[str] = (
        "projection of a table onto its margins and x >= 0 (P, P+), then controlled rounding"
    )
    structures: ClassVar[frozenset[str]] = frozenset({"margins"})
    effort: ClassVar[int] = 500

    @property
    def integer(self) -> bool:
        """Return True if the method returns whole numbers."""
        return self.rounding == "controlled"

    def refuses(self, constraints: Constraints) -> str | None:
        """Return the reason why the method refuses bounds; None if there are none."""
        return "it cannot keep bounds on crossing margins" if constraints.bounds else None

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> HistogramProblem:
        """Return the problem of the single place, prepared for least squares."""
        return histogram_problem(constraints, headers)

    def errors(self, state: HistogramProblem) -> dict[Margin, NDArray]:
        """Return the standard errors (counts) of the least-squares estimates of every measured margin."""
        return histogram_standard_errors(state)

    def apply(self, state: HistogramProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Reconcile values `(q,)` or `(b, q)` into counts, with ties of rounding broken at random."""
        rows = np.atleast_2d(values)
        solved = self._rounded(state, rows, rng) if self.integer else _projected(state, rows)
        tables = solved.values.reshape(*values.shape[:-1], state.cells.n)
        return replace(solved, values=tables)

    def _rounded(self, state: HistogramProblem, rows: NDArray, rng: np.random.Generator) -> Solution:
        done = [self._row(state, row, rng) for row in rows]
        tables = np.stack([a.x.ravel() for _, a, *_ in done])
        near = all(near for *_, near in done)
        stats = {
            "largest residual of the projection (counts)": largest(residual for residual, *_ in done),
            ROUNDING_GAP if near else SETTLED_GAP: largest_gap([a for _, a, *_ in done]),
            "tables solved by a general program": sum(handed for _, _, handed, _ in done),
        }
        status = Status.worst(a.status for _, a, *_ in done)
        return Solution(tables.astype(np.int64) if status is Status.SOLVED else tables, status, stats)

    def _row(self, state: HistogramProblem, values: NDArray, rng: np.random.Generator):
        """Return the residual and counts for one row of values, with flags on how they were found."""
        projection = project_on_margins(state, values, state.first)
        if projection.status is Status.SOLVED:
            margins, sums = exact_margins(state, values)
            exact = dict(zip(margins, sums, strict=True))
            two_way = projection.table.ndim == 2 and not {(0, 1)} & set(margins)
            answer = (
                _round_two_way(state, projection.table, exact, rng)
                if two_way
                else _round_many(state, projection.table, exact, self.seconds, rng)
            )
            whole = np.rint(np.nan_to_num(answer.x)).astype(np.int64).reshape(1, -1)
            kept = invariants_kept(state.cells, state.headers, values[None], whole).all()
            kept &= not violations(state.constraints, whole[0])
            if answer.status is Status.SOLVED and kept:
                return projection.residual, answer, False, projection.nearest
        more = {"whole": True, "seconds": self.seconds}
        answer = at_once(state.constraints, state.headers, values, rng, **more)
        if answer.status is Status.UNSOLVED and not HistogramTree().refuses(state.constraints):
            answer = _from_the_top(state, values, rng)
        return answer.residual, answer, True, True


def _from_the_top(state: HistogramProblem, values: NDArray, rng: np.random.Generator) -> Answer:
    """Return a table that is fixed from the top down, with no proof that it is the nearest."""
    method = HistogramTree()
    found = method.apply(method.prepare(state.constraints, state.headers), values, rng)
    return Answer(found.values, found.status, 0.0, np.inf, None)


def _projected(state: HistogramProblem, rows: NDArray) -> Solution:
    """Return the projection of each row of values, without rounding."""
    done = [project_on_margins(state, row) for row in rows]
    stats = {
        "largest residual (counts)": largest(p.residual for p in done),
        "most iterations": max(p.iterations for p in done),
    }
    tables = np.stack([p.table.ravel() for p in done])
    return Solution(tables, Status.worst(p.status for p in done), stats)


def _round_two_way(
    state: HistogramProblem, x: NDArray, exact: dict[Axes, NDArray], rng: np.random.Generator
) -> Answer:
    """Round a two-way table to whole numbers: the total, then rows and columns, then cells."""
    total = _whole(next((b.sum() for b in exact.values()), x.sum()), rng)
    rows, columns = (exact.get((axis,), _whole_line(margin_of(x, (axis,)), total, rng)) for axis in (0, 1))
    margins: list[Axes] = [(0,), (1,)]
    zeros = state.constraints.zero_cells.reshape(x.shape)
    closer = nearest(x, margins, [rows, columns], variances=1.0 - zeros if zeros.any() else None)
    if closer.status is not Status.SOLVED:
        return Answer(x, closer.status, closer.residual, np.inf, None)
    return whole_table(closer.table, margins, [rows, columns], rng=rng, open_cells=~zeros)


def _whole(x: float, rng: np.random.Generator) -> int:
    """Return the nearest whole number; a half, which means of integers often have, goes either way so that no total is biased."""
    lower, upper = np.ceil(x - 0.5 - SNAP), np.floor(x + 0.5 + SNAP)
    return int(lower if lower == upper else rng.choice([lower, upper]))


def _whole_line(line: NDArray, total: int, rng: np.random.Generator) -> NDArray:
    """Round a line of counts to whole numbers with a given sum, at the least squared distance."""
    whole, _ = round_children(
        line[None], np.array([0, 1]), row_sums=np.array([[total]]), nudge=rng.random((1, line.size))
    )
    return whole[0].astype(float)


def _round_many(
    state: HistogramProblem,
    x: NDArray,
    exact: dict[Axes, NDArray],
    seconds: float,
    rng: np.random.Generator,
) -> Answer:
    """Round a table to whole numbers, keeping the exact margins or else the total."""
    zeros = state.constraints.zero_cells.reshape(x.shape)
    if x.size > EXACT_CELLS:
        kept = exact or {(): np.array(_whole(x.sum(), rng))}
        return whole_table(x, list(kept), list(kept.values()), seconds=seconds, rng=rng, open_cells=~zeros)
    margins, sums = list(exact), list(exact.values())
    measured = {_axes(state, h) for h in state.headers} | {tuple(range(x.ndim))}
    noisy = sorted(measured - set(margins))
    near = margins_polyhedron(x.shape, noisy, [margin_of(x, m) for m in noisy])
    floor = np.floor(near.sums + 1e-7)
    fit = Fit(near.equal, floor, np.ones(floor.size))
    allowed = margins_polyhedron(x.shape, margins, sums, nonnegative=state.constraints.nonnegative)
    allowed = holding_margins(allowed, zeros.ravel(), np.zeros(x.size))
    return whole_fit(
        allowed, fit, FitLoss.squares(fit.weights, near.sums - floor), x.ravel(), seconds=seconds
    )


def _axes(state: HistogramProblem, header: Measured) -> Axes:
    return tuple(i for i, a in enumerate(state.cells.attributes) if a.name in header.margin.attributes)


def exact_margins(state: HistogramProblem, values: NDArray) -> tuple[list[tuple[int, ...]], list[NDArray]]:
    """Return the axes and the table of sums of each invariant."""
    parts = zip(state.headers, split(values, state.headers, state.cells), strict=True)
    pairs = [(_axes(state, h), np.asarray(p, float)) for h, p in parts if h.exact]
    shapes = [tuple(state.cells.shape[1:][a] for a in axes) for axes, _ in pairs]
    return [a for a, _ in pairs], [p.reshape(s) for (_, p), s in zip(pairs, shapes, strict=True)]


def project_on_margins(
    state: HistogramProblem, values: NDArray, first: Sequence[Marginal] = ()
) -> Projection:
    """Return the table with the exact margins that is nearest to one row of measured values."""
    shape = state.cells.shape[1:]
    margins, sums = exact_margins(state, values)
    # Sums of whole numbers are exact, so margins that differ at all contradict each other.
    if margins and inconsistent(margins, sums, 0.0) and (error := state.conflict(values[None])):
        raise error
    noisy = [h for h in state.headers if not h.exact]
    nonnegative = state.constraints.nonnegative
    if margins and noisy and all(len(h.margin.attributes) == len(shape) for h in noisy):
        projection = _onto_exact_margins(state, values, margins, sums)
    else:
        fit, left = state.least_squares(values[None])
        x, gap, steps, free = fit.values[0], np.array([left]), 0, True
        if nonnegative:
            x, gap, steps, free = _nearest(state, x, first)
        table = x.reshape(shape)
        worst = largest([residual(table, margins, sums), gap.max()])
        status = Status.SOLVED if gap.max() <= tolerance_for(x) else Status.UNSOLVED
        projection = Projection(table, status, worst, steps, free)
    if projection.status is not Status.SOLVED and (error := state.conflict(values[None])):
        raise error
    held = state.zeros[0].reshape(shape) if state.zeros else np.zeros(shape, bool)
    table = np.where(held, 0.0, projection.table)
    if not nonnegative or projection.status is not Status.SOLVED:
        return replace(projection, table=table)
    return _not_below_zero(replace(projection, table=table), margins, sums, held)


def _nearest(
    state: HistogramProblem, x: NDArray, first: Sequence[Marginal]
) -> tuple[NDArray, NDArray, int, bool]:
    """Return the nonnegative table nearest to `x (1, n)`, fixing the marginals in `first` before the cells.

    The last value is True if no nonnegative table is nearer: no margin was fixed before, or nothing is below zero.
    """
    variances = tuple(f.variance for f in state.tree.filters[0])
    metric = Metric(state.tree.domain, variances, np.zeros(1, np.int64), 1, tied=False)
    zeros = state.zeros[0] if state.zeros else None
    tolerance = tolerance_for(x)
    found = settle_marginals(metric, x, first, zeros)
    for fewer in [first[:1], ()] if first else []:  # the total alone, or nothing
        if found[1].max() > tolerance:
            first, found = fewer, settle_marginals(metric, x, fewer, zeros)
    return *found, not first or bool(x.min() >= -tolerance)


def _not_below_zero(projection: Projection, margins, sums, held: NDArray[np.bool_]) -> Projection:
    """Set values that rounding errors made negative to zero, and restore the sums if they change."""
    table = np.maximum(projection.table, 0.0)
    if not margins:
        return replace(projection, table=table)
    again = nearest(table, margins, sums, variances=1.0 - held)
    return replace(again, iterations=projection.iterations + again.iterations, nearest=projection.nearest)


def _onto_exact_margins(state: HistogramProblem, values: NDArray, margins, sums) -> Projection:
    """Project a table onto its exact margins, where only the finest cells have noise."""
    parts = zip(state.headers, split(values, state.headers, state.cells), strict=True)
    noisy = [(p / h.law.variance, 1 / h.law.variance) for h, p in parts if not h.exact]
    precision = sum(w for _, w in noisy)
    y = np.sum([p for p, _ in noisy], axis=0) / precision
    shape = state.cells.shape[1:]
    held = state.zeros[0].ravel() if state.zeros else np.zeros(y.size, bool)
    variances = np.where(held, 0.0, 1 / precision).reshape(shape) if held.any() else None
    return nearest(
        np.where(held, 0.0, y).reshape(shape),
        margins,
        sums,
        variances=variances,
        nonnegative=state.constraints.nonnegative,
    )
