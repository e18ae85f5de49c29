"""Top-down reconciliation: least squares upward, then one bounded projection per parent downward.

The global least-squares optimum under ``x >= 0`` lets noise at the leaves push every total up: a leaf that
would be negative is lifted to 0 and its ancestors pay. Here each total is settled from its own subtree and
its parent before its children see a bound, so totals that are far from their bounds stay unbiased, at a
small price in the least-squares objective.
"""

from __future__ import annotations

import numpy as np

from trueup.errors import SpecError
from trueup.kernel.compiled import njit
from trueup.kernel.tree.bounds import propagate
from trueup.kernel.tree.least_squares import messages, most_children, sweep_up
from trueup.kernel.tree.shrink import shrink_part
from trueup.kernel.tree.simplex import project_part


def topdown(
    child_ptr: np.ndarray,
    variance: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    values: np.ndarray,
    *,
    weights: tuple[np.ndarray, np.ndarray] | None = None,
    overwrite_bounds: bool = False,
    shrink: bool = False,
) -> tuple[np.ndarray, int]:
    """Reconcile from the top: each parent's children are projected on its total, within their bounds.

    Parameters
    ----------
    child_ptr
        Tree of n nodes, (n + 1,) int64.
    variance
        Noise variances q, (n,), counts squared; 0 exact, inf not measured.
    lower, upper
        Bounds on every node, (n,), counts; -inf and inf allowed.
    values
        Measured counts, (n,) or (b, n).
    weights
        What `messages` says of the tree and the variances, where it is known already.
    overwrite_bounds
        Whether the bounds are the caller's to lose, which saves the memory of two copies.
    shrink
        Whether small counts beside others at their bounds are shrunk (`trueup.kernel.tree.shrink`).

    Returns
    -------
    tuple
        x, shaped like ``values``, and -1 or the first node whose bounds and exact values below and above
        cannot all hold (x is then meaningless).

    Examples
    --------
    >>> tree, q = np.array([1, 3, 3, 3]), np.array([2.0, 1.0, 1.0])
    >>> topdown(tree, q, np.zeros(3), np.full(3, np.inf), np.array([6.0, 8.0, -4.0]))
    (array([5., 5., 0.]), -1)
    """
    if (
        any(len(given) != len(variance) for given in (lower, upper))
        or np.shape(values)[-1:] != variance.shape
    ):
        raise SpecError(
            f"a tree of {len(variance)} nodes is given {len(lower)} lower and {len(upper)} upper bounds, and values of shape "
            f"{np.shape(values)}",
            needed="one of each for every node",
        )
    gain, spread = weights or messages(child_ptr, variance)
    x = np.array(values, dtype=float, order="C")
    rows = np.atleast_2d(x)
    given = lower, upper
    scratch = given if overwrite_bounds and len(rows) == 1 else (np.empty_like(lower), np.empty_like(upper))
    return x, topdown_rows(child_ptr, variance == 0.0, gain, spread, *given, *scratch, rows, shrink)


@njit(cache=True)
def topdown_rows(child_ptr, exact, gain, spread, lower, upper, low, high, values, shrink):
    """Reconcile the rows of ``values`` (b, n) in place by `topdown`, from `messages`; ``low`` and ``high`` (n,) are scratch."""
    most = most_children(child_ptr)
    free, estimates = np.empty(most, np.int64), np.empty(most)
    for i in range(values.shape[0]):
        x = values[i]
        bad = attainable(child_ptr, exact, lower, upper, x, low, high)
        if bad >= 0:
            return bad
        sweep_up(child_ptr, gain, x)
        x[0] = min(max(x[0], low[0]), high[0])
        for v in range(exact.size):
            a, b = child_ptr[v], child_ptr[v + 1]
            if a < b:
                estimates[: b - a] = x[a:b]
                project_part(a, b, spread, low, high, x[v], x, free)
                if shrink:
                    shrink_part(a, b, spread, low, high, x[v], estimates, x)
    return -1


@njit(cache=True)
def attainable(child_ptr, exact, lower, upper, values, low, high):
    """Write the attainable totals, given bounds and exact values, into ``low`` and ``high``.

    Returns -1, or the first node that has none.
    """
    for v in range(exact.size):
        low[v], high[v] = lower[v], upper[v]
        if exact[v]:
            if not lower[v] <= values[v] <= upper[v]:
                return v
            low[v] = high[v] = values[v]
    return propagate(child_ptr, low, high)
