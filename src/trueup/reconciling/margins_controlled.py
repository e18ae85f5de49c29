"""The default for tables with crossing margins: projection, then controlled rounding with the margins kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.linear.fit import Fit
from trueup.kernel.linear.programs import Answer
from trueup.kernel.linear.secants import FitLoss
from trueup.kernel.linear.whole_fit import whole_fit
from trueup.kernel.margins.fixed import margins_polyhedron
from trueup.kernel.margins.projection import margin_of, nearest
from trueup.kernel.margins.whole import EXACT_CELLS, holding_margins, whole_table
from trueup.kernel.settling.transport import SNAP, round_children
from trueup.kernel.status import Status, largest
from trueup.layouts.histogram import HistogramProblem
from trueup.model.constraints import violations
from trueup.reconciling.at_once import at_once, invariants_kept
from trueup.reconciling.linear_method import largest_gap
from trueup.reconciling.margins_projection import MarginsProjection, exact_margins, project_on_margins
from trueup.reconciling.method import Solution

Axes = tuple[int, ...]
ROUNDING_GAP = "relative gap of the rounding, proved for all whole tables with the sums it keeps"
SETTLED_GAP = (
    "relative gap of the rounding of settled margins, proved for all whole tables with the sums it keeps"
)


@dataclass(frozen=True)
class MarginsControlled(MarginsProjection):
    """Project a table onto its margins, then round it with the margins kept.

    The total, and every measured margin, are settled before any cell is held at zero: the total is that of least squares,
    and a margin the nearest that is not below zero, given the coarser ones.

    A two-way table rounds its total, then each margin, then the cells given both margins: every cell, row and column
    is then a floor or a ceiling, by a transportation problem that is solved exactly. Beyond two axes exact margins
    are kept by an integer program up to 1,000 cells; above, one or two of them exactly, more of them nearly, and how
    nearly is proved and reported: against all whole tables with the sums that the rounding keeps, which are the rows and
    columns of a two-way table, rounded before, and beyond two axes the exact margins, or the total if there are none.
    Where margins were settled before cells that would be below zero, another table may be nearer to the measurements
    than the projection is: then the gap is of the rounding of that projection alone, and is named so.

    Attributes
    ----------
    seconds
        Time limit of an integer program.
    """

    seconds: float = 60.0

    name: ClassVar[str] = "margins-controlled"
    title: ClassVar[str] = "projection of a table onto its margins, then controlled rounding"
    structures: ClassVar[frozenset[str]] = frozenset({"margins"})
    effort: ClassVar[int] = 500

    @property
    def integer(self) -> bool:
        """Whether it returns whole numbers: yes."""
        return True

    def apply(self, state: HistogramProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Reconcile values `(q,)` or `(b, q)`; the rng settles ties of two-way rounding."""
        done = [self._row(state, row, rng) for row in np.atleast_2d(values)]
        tables = np.stack([a.x.ravel() for _, a, *_ in done]).reshape(*values.shape[:-1], state.cells.n)
        nearest = all(near for *_, near in done)
        stats = {
            "largest residual of the projection (counts)": largest(residual for residual, *_ in done),
            ROUNDING_GAP if nearest else SETTLED_GAP: largest_gap([a for _, a, *_ in done]),
            "tables solved by a general program": sum(handed for _, _, handed, _ in done),
        }
        status = Status.worst(a.status for _, a, *_ in done)
        return Solution(tables.astype(np.int64) if status is Status.SOLVED else tables, status, stats)

    def _row(self, state: HistogramProblem, values: NDArray, rng: np.random.Generator):
        """The projection's residual, the whole table, whether a general program found it, and whether no table is nearer."""
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
        return answer.residual, answer, True, True


def _round_two_way(
    state: HistogramProblem, x: NDArray, exact: dict[Axes, NDArray], rng: np.random.Generator
) -> Answer:
    """Total, then rows and columns within it, then cells within both; a slight projection between the two."""
    total = _whole(next((b.sum() for b in exact.values()), x.sum()))
    rows, columns = (exact.get((axis,), _whole_line(margin_of(x, (axis,)), total, rng)) for axis in (0, 1))
    margins: list[Axes] = [(0,), (1,)]
    zeros = state.constraints.zero_cells.reshape(x.shape)
    closer = nearest(x, margins, [rows, columns], variances=1.0 - zeros if zeros.any() else None)
    if closer.status is not Status.SOLVED:
        return Answer(x, closer.status, closer.residual, np.inf, None)
    return whole_table(closer.table, margins, [rows, columns], rng=rng, open_cells=~zeros)


def _whole(x: float) -> int:
    """Nearest whole number; a half, to the last digits, goes down."""
    return int(np.ceil(x - 0.5 - SNAP))


def _whole_line(line: NDArray, total: int, rng: np.random.Generator) -> NDArray:
    """Round a line of counts to whole numbers with a given sum, least squared distance first."""
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
    """Exact margins (or the total) kept; up to 1,000 cells the other measured margins are kept close too."""
    zeros = state.constraints.zero_cells.reshape(x.shape)
    if x.size > EXACT_CELLS:
        kept = exact or {(): np.array(_whole(x.sum()))}
        return whole_table(x, list(kept), list(kept.values()), seconds=seconds, rng=rng, open_cells=~zeros)
    margins, sums = list(exact), list(exact.values())
    measured = {_kept(state, h.margin.attributes) for h in state.headers} | {tuple(range(x.ndim))}
    noisy = sorted(measured - set(margins))
    near = margins_polyhedron(x.shape, noisy, [margin_of(x, m) for m in noisy])
    floor = np.floor(near.sums + 1e-7)
    fit = Fit(near.equal, floor, np.ones(floor.size))
    allowed = margins_polyhedron(x.shape, margins, sums, nonnegative=state.constraints.nonnegative)
    allowed = holding_margins(allowed, zeros.ravel(), np.zeros(x.size))
    return whole_fit(
        allowed, fit, FitLoss.squares(fit.weights, near.sums - floor), x.ravel(), seconds=seconds
    )


def _kept(state: HistogramProblem, attributes: Sequence[str]) -> Axes:
    return tuple(i for i, a in enumerate(state.cells.attributes) if a.name in attributes)
