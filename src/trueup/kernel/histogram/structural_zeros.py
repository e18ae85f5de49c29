"""Least squares on a tree of histograms some cells of which are zero by definition.

Zero cells do not commute with marginals, so they do not fit the basis of `anova.Domain`. They are equalities
`E x = 0` on the leaves, and the estimate under them is the unrestricted one moved by the least amount in its own
metric, `x - S E' (E S E')^-1 E x`, S the least-squares covariance. S costs one pass over the tree, so the system is
solved by conjugate gradients; its condition is that of S, not of the zeros, and no penalty enters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy  # its parts load when first used

from trueup.kernel.histogram.least_squares import Estimates, HistogramLeastSquares
from trueup.kernel.histogram.spine import Spine

ROUNDING = 1e-13  # of estimates, relative to all of them: less on the zeros is no count


def close(spine: Spine, zeros: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Close zeros: zero at a node implies zero at its children, and zero at all children zero at the node.

    Examples
    --------
    >>> spine = Spine(np.array([1, 3, 3, 3]))
    >>> closed = close(spine, [np.array([[True, False]]), np.array([[False, True], [False, True]])])
    >>> closed[0], closed[1].all()
    (array([[ True,  True]]), np.True_)
    """
    closed = [z.copy() for z in zeros]
    for level in range(spine.depth - 1):
        closed[level + 1] |= spine.to_children(level, closed[level][spine.inner[level]])
    for level in range(spine.depth - 2, -1, -1):
        open_below = spine.sum_children(level, (~closed[level + 1]).astype(np.int64))
        closed[level][spine.inner[level]] |= open_below == 0
    return tuple(closed)


def restrict(
    tree: HistogramLeastSquares, fit: Estimates, zeros: Sequence[np.ndarray], tolerance: float = 1e-12
) -> tuple[Estimates, float]:
    """Return least-squares estimates with some cells held at zero.

    Parameters
    ----------
    tree, fit : the tree and its unrestricted estimates
    zeros : per level, (nodes, n) True where a cell is zero, closed under the tree (see `close`)
    tolerance : of the conjugate gradients, relative

    Returns
    -------
    Estimates (both its parts given everything), and the largest count left on a zero cell
    """
    leaves = [_leaf_cells(tree.spine, level, mask) for level, mask in enumerate(zeros)]
    held = np.concatenate([v[at] for v, at in zip(fit.values, leaves, strict=True)])
    if held.size == 0:
        return fit, 0.0

    def covariance(multipliers: np.ndarray) -> tuple[np.ndarray, ...]:
        parts = np.split(multipliers, np.cumsum([at.sum() for at in leaves])[:-1])
        weights = [np.zeros(at.shape) for at in leaves]
        for w, at, part in zip(weights, leaves, parts, strict=True):
            w[at] = part
        return tree.solve(weights)

    def restricted(multipliers: np.ndarray) -> np.ndarray:
        return np.concatenate([v[at] for v, at in zip(covariance(multipliers), leaves, strict=True)])

    size = (held.size, held.size)
    multipliers, _ = scipy.sparse.linalg.cg(
        scipy.sparse.linalg.LinearOperator(size, restricted),  # pyright: ignore[reportCallIssue]
        held,
        rtol=tolerance,
        atol=ROUNDING * float(np.linalg.norm(np.concatenate([v.ravel() for v in fit.values]))),
        maxiter=1000,
    )
    values = tuple(v - c for v, c in zip(fit.values, covariance(multipliers), strict=True))
    left = max(float(np.abs(v[at]).max(initial=0.0)) for v, at in zip(values, leaves, strict=True))
    return Estimates(values, values, fit.conflict), left


def _leaf_cells(spine: Spine, level: int, mask: np.ndarray) -> np.ndarray:
    """Return the mask without the nodes that have children."""
    cells = mask.copy()
    cells[spine.inner[level]] = False
    return cells
