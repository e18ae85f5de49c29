"""Controlled rounding of two-way tables to the floor or ceiling of every cell, with exact row and column sums.

Take the floors. What is missing from the row and column sums is a 0/1 table with given margins, and choosing it at
least cost is a transportation problem with unit capacities: its matrix is totally unimodular, so shortest augmenting
paths end in the exact optimum. The squared distance to the continuous cell is `(1 - f)^2` up and `f^2` down, `f`
the fraction, so a cell rounded up costs `1 - 2 f`.

The table's cells may be split into families (columns of one family share the family's row sum), which is how one
rounding refines an earlier one: the earlier, coarser table gives the row sums.

One file: the transportation problem, its proof of the optimum and the rounding that it serves are one piece of mathematics.
"""

from __future__ import annotations

import numpy as np

from trueup.kernel.compiled import copy_line, copy_table, njit
from trueup.kernel.tree.whole import hashed

SNAP = 1e-7  # a cell this close below a whole number is that number
COST_DENOMINATOR = 99_991  # costs are whole multiples of 1 / GRAIN: ties are ties whatever the last digits
NUDGE = 1e-3  # how much of a multiple breaks ties
FREE = -1  # a sum that is not prescribed


@njit(cache=True)
def _cheapest(cost, need, taken):
    """Mark the `need` cheapest cells of a row as taken; return how many units found no cell."""
    order = np.argsort(cost, kind="mergesort")
    for k in range(need):
        if k >= cost.size or cost[order[k]] == np.inf:
            return need - k
        taken[order[k]] = True
    return 0


@njit(cache=True)
def _cheapest_shift(cost, taken, source, target):
    """Return the lowest cost of moving a unit from row `source` to row `target`, and its column, or -1."""
    best, at = np.inf, -1
    for j in range(cost.shape[1]):
        if taken[source, j] and not taken[target, j] and cost[target, j] - cost[source, j] < best:
            best, at = cost[target, j] - cost[source, j], j
    return best, at


@njit(cache=True)
def _nearest_lacking(shift, excess, price, distance, before, done):
    """Return the nearest row that lacks units, or -1, by Dijkstra's algorithm from rows with too many."""
    lines = excess.size
    for i in range(lines):
        distance[i] = 0.0 if excess[i] > 0 else np.inf
    before[:] = -1
    done[:] = False
    while True:
        node, best = -1, np.inf
        for i in range(lines):
            if not done[i] and distance[i] < best:
                node, best = i, distance[i]
        if node < 0:
            return -1
        done[node] = True
        if excess[node] < 0:
            break
        for k in range(lines):
            if not done[k] and shift[node, k] < np.inf:
                step = max(shift[node, k] + price[node] - price[k], 0.0)
                if best + step < distance[k]:
                    distance[k], before[k] = best + step, node
    for i in range(lines):
        price[i] += min(distance[i], best)
    return node


@njit(cache=True)
def _refresh(cost, taken, shift, place, line, moved):
    """Update the cheapest moves between rows after one unit was moved."""
    for k in range(shift.shape[0]):
        if k == line:
            continue
        for source, target in ((line, k), (k, line)):
            if place[source, target] == moved:
                shift[source, target], place[source, target] = _cheapest_shift(cost, taken, source, target)
            elif taken[source, moved] and not taken[target, moved]:
                rise = cost[target, moved] - cost[source, moved]
                if rise < shift[source, target]:
                    shift[source, target], place[source, target] = rise, moved


@njit(cache=True)
def _balance(cost, supply, demand, taken, price):
    """Compute the cheapest 0/1 table with given row and column sums, for no more rows than columns.

    Every place takes its cheapest units; then units move between lines along cheapest paths until each line has its own. As
    every place is at its optimum for the lines' sums at the start, and paths are shortest, so is the end.
    """
    lines, places = cost.shape
    missing = 0
    chosen = np.empty(lines, np.bool_)
    for j in range(places):
        chosen[:] = False
        missing += _cheapest(cost[:, j].copy(), demand[j], chosen)
        copy_line(taken[:, j], chosen)
    excess, wrong = np.empty(lines, np.int64), False
    for i in range(lines):
        excess[i] = -supply[i]
        for j in range(places):
            excess[i] += taken[i, j]
        wrong |= excess[i] != 0
    shift, place = np.empty((lines, lines)), np.empty((lines, lines), np.int64)
    for i in range(lines):
        for k in range(lines):
            shift[i, k], place[i, k] = np.inf, -1
            if wrong and i != k:
                shift[i, k], place[i, k] = _cheapest_shift(cost, taken, i, k)
    own, distance = np.zeros(lines), np.empty(lines)
    before, via, done = np.empty(lines, np.int64), np.empty(lines, np.int64), np.empty(lines, np.bool_)
    while wrong:
        node = _nearest_lacking(shift, excess, own, distance, before, done)
        if node < 0:
            break
        excess[node] += 1
        end = node
        while before[end] >= 0:
            via[end] = place[before[end], end]
            end = before[end]
        while before[node] >= 0:
            source, j = before[node], via[node]
            taken[source, j], taken[node, j] = False, True
            _refresh(cost, taken, shift, place, source, j)
            _refresh(cost, taken, shift, place, node, j)
            node = source
        excess[node] -= 1
        wrong = False
        for i in range(lines):
            wrong |= excess[i] > 0
    for i in range(lines):
        price[i] = -own[i]
        missing += abs(excess[i])
    for j in range(places):
        low, high, middle, open_ = -np.inf, np.inf, 0.0, 0
        for i in range(lines):
            if taken[i, j]:
                low = max(low, cost[i, j] - own[i])
            else:
                high = min(high, cost[i, j] - own[i])
            if cost[i, j] < np.inf:  # at twice what rounding moves a cell by, no other whole number is nearer
                middle += (
                    min(cost[i, j], COST_DENOMINATOR)
                    - own[i]
                    + (COST_DENOMINATOR if taken[i, j] else -COST_DENOMINATOR)
                )
                open_ += 1
        price[lines + j] = min(max(middle / max(open_, 1), low), high)
    return missing


@njit(cache=True)
def transport(cost, supply, demand, taken, price):
    """Compute the cheapest 0/1 table with given row and column sums.

    Sums that begin with `FREE` are not prescribed. Writes `taken` (rows, columns) and returns how many units
    could not be placed (0: exact and optimal). Where both sums are prescribed, `price` (rows + columns)
    proves the optimum: a cell (i, j) is taken at a cost of at most `price[rows + j] - price[i]`, and left at
    one of at least that.
    """
    rows, columns = cost.shape
    taken[:] = False
    missing = 0
    if supply[0] == FREE:
        for j in range(columns):
            line = np.zeros(rows, np.bool_)
            missing += _cheapest(cost[:, j].copy(), demand[j], line)
            copy_line(taken[:, j], line)
        return missing
    if demand[0] == FREE:
        for i in range(rows):
            missing += _cheapest(cost[i], supply[i], taken[i])
        return missing
    if rows <= columns:
        return _balance(cost, supply, demand, taken, price)
    turned, prices = np.zeros((columns, rows), np.bool_), np.empty(rows + columns)
    missing = _balance(np.ascontiguousarray(cost.T), demand, supply, turned, prices)
    copy_table(taken, turned.T)
    copy_line(price[rows:], -prices[:columns])
    copy_line(price[:rows], -prices[columns:])
    return missing


@njit(cache=True)
def _excess(x, allowed, out, members, price):
    """Return an upper bound on a block's squared distance from x, less the smallest possible one.

    With the price `p` of a unit of a cell, all tables t with these sums have the same `sum p t`, so no `sum (t - x)^2`
    is below the sum of the cells' least `(t - x)^2 - p t` plus that: attained at the whole number nearest `x + p / 2`,
    at least 0 where the table is.
    """
    total, lowest = 0.0, 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] < 0.0:
                lowest = -np.inf
    for i in range(x.shape[0]):
        for j in range(members.size):
            k = members[j]
            if allowed[i, k]:
                p = (price[x.shape[0] + j] - price[i]) / COST_DENOMINATOR
                best = max(np.rint(x[i, k] + p / 2.0), lowest)
                total += (out[i, k] - best) * (out[i, k] + best - 2.0 * x[i, k] - p)
    return total


@njit(cache=True)
def grouped(family, families):
    """Return the columns sorted by family, and where each family starts."""
    ends = np.zeros(families + 1, np.int64)
    for g in family:
        ends[g + 1] += 1
    begins = np.cumsum(ends)
    members, filled = np.empty(family.size, np.int64), begins.copy()
    for column, g in enumerate(family):
        members[filled[g]] = column
        filled[g] += 1
    return members, begins


@njit(cache=True)
def _round(x, allowed, first, family, families, row_sums, column_sums, nudge, out, excess):
    """Round every block of rows, one family of columns at a time; return each block's misplaced units."""
    parents, cells = first.size - 1, x.shape[1]
    free_rows, free_columns = row_sums.shape[0] == 0, column_sums.shape[0] == 0
    missing = np.zeros(parents, np.int64)
    order, ends = grouped(family, families)
    for p in range(parents):
        a, b = first[p], first[p + 1]
        for g in range(families):
            members = order[ends[g] : ends[g + 1]]
            cost, below = np.empty((b - a, members.size)), False
            supply = np.full(b - a, FREE) if free_rows else row_sums[a:b, g].copy()
            demand = np.full(members.size, FREE)
            for j in range(members.size):
                if not free_columns:
                    demand[j] = column_sums[p, members[j]]
                for i in range(b - a):
                    value = x[a + i, members[j]]
                    base = np.floor(value + SNAP)
                    out[a + i, members[j]] = base
                    up = np.rint(COST_DENOMINATOR * (1.0 - 2.0 * (value - base)))
                    if value <= base + SNAP:  # whole already: only if nothing else will do
                        up = 4.0 * COST_DENOMINATOR * cells * (b - a)
                    cost[i, j] = up + NUDGE * nudge[a + i, members[j]]
                    if not allowed[a + i, members[j]]:
                        cost[i, j] = np.inf
                    if not free_rows:
                        supply[i] -= np.int64(base)
                    if not free_columns:
                        demand[j] -= np.int64(base)
            for i in range(b - a):
                below |= not free_rows and supply[i] < 0
            for j in range(members.size):
                below |= not free_columns and demand[j] < 0
            if below:
                missing[p] += 1
                continue
            taken = np.zeros((b - a, members.size), np.bool_)
            price = np.zeros(b - a + members.size)
            # Half of all nudges lie below 1 / 2: where all sums are free, ties go either way, which biases no total.
            if free_rows and free_columns:
                for i in range(b - a):
                    for j in range(members.size):
                        taken[i, j] = cost[i, j] < 0.5 * NUDGE
            else:
                missing[p] += transport(cost, supply, demand, taken, price)
            for i in range(b - a):
                for j in range(members.size):
                    out[a + i, members[j]] += taken[i, j]
            if excess.size and not (free_rows or free_columns):
                excess[p] += _excess(x[a:b], allowed[a:b], out[a:b], members, price)
    return missing


def round_children(
    x: np.ndarray,
    first: np.ndarray,
    *,
    family: np.ndarray | None = None,
    row_sums: np.ndarray | None = None,
    column_sums: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    nudge: np.ndarray | None = None,
    excess: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Round blocks of rows to whole numbers, with the row and column sums given for each block.

    Parameters
    ----------
    x : (rows, n) array
    first : (blocks + 1,) where each block's rows start
    family : (n,) family of every column; all one family by default
    row_sums : (rows, families) whole numbers, or None if rows are free
    column_sums : (blocks, n) whole numbers, or None if columns are free
    allowed : (rows, n) False where a cell must not be rounded up
    nudge : (rows, n) numbers in [0, 1) that break ties, least first, and up below 1/2 where no sum is prescribed; by default
        the lowest index goes up where one sum is, and either of two equally near tables is taken where both are
    excess : (blocks,) to be written: where row and column sums are prescribed, by how much a block's squared distance
        may exceed the least of all whole tables with these sums, floors and ceilings or not (counts squared)

    Returns
    -------
    (rows, n) int64 array, and every block's number of units that found no place (0: every sum is exact, every
    cell is a floor or a ceiling, and the squared distance is least)

    Examples
    --------
    >>> x = np.array([[0.5, 1.5], [0.5, 0.5]])
    >>> sums = np.array([[2], [1]]), np.array([[1, 2]])
    >>> round_children(x, np.array([0, 2]), row_sums=sums[0], column_sums=sums[1])
    (array([[0, 2],
           [1, 0]]), array([0]))
    """
    n = x.shape[1]
    family = np.zeros(n, np.int64) if family is None else family.astype(np.int64)
    none = np.zeros((0, 0), np.int64)
    out = np.zeros(x.shape, np.int64)
    missing = _round(
        np.ascontiguousarray(x, dtype=float),
        np.ones(x.shape, np.bool_) if allowed is None else allowed,
        first.astype(np.int64),
        family,
        int(family.max()) + 1,
        none if row_sums is None else row_sums.astype(np.int64),
        none if column_sums is None else column_sums.astype(np.int64),
        np.zeros(x.shape) if nudge is None else nudge,
        out,
        np.zeros(0) if excess is None else excess,
    )
    return out, missing


def mixed_keys(keys: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return 64-bit keys mixed with indices, so that equal pairs give equal numbers."""
    with np.errstate(over="ignore"):
        return hashed.py_func(index.astype(np.uint64) + np.uint64(1), keys)


def nudges(keys: np.ndarray, cells: int) -> np.ndarray:
    """Return numbers in [0, 1) for every row's key and cell, by which ties are broken.

    Examples
    --------
    >>> nudges(np.array([7], np.uint64), 2).round(3).tolist() == nudges(np.array([7], np.uint64), 3)[:, :2].round(3).tolist()
    True
    """
    return (mixed_keys(keys[:, None], np.arange(cells)[None]) >> np.uint64(11)) / 2.0**53
