"""Projection of one place's table onto its margins: programs P and P+ in continuous counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.histogram.marginals import Marginal
from trueup.kernel.margins.projection import Projection, inconsistent, nearest, residual
from trueup.kernel.settling.nearest import Metric, tolerance_for
from trueup.kernel.settling.root import settle_marginals
from trueup.kernel.status import Status, largest
from trueup.layouts.histogram import HistogramProblem, histogram_problem
from trueup.layouts.histogram_errors import histogram_standard_errors
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, split
from trueup.reconciling.method import Method, Solution


@dataclass(frozen=True)
class MarginsProjection(Method):
    """Project a table that crossing margins measure onto its exact margins and x >= 0, in continuous counts.

    The weighted least-squares table given everything measured, and the nearest nonnegative one in the metric of its
    covariance. If only the finest cells carry noise and margins are exact, that is the projection P+ of Zhu,
    Van Hentenryck & Fioretto (2021), solved by semismooth Newton steps on the margins' multipliers.
    """

    name: ClassVar[str] = "margins-projection"
    title: ClassVar[str] = "projection of a table onto its margins and x >= 0 (P, P+), continuous"
    structures: ClassVar[frozenset[str]] = frozenset({"margins"})

    @property
    def integer(self) -> bool:
        """Whether it returns whole numbers: no."""
        return False

    def refuses(self, constraints: Constraints) -> str | None:
        """Refuse bounds."""
        return "it keeps no bounds on crossing margins" if constraints.bounds else None

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> HistogramProblem:
        """Run the covariance recursion of the single place."""
        return histogram_problem(constraints, headers)

    def apply(self, state: HistogramProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Project values `(q,)` or `(b, q)`; nothing is drawn."""
        done = [project_on_margins(state, row) for row in np.atleast_2d(values)]
        tables = np.stack([p.table.ravel() for p in done]).reshape(*values.shape[:-1], state.cells.n)
        stats = {
            "largest residual (counts)": largest(p.residual for p in done),
            "most iterations": max(p.iterations for p in done),
        }
        return Solution(tables, Status.worst(p.status for p in done), stats)

    def errors(self, state: HistogramProblem) -> dict[Margin, NDArray]:
        """Standard errors of the least-squares estimates of every measured margin."""
        return histogram_standard_errors(state)


def exact_margins(state: HistogramProblem, values: NDArray) -> tuple[list[tuple[int, ...]], list[NDArray]]:
    """The invariants as kept axes and tables."""
    parts = zip(state.headers, split(values, state.headers, state.cells), strict=True)
    pairs = [(_axes(state, h), np.asarray(p, float)) for h, p in parts if h.exact]
    shapes = [tuple(state.cells.shape[1:][a] for a in axes) for axes, _ in pairs]
    return [a for a, _ in pairs], [p.reshape(s) for (_, p), s in zip(pairs, shapes, strict=True)]


def project_on_margins(
    state: HistogramProblem, values: NDArray, first: Sequence[Marginal] = ()
) -> Projection:
    """Nearest table of one row of values, given marginals that are settled `first`; contradictory invariants are an error."""
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
    """The nearest nonnegative table to x (1, n), the marginals of `first` settled first unless no table has them all.

    The last value says whether no nonnegative table is nearer: nothing was settled first, or nothing is below zero.
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
    """Cut off what is below zero by rounding errors; many such cells move a sum, so that the table is projected once more."""
    table = np.maximum(projection.table, 0.0)
    if not margins:
        return replace(projection, table=table)
    again = nearest(table, margins, sums, variances=1.0 - held)
    return replace(again, iterations=projection.iterations + again.iterations, nearest=projection.nearest)


def _onto_exact_margins(state: HistogramProblem, values: NDArray, margins, sums) -> Projection:
    """All noise is on the finest cells: average what measured them, then the semismooth Newton projection."""
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


def _axes(state: HistogramProblem, header: Measured) -> tuple[int, ...]:
    names = [a.name for a in state.cells.attributes]
    return tuple(i for i, name in enumerate(names) if name in header.margin.attributes)
