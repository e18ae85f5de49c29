"""The joint table that closes a ring of tables: as nothing measures it, it is given the values of least interaction.

Least squares of what is measured estimates sums of the joint table. Cells with these sums, and no interaction beyond what the
sums say, are found by proportional fitting from equal cells (negative sums count as zero, so that the fit ends near them where
no table has them all). They enter least squares as if measured, with `WIDTH` times the variance of the widest noise: what is
measured is hardly moved, and what nothing measures is known no better than that. Errors are stated of what is measured alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.families.least_squares import FamilyLeastSquares
from trueup.kernel.histogram.marginals import Marginal
from trueup.model.cells import Cells

WIDTH = 10.0
"""Variance with which the joint table is taken as measured, as a multiple of the widest noise's."""
FITTING_SWEEPS = 30
"""Sweeps of proportional fitting over all sums."""


@dataclass(frozen=True, eq=False)
class JointTable:
    """A joint table that nothing measures, with what is measured of its sums.

    Attributes
    ----------
    part
        Its cells.
    level
        Its level's position.
    measured
        Least squares of what is measured.
    sums
        What it holds of the measured margins: level, marginal of the family's axes, and the group of each cell.
    open_
        `(cells,)` which cells are not zero by definition.
    """

    part: Cells
    level: int
    measured: FamilyLeastSquares
    sums: tuple[tuple[int, Marginal, NDArray[np.int64]], ...]
    open_: NDArray[np.bool_]

    def fitted(self, answers: Sequence[Sequence[NDArray]]) -> NDArray:
        """Return its cells `(b, places, cells of a place)` as the answers say; see `FamilyLeastSquares.fit`."""
        fit = self.measured.fit(answers)
        found = [(self.measured.table(fit, level, marginal), groups) for level, marginal, groups in self.sums]
        targets = [(np.maximum(x.reshape(len(x), -1), 0.0), groups) for x, groups in found]
        cells = proportional_fit(self.open_.astype(float), targets, FITTING_SWEEPS)
        return cells.reshape(len(cells), self.part.shape[0], -1)


def proportional_fit(
    start: NDArray, targets: Sequence[tuple[NDArray, NDArray[np.int64]]], sweeps: int
) -> NDArray:
    """Scale cells `(n,)` until they have given sums, one margin after the other.

    Parameters
    ----------
    targets
        For each margin its sums `(b, groups)`, and the group of every cell.

    Returns
    -------
    NDArray
        `(b, n)` cells.

    Examples
    --------
    >>> rows, columns = (np.array([[3.0, 1.0]]), np.array([0, 0, 1, 1])), (np.array([[2.0, 2.0]]), np.array([0, 1, 0, 1]))
    >>> proportional_fit(np.ones(4), [rows, columns], 5)
    array([[1.5, 1.5, 0.5, 0.5]])
    """
    x = np.tile(start, (len(targets[0][0]), 1))
    for _ in range(sweeps):
        for sums, groups in targets:
            now = np.stack([np.bincount(groups, row, sums.shape[1]) for row in x])
            x *= np.divide(sums, now, out=np.zeros_like(now), where=now > 0)[:, groups]
    return x
