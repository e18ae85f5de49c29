"""Counts on a tree: least squares, nonnegative and whole-number solutions, from the top down.

Here: trees of counts: sums, and weighted least squares in two passes.

A tree is one array. Nodes stand in level order (breadth first), node 0 is the root, and the children of
``v`` are the nodes ``child_ptr[v] .. child_ptr[v + 1] - 1``; a node without children is a leaf. So a loop over
descending ``v`` meets children before their parent, and ascending ``v`` the parent first.

Least squares. Every node has a measurement ``y_v`` with noise variance ``q_v``: 0 means exact, infinity
means not measured. Going up, the subtree of ``v`` knows the total of ``v`` with value ``z_v`` and variance ``V_v``:

    leaf:   z = y,  V = q
    inner:  s = sum of the children's z,  U = sum of their V,
            z = s + g (y - s),  V = U q / (U + q),  with the gain g = U / (U + q).

Going down, ``x_root = z_root`` and what the parent knows better is shared out in proportion to variance:

    x_c = z_c + (V_c / U) (x_v - s).

Everything that can be 0/0 or inf/inf is in the gain and in the share ``V_c / U``; both depend on variances
alone, are computed once, and take their limits explicitly:

    gain    1 if q = 0 or U = inf (the own measurement alone counts, even beside exact children),
            0 if q = inf or U = 0 (the children alone count).  q = U = inf: 0, nothing is known.
    share   0 for every child if U = 0 (all children are exact);
            if U = inf, the children of infinite variance share equally and the others keep their z.

One child of infinite variance is determined by its parent and siblings; two are not: see `unidentified`.
"""

from __future__ import annotations

import numpy as np

from trueup.kernel.compiled import njit


@njit(cache=True)
def most_children(child_ptr):
    """Return the largest number of children of a node in a tree."""
    most = 0
    for v in range(child_ptr.size - 1):
        most = max(most, child_ptr[v + 1] - child_ptr[v])
    return most


@njit(cache=True)
def fuse(own, below):
    """Return the gain of a node's own value over the value from below, and the combined variance."""
    if own == np.inf or (below == 0.0 and own > 0.0):
        return 0.0, below
    if own == 0.0 or below == np.inf:
        return 1.0, own
    gain = below / (below + own)
    return gain, gain * own


@njit(cache=True)
def messages(child_ptr, variance):
    """Return the gains and variances of the upward pass of least squares, from variances alone.

    Parameters
    ----------
    child_ptr
        Tree of n nodes, (n + 1,) int64.
    variance
        Noise variances q, (n,), counts squared; 0 exact, inf not measured.

    Returns
    -------
    tuple of numpy.ndarray
        ``gain`` (n,), the weight of a node's own value against the sum of its children, and ``spread`` (n,),
        the variance V of its total given the measurements in its subtree.

    Examples
    --------
    >>> gain, spread = messages(np.array([1, 3, 3, 3]), np.array([2.0, 1.0, 1.0]))
    >>> gain, spread
    (array([0.5, 1. , 1. ]), array([1., 1., 1.]))
    """
    n = variance.size
    gain, spread = np.empty(n), np.empty(n)
    for v in range(n - 1, -1, -1):
        below = np.inf
        if child_ptr[v] < child_ptr[v + 1]:
            below = spread[child_ptr[v] : child_ptr[v + 1]].sum()
        gain[v], spread[v] = fuse(variance[v], below)
    return gain, spread


@njit(cache=True)
def shares(child_ptr, spread):
    """Return the share (n,), `V_c / U` or its limit, of a parent's correction that each node takes."""
    share = np.zeros(spread.size)
    for v in range(spread.size):
        a, b = child_ptr[v], child_ptr[v + 1]
        total = spread[a:b].sum()
        if total == np.inf:
            infinite = spread[a:b] == np.inf
            share[a:b] = infinite / infinite.sum()
        elif total > 0.0:
            share[a:b] = spread[a:b] / total
    return share


@njit(cache=True)
def unidentified(child_ptr, spread):
    """Return a node whose count the measurements do not determine, or -1.

    A subtree of infinite spread does not determine its own total. The root must, and among siblings at most
    one may not (the parent then gives it by difference).

    Examples
    --------
    >>> tree = np.array([1, 3, 3, 3])
    >>> unidentified(tree, messages(tree, np.array([1.0, np.inf, 1.0]))[1])
    -1
    >>> unidentified(tree, messages(tree, np.array([1.0, np.inf, np.inf]))[1])
    2
    """
    if spread[0] == np.inf:
        return 0
    for v in range(spread.size):
        free = 0
        for c in range(child_ptr[v], child_ptr[v + 1]):
            free += spread[c] == np.inf
            if free == 2:
                return c
    return -1


@njit(cache=True)
def sweep_up(child_ptr, gain, x):
    """Replace measurements by least-squares estimates from each node's subtree, (n,) in place."""
    for v in range(x.size - 1, -1, -1):
        below = x[child_ptr[v] : child_ptr[v + 1]].sum()
        if gain[v] == 0.0:  # an unmeasured value may be anything, even NaN
            x[v] = below
        elif gain[v] < 1.0:  # an exact value stays what it is, to the last bit
            x[v] = below + gain[v] * (x[v] - below)


@njit(cache=True)
def sweep_down(child_ptr, share, x):
    """Replace subtree estimates by the least-squares solution of the whole tree, (n,) in place."""
    for v in range(x.size):
        a, b = child_ptr[v], child_ptr[v + 1]
        if a < b:
            rest = x[v] - x[a:b].sum()
            for c in range(a, b):
                x[c] += share[c] * rest


def least_squares(child_ptr: np.ndarray, variance: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the additive counts x that minimise `sum (x_v - y_v)^2 / q_v`, in linear time.

    Parameters
    ----------
    child_ptr
        Tree of n nodes, (n + 1,) int64.
    variance
        Noise variances q, (n,), counts squared; 0 exact, inf not measured.
    values
        Measured counts y, (n,) or (b, n); where not measured, anything.

    Returns
    -------
    numpy.ndarray
        x, shaped like ``values``. Exact nodes that contradict each other (see `trueup.kernel.tree.whole`) or
        counts that no measurement determines (see `unidentified`) are the caller's to refuse.

    Notes
    -----
    The two passes are those of Hay, Rastogi, Miklau & Suciu (2010), section 4.1, for unequal variances and
    ragged trees.

    Examples
    --------
    >>> least_squares(np.array([1, 3, 3, 3]), np.array([2.0, 1.0, 1.0]), np.array([12.0, 4.0, 4.0]))
    array([10.,  5.,  5.])
    """
    gain, spread = messages(child_ptr, np.asarray(variance, float))
    x = np.array(values, dtype=float, order="C")
    _solve(child_ptr, gain, shares(child_ptr, spread), np.atleast_2d(x))
    return x


@njit(cache=True)
def _solve(child_ptr, gain, share, values):
    for i in range(values.shape[0]):
        sweep_up(child_ptr, gain, values[i])
        sweep_down(child_ptr, share, values[i])


@njit(cache=True)
def posterior_variances(child_ptr, spread):
    """Return the variance (n,) of each least-squares count, in linear time.

    Given the parent's count, a child's has variance ``V_c - V_c^2 / U`` whatever the rest of the tree says,
    and moves with the parent by its share ``V_c / U``; so

        W_root = V_root,    W_c = V_c (1 - V_c / U) + (V_c / U)^2 W_v.

    The limit for a child of infinite V is ``W_v`` plus its siblings' V (it is known by difference).

    Examples
    --------
    >>> tree = np.array([1, 3, 3, 3])
    >>> posterior_variances(tree, messages(tree, np.array([2.0, 1.0, 1.0]))[1])
    array([1.  , 0.75, 0.75])
    """
    result = np.empty(spread.size)
    result[0] = spread[0]
    for v in range(spread.size):
        a, b = child_ptr[v], child_ptr[v + 1]
        total = spread[a:b].sum()
        for c in range(a, b):
            if spread[c] == 0.0:
                result[c] = 0.0
            elif total < np.inf:
                share = spread[c] / total
                result[c] = spread[c] * (1.0 - share) + share * share * result[v]
            elif spread[c] < np.inf:
                result[c] = spread[c]
            else:
                result[c] = result[v]
                for sibling in range(a, b):
                    if sibling != c:
                        result[c] += spread[sibling]
    return result
