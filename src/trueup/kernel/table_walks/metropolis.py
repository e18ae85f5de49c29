"""Markov chains on integer tables, by moves that keep invariants.

A step along a move takes a window of `WINDOW` tables x + jump (i - J) move, i = 0, 1, ..., where the current table has
the uniform place J. Whatever table of the window is drawn, the same window is as likely to be proposed from there, so any
draw that keeps the density on the window keeps it on all tables, and nothing needs to be rejected. The jump is random,
up to the scale that the curvature of the rows allows; neither it nor the move may depend on the current table.

On the window the current table owns an interval of the cumulative density. A uniform point of it is *reflected* about
the median, and the table that owns the image is next: a map of the uniform measure that is its own inverse, so the
density is kept, and the chain goes from one side to the other where a fresh draw would forget where it came from (ordered
overrelaxation, Neal 1998). One step in four draws afresh, so that every table of every window can follow.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.moves import (
    CENTRE,
    CURVE,
    HIGH,
    LOW,
    REACH,
    SLOPE,
    TABLED,
    U,
    propose,
    row_log_factor,
    sums,
)

WINDOW, STRIDE, FRESH = 8, 1.2, 0.25
BATCH = 256
"""Moves drawn at a time."""


class Tuning(NamedTuple):
    """Settings of the moves, which are adapted before draws are stored.

    Attributes
    ----------
    spans
        `(n,)` how far each cell may reasonably move (counts).
    turns
        Cells that moves start from, each as often as its turn comes.
    chances
        `(p,)` cumulative probabilities of the patterns.
    """

    spans: NDArray[np.float64]
    turns: NDArray[np.int64]
    chances: NDArray[np.float64]


class _Paths(NamedTuple):
    """The changes that a batch of moves makes to rows, and the scales of steps along them.

    `row` and `slope` are `(b, m)`, `many` `(b,)` is the number of changed rows. `length` `(b,)` is the
    squared step over the spans of its cells, `reach` `(b,)` the largest reasonable jump.
    """

    row: NDArray[np.int64]
    slope: NDArray[np.float64]
    many: NDArray[np.int64]
    length: NDArray[np.float64]
    reach: NDArray[np.float64]


@njit(cache=True)
def metropolis_walk(rng, rows, moves, box, tuning, x, count, thin):
    """Run one Markov chain from the table `x` `(n,)`, which is changed in place.

    Parameters
    ----------
    box
        Bounds of the cells `(2, n)`.
    count, thin
        Tables kept, and sweeps (of one proposal per active cell) between them.

    Returns
    -------
    tables, tally
        `(count, n)`; for each pattern how many steps were tried, how many went anywhere, and how far in all (squared
        steps over the spans of their cells), `(3, p)`.
    """
    tables, tally = np.zeros((count, x.size), np.int64), np.zeros((3, tuning.chances.size))
    y, delta = sums(rows, x), np.zeros(len(rows.factors))
    for draw in range(count):
        left = thin * moves.active.size
        while left > 0:
            batch = propose(rng, moves, tuning.turns, tuning.chances, min(left, BATCH))
            paths = _changes_of_rows(rows, tuning.spans, batch, delta)
            _follow(rng.random((batch.used.size, 4)), rows, box, batch, paths, x, y, tally)
            left -= batch.used.size
        tables[draw] = x
    return tables, tally


@njit(cache=True)
def survey(rng, rows, moves, fixed, tries):
    """Return the share of each pattern's moves that leave all rows in `fixed` `(r,)` unchanged."""
    shares, ones, delta = np.zeros(moves.kinds.size), np.ones(rows.start.size - 1), np.zeros(fixed.size)
    for pattern in range(moves.kinds.size):
        only = (np.arange(moves.kinds.size) >= pattern).astype(np.float64)
        batch = propose(rng, moves, moves.active, only, tries)
        paths = _changes_of_rows(rows, ones, batch, delta)
        for k in range(tries):
            keeps = batch.used[k] > 0
            for i in range(paths.many[k]):
                keeps = keeps and not fixed[paths.row[k, i]]
            shares[pattern] += keeps / tries
    return shares


@njit(cache=True, error_model="numpy")
def _changes_of_rows(rows, spans, batch, delta):
    """Return the effects that a batch of moves has on the rows of a density."""
    start, row, coefficient, factors = rows.start, rows.row, rows.coefficient, rows.factors
    stiff = 0.5 * factors[:, SLOPE] ** 2 + 2 * factors[:, CURVE]
    cells, change, used = batch.cells, batch.change, batch.used
    size = used.size
    most = cells.shape[1] * np.max(start[1:] - start[:-1])
    at, slope, many = np.empty((size, most), np.int64), np.empty((size, most)), np.zeros(size, np.int64)
    length, reach = np.zeros(size), np.zeros(size)
    for k in range(size):
        touched = 0
        for i in range(used[k]):
            cell = cells[k, i]
            length[k] += (change[k, i] / spans[cell]) ** 2
            for e in range(start[cell], start[cell + 1]):
                if delta[row[e]] == 0.0:
                    at[k, touched] = row[e]
                    touched += 1
                delta[row[e]] += change[k, i] * coefficient[e]
        # What cancelled was touched for nothing, or is listed twice: only its first place finds a change.
        precision = length[k]
        for i in range(touched):
            r = at[k, i]
            if delta[r] != 0.0:
                at[k, many[k]], slope[k, many[k]] = r, delta[r]
                many[k] += 1
                precision += delta[r] ** 2 * stiff[r]
                delta[r] = 0.0
        reach[k] = STRIDE / math.sqrt(precision)
    return _Paths(at, slope, many, length, reach)


@njit(cache=True, error_model="numpy")
def _follow(dice, rows, box, batch, paths, x, y, tally):
    """Take a step along every move of a batch, and change the table in place."""
    factors, table = rows.factors, rows.table
    pattern, used, cells, change = batch.pattern, batch.used, batch.cells, batch.change
    row, slope, many, length, reach = paths.row, paths.slope, paths.many, paths.length, paths.reach
    logs = np.zeros(WINDOW)
    for k in range(used.size):
        tally[0, pattern[k]] += 1
        if not used[k]:
            continue
        jump, here = 1 + int(reach[k] * dice[k, 0]), int(dice[k, 1] * WINDOW)
        logs[:] = 0.0
        for i in range(used[k]):
            cell, far = cells[k, i], jump * change[k, i]
            for place in range(WINDOW):
                value = x[cell] + (place - here) * far
                logs[place] = logs[place] if box[0, cell] <= value <= box[1, cell] else -np.inf
        for i in range(many[k]):
            r, far = row[k, i], jump * slope[k, i]
            if factors[r, U] != 0.0 or factors[r, TABLED] != 0.0:
                for place in range(WINDOW):
                    if logs[place] > -np.inf:
                        logs[place] += row_log_factor(factors, table, r, y[r] + (place - here) * far)
            else:
                centre, tilt, curve = factors[r, CENTRE], factors[r, SLOPE], factors[r, CURVE]
                low = max(factors[r, LOW], centre - factors[r, REACH])
                high = min(factors[r, HIGH], centre + factors[r, REACH])
                for place in range(WINDOW):
                    value = y[r] + (place - here) * far
                    away = abs(value - centre)
                    logs[place] -= (tilt + curve * away) * away if low <= value <= high else np.inf
        step = (draw_window_position(logs, here, dice[k, 2], dice[k, 3] < FRESH) - here) * jump
        if step != 0:
            for i in range(many[k]):
                y[row[k, i]] += step * slope[k, i]
            for i in range(used[k]):
                x[cells[k, i]] += step * change[k, i]
            tally[1, pattern[k]] += 1
            tally[2, pattern[k]] += step * step * length[k]


@njit(cache=True, error_model="numpy")
def draw_window_position(logs, here, luck, fresh):
    """Draw a position in a window of masses `exp(logs)`, afresh or by reflection of the present one."""
    top, total, below = np.max(logs), 0.0, 0.0
    for i in range(WINDOW):
        below = total if i == here else below
        logs[i] = math.exp(logs[i] - top)
        total += logs[i]
    left = total * luck if fresh else total - (below + luck * logs[here])
    for i in range(WINDOW):
        left -= logs[i]
        if left < 0.0:
            return i
    # Rounding alone leads past the end.
    return here
