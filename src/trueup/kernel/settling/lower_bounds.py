"""Lower bounds on marginals of the histograms on a tree, closed under sums.

Where marginals are nested, tables at least as large as given bounds exist below every table that is at least as large
as what these add up to: over the children of a place and over the cells of a coarser marginal. So bounds are added up
once, from the leaves and from fine to coarse; then each stage of settling looks for `x - l >= 0` with the bounds taken
off all sums, which is the problem without bounds. Upper bounds are lower bounds on minus the counts, infinite where there
is none: what tables may hold at most is added up alike. Along one marginal that is enough, and along several it seldom is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trueup.kernel.histogram.marginals import Marginal, marginalise, refines, relative
from trueup.kernel.histogram.spine import Spine


@dataclass(frozen=True)
class Lower:
    """Closed lower bounds at the nodes of a level: nested marginals, coarse to fine, and (nodes, cells) tables."""

    marginals: tuple[Marginal, ...]
    tables: tuple[np.ndarray, ...]

    def of(self, marginal: Marginal) -> np.ndarray | None:
        """Return bounds (nodes, cells) on a marginal's table; None if its coarser marginals hold them all."""
        within = [
            marginalise(table, relative(fine, marginal))
            for fine, table in zip(self.marginals, self.tables, strict=True)
            if refines(fine, marginal)
        ]
        return np.max(within, axis=0) if within else None

    def at(self, rows: np.ndarray) -> Lower:
        """Return the bounds of some of the nodes."""
        return Lower(self.marginals, tuple(t[rows] for t in self.tables))


def close_bounds(
    spine: Spine,
    marginals: Sequence[Marginal],
    own: Sequence[Sequence[np.ndarray]],
    below: Sequence[np.ndarray] = (),
) -> tuple[Lower, ...]:
    """Add bounds up from the leaves, and from fine marginals to coarse ones.

    Parameters
    ----------
    spine : the tree, or a forest
    marginals : nested, coarse to fine
    own : per level and marginal (nodes or 1, cells) whole numbers, or minus infinity
    below : if the last level is a cut, the closed bounds of its nodes by marginal

    Examples
    --------
    >>> total, cells = (np.array([0, 0]),), (np.array([0, 1]),)
    >>> spine = Spine(np.array([1, 3, 3, 3]))
    >>> own = [[np.array([[1]]), np.zeros((1, 2), int)], [np.zeros((1, 1), int), np.array([[2, 0]])]]
    >>> close_bounds(spine, [total, cells], own)[0].tables
    (array([[4]]), array([[4, 0]]))
    """
    levels: list[Lower] = []
    for level in range(spine.depth - 1, -1, -1):
        shapes = [(spine.size(level), t.shape[1]) for t in own[level]]
        tables = [np.array(np.broadcast_to(t, s)) for t, s in zip(own[level], shapes, strict=True)]
        if below and not levels:
            tables = [np.maximum(t, b) for t, b in zip(tables, below, strict=True)]
        for i in range(len(marginals)):
            if levels:
                inner = spine.inner[level]
                sums = spine.sum_children(level, levels[-1].tables[i])
                tables[i][inner] = np.maximum(tables[i][inner], sums)
        for i in range(len(marginals) - 2, -1, -1):
            within = marginalise(tables[i + 1], relative(marginals[i + 1], marginals[i]))
            tables[i] = np.maximum(tables[i], within)
        levels.append(Lower(tuple(marginals), tuple(tables)))
    return tuple(reversed(levels))
