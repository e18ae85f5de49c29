"""Whole numbers on a tree: the totals that bounds allow, and controlled rounding.

*Bounds.* A node's total lies within its own bounds and between the sums of its children's. Once both hold from the
leaves up, every total within a node's bounds can be split among its children (each within theirs), so the
bounds that `propagate` leaves are exactly the attainable totals, for real counts and for integers. An
exact node is one whose lower bound equals its upper bound.

*Controlled rounding:* whole numbers that add up, each the floor or ceiling of its real value.
Let every node choose between its floor (0) and its ceiling (1). Within a subtree the least cost of rounding
``v`` up instead of down is one number, the marginal cost ``m_v``: when ``v`` goes from ``k`` to ``k + 1``
children rounded up, it is best to add the child with the next smallest marginal cost, so

    m_v = (own cost of up) - (own cost of down) + (the need-th smallest m of the children),

with ``need = floor(v) - sum of the children's floors``. From the leaves up this gives the least cost of the
whole tree; from the root down it is carried out, one selection per parent. Linear time.

Siblings often tie: a projection moves all siblings of equal variance by the same amount, and so leaves them
with equal fractions. A tie settled by position would favour the first places of a list, so ties are
settled by a hash of the node number and a seed. The root's floor and ceiling tie as often: where integers were measured with
one variance everywhere, both are optimal (with three children, fractions of 1/4 leave the root one of 3/4, and rounding up
the root and one child costs as much as rounding up none). A tie settled downwards would bias every total.
"""

from __future__ import annotations

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.tree import most_children

# Sums of up to millions of doubles differ by rounding: bounds that cross by less than this part of their
# size are equal, but never those of whole numbers, whose sums are exact.
RELATIVE_TOLERANCE = 1e-9
WHOLE = 0.5


@njit(cache=True)
def propagate(child_ptr, lower, upper):
    """Tighten bounds from the leaves up, in place, to the totals that are attainable.

    Parameters
    ----------
    child_ptr
        Tree of n nodes, (n + 1,) int64.
    lower, upper
        Bounds of every node, (n,) float64, counts; -inf and inf allowed. Overwritten.

    Returns
    -------
    int
        -1, or the first node met that has no attainable total (see `conflict`).

    Examples
    --------
    >>> lower, upper = np.array([1.0, 2.0, 0.0]), np.array([8.0, 3.0, 4.0])
    >>> propagate(np.array([1, 3, 3, 3]), lower, upper), lower, upper
    (-1, array([2., 2., 0.]), array([7., 3., 4.]))
    >>> propagate(np.array([1, 3, 3, 3]), np.array([0.0, 2.0, 4.0]), np.array([5.0, 9.0, 9.0]))
    0
    """
    for v in range(lower.size - 1, -1, -1):
        a, b = child_ptr[v], child_ptr[v + 1]
        low, high = lower[v], upper[v]
        if a < b:
            low = max(low, lower[a:b].sum())
            high = min(high, upper[a:b].sum())
        if low > high:
            if not low - high <= min(WHOLE, RELATIVE_TOLERANCE * (1.0 + abs(low))):
                return v
            # Equal but for rounding: the node's own bound is the exact one.
            if lower[v] == low:
                high = low
            else:
                low = high
        lower[v], upper[v] = low, high
    return -1


def conflict(child_ptr: np.ndarray, lower: np.ndarray, upper: np.ndarray, node: int) -> np.ndarray:
    """Find a smallest set of nodes whose bounds leave ``node`` without an attainable total.

    Parameters
    ----------
    child_ptr
        Tree of n nodes, (n + 1,) int64.
    lower, upper
        The bounds as given to `propagate` (before it tightened them), (n,).
    node
        The node that `propagate` returned.

    Returns
    -------
    numpy.ndarray
        Sorted node numbers. Lower bounds of 0 (nonnegativity) are taken for granted and not named.

    Examples
    --------
    >>> tree = np.array([1, 4, 4, 4, 4])
    >>> conflict(tree, np.array([0, 2.0, 4, 1]), np.array([5.0, 9, 9, 9]), 0)
    array([0, 1, 2])
    """
    if lower[node] > upper[node]:
        return _conflict_nodes(node, set())
    low, high = np.array(lower, float), np.array(upper, float)
    propagate(child_ptr, low, high)  # stops at the node: everything below it is tightened
    most = _frontier(child_ptr, lower, low, node)
    if sum(most.values()) > upper[node]:
        return _conflict_nodes(node, _enough(most, upper[node]))
    least = _frontier(child_ptr, -upper, -high, node)
    return _conflict_nodes(node, set(least))  # without any one of these upper bounds there is no limit


def _conflict_nodes(node: int, others: set[int]) -> np.ndarray:
    return np.array(sorted({node} | others), dtype=np.int64)


def _frontier(child_ptr: np.ndarray, own: np.ndarray, tight: np.ndarray, node: int) -> dict[int, float]:
    """Return the highest descendants whose own lower bound is at least the one that nodes below imply."""
    found: dict[int, float] = {}
    open_nodes = [node]
    for v in open_nodes:
        for c in range(int(child_ptr[v]), int(child_ptr[v + 1])):
            if own[c] >= tight[c]:
                found[c] = float(own[c])
            else:
                open_nodes.append(c)
    return found


def _enough(demands: dict[int, float], limit: float) -> set[int]:
    """Return a smallest set of demands that exceed the limit together."""
    if not demands or min(demands.values()) < 0.0:  # none: the value of a leaf against its own bound
        return set(demands)
    chosen, total = set(), 0.0
    for v in sorted(demands, key=lambda v: -demands[v]):
        chosen.add(v)
        total += demands[v]
        if total > limit:
            break
    return chosen


# Fractions are read to 2**-30 (an exact multiple, so equal ones compare equal), or to the rounding error
# of a double of that size if this is coarser; a value that near to an integer is that integer.
RESOLUTION = 2.0**-30
ROUNDING_ERRORS = 16 * 2.0**-52
EQUAL_COST = 16 * RESOLUTION
"""Difference of two costs, as a share of the largest weight, up to which they are equal: sums of read fractions are rounded."""


def controlled_rounding(
    child_ptr: np.ndarray, weight: np.ndarray, values: np.ndarray, seeds: np.ndarray | int = 0
) -> np.ndarray:
    """Return additive integers, each the floor or ceiling of a count x, nearest in weighted squares.

    Parameters
    ----------
    child_ptr
        Tree of n nodes, (n + 1,) int64.
    weight
        Weights w, (n,), at least 0 and finite, e.g. 1/variance with 0 for exact and unmeasured nodes.
    values
        Additive real counts x, (n,) or (b, n), of size below 2^52. Integer bounds that hold for x hold
        for X.
    seeds
        Unsigned integers that settle ties, one for all or (b,).

    Returns
    -------
    numpy.ndarray
        X, int64, shaped like ``values``, additive. A value within 1e-9 (or within its rounding error) of
        an integer is that integer.

    Notes
    -----
    Controlled rounding: Cox & Ernst (1982). On a tree the constraint matrix is totally unimodular, so a
    solution exists; where rounding errors in x leave none, the nearest additive integer is taken.

    Examples
    --------
    >>> controlled_rounding(np.array([1, 4, 4, 4, 4]), np.ones(4), np.array([4.0, 2.4, 0.9, 0.7]))
    array([4, 2, 1, 1])
    """
    x = np.atleast_2d(np.ascontiguousarray(values, dtype=float))
    seeds = np.broadcast_to(np.asarray(seeds, np.uint64), x.shape[0])
    return _round_rows(child_ptr, weight, x, np.ascontiguousarray(seeds)).reshape(np.shape(values))


@njit(cache=True)
def _round_rows(child_ptr, weight, values, seeds):
    rounded = np.empty(values.shape, np.int64)
    marginal, equal = np.empty(weight.size), EQUAL_COST * weight.max()
    most = most_children(child_ptr)
    order, ties = np.empty(most, np.int64), np.empty(most, np.uint64)
    for i in range(values.shape[0]):
        _least_costs(child_ptr, weight, values[i], seeds[i], rounded[i], marginal, order, ties)
        if abs(marginal[0]) <= equal:
            marginal[0] = 0.5 - (hashed(0, seeds[i]) >> np.uint64(63))
        _carry_out(child_ptr, seeds[i], rounded[i], marginal, order, ties)
    return rounded


@njit(cache=True)
def _least_costs(child_ptr, weight, values, seed, low, marginal, order, ties):
    """Compute, from the leaves up, each node's rounded count and the cost of adding one."""
    for v in range(values.size - 1, -1, -1):
        low[v], fraction = split_total(values[v])
        marginal[v] = weight[v] * (1.0 - 2.0 * fraction) if fraction > 0.0 else np.inf
        a, b = child_ptr[v], child_ptr[v + 1]
        if a == b:
            continue
        least, size = low[a:b].sum(), _open(a, b, marginal, order)
        if low[v] < least:  # rounding errors: the children cannot go as low
            low[v] += fraction > 0.0
            low[v], marginal[v] = max(low[v], least), np.inf
        elif low[v] >= least + size:  # the children cannot go higher
            low[v], marginal[v] = least + size, np.inf
        elif fraction > 0.0:
            marginal[v] += marginal[_select(order, ties, size, low[v] - least, marginal, seed)]


@njit(cache=True)
def _carry_out(child_ptr, seed, chosen, marginal, order, ties):
    """Round up the cheapest children of each node, from the root down."""
    chosen[0] += marginal[0] < 0.0
    for v in range(chosen.size):
        a, b = child_ptr[v], child_ptr[v + 1]
        if a < b:
            need = chosen[v] - chosen[a:b].sum()
            size = _open(a, b, marginal, order)
            if 0 < need < size:
                _select(order, ties, size, need, marginal, seed)
            for k in range(need):
                chosen[order[k]] += 1


@njit(cache=True)
def split_total(value):
    """Split a count into its floor and its fraction, which is 0 within the tolerance."""
    tolerance = max(RESOLUTION, ROUNDING_ERRORS * abs(value))
    nearest = np.rint(value)
    if abs(value - nearest) <= tolerance:
        return np.int64(nearest), 0.0
    floor = np.floor(value)
    return np.int64(floor), np.rint((value - floor) / tolerance) * tolerance


@njit(cache=True)
def _open(a, b, marginal, order):
    """Write the nodes that can be rounded either way to `order`; return how many there are."""
    size = 0
    for c in range(a, b):
        if marginal[c] < np.inf:
            order[size] = c
            size += 1
    return size


@njit(cache=True)
def hashed(node, seed):
    """Return a 64-bit hash of a node number and a seed (splitmix64, Steele, Lea & Flood 2014)."""
    mixed = np.uint64(node) * np.uint64(0x9E3779B97F4A7C15) + seed
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@njit(cache=True)
def _select(order, ties, size, rank, marginal, seed):
    """Move the ``rank`` cheapest nodes to the front (quickselect), and return the next node."""
    for k in range(size):
        ties[k] = hashed(order[k], seed)
    first, last = 0, size - 1
    while first < last:
        middle = (first + last) // 2
        cost, tie = marginal[order[middle]], ties[middle]
        i, j = first, last
        while i <= j:
            while marginal[order[i]] < cost or (marginal[order[i]] == cost and ties[i] < tie):
                i += 1
            while cost < marginal[order[j]] or (cost == marginal[order[j]] and tie < ties[j]):
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                ties[i], ties[j] = ties[j], ties[i]
                i += 1
                j -= 1
        if rank <= j:
            last = j
        elif rank >= i:
            first = i
        else:
            break
    return order[rank]
