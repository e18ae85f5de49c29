"""Markov chains on histograms of a hierarchy: one step moves a column of all places at once, by messages on the tree.

The density of the lowest places' tables x, with T the totals of places, given concentrations a, compositions theta, and each
lowest place's size s and cell of one more, e (`sizes`):

    root             Gamma(T + 1) / Gamma(T + C a_1)                    a flat total, C its children that are inhabited
    a place between  Gamma(T + a_l) / Gamma(T + C a_(l+1))              its share of the total above, its children's split
    a lowest place   Gamma(T + a_l) / T! s^T prod_j Gamma(x_j + e_j + kappa_j theta_j) / (x_j! (kappa_j + s)^x_j)

theta the composition of the place above; and for each measured table one factor of the difference of count and noisy value.
Lowest places may be uninhabited (`inhabited`): these hold nobody, and no step changes them.

A *direction* u adds t_v u to the table of each lowest place v, where u is one column, a pair (+1, -1) or a square (+1,
-1, -1, +1) of columns; the table of each place above changes by the sum of its children's t, times u. Every factor is
then a function of one place's t, so that all t are drawn jointly from their law given the rest of the tables, by
messages up the tree and draws down. A lowest place's t is drawn from a window of W steps in which the current table has
a uniform place, and so are the sums of siblings' t: as windows lie at places that do not depend on the current table, any
table of the joint window would have proposed the same one with the same probability, and the law is kept.

One file: the density, its messages and the step are one derivation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.inhabited import draw_inhabited, parts

SLACK = 1e-6
FAR = 300.0
"""Logs of masses of normal noise that are multiplied up; farther ones are added as logs."""
SINGLE, PAIR, SQUARE = 1, 2, 4
"""Columns that a direction changes."""


class Places(NamedTuple):
    """A tree in level order, all leaves on the last level.

    Attributes
    ----------
    child_ptr, level_ptr, parent
        Children of node v are `child_ptr[v]:child_ptr[v + 1]`; nodes of a level; `(nodes,)`, -1 at the root.
    """

    child_ptr: NDArray[np.int64]
    level_ptr: NDArray[np.int64]
    parent: NDArray[np.int64]


class MeasuredTables(NamedTuple):
    """What was measured, `r` tables of one level each.

    Attributes
    ----------
    level, groups, start
        `(r,)` level, groups a place, and where its values start.
    group
        `(r, n)` the group that each column belongs to.
    slope, curve, reach
        `(r,)` log mass of the noise, `-slope |d| - curve d^2` up to `|d| = reach`: 0 of what is exact.
    least
        `(r,)` whether values are lower bounds.
    message, pull
        `(n, n)` and `(n,)`, or empty: the log density `pull x - x message x / 2` of the root's table.
    """

    level: NDArray[np.int64]
    groups: NDArray[np.int64]
    start: NDArray[np.int64]
    group: NDArray[np.int64]
    slope: NDArray[np.float64]
    curve: NDArray[np.float64]
    reach: NDArray[np.float64]
    least: NDArray[np.bool_]
    message: NDArray[np.float64]
    pull: NDArray[np.float64]


class Directions(NamedTuple):
    """Directions and windows.

    Attributes
    ----------
    singles, pairs, squares
        `(s, 1)`, `(p, 2)`, `(q, 4)` columns; a sweep takes every single and as many of the others as turns say.
    turns
        `(2,)` pairs and squares a sweep.
    window, span
        `(levels,)` steps of a lowest place's window, and of the window of siblings' sums.
    stride
        Longest step (counts).
    """

    singles: NDArray[np.int64]
    pairs: NDArray[np.int64]
    squares: NDArray[np.int64]
    turns: NDArray[np.int64]
    window: int
    span: NDArray[np.int64]
    stride: int


class ChainState(NamedTuple):
    """Where a chain is; changed in place.

    Attributes
    ----------
    x
        `(leaves, n)` tables of the lowest places.
    total
        `(nodes,)` totals.
    gap
        Measured counts less noisy values, table by table.
    top
        `(n,)` the root's table.
    theta
        `(places above the lowest, n)` compositions.
    a, common, kappa
        Concentrations: `(levels,)` of totals, the median of the cells', `(levels, n)` of each cell; of the root unused.
    size, spare
        `(leaves,)` the lowest places' sizes, and their cells of one more.
    inhabited, rate
        `(leaves,)` whether their parent's total is split among them too; `(1,)` the rate of those that are not, 0 if all are.
    """

    x: NDArray[np.int32]
    total: NDArray[np.int64]
    gap: NDArray[np.float64]
    top: NDArray[np.float64]
    theta: NDArray[np.float64]
    a: NDArray[np.float64]
    common: NDArray[np.float64]
    kappa: NDArray[np.float64]
    size: NDArray[np.float64]
    spare: NDArray[np.int64]
    inhabited: NDArray[np.bool_]
    rate: NDArray[np.float64]


class TreeMessages(NamedTuple):
    """Room for messages: of nodes `(nodes, window)`, of siblings' sums `(nodes, span)`, first steps and sizes of both; masses."""

    own: NDArray[np.float32]
    tail: NDArray[np.float32]
    ends: NDArray[np.int32]
    masses: NDArray[np.float64]


class Room(NamedTuple):
    """Room for one place's log masses; all steps; what a direction changes of a level's tables."""

    logs: NDArray[np.float64]
    steps: NDArray[np.int64]
    which: NDArray[np.int64]
    change: NDArray[np.float64]
    spot: NDArray[np.int64]
    law: NDArray[np.float64]


@njit(cache=True, error_model="numpy")
def _sign(k):
    """Of the columns of a direction."""
    return 1 if k == 0 or k == 3 else -1


@njit(cache=True, error_model="numpy")
def _touched(tables, columns, level, which, change):
    """List what a direction changes of the tables of a level: table and group `(m, 2)`, and by how much; how many."""
    many = 0
    for r in range(tables.level.size):
        if tables.level[r] == level:
            first = many
            for k in range(columns.size):
                g, at = tables.group[r, columns[k]], first
                while at < many and which[at, 1] != g:
                    at += 1
                if at == many:
                    which[at, 0], which[at, 1], change[at] = r, g, 0.0
                    many += 1
                change[at] += _sign(k)
    kept = 0
    for i in range(many):
        if change[i] != 0.0:
            which[kept], change[kept] = which[i], change[i]
            kept += 1
    return kept


@njit(cache=True, error_model="numpy")
def _ratio(x, up, down, step):
    """`Gamma(x + up) / Gamma(x + down)` at x + step over that at x."""
    if step == 1.0:
        return (x + up) / (x + down)
    if step == -1.0:
        return (x - 1.0 + down) / (x - 1.0 + up)
    more = math.lgamma(x + step + up) - math.lgamma(x + up)
    return math.exp(more - math.lgamma(x + step + down) + math.lgamma(x + down))


@njit(cache=True, error_model="numpy")
def _draw(rng, weights, size):
    """A position in proportion to weights; -1 where there are none."""
    total = 0.0
    for i in range(size):
        total += weights[i]
    left = rng.random() * total
    for i in range(size):
        left -= weights[i]
        if left < 0.0:
            return i
    return -1


@njit(cache=True, error_model="numpy")
def _windows(rng, places, moves, state, work, columns, stride):
    """Choose the window of every lowest place: one in which the current table has a uniform place, without negative counts."""
    first, ends, x = places.level_ptr[-2], work.ends, state.x
    for row in range(len(x)):
        low = -int(rng.random() * moves.window)
        high = low + moves.window - 1
        if not state.inhabited[row]:
            low = high = 0
        for k in range(columns.size):
            most = x[row, columns[k]] // stride
            if _sign(k) > 0:
                low = max(low, -most)
            else:
                high = min(high, most)
        work.ends[first + row, 0], ends[first + row, 1] = low, high - low + 1


@njit(cache=True, error_model="numpy")
def _leaf_prior(places, state, work, columns, stride):
    """Set the masses of every lowest place to the prior's ratios to that of the first step."""
    last, first, single = places.level_ptr.size - 2, places.level_ptr[-2], columns.size == 1
    x, total, theta, sizes, spare, a = (
        state.x,
        state.total,
        state.theta,
        state.size,
        state.spare,
        state.a[last],
    )
    for row in range(len(x)):
        v, s, both = first + row, sizes[row], 1.0
        p, low = places.parent[v], stride * work.ends[v, 0]
        for k in range(columns.size):
            whole = state.kappa[last, columns[k]] + s
            both *= 1.0 / whole if _sign(k) > 0 else whole
        if single:
            both *= s
        if stride > 1:
            both = both**stride
        work.masses[row, 0] = mass = 1.0
        for i in range(1, work.ends[v, 1]):
            t = low + stride * (i - 1.0)
            mass *= both
            if single:
                mass *= _ratio(total[v] + t, a, 1.0, float(stride))
            for k in range(columns.size):
                j, sign = columns[k], _sign(k)
                up = state.kappa[last, j] * theta[p, j] + (j == spare[row])
                mass *= _ratio(x[row, j] + sign * t, up, 1.0, float(sign * stride))
            work.masses[row, i] = mass


@njit(cache=True, error_model="numpy")
def _inner_prior(places, state, work, columns, stride, level):
    """Set the masses of every place of a level above the lowest to its children's times the prior's ratios."""
    child_ptr, first = places.child_ptr, places.level_ptr[level]
    up = 1.0 if level == 0 else state.a[level]
    for v in range(first, places.level_ptr[level + 1]):
        child, mass = child_ptr[v], 1.0
        down = parts(places, state.inhabited, v) * state.a[level + 1]
        low, size = work.ends[child, 2], work.ends[child, 3]
        work.ends[v, 0], work.ends[v, 1] = low, size
        for i in range(size):
            if columns.size == 1 and i > 0:
                mass *= _ratio(state.total[v] + stride * (low + i - 1.0), up, down, float(stride))
            work.masses[v - first, i] = mass * work.tail[child, i]


@njit(cache=True, error_model="numpy")
def _normal_noise(gap, room, row, many, stride, low, size, masses):
    """Multiply masses by those of normal noise, whose ratios from step to step are powers; False if they are too far apart."""
    lean, bend = 0.0, 0.0
    for k in range(many):
        far = room.change[k] * stride
        lean += 2.0 * room.law[k, 1] * far * gap[room.spot[k, 0] + row * room.spot[k, 1]]
        bend += room.law[k, 1] * far * far
    start, end = lean + bend * (2.0 * low + 1.0), lean + bend * (2.0 * (low + size) - 1.0)
    if max(abs(start), abs(end)) * size > FAR:
        return False
    mass, ratio, curve = 1.0, math.exp(-start), math.exp(-2.0 * bend)
    for i in range(1, size):
        mass *= ratio
        ratio *= curve
        masses[row, i] *= mass
    return True


@njit(cache=True, error_model="numpy")
def _log_noise(gap, room, row, many, stride, low, size):
    """Set `room.logs` to the log masses of the noise at a place."""
    logs = room.logs
    for i in range(size):
        logs[i] = 0.0
    for k in range(many):
        d, far = gap[room.spot[k, 0] + row * room.spot[k, 1]], room.change[k] * stride
        slope, curve, reach = room.law[k, 0], room.law[k, 1], room.law[k, 2]
        for i in range(size):
            y = d + far * (low + i)
            away = abs(y)
            if reach < 0.0:
                logs[i] = logs[i] if y >= -SLACK else -np.inf
            else:
                logs[i] = logs[i] - (slope + curve * away) * away if away <= reach else -np.inf


@njit(cache=True, error_model="numpy")
def _weigh(tables, state, work, room, many, columns, stride, level, level_ptr):
    """Multiply the masses of every place of a level by the noise's, and set its law; False if rounding left none."""
    first, normal = level_ptr[level], level > 0 or tables.pull.size == 0
    for i in range(many):
        normal = normal and room.law[i, 0] == 0.0 and room.law[i, 2] == np.inf
    for v in range(first, level_ptr[level + 1]):
        row, low, size = v - first, work.ends[v, 0], work.ends[v, 1]
        if not (normal and _normal_noise(state.gap, room, row, many, stride, low, size, work.masses)):
            _log_noise(state.gap, room, row, many, stride, low, size)
            if level == 0 and tables.pull.size:
                _message(tables, state.top, columns, stride, low, size, room.logs)
            _add_logs(room.logs, work.masses, row, size)
        most = 0.0
        for i in range(size):
            most = max(most, work.masses[row, i])
        if not most > 0.0:
            return False
        for i in range(size):
            work.own[v, i] = work.masses[row, i] / most
    return True


@njit(cache=True, error_model="numpy")
def _add_logs(logs, masses, row, size):
    """Multiply masses by exponentials, the largest 1."""
    top = -np.inf
    for i in range(size):
        top = max(top, logs[i])
    for i in range(size):
        masses[row, i] *= math.exp(logs[i] - top) if top > -np.inf else 0.0


@njit(cache=True, error_model="numpy")
def _message(tables, top, columns, stride, low, size, logs):
    """Add the log density of the root's table under the normal law that is known besides."""
    lean, bend = 0.0, 0.0
    for k in range(columns.size):
        lean += _sign(k) * (tables.pull[columns[k]] - tables.message[columns[k]] @ top)
        for m in range(columns.size):
            bend += _sign(k) * _sign(m) * tables.message[columns[k], columns[m]]
    for i in range(size):
        t = stride * (low + i)
        logs[i] += (lean - 0.5 * bend * t) * t


@njit(cache=True, error_model="numpy")
def _join(rng, places, work, level, span):
    """Sum every place's step and its later siblings' within a window of the sum, scaled to at most 1."""
    own, tail, ends = work.own, work.tail, work.ends
    for v in range(places.level_ptr[level + 1] - 1, places.level_ptr[level] - 1, -1):
        low, size = ends[v, 0], ends[v, 1]
        if v + 1 == places.child_ptr[places.parent[v] + 1]:
            for i in range(size):
                tail[v, i] = own[v, i]
            ends[v, 2], ends[v, 3] = low, size
            continue
        tail_low, tail_size, most = ends[v + 1, 2], ends[v + 1, 3], np.float32(0.0)
        start = -int(rng.random() * span)
        stop = min(start + span, low + size - 1 + tail_low + tail_size)
        start = max(start, low + tail_low)
        steps = stop - start
        for i in range(steps):
            tail[v, i] = 0.0
        for t in range(size):
            mass, shift = own[v, t], low + t + tail_low - start
            for i in range(max(shift, 0), min(shift + tail_size, steps)):
                tail[v, i] += mass * tail[v + 1, i - shift]
        for i in range(steps):
            most = max(most, tail[v, i])
        if most > 0.0:
            for i in range(steps):
                tail[v, i] /= most
        ends[v, 2], ends[v, 3] = start, steps


@njit(cache=True, error_model="numpy")
def _move(rng, places, tables, moves, state, work, columns, stride, room):
    """Draw all places' steps along a direction; False if rounding left no mass."""
    last = places.level_ptr.size - 2
    for level in range(last, -1, -1):
        many = _touched(tables, columns, level, room.which, room.change)
        for i in range(many):
            r = room.which[i, 0]
            room.spot[i, 0], room.spot[i, 1] = tables.start[r] + room.which[i, 1], tables.groups[r]
            room.law[i, 0], room.law[i, 1] = tables.slope[r], tables.curve[r]
            room.law[i, 2] = -1.0 if tables.least[r] else tables.reach[r] + SLACK
        if level == last:
            _windows(rng, places, moves, state, work, columns, stride)
            _leaf_prior(places, state, work, columns, stride)
        else:
            _inner_prior(places, state, work, columns, stride, level)
        if not _weigh(tables, state, work, room, many, columns, stride, level, places.level_ptr):
            return False
        if level > 0:
            _join(rng, places, work, level, moves.span[level])
    at = _draw(rng, work.own[0], work.ends[0, 1])
    if at < 0 or not _descend(rng, places, work, work.ends[0, 0] + at, room.logs, room.steps):
        return False
    _apply(places, tables, state, columns, stride, room)
    return True


@njit(cache=True, error_model="numpy")
def _descend(rng, places, work, step, logs, steps):
    """Draw every place's step given its parent's."""
    child_ptr, level_ptr, _ = places
    own, tail, ends, _ = work
    steps[0] = step
    for v in range(level_ptr[-2]):
        left, stop = steps[v], child_ptr[v + 1]
        for c in range(child_ptr[v], stop - 1):
            low = max(ends[c, 0], left - ends[c + 1, 2] - ends[c + 1, 3] + 1)
            high = min(ends[c, 0] + ends[c, 1] - 1, left - ends[c + 1, 2])
            for t in range(low, high + 1):
                logs[t - low] = own[c, t - ends[c, 0]] * tail[c + 1, left - t - ends[c + 1, 2]]
            at = _draw(rng, logs, high - low + 1)
            if at < 0:
                return False
            steps[c] = low + at
            left -= low + at
        steps[stop - 1] = left
    return True


@njit(cache=True, error_model="numpy")
def _apply(places, tables, state, columns, stride, room):
    """Change all counts by the steps drawn."""
    level_ptr, steps, which, change = places.level_ptr, room.steps, room.which, room.change
    last = level_ptr.size - 2
    for k in range(columns.size):
        state.top[columns[k]] += _sign(k) * stride * steps[0]
    for level in range(last + 1):
        many = _touched(tables, columns, level, which, change)
        for v in range(level_ptr[level], level_ptr[level + 1]):
            by, row = stride * steps[v], v - level_ptr[level]
            if by != 0:
                if columns.size == 1:
                    state.total[v] += by
                if level == last:
                    for k in range(columns.size):
                        state.x[row, columns[k]] += _sign(k) * by
                for i in range(many):
                    r = which[i, 0]
                    state.gap[tables.start[r] + row * tables.groups[r] + which[i, 1]] += change[i] * by


@njit(cache=True, error_model="numpy")
def column_sweeps(rng, places, tables, moves, state, work, count):
    """Run sweeps of all directions from a state, which is overwritten; returns how many directions were left out.

    Parameters
    ----------
    rng
        A NumPy generator.
    count
        Sweeps: every single column, and `moves.turns` pairs and squares at random.
    """
    width, most, failed = work.own.shape[1], 4 * tables.level.size, 0
    room = Room(
        np.empty(width),
        np.zeros(places.parent.size, np.int64),
        np.empty((most, 2), np.int64),
        np.empty(most),
        np.empty((most, 2), np.int64),
        np.empty((most, 3)),
    )
    for _ in range(count):
        for turn in range(len(moves.singles) + moves.turns.sum()):
            if turn < len(moves.singles):
                columns = moves.singles[turn]
                if state.rate[0] > 0.0:
                    draw_inhabited(rng, places, state)
            elif turn < len(moves.singles) + moves.turns[0]:
                columns = moves.pairs[int(rng.random() * len(moves.pairs))]
            else:
                columns = moves.squares[int(rng.random() * len(moves.squares))]
            stride = 1 + int(
                rng.random() ** 2 * moves.stride
            )  # short ones more often: small counts take no others
            if not _move(rng, places, tables, moves, state, work, columns, stride, room):
                failed += 1
    return failed
