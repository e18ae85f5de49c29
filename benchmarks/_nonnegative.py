"""The global least-squares optimum on a tree under ``x >= 0`` (at the leaves, hence everywhere).

Monotone active set. Solve without signs, fix every negative leaf at 0, solve again, until no leaf is
negative: a leaf once fixed is never released. Why: in leaf variables the Hessian ``H`` is the sum of
``(1 / q_v) 1_v 1_v'`` over nested sets, an ultrametric matrix, and the inverse of such a matrix is an M-matrix
(Martinez, Michon & San Martin 1994). Raising the negative leaves ``N`` to 0, by ``d > 0``, moves the other
free leaves ``R`` by ``-H_RR^-1 H_RN d <= 0``, and the multipliers of all fixed leaves ``F`` by
``(H_FN - H_FR H_RR^-1 H_RN) d >= 0``, a Schur complement of ``H``, whose inverse is a block of an M-matrix. So
leaves only fall and multipliers only grow. It is Michelot's projection on a simplex, carried to trees. A few
passes suffice on real tables.

Breakpoints (the guarantee for the worst case: O(n log n) times the depth). Let ``t`` be the price of one
more count in a subtree. Its total ``s(t)`` is continuous, piecewise linear and increasing: a leaf gives
``max(0, y + q t)``, siblings add, and a node's own measurement shears the graph, ``t + (s - y) / q``. Each leaf
keeps its one breakpoint, the price from which it is above 0. At the root the price is 0, and a leaf whose
breakpoint lies above it is 0 (one at the very price comes out 0 by itself, unless it is unmeasured and takes
up the rest). An exact node settles the price of its subtree by itself.
"""

from __future__ import annotations

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.tree import fuse

PASSES = 60  # then breakpoints find the zeros; realistic tables take 4 to 10 passes


def nonnegative(
    child_ptr: np.ndarray, variance: np.ndarray, values: np.ndarray, *, passes: int = PASSES
) -> tuple[np.ndarray, np.ndarray]:
    """Solve min sum (x_v - y_v)^2 / q_v over additive x >= 0, exactly.

    Parameters
    ----------
    child_ptr
        Tree of n nodes, (n + 1,) int64.
    variance
        Noise variances q, (n,), counts squared; 0 exact, inf not measured.
    values
        Measured counts y, (n,) or (b, n). Exact values must be attainable
        (`trueup.kernel.tree.topdown.attainable`), and the variances must determine every count
        (`trueup.kernel.tree.unidentified`).
    passes
        After that many passes the breakpoints take over; 0 starts with them.

    Returns
    -------
    tuple of numpy.ndarray
        x, shaped like ``values``, and the number of passes of each row, (b,) int64.

    Examples
    --------
    >>> tree, q = np.array([1, 3, 3, 3]), np.array([2.0, 1.0, 1.0])
    >>> nonnegative(tree, q, np.array([6.0, 8.0, -4.0]))
    (array([7.33333333, 7.33333333, 0.        ]), array([2]))
    """
    y = np.atleast_2d(np.ascontiguousarray(values, dtype=float))
    x, taken = _rows(child_ptr, np.asarray(variance, float), y, passes)
    return x.reshape(np.shape(values)), taken


@njit(cache=True)
def _rows(child_ptr, variance, values, passes):
    result = np.empty(values.shape)
    taken = np.zeros(values.shape[0], np.int64)
    fixed, spread = np.empty(variance.size, np.bool_), np.empty(variance.size)
    for i in range(values.shape[0]):
        fixed[:] = False
        found = True
        while found:
            if taken[i] == passes:
                _fix_by_breakpoints(child_ptr, variance, values[i], fixed)
            found = _pass(child_ptr, variance, values[i], fixed, spread, result[i])
            taken[i] += 1
    return result, taken


@njit(cache=True, inline="always")
def _pass(child_ptr, variance, y, fixed, spread, x):
    """Least squares with the fixed leaves at 0; fix the leaves that come out negative."""
    for v in range(y.size - 1, -1, -1):
        a, b = child_ptr[v], child_ptr[v + 1]
        if a < b:
            below = x[a:b].sum()
            gain, spread[v] = fuse(variance[v], spread[a:b].sum())
            x[v] = y[v] if gain == 1.0 else below
            if 0.0 < gain < 1.0:
                x[v] += gain * (y[v] - below)
        else:
            known = not fixed[v] and variance[v] < np.inf
            x[v] = y[v] if known else 0.0
            spread[v] = 0.0 if fixed[v] else variance[v]
    found = False
    for v in range(y.size):
        a, b = child_ptr[v], child_ptr[v + 1]
        if a < b:
            _share_out(a, b, spread, x[v], x)
        elif x[v] < 0.0:
            fixed[v] = found = True
    return found


@njit(cache=True)
def _share_out(a, b, spread, total, x):
    """Give the children what their parent knows better, in proportion to variance."""
    rest, room = total - x[a:b].sum(), spread[a:b].sum()
    if room == np.inf:
        rest /= (spread[a:b] == np.inf).sum()
        for c in range(a, b):
            if spread[c] == np.inf:
                x[c] += rest
    elif room > 0.0:
        price = rest / room
        for c in range(a, b):
            x[c] += price * spread[c]


@njit(cache=True, inline="always")
def _fix_by_breakpoints(child_ptr, variance, y, fixed):
    """Fix the leaves that are held at 0 at the optimum."""
    first, last = leaf_ranges(child_ptr)
    price, slope = np.empty(last[0]), np.empty(last[0])  # each leaf's breakpoint, and the slope it adds
    leaf, base = np.empty(last[0], np.int64), np.zeros(y.size)  # base: what is settled below an exact node
    fixed[:] = False
    for v in range(y.size - 1, -1, -1):
        p, e = price[first[v] : last[v]], slope[first[v] : last[v]]
        members, q = leaf[first[v] : last[v]], variance[v]
        a, b = child_ptr[v], child_ptr[v + 1]
        if a == b:
            p[0] = -y[v] / q if 0.0 < q < np.inf else 0.0
            e[0], members[0] = q, v
        else:
            base[v] = base[a:b].sum()
            order = np.argsort(p, kind="mergesort")
            p[:], e[:], members[:] = p[order], e[order], members[order]
        if q == 0.0:
            if a < b:
                _fix(p, members, _price_of(p, e, base[v], y[v]), fixed)
            p[:], e[:], members[:], base[v] = np.inf, 0.0, -1, y[v]
        elif a < b and q < np.inf:
            _shear(p, e, base[v], y[v], q)
    _fix(price, leaf, 0.0, fixed)


@njit(cache=True)
def _fix(price, leaf, final, fixed):
    for k in range(price.size):
        if leaf[k] >= 0 and price[k] > final:
            fixed[leaf[k]] = True


@njit(cache=True)
def _price_of(price, slope, base, total):
    """The price at which a subtree holds ``total``."""
    held, steep, at = base, 0.0, price[0]
    for k in range(price.size):
        if price[k] == np.inf or (price[k] > at and held + steep * (price[k] - at) >= total):
            break
        if price[k] > at:
            held += steep * (price[k] - at)
        at = price[k]
        steep += slope[k]
    return at + (total - held) / steep if 0.0 < steep < np.inf else at


@njit(cache=True)
def _shear(price, slope, base, y, q):
    """Add the measurement (y, q) of the subtree's total: prices rise by (s - y) / q."""
    held, steep, at, before = base, 0.0, price[0], 0.0
    for k in range(price.size):
        if price[k] == np.inf:
            return
        if price[k] > at:
            held += steep * (price[k] - at)
        at = price[k]
        steep += slope[k]
        price[k] = at + (held - y) / q
        after = steep / (1.0 + steep / q) if steep < np.inf else q
        slope[k], before = after - before, after


@njit(cache=True)
def optimality_gap(child_ptr, variance, y, x):
    """Check a nonnegative additive x for optimality, from the conditions alone.

    From the leaves up, each node has an interval of prices at which its subtree is optimal as it is: a
    positive leaf the single price ``(x - y) / q``, a leaf at 0 every price up to it; siblings need a common
    price; the node's own measurement adds its derivative; an exact node accepts any price. The root's
    must contain 0.

    Returns
    -------
    float
        The largest distance between prices that should agree, times sqrt(q) of the smallest measured
        variance (counts per standard deviation: dimensionless). Rounding error only, at the optimum.

    Examples
    --------
    >>> tree, q, y = np.array([1, 3, 3, 3]), np.array([2.0, 1.0, 1.0]), np.array([6.0, 8.0, -4.0])
    >>> optimality_gap(tree, q, y, np.array([22 / 3, 22 / 3, 0.0])) < 1e-12
    True
    >>> optimality_gap(tree, q, y, np.array([8.0, 8.0, 0.0]))
    1.0
    """
    low, high = np.empty(x.size), np.empty(x.size)
    gap, finest = 0.0, np.inf
    for v in range(x.size - 1, -1, -1):
        a, b = child_ptr[v], child_ptr[v + 1]
        low[v] = -np.inf if x[v] <= 0.0 and a == b else 0.0
        high[v] = 0.0
        if a < b:
            low[v], high[v] = low[a:b].max(), high[a:b].min()
        if low[v] > high[v]:
            gap = max(gap, low[v] - high[v])
            low[v] = high[v] = 0.5 * (low[v] + high[v])
        if variance[v] == 0.0:
            low[v], high[v] = -np.inf, np.inf
        elif variance[v] < np.inf:
            finest = min(finest, variance[v])
            low[v] += (x[v] - y[v]) / variance[v]
            high[v] += (x[v] - y[v]) / variance[v]
    gap = max(gap, low[0], -high[0])
    return gap * np.sqrt(finest) if finest < np.inf else gap


@njit(cache=True)
def leaf_ranges(child_ptr):
    """Number the leaves depth first and give each node's range of leaves.

    Returns
    -------
    tuple of numpy.ndarray
        ``first`` and ``last``, (n,) int64: the leaves under ``v`` are ``first[v] .. last[v] - 1``.

    Examples
    --------
    >>> first, last = leaf_ranges(np.array([1, 3, 5, 5, 5, 5]))
    >>> first, last
    (array([0, 0, 2, 0, 1]), array([3, 2, 3, 1, 2]))
    """
    n = child_ptr.size - 1
    first, last = np.zeros(n, np.int64), np.ones(n, np.int64)  # `last` holds the number of leaves at first
    for v in range(n - 1, -1, -1):
        if child_ptr[v] < child_ptr[v + 1]:
            last[v] = last[child_ptr[v] : child_ptr[v + 1]].sum()
    for v in range(n):
        position = first[v]
        for c in range(child_ptr[v], child_ptr[v + 1]):
            first[c] = position
            position += last[c]
            last[c] = position
    return first, last
