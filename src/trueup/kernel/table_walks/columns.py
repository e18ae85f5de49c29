"""Markov chains on histograms of a hierarchy, which move one column at all places together.

The density of the lowest places' tables x, with T the totals of places, given concentrations a, compositions theta, and each
lowest place's size s and cell of one more, e (`sizes`):

    root             Gamma(T + 1) / Gamma(T + C a_1)                    a flat total (or a law given), C its inhabited children
    a place between  Gamma(T + w a_l) / Gamma(T + C a_(l+1))            its share of the total above, its children's split
    a lowest place   Gamma(T + w a_l) / T! s^T prod_j Gamma(x_j + e_j + kappa_j theta_j) / (x_j! (kappa_j + s)^x_j)

theta the composition of the place above; w is 1, or a part's weight by public numbers (`weights`), and C stands for the sum of
the children's; and for each measured table one factor of the difference of count and noisy value.
Lowest places may be uninhabited (`gibbs_steps`): these hold nobody, and no step changes them.

A *direction* u adds t_v u to the table of each lowest place v, where u is one column, a pair (+1, -1) or a square (+1,
-1, -1, +1) of columns; the table of each place above changes by the sum of its children's t, times u. Every factor is
then a function of one place's t, so that all t are drawn jointly from their law given the rest of the tables, by
messages up the tree and draws down. A lowest place's t is drawn from a window of W steps in which the current table has
a uniform place, and so are the sums of siblings' t: as windows lie at places that do not depend on the current table, any
table of the joint window would have proposed the same one with the same probability, and the law is kept.

Most steps are *mirrored*: down the tree each t is a function of one uniform number, and where the current t = 0 stem from u,
which is drawn given them, the next ones are those of 1 - u. As 1 - u is uniform where u is, the law is kept; a normal law is
reflected at its mean, which counts forget in half the sweeps (Neal 1998, "Suppressing random walks in Markov chain Monte Carlo
using ordered overrelaxation", whose order is that of the integers here, each drawn exactly). The others are drawn afresh.

Functions that make no array are compiled with `_nrt=False`: they borrow the arrays of their callers, as `linked` says.

One file: the messages, the draws that they lead to and the state that both change are one derivation; masses of places are
`place_masses`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.gibbs_steps import draw_inhabited
from trueup.kernel.table_walks.place_masses import (
    AT_ONCE,
    BOUND_TOLERANCE_COUNTS,
    LONGEST,
    NARROW,
    SINGLE,
    WIDE,
    message_at,
    sign,
    weigh_alike,
    weigh_places,
)

MIRRORED = 0.95
"""Share of steps that are mirrored."""
PADDED = 4 * WIDE
MIN_SCALED_SUM, SIBLINGS_A_SCALING = 1e-6, 4
"""Sums of masses below which they are scaled to 1, and at how many siblings that is looked at: windows cut off little of each."""


class MeasuredTables(NamedTuple):
    """The measured tables, each of one level.

    Attributes
    ----------
    level, groups, start
        `(r,)` level, groups a place, and where its values start.
    group
        `(r, n)` the group that each column belongs to.
    slope, curve, reach
        `(r,)` log mass of the noise, `-slope |d| - curve d^2` up to `|d| = reach`: 0 of what is exact.
    bound
        `(r,)` 1 where values are lower bounds, -1 where they are upper ones, 0 where they were measured.
    message, pull
        `(n, n)` and `(n,)`, or empty: the log density `pull x - x message x / 2` of the root's table.
    total, log_total
        `(k,)` totals of the root and their log prior, linear between them; both empty if it is flat.
    """

    level: NDArray[np.int64]
    groups: NDArray[np.int64]
    start: NDArray[np.int64]
    group: NDArray[np.int64]
    slope: NDArray[np.float64]
    curve: NDArray[np.float64]
    reach: NDArray[np.float64]
    bound: NDArray[np.int64]
    message: NDArray[np.float64]
    pull: NDArray[np.float64]
    total: NDArray[np.float64]
    log_total: NDArray[np.float64]


class Directions(NamedTuple):
    """The directions in which a chain on histograms moves, and the longest steps along them.

    Attributes
    ----------
    singles, pairs, squares
        `(s, 1)`, `(p, 2)`, `(q, 4)` columns; a sweep takes every single and as many of the others as turns say.
    longest_single, longest_pair, longest_square
        `(s,)`, `(p,)`, `(q,)` the longest step of each (counts).
    turns
        `(2,)` pairs and squares a sweep.
    window, span
        Steps of a lowest place's window, and `(levels,)` of the windows of siblings' sums.
    scale
        `(levels,)` the narrowest noise of a count of each level (counts), 0 where counts are known to their roots.
    """

    singles: NDArray[np.int64]
    pairs: NDArray[np.int64]
    squares: NDArray[np.int64]
    longest_single: NDArray[np.float64]
    longest_pair: NDArray[np.float64]
    longest_square: NDArray[np.float64]
    turns: NDArray[np.int64]
    window: int
    span: NDArray[np.int64]
    scale: NDArray[np.float64]


class ChainState(NamedTuple):
    """The state of a Markov chain on histograms, which is changed in place.

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
        `(leaves,)` whether their parent's total is split among them too; the rate of those that are not at each place above
        the lowest, 0 if all are.
    rates_law
        `(2,)` mean of the beta law of these rates, and the sum of its parameters.
    score, spread, factor
        `(places above the lowest, values)` and `(levels, values)` of each value of an attribute, and their factors of each cell,
        `(places above the lowest, n)`.
    weight, slope
        `(nodes,)` by how much a part's parameter is its level's concentration; `(p,)` coefficients of covariates.
    """

    x: NDArray[np.integer[Any]]
    total: NDArray[np.int64]
    gap: NDArray[np.float32] | NDArray[np.float64]
    top: NDArray[np.float64]
    theta: NDArray[np.float64]
    a: NDArray[np.float64]
    common: NDArray[np.float64]
    kappa: NDArray[np.float64]
    size: NDArray[np.float64]
    spare: NDArray[np.int64]
    inhabited: NDArray[np.bool_]
    rate: NDArray[np.float64]
    rates_law: NDArray[np.float64]
    score: NDArray[np.float64]
    spread: NDArray[np.float64]
    factor: NDArray[np.float64]
    weight: NDArray[np.float64]
    slope: NDArray[np.float64]


class TreeMessages(NamedTuple):
    """Arrays for the messages of places and of sums over siblings."""

    own: NDArray[np.float32]
    tail: NDArray[np.float32]
    ends: NDArray[np.int32]


class Room(NamedTuple):
    """Scratch arrays for the steps of one direction at all places.

    Attributes
    ----------
    steps, heads
        All places' steps; of each place above the lowest the part whose step is drawn first.
    masses, logs, ratios
        One place's masses, log masses, and ratios of masses to those of the step before.
    balance
        Factors a step of the masses of parts, of each place above the lowest, where totals change.
    leans, begun
        First ratios of normal noise from the present tables on, of all lowest places, and what a window's first step makes of it.
    pad, within
        A message between zeros; `WIDE` ones between as many zeros.
    first
        `(levels + 1,)` where each level's changed groups begin in the arrays below.
    which, change
        Table and group, and by how much.
    spot, law
        Where the group's values start and how far apart they lie, place by place; slope, curve and reach of the noise,
        and the slope of the log mass of normal noise for one step and a count's difference.
    """

    steps: NDArray[np.int64]
    heads: NDArray[np.int64]
    masses: NDArray[np.float64]
    logs: NDArray[np.float64]
    ratios: NDArray[np.float64]
    balance: NDArray[np.float64]
    leans: NDArray[np.float64]
    begun: NDArray[np.float64]
    pad: NDArray[np.float32]
    within: NDArray[np.float32]
    first: NDArray[np.int64]
    which: NDArray[np.int64]
    change: NDArray[np.float64]
    spot: NDArray[np.int64]
    law: NDArray[np.float64]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _touched(tables, columns, room, level, at):
    """Append to a list the measured values of a level that a direction changes; return the list's length."""
    which, change = room.which, room.change
    many = at
    for r in range(tables.level.size):
        if tables.level[r] == level:
            own = many
            for k in range(columns.size):
                g, i = tables.group[r, columns[k]], own
                while i < many and which[i, 1] != g:
                    i += 1
                if i == many:
                    which[i, 0], which[i, 1], change[i] = r, g, 0.0
                    many += 1
                change[i] += sign(k)
    for i in range(at, many):
        if change[i] != 0.0:
            r, g = which[i, 0], which[i, 1]
            change[at] = change[i]
            room.spot[at, 0], room.spot[at, 1] = tables.start[r] + g, tables.groups[r]
            room.law[at, 0], room.law[at, 1] = tables.slope[r], tables.curve[r]
            room.law[at, 2] = (
                tables.reach[r] + BOUND_TOLERANCE_COUNTS if tables.bound[r] == 0 else -2.0 + tables.bound[r]
            )
            at += 1
    return at


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def position_of_mass(masses, size, left):
    """Return the first position at which cumulative masses exceed `left`, or -1 if all masses are zero."""
    last = -1
    for i in range(size):
        if masses[i] > 0.0:
            last = i
            left -= masses[i]
            if left < 0.0:
                return i
    return last


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def position_of_narrow_mass(masses, left):
    """Return the same as `position_of_mass` for `NARROW` masses, without random branches."""
    one = (masses[0] + masses[1]) + (masses[2] + masses[3])
    two = one + ((masses[4] + masses[5]) + (masses[6] + masses[7]))
    three = two + ((masses[8] + masses[9]) + (masses[10] + masses[11]))
    i = 4 * ((left >= one) + (left >= two) + (left >= three))
    left -= (
        (one if left >= one else 0.0)
        + (two - one if left >= two else 0.0)
        + (three - two if left >= three else 0.0)
    )
    two = masses[i] + masses[i + 1]
    return i + (left >= masses[i]) + (left >= two) + (left >= two + masses[i + 2])


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True, fastmath=AT_ONCE)
def rank_of_position(u, masses, at, width):
    """Return a uniform number within the share of position `at` in cumulative masses, or u if it is empty."""
    if not masses[at] > 0.0:
        return u
    total, below = 0.0, 0.0
    for i in range(width):
        total += masses[i]
        below += masses[i] if i < at else 0.0
    return (below + u * masses[at]) / total


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _next(places, p, v):
    """Return the sibling after place v in cyclic order among the children of p."""
    return v + 1 if v + 1 < places.child_ptr[p + 1] else places.child_ptr[p]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _join(rng, places, work, level, span, room):
    """Convolve the masses of steps over siblings, in cyclic order, for all places of a level."""
    ends, width = work.ends, NARROW if level == places.level_ptr.size - 2 else WIDE
    for p in range(places.level_ptr[level - 1], places.level_ptr[level]):
        first, stop = places.child_ptr[p], places.child_ptr[p + 1]
        after = first + int(rng.random() * (stop - first))
        room.heads[p], own = _next(places, p, after), message_at(places, after)
        ends[after, 2], ends[after, 3] = ends[after, 0], ends[after, 1]
        for i in range(WIDE):
            work.tail[WIDE * (after + 1) + i] = work.own[own + i] if i < width else 0.0
        for _ in range(stop - first - 1):
            v = after - 1 if after > first else stop - 1
            low, size, tail_low = ends[v, 0], ends[v, 1], ends[after, 2]
            if size == 1:  # it holds nobody, or none to exchange: as many as half of blocks do
                ends[v, 2], ends[v, 3] = tail_low, ends[after, 3]
                for i in range(WIDE):
                    work.tail[WIDE * (v + 1) + i] = work.tail[WIDE * (after + 1) + i]
                after = v
                continue
            begin = -int(rng.random() * span)
            end = min(begin + span, low + size - 1 + tail_low + ends[after, 3])
            begin = max(begin, low + tail_low)
            ends[v, 2], ends[v, 3] = begin, end - begin
            shift = WIDE + begin - low - tail_low
            within = room.within[2 * WIDE - end + begin : 3 * WIDE - end + begin]
            sums, rest = (
                work.tail[WIDE * (v + 1) : WIDE * (v + 2)],
                work.tail[WIDE * (after + 1) : WIDE * (after + 2)],
            )
            convolve_message(work.own, message_at(places, v), size, rest, sums, shift, within, room.pad)
            if v % SIBLINGS_A_SCALING == 0:
                _raise(sums)
            after = v


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True, fastmath={"contract"})
def convolve_message(own, at, size, after, out, shift, within, pad):
    """Convolve the masses of a place's steps with the message `after` of its later siblings."""
    for i in range(WIDE):
        pad[WIDE + i] = after[i]
    for i in range(WIDE):  # apart: copies in one loop take longer
        out[i] = 0.0
    for t in range(0, size, NARROW):
        m, z = own[at + t : at + t + NARROW], pad[shift - t - NARROW + 1 : shift - t + WIDE]
        for i in range(
            WIDE
        ):  # terms are written out, so that they are added in registers, four sums at a time
            out[i] += within[i] * (
                (m[0] * z[i + 15] + m[1] * z[i + 14] + m[2] * z[i + 13] + m[3] * z[i + 12])
                + (m[4] * z[i + 11] + m[5] * z[i + 10] + m[6] * z[i + 9] + m[7] * z[i + 8])
                + (
                    (m[8] * z[i + 7] + m[9] * z[i + 6] + m[10] * z[i + 5] + m[11] * z[i + 4])
                    + (m[12] * z[i + 3] + m[13] * z[i + 2] + m[14] * z[i + 1] + m[15] * z[i])
                )
            )


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True, fastmath=AT_ONCE)
def _raise(masses):
    """Scale masses to the sum 1 if their sum is small."""
    total = np.float32(0.0)
    for i in range(WIDE):
        total += masses[i]
    if MIN_SCALED_SUM > total > 0.0:
        for i in range(WIDE):
            masses[i] /= total


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _move(rng, places, tables, moves, state, work, columns, stride, room):
    """Draw the steps of all places along one direction; return False if rounding left no mass.

    Which of siblings is drawn last is random: what is left for it depends on where in the masses of their steps the numbers of
    the others lie, so that it is mirrored least.
    """
    last, at = places.level_ptr.size - 2, 0
    for level in range(last + 1):
        room.first[level] = at
        at = _touched(tables, columns, room, level, at)
    room.first[last + 1] = at
    if columns.size == SINGLE:
        weigh_alike(places, state, stride, room.balance)
    for level in range(last, -1, -1):
        if not weigh_places(rng, places, tables, moves, state, work, columns, stride, level, room):
            return False
        if level > 0:
            _join(rng, places, work, level, moves.span[level], room)
    if not _descend(rng, places, work, room, rng.random() < MIRRORED):
        return False
    _apply(places, state, columns, stride, room)
    return True


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True, fastmath=AT_ONCE)
def share_masses(own, at, tail, after, back, within, width, masses):
    """Compute the masses of a place's steps, given its and its later siblings' total; return their sum.

    Beyond either end of a message others lie, times the zeros of `within`.
    """
    total = 0.0
    for t in range(0, width, NARROW):
        last = back - t - NARROW + 1
        m, z = (
            own[at + t : at + t + NARROW],
            tail[WIDE * (after + 1) + last : WIDE * (after + 1) + last + NARROW],
        )
        inside, out = within[WIDE + last : WIDE + last + NARROW], masses[t : t + NARROW]
        for i in range(NARROW):
            out[i] = mass = m[i] * z[NARROW - 1 - i] * inside[NARROW - 1 - i]
            total += mass
    return total


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True, fastmath=AT_ONCE)
def rank_of_share(u, own, at, tail, after, back, within, width, position):
    """Return the rank that `rank_of_position` gives among the masses that `share_masses` computes."""
    total, below = np.float32(0.0), np.float32(0.0)
    for t in range(0, width, NARROW):
        last, here = back - t - NARROW + 1, position - t
        m, z = (
            own[at + t : at + t + NARROW],
            tail[WIDE * (after + 1) + last : WIDE * (after + 1) + last + NARROW],
        )
        inside = within[WIDE + last : WIDE + last + NARROW]
        for i in range(NARROW):
            mass = m[i] * z[NARROW - 1 - i] * inside[NARROW - 1 - i]
            total += mass
            below += mass if i < here else np.float32(0.0)
    mass = own[at + position] * tail[WIDE * (after + 1) + back - position] * within[WIDE + back - position]
    return (below + u * mass) / total if mass > 0.0 else u


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _descend(rng, places, work, room, mirrored):
    """Draw each place's step given its parent's, or mirror the present one; return False if none is left."""
    child_ptr, masses, steps, ends, total, u = (
        places.child_ptr,
        room.masses,
        room.steps,
        work.ends,
        0.0,
        rng.random(),
    )
    for i in range(WIDE):
        masses[i] = work.own[i]
        total += masses[i]
    if mirrored:
        u = 1.0 - rank_of_position(u, masses, -ends[0, 0], WIDE)
    at = position_of_mass(masses, WIDE, u * total)
    if at < 0:
        return False
    steps[0] = ends[0, 0] + at
    lowest = places.level_ptr[-3]
    for v in range(places.level_ptr[-2]):
        left, c = steps[v], room.heads[v]
        for _ in range(child_ptr[v + 1] - child_ptr[v] - 1):
            after, low = _next(places, v, c), ends[c, 0]
            if ends[c, 1] == 1:
                steps[c], c = 0, after
                continue
            at = _step(rng, places, work, room, c, after, left, mirrored, WIDE if v < lowest else NARROW)
            if at < 0:
                return False
            steps[c] = low + at
            left -= low + at
            c = after
        steps[c] = left
    return True


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _step(rng, places, work, room, c, after, left, mirrored, width):
    """Draw a place's step given the total of it and its later siblings; return its position, or -1."""
    u, own, low, masses = rng.random(), message_at(places, c), work.ends[c, 0], room.masses
    back = -low - work.ends[after, 2]
    tail, within = work.tail, room.within
    if mirrored:
        u = 1.0 - rank_of_share(u, work.own, own, tail, after, back, within, width, -low)
    total = share_masses(work.own, own, tail, after, back + left, within, width, masses)
    if width == NARROW:
        at = position_of_narrow_mass(masses, u * total)
        if masses[at] > 0.0:
            return at
    return position_of_mass(masses, width, u * total)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _apply(places, state, columns, stride, room):
    """Change the counts of all places by the steps drawn along a direction."""
    level_ptr, steps = places.level_ptr, room.steps
    last = level_ptr.size - 2
    for k in range(columns.size):
        state.top[columns[k]] += sign(k) * stride * steps[0]
    for level in range(last + 1):
        for v in range(level_ptr[level], level_ptr[level + 1]):
            by, row = stride * steps[v], v - level_ptr[level]
            if by != 0:
                if columns.size == 1:
                    state.total[v] += by
                if level == last:
                    for k in range(columns.size):
                        state.x[row, columns[k]] += sign(k) * by
                for i in range(room.first[level], room.first[level + 1]):
                    state.gap[room.spot[i, 0] + row * room.spot[i, 1]] += room.change[i] * by


@njit(cache=True, error_model="numpy")
def column_sweep(rng, places, tables, moves, state, work, begin, end):
    """Draw new steps along single columns, pairs and squares; return the number of directions left out.

    Parameters
    ----------
    rng
        A NumPy generator.
    state
        Where the chain is, which is overwritten.
    begin, end
        Directions of the sweep that are taken.
    """
    levels, failed = places.level_ptr.size - 1, 0
    most = 4 * tables.level.size
    room = Room(
        np.zeros(places.parent.size, np.int64),
        np.zeros(places.level_ptr[-2], np.int64),
        np.empty(WIDE),
        np.empty(WIDE),
        np.empty(NARROW * LONGEST),
        np.ones(places.level_ptr[-2]),
        np.empty(places.parent.size - places.level_ptr[-2]),
        np.empty(NARROW),
        np.zeros(PADDED, np.float32),
        np.repeat(np.array([0.0, 1.0, 0.0], np.float32), WIDE),
        np.zeros(levels + 1, np.int64),
        np.empty((most, 2), np.int64),
        np.empty(most),
        np.empty((most, 2), np.int64),
        np.empty((most, 4)),
    )
    for turn in range(begin, end):
        if turn < len(moves.singles):
            columns, longest = moves.singles[turn], moves.longest_single[turn]
            if state.rate[0] > 0.0:
                draw_inhabited(rng, places, state)
        elif turn < len(moves.singles) + moves.turns[0]:
            one = int(rng.random() * len(moves.pairs))
            columns, longest = moves.pairs[one], moves.longest_pair[one]
        else:
            one = int(rng.random() * len(moves.squares))
            columns, longest = moves.squares[one], moves.longest_square[one]
        # Of every scale alike: small counts take short ones alone, and wide posteriors ask for long ones.
        stride = int((longest + 1.0) ** rng.random())
        if not _move(rng, places, tables, moves, state, work, columns, stride, room):
            failed += 1
    return failed
