"""Markov chains on whole-number tables of an acyclic family, which keep all tables consistent.

A *record* u names one cell of every table, such that neighbours in the junction tree have the same cell of what they share.
Agreeing tables are sums of records, so tables can be emptied record by record and filled again, and every state between
agrees: adding and taking away single records connects all states. Exact sums of nested margins fix how many records have each
cell of the finest; then replacing records one by one connects all states. Three moves change them, each symmetric, as its
records are drawn by rules that do not know the state:

- *within*: k counts go from a cell of a table to another with the same cells of everything that it shares;
- *across*: to any other cell of the table; neighbours whose shared cell changes move k counts between cells of the two
  shared ones, and so on along the tree;
- *number*: k records are added to, or taken from, one cell of every table.

With probability 1/2 the length k is one more than an exponential of a tuned mean, else of an eighth of that.

The density is the likelihood of the noisy sums, `exp(-slope |e| - curvature e^2)` each, times a prior: flat, or that of
`trueup.kernel.families.division`.

One file: one state that all moves change in one way, and undo.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.families.division import move_concentrations, move_shares, prior_rise

WITHIN, ACROSS, NUMBER = 0, 1, 2
SHARES = (0.45, 0.9)
"""Of the moves: those within, and these with those across."""
SHORT_LENGTH_SHARE = 8.0
"""Part of the tuned mean that every second length has."""


class WalkLayout(NamedTuple):
    """The constant arrays of a Markov chain on a family of tables.

    Attributes
    ----------
    start
        `(t + 1,)` where the cells of each table begin.
    open_ptr, open_cells
        Cells that are not zero by definition, table by table.
    like_ptr, like_cells, like
        Cells with equal shared cells: where each class begins, its members, and `(n,)` the class of each cell.
    near_ptr, near, back
        The neighbours of every table in the junction tree, and the position of the same edge seen from there.
    side_at, side
        For each of these, where `(cells of the table,)` the shared cell of each cell begins in `side`.
    fibre_at, fibre_ptr, fibre_cells
        For each of these, where the pointers of the shared cells begin, and the open cells of the table in each.
    group
        `(n, s)` the sums that hold a cell, of which each is divided into the next and the last into cells; -1 for none.
    steps, sums_ptr
        `(t + 1,)` where the steps of each table begin among all, and where the sums that a step divides begin in `held`.
    value, value_ptr, apart
        `(n,)` the weight of each cell among `weights`, where each table's begin, and how far apart in a table cells of two
        weights stand: 1 where they are of values, the cells of a place where they are of places.
    block_ptr, blocks, in_blocks
        Weights of one sum, table by table: where the ends of a table's blocks begin in `blocks`, where each block ends, and its
        weights. A table whose shares are not drawn has none.
    is_open
        `(n,)` 1 for cells that are not zero by definition.
    seen
        `(n, h)` the noisy sums that count a cell; -1 for none.
    kept
        `(n, e)` the exact sums that count a cell; -1 for none.
    noisy, slope, curvature
        Values and laws of the noisy sums.
    """

    start: np.ndarray
    open_ptr: np.ndarray
    open_cells: np.ndarray
    like_ptr: np.ndarray
    like_cells: np.ndarray
    like: np.ndarray
    near_ptr: np.ndarray
    near: np.ndarray
    back: np.ndarray
    side_at: np.ndarray
    side: np.ndarray
    fibre_at: np.ndarray
    fibre_ptr: np.ndarray
    fibre_cells: np.ndarray
    group: np.ndarray
    steps: np.ndarray
    sums_ptr: np.ndarray
    value: np.ndarray
    value_ptr: np.ndarray
    apart: np.ndarray
    block_ptr: np.ndarray
    blocks: np.ndarray
    in_blocks: np.ndarray
    is_open: np.ndarray
    seen: np.ndarray
    kept: np.ndarray
    noisy: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray


class WalkState(NamedTuple):
    """The state of a Markov chain on a family of tables.

    Attributes
    ----------
    x, sums
        Cells `(n,)`, and noisy sums without noise.
    held, mass
        Sums that the prior divides, and the weights of the parts of each.
    alpha, weights
        Concentrations, one a step; weights of values, table by table.
    """

    x: np.ndarray
    sums: np.ndarray
    held: np.ndarray
    mass: np.ndarray
    alpha: np.ndarray
    weights: np.ndarray


@njit(cache=True)
def _noise_rise(layout, state, o, k):
    """Return the change of the log likelihood if a noisy sum increases by k."""
    before = layout.noisy[o] - state.sums[o]
    after = before - k
    return -layout.slope[o] * (abs(after) - abs(before)) - layout.curvature[o] * (
        after * after - before * before
    )


@njit(cache=True)
def _rise(layout, state, flat, table, source, target, k):
    """Return the change of the log density if k counts change cells, or -inf if one becomes negative."""
    total = 0.0
    if source >= 0 and state.x[source] < k:
        return -np.inf
    for h in range(layout.seen.shape[1]):
        o = -1 if source < 0 else layout.seen[source, h]
        p = -1 if target < 0 else layout.seen[target, h]
        if o != p:
            total += _noise_rise(layout, state, o, -k) if o >= 0 else 0.0
            total += _noise_rise(layout, state, p, k) if p >= 0 else 0.0
    if not flat:
        total += prior_rise(layout, state, table, source, target, -k) if source >= 0 else 0.0
        total += prior_rise(layout, state, table, target, source, k) if target >= 0 else 0.0
    return total


@njit(cache=True)
def _add(layout, state, cell, k):
    """Add k to a cell and to all sums that contain it."""
    state.x[cell] += k
    for h in range(layout.seen.shape[1]):
        if layout.seen[cell, h] >= 0:
            state.sums[layout.seen[cell, h]] += k
    for s in range(layout.group.shape[1]):
        if layout.group[cell, s] >= 0:
            state.held[layout.group[cell, s]] += k


@njit(cache=True)
def _any_of(rng, cells, first, last):
    return cells[first + int(rng.random() * (last - first))]


@njit(cache=True)
def _propagate(rng, layout, table, source, target, path):
    """Choose the cells of other tables that a move also changes; write them to `path`; return how many."""
    path[0, 0], path[0, 1], path[0, 2] = table, source, target
    count, at = 1, 0
    came = np.full(layout.start.size - 1, -1)
    while at < count:
        i, u, v = path[at]
        for slot in range(layout.near_ptr[i], layout.near_ptr[i + 1]):
            j = layout.near[slot]
            if j == came[i]:
                continue
            s = -1 if u < 0 else layout.side[layout.side_at[slot] + u - layout.start[i]]
            t = -1 if v < 0 else layout.side[layout.side_at[slot] + v - layout.start[i]]
            if s == t:
                continue
            other = layout.fibre_at[layout.back[slot]]
            p = layout.fibre_ptr
            path[count, 0] = j
            path[count, 1] = -1 if s < 0 else _any_of(rng, layout.fibre_cells, p[other + s], p[other + s + 1])
            path[count, 2] = -1 if t < 0 else _any_of(rng, layout.fibre_cells, p[other + t], p[other + t + 1])
            came[j] = i
            count += 1
        at += 1
    return count


@njit(cache=True)
def _keeps_exact(kept, source, target):
    """Return True if a move between two cells (-1: none) leaves all exact sums unchanged."""
    for e in range(kept.shape[1]):
        before = -1 if source < 0 else kept[source, e]
        after = -1 if target < 0 else kept[target, e]
        if before != after:
            return False
    return True


@njit(cache=True)
def _move(rng, layout, state, flat, kind, table, mean, path):
    """Propose one move of counts between cells; return True if it is accepted."""
    first, last = layout.open_ptr[table], layout.open_ptr[table + 1]
    if first == last:
        return False
    source, target = _any_of(rng, layout.open_cells, first, last), -1
    if kind == WITHIN:
        c = layout.like[source]
        target = _any_of(rng, layout.like_cells, layout.like_ptr[c], layout.like_ptr[c + 1])
    elif kind == ACROSS:
        target = _any_of(rng, layout.open_cells, first, last)
    elif rng.random() < 0.5:
        source, target = target, source
    if source == target:
        return False
    k = 1 + int(mean * rng.standard_exponential() / (1.0 if rng.random() < 0.5 else SHORT_LENGTH_SHARE))
    if source >= 0 and state.x[source] < k:
        return False
    count = _propagate(rng, layout, table, source, target, path)
    for at in range(count):
        if not _keeps_exact(layout.kept, path[at, 1], path[at, 2]):
            return False
    gain = 0.0
    for at in range(count):
        gain += _rise(layout, state, flat, path[at, 0], path[at, 1], path[at, 2], k)
    if not (gain >= 0.0 or math.log(1.0 - rng.random()) < gain):
        return False
    for at in range(count):
        for cell, more in ((path[at, 1], -k), (path[at, 2], k)):
            if cell >= 0:
                _add(layout, state, cell, more)
    return True


@njit(cache=True)
def walk(rng, layout, state, flat, fixed, means, tally, chances, thin, out):
    """Make `thin` sweeps for each row of `out`, and write the cells into the row.

    Parameters
    ----------
    flat, fixed : True if the prior is flat; True if its parameters stay
    means : (tables, 3) mean lengths of moves, by kind
    tally : (2, tables, 3) how many were proposed and how many were made, added to
    chances : (tables,) running sums of the chances of the tables
    """
    tables, n = layout.start.size - 1, state.x.size
    path = np.empty((tables, 3), np.int64)
    for sweep in range(thin * out.shape[0]):
        for _ in range(n):
            table = np.searchsorted(chances, rng.random(), side="right")
            u = rng.random()
            kind = WITHIN if u < SHARES[0] else ACROSS if u < SHARES[1] else NUMBER
            tally[0, table, kind] += 1
            if _move(rng, layout, state, flat, kind, table, means[table, kind], path):
                tally[1, table, kind] += 1
        if not (flat or fixed):
            move_concentrations(rng, layout, state)
            move_shares(rng, layout, state)
        if (sweep + 1) % thin == 0:
            out[(sweep + 1) // thin - 1] = state.x


def tuned(means: np.ndarray, tally: np.ndarray, wanted: float = 0.3) -> np.ndarray:
    """Return mean lengths of moves, scaled towards the wanted acceptance rate.

    Examples
    --------
    >>> tally = np.array([[[100, 100, 0]], [[60, 3, 0]]])
    >>> tuned(np.array([[4.0, 4.0, 4.0]]), tally).round(1)
    array([[8. , 0.4, 4. ]])
    """
    proposed, made = tally
    rate = np.divide(made, proposed, out=np.full(means.shape, wanted), where=proposed > 0)
    return np.clip(means * np.clip(rate / wanted, 0.1, 2.0), 0.05, 1e9)


def layout_fields(**arrays: Any) -> WalkLayout:
    """Return the arrays of a layout in the types that the kernel takes."""
    real = ("noisy", "slope", "curvature")
    return WalkLayout(
        **{k: np.ascontiguousarray(v, float if k in real else np.int64) for k, v in arrays.items()}
    )
