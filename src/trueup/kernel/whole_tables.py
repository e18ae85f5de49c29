"""Whole tables with fixed margins, near a continuous one.

Two margins that partition a table's cells (rows and columns) make a transportation problem: its matrix is totally
unimodular, every cell is a floor or a ceiling, and the optimum is found exactly (`kernel.transport`). With three axes
and all two-way margins this ends: a whole table between floors and ceilings may not exist and finding the nearest one
is hard. Up to `EXACT_CELLS` cells a mixed-integer program is solved. Above, in three steps: the linear relaxation; an
integer program over the cells that it leaves fractional and those least decided, enlarged until it has a solution;
and descent by the cube moves (+1, -1 on alternate corners) that keep all two-way margins. The distance of the result
from the relaxation's bound is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy  # its parts load when first used
from numba import njit

from trueup.kernel.fit import Fit
from trueup.kernel.margins import Margin, residual
from trueup.kernel.polyhedron import Polyhedron, between, box, margins_polyhedron
from trueup.kernel.programs import Answer, whole_widening
from trueup.kernel.transport import SNAP, round_children

EXACT_CELLS = 1000
NEIGHBOURHOODS = (1, 2, 4, 8, np.inf)


def whole_table(
    x: np.ndarray,
    margins: Sequence[Margin],
    sums: Sequence[np.ndarray],
    *,
    seconds: float = 60.0,
    nudge: np.ndarray | None = None,
) -> Answer:
    """Nearest whole table (in squared distance) with given whole margins.

    Parameters
    ----------
    x : continuous table (n_1, ..., n_k), nonnegative, that has these margins
    margins : kept axes of every margin
    sums : whole numbers
    seconds : time limit of a branch and bound
    nudge : numbers in [0, 1), shaped as the table, that break ties of a two-way table

    Returns
    -------
    Answer
        `x` has the table's shape; `objective` is the squared distance, `gap` its proved relative excess over the
        least possible between floors and ceilings (0: it is the least).

    Examples
    --------
    >>> x = np.array([[0.4, 1.6], [0.6, 0.4]])
    >>> whole_table(x, [(0,), (1,)], [np.array([2, 1]), np.array([1, 2])]).x
    array([[0, 2],
           [1, 0]])
    """
    if x.ndim == 2 and set(margins) == {(0,), (1,)}:
        return _two_way(x, sums[margins.index((0,))], sums[margins.index((1,))], nudge)
    polyhedron = margins_polyhedron(x.shape, margins, sums)
    small = x.size <= EXACT_CELLS
    answer = _exact(x.ravel(), polyhedron, seconds) if small else _heuristic(x, polyhedron, margins, seconds)
    table = np.rint(np.nan_to_num(answer.x)).astype(np.int64).reshape(x.shape)
    return replace(answer, x=table, residual=residual(table, margins, sums))


def _two_way(x: np.ndarray, rows: np.ndarray, columns: np.ndarray, nudge: np.ndarray | None) -> Answer:
    sums = np.rint(rows)[:, None], np.rint(columns)[None]
    table, missing = round_children(
        x, np.array([0, x.shape[0]]), row_sums=sums[0], column_sums=sums[1], nudge=nudge
    )
    left = residual(table, [(0,), (1,)], [rows, columns])
    status = "no whole table between floors and ceilings" if missing.any() else "solved"
    return Answer(table, status, left, float(((table - x) ** 2).sum()))


def _exact(x: np.ndarray, polyhedron: Polyhedron, seconds: float) -> Answer:
    floor = np.floor(x + SNAP)
    fit = Fit(scipy.sparse.csr_array(scipy.sparse.eye_array(x.size)), floor, np.ones(x.size))
    return whole_widening(polyhedron, fit, lambda d: (d + floor - x) ** 2, x, seconds=seconds)


def _heuristic(x: np.ndarray, polyhedron: Polyhedron, margins: Sequence[Margin], seconds: float) -> Answer:
    """Relaxation, then integer programs over growing sets of undecided cells, then cube moves."""
    cells = x.ravel()
    floor = np.floor(cells + SNAP)
    cost = 1 - 2 * (cells - floor)
    right = polyhedron.sums - polyhedron.equal @ floor
    top = (cells - floor > SNAP).astype(float)
    relaxed = scipy.optimize.milp(
        cost, bounds=box(0, top), constraints=[between(polyhedron.equal, right, right)]
    )
    if relaxed.x is None:
        return Answer(cells, "no table between floors and ceilings", np.inf, np.inf, None)
    bound = float((cells - floor) @ (cells - floor) + relaxed.fun)
    decided = np.rint(relaxed.x)
    fractional = np.abs(relaxed.x - decided) > 1e-6
    order = np.argsort(np.where(fractional, -1.0, np.abs(cost)), kind="stable")
    order = order[top[order] > 0]
    for times in NEIGHBOURHOODS:
        free = order[: int(min(order.size, (1 + times) * fractional.sum()))]
        up = _complete(cost, decided, free, polyhedron, right, seconds)
        if up is not None:
            table = (floor + up).astype(np.int64).reshape(x.shape)
            _descend(x, table, margins)
            distance = float(((table - x) ** 2).sum())
            return Answer(table, "solved", 0.0, distance, max(0.0, distance - bound) / max(bound, 1.0))
    return Answer(cells, "no whole table was found in the time allowed", np.inf, np.inf, None)


def _complete(cost, decided, free, polyhedron, right, seconds) -> np.ndarray | None:
    """Best choice of the free cells with the others decided; None if there is none in time."""
    held = decided.copy()
    held[free] = 0
    if free.size == 0:
        return held
    missing = right - polyhedron.equal @ held
    answer = scipy.optimize.milp(
        cost[free],
        integrality=np.ones(free.size),
        bounds=box(0, 1),
        constraints=[between(polyhedron.equal[:, free], missing, missing)],
        options={"mip_rel_gap": 1e-2, "time_limit": seconds / len(NEIGHBOURHOODS)},
    )
    if answer.x is None:
        return None
    held[free] = np.rint(answer.x)
    return held


def _descend(x: np.ndarray, table: np.ndarray, margins: Sequence[Margin]) -> None:
    """Shorten the distance by cube moves, where these keep the margins."""
    if x.ndim == 3 and {(0, 1), (0, 2), (1, 2)}.issuperset(margins):
        while _cube_moves(x, table):
            pass


@njit(cache=True)
def _cube_moves(x, table):
    """Make every cube move that shortens the distance once met; returns how many were made."""
    moves = 0
    a, b, c = x.shape
    for i in range(a):
        for i2 in range(i + 1, a):
            for j in range(b):
                for j2 in range(j + 1, b):
                    for k in range(c):
                        low = _pull(x, table, i, i2, j, j2, k)
                        for k2 in range(k + 1, c):
                            gain = low - _pull(x, table, i, i2, j, j2, k2)
                            sign = -1 if gain > 0 else 1
                            if abs(gain) > 4.0 + 1e-9 and _fits(table, i, i2, j, j2, k, k2, sign):
                                _move(table, i, i2, j, j2, k, k2, sign)
                                low = _pull(x, table, i, i2, j, j2, k)
                                moves += 1
    return moves


@njit(cache=True)
def _pull(x, t, i, i2, j, j2, k):
    """Alternating sum of the deviations on one face of a cube."""
    return (
        (t[i, j, k] - x[i, j, k])
        - (t[i2, j, k] - x[i2, j, k])
        - (t[i, j2, k] - x[i, j2, k])
        + (t[i2, j2, k] - x[i2, j2, k])
    )


@njit(cache=True)
def _fits(t, i, i2, j, j2, k, k2, sign):
    if sign > 0:
        return min(t[i2, j, k], t[i, j2, k], t[i, j, k2], t[i2, j2, k2]) > 0
    return min(t[i, j, k], t[i2, j2, k], t[i2, j, k2], t[i, j2, k2]) > 0


@njit(cache=True)
def _move(t, i, i2, j, j2, k, k2, sign):
    t[i, j, k] += sign
    t[i2, j2, k] += sign
    t[i2, j, k2] += sign
    t[i, j2, k2] += sign
    t[i2, j, k] -= sign
    t[i, j2, k] -= sign
    t[i, j, k2] -= sign
    t[i2, j2, k2] -= sign
