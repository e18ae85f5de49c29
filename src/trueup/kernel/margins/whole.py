"""Whole-number tables with fixed margins, near a table of real numbers.

Two margins that name all axes between them (rows and columns; or two faces of a cube, one transportation problem for
each entry of what they share) have a totally unimodular matrix: there is a table between floors and ceilings, and the
nearest of these is found exactly (`kernel.transport`); how much nearer any other can be is proved by its prices.
Three margins end this: a whole table between floors and ceilings may not exist and finding the nearest one is hard.
Up to `EXACT_CELLS` cells a mixed-integer program is solved. Above, prices prove a bound and messages find tables near
it (`kernel.whole_near`); the nearest of several counts. Where messages do not settle, an integer program chooses
among the counts that the prices leave open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy  # its parts load when first used

from trueup.kernel import Status
from trueup.kernel.linear import Fit, FitLoss
from trueup.kernel.linear.polyhedron import Polyhedron, between, box
from trueup.kernel.linear.programs import Answer
from trueup.kernel.linear.whole_fit import whole_fit
from trueup.kernel.margins import Margin, residual
from trueup.kernel.margins.whole_near import Units, priced
from trueup.kernel.settling.transport import SNAP, round_children

EXACT_CELLS = 1000
MESSAGE_TRIES = 8  # of messages, fewer for large tables:
TRIED_CELLS = 200_000  # in all tries together; the larger a table, the nearer to its bound the first try
FAILURES = 2  # in a row from the first try on, after which messages are given up
NEIGHBOURHOODS = (8, 2, 1)  # what fraction of the open counts an integer program may choose among
SHIFT_COUNTS = 3  # counts that a shifted table has below its least cell


def whole_table(
    x: np.ndarray,
    margins: Sequence[Margin],
    sums: Sequence[np.ndarray],
    *,
    seconds: float = 60.0,
    rng: np.random.Generator | None = None,
    open_cells: np.ndarray | None = None,
) -> Answer:
    """Return the whole-number table nearest to a given one (in squared distance) with given margins.

    Parameters
    ----------
    x : continuous table (n_1, ..., n_k) that has these margins; the whole table is nonnegative if it is
    margins : kept axes of every margin, ascending
    sums : whole numbers
    seconds : time limit of a branch and bound
    rng : settles ties and draws restarts; without one, ties go to the lowest index
    open_cells : False where a cell holds its whole number (structural zeros); all open by default

    Returns
    -------
    Answer
        `x` has the table's shape; `objective` is the squared distance, `gap` its proved relative excess over the
        least possible of all whole tables with these margins, or over 1 if that is less.

    Examples
    --------
    >>> x = np.array([[0.4, 1.6], [0.6, 0.4]])
    >>> whole_table(x, [(0,), (1,)], [np.array([2, 1]), np.array([1, 2])]).x
    array([[0, 2],
           [1, 0]])
    """
    largest = [m for m in dict.fromkeys(margins) if not any(set(m) < set(other) for other in margins)]
    given = {m: np.rint(b) for m, b in zip(margins, sums, strict=True)}
    if len(largest) == 1 or (len(largest) == 2 and set().union(*largest) == set(range(x.ndim))):
        answer = _transported(x, largest, given, rng, open_cells)
    elif x.size <= EXACT_CELLS:
        answer = _exact(x, margins, sums, seconds, open_cells)
    else:
        needs = [given[m] for m in largest]
        answer = nearest_whole_table(x, largest, needs, seconds, rng or np.random.default_rng(0), open_cells)
    table = np.rint(np.nan_to_num(answer.x)).astype(np.int64).reshape(x.shape)
    return replace(answer, x=table, residual=residual(table, margins, sums))


def _transported(x, margins, given, rng, open_cells) -> Answer:
    """Return the nearest whole-number table with one or two margins, by transportation problems."""
    one, two = margins[0], margins[-1]
    shared = tuple(a for a in one if a in two) if len(margins) == 2 else ()
    down = tuple(a for a in one if a not in shared)
    across = tuple(a for a in range(x.ndim) if a not in one)
    order = shared + down + across
    blocks, rows, columns = (int(np.prod([x.shape[a] for a in axes])) for axes in (shared, down, across))

    def lines(margin: Margin, axes: Margin, shape: tuple[int, int]) -> np.ndarray:
        return given[margin].transpose([margin.index(a) for a in axes]).reshape(shape)

    def flat(table: np.ndarray) -> np.ndarray:
        return table.transpose(order).reshape(blocks * rows, columns)

    excess = np.zeros(blocks)
    whole, missing = round_children(
        flat(x),
        np.arange(0, blocks * rows + 1, rows),
        row_sums=lines(one, shared + down, (blocks * rows, 1)),
        column_sums=lines(two, shared + across, (blocks, columns)) if len(margins) == 2 else None,
        allowed=None if open_cells is None else flat(open_cells),
        nudge=None if rng is None else flat(rng.random(x.shape)),
        excess=excess,
    )
    table = whole.reshape([x.shape[a] for a in order]).transpose(np.argsort(order))
    status = Status.UNSOLVED if missing.any() else Status.SOLVED
    distance = float(((table - x) ** 2).sum())
    # Of one margin's lines, floors and ceilings hold the optimum: of two counts a whole unit apart from their cells,
    # one above and one below, an exchange brings both nearer. Under two margins what the prices leave is reported.
    return Answer(table, status, np.inf, distance, _relative(float(excess.sum()), distance))


def _relative(excess: float, distance: float) -> float:
    return max(excess, 0.0) / max(distance - excess, 1.0)


def _exact(x, margins, sums, seconds: float, open_cells) -> Answer:
    cells, floor = x.ravel(), np.floor(x.ravel() + SNAP)
    fit = Fit(scipy.sparse.csr_array(scipy.sparse.eye_array(x.size)), floor, np.ones(x.size))
    polyhedron = margins_polyhedron(x.shape, margins, sums, nonnegative=bool(x.min() >= 0))
    if open_cells is not None:
        polyhedron = holding_margins(polyhedron, ~open_cells.ravel(), floor)
    return whole_fit(polyhedron, fit, FitLoss.squares(fit.weights, cells - floor), cells, seconds=seconds)


def holding_margins(polyhedron: Polyhedron, held: np.ndarray, counts: np.ndarray) -> Polyhedron:
    """Return the polyhedron with some of its cells fixed at given counts.

    Examples
    --------
    >>> p = holding_margins(Polyhedron.of(2, [[1, 1]], [3.0]), np.array([True, False]), np.zeros(2))
    >>> p.residual(np.array([1.0, 2.0]))
    1.0
    """
    rows = scipy.sparse.csr_array(scipy.sparse.eye_array(held.size))[held]
    equal = scipy.sparse.csr_array(scipy.sparse.vstack([polyhedron.equal, rows]))
    return replace(polyhedron, equal=equal, sums=np.concatenate([polyhedron.sums, counts[held]]))


def nearest_whole_table(x, margins, sums, seconds: float, rng: np.random.Generator, open_cells) -> Answer:
    """Find a whole-number table near x with given margins, by message passing or else an integer program."""
    raised = 0 if x.min() >= 0 else SHIFT_COUNTS - int(np.floor(x.min()))  # the same table, far from zero
    x, sums = x + raised, [b + raised * (x.size // b.size) for b in sums]
    may = np.ones(x.shape, bool) if open_cells is None else open_cells
    at = priced(x, margins, sums, may)
    units = Units.near(at, margins, sums, may)
    tables = _tried(units, rng) or completed_tables(units, margins, sums, seconds)
    if not tables:
        return Answer(x, Status.UNSOLVED, np.inf, np.inf, None)
    distances = [float(((table - x) ** 2).sum()) for table in tables]
    least = int(np.argmin(distances))
    gap = max(0.0, distances[least] - at.bound) / max(at.bound, 1.0)
    return Answer(tables[least] - raised, Status.SOLVED, np.inf, distances[least], gap)


def _tried(units: Units, rng: np.random.Generator) -> list[np.ndarray]:
    tables = []
    for tried in range(min(MESSAGE_TRIES, 1 + TRIED_CELLS // units.settled.size)):
        taken = units.chosen(rng)
        if taken is not None:
            tables.append(units.with_units(taken))
        elif not tables and tried + 1 >= FAILURES:
            break
    return tables


def completed_tables(units: Units, margins, sums, seconds: float) -> list[np.ndarray]:
    """Return whole-number tables from integer programs that decide only the cells nearest to a tie."""
    order, decided = np.argsort(np.abs(units.costs), kind="stable"), units.costs < 0
    polyhedron = margins_polyhedron(units.settled.shape, margins, sums)
    for fraction in NEIGHBOURHOODS:
        free = order[: -(-order.size // fraction)]
        taken = decided.copy()
        taken[free] = False
        missing = polyhedron.sums - polyhedron.equal @ units.with_units(taken).ravel()
        answer = scipy.optimize.milp(
            units.costs[free],
            integrality=np.ones(free.size),
            bounds=box(0, 1),
            constraints=[between(polyhedron.equal[:, units.cells[free]], missing, missing)],
            options={"mip_rel_gap": 1e-2, "time_limit": seconds / len(NEIGHBOURHOODS)},
        )
        if answer.x is not None:
            taken[free] = answer.x > 0.5
            return [units.with_units(taken)]
    return []


def margins_polyhedron(shape: tuple[int, ...], margins, sums, *, nonnegative: bool = True) -> Polyhedron:
    """Return the polyhedron of tables with given margins, one equality for each sum.

    Examples
    --------
    >>> margins_polyhedron((2, 2), [(0,)], [np.array([1.0, 2.0])]).equal.toarray()
    array([[1., 1., 0., 0.],
           [0., 0., 1., 1.]])
    """
    cells = np.indices(shape).reshape(len(shape), -1)
    n = cells.shape[1]
    blocks = [scipy.sparse.csr_array((0, n))]
    for margin, b in zip(margins, sums, strict=True):
        row = np.ravel_multi_index(cells[list(margin)], np.shape(b)) if margin else np.zeros(n, int)
        blocks.append(scipy.sparse.csr_array((np.ones(n), (row, np.arange(n))), shape=(np.size(b), n)))
    right = np.concatenate([np.ravel(np.asarray(b, float)) for b in sums]) if len(sums) else np.zeros(0)
    return Polyhedron.of(n, scipy.sparse.vstack(blocks, format="csr"), right, nonnegative=nonnegative)
