"""Bounds on a tree: attainable totals of every node, and bounds that contradict each other.

A node's total lies within its own bounds and between the sums of its children's. Once both hold from the
leaves up, every total within a node's bounds can be split among its children (each within theirs), so the
bounds that `propagate` leaves are exactly the attainable totals, for real counts and for integers. An
exact node is one whose lower bound equals its upper bound.
"""

from __future__ import annotations

import numpy as np

from trueup.kernel.compiled import njit

# Sums of up to millions of doubles differ by rounding: bounds that cross by less than this part of their
# size are equal, but never those of whole numbers, whose sums are exact.
RELATIVE_TOLERANCE = 1e-9
WHOLE = 0.5


@njit(cache=True)
def propagate(child_ptr, lower, upper):
    """Tighten bounds from the leaves up, in place, until they are the attainable totals.

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
    """Find a smallest set of nodes whose own bounds leave ``node`` without an attainable total.

    Parameters
    ----------
    child_ptr
        Tree of n nodes, (n + 1,) int64.
    lower, upper
        The bounds as given to `propagate` (before it tightened them), (n,).
    node
        What `propagate` returned.

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
    """Return the highest descendants whose own lower bounds are as tight as those below them make it."""
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
    """Return the fewest demands (above 0, or infinite below) that together exceed the limit."""
    if not demands or min(demands.values()) < 0.0:  # none: the value of a leaf against its own bound
        return set(demands)
    chosen, total = set(), 0.0
    for v in sorted(demands, key=lambda v: -demands[v]):
        chosen.add(v)
        total += demands[v]
        if total > limit:
            break
    return chosen
