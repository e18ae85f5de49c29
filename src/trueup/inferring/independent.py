"""Independent components of a posterior: counts that nothing links, each a small problem of its own.

A row (a measured sum, a rule, a prior on a total) links the counts that it holds and that may vary. What no row links factorises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.kernel.table_walks.moves import Rows, enumerate_fibre, log_levels, sums
from trueup.layouts.rows import RowProblem

SLACK = 1e-6


@dataclass(frozen=True, eq=False)
class IndependentPart:
    """Free cells that rows link, with the fixed cells of these rows.

    Attributes
    ----------
    cells
        Which of the problem's cells, `(k,)`.
    free
        Which of these may vary, `(k,)`.
    box
        Their bounds `(2, k)`.
    rows
        The factors on them.
    limits
        Of these, the rows with hard bounds: matrix, low, high.
    """

    cells: NDArray[np.int64]
    free: NDArray[np.bool_]
    box: NDArray[np.float64]
    rows: Rows
    limits: tuple[Any, NDArray[np.float64], NDArray[np.float64]]

    @property
    def own(self) -> NDArray[np.int64]:
        """Return the free cells, which no other component has."""
        return self.cells[self.free]

    def tables(self, most: int) -> NDArray[np.int64] | None:
        """List all tables `(t, k)` that satisfy what is exact; return None if there are more than `most`."""
        matrix, low, high = self.limits
        return enumerate_fibre(matrix, low - SLACK, high + SLACK, (self.box[0], self.box[1]), most)


def components(problem: RowProblem) -> list[IndependentPart]:
    """Split a problem between free cells that no row links.

    Examples
    --------
    Two counts with noise of their own are two components; a noisy total makes them one. See `tests/inferring`.
    """
    rows, free = problem.rows, np.flatnonzero(problem.box[0] < problem.box[1])
    shape = (len(rows.factors), problem.n)
    by_cell: Any = scipy.sparse.csc_array((rows.coefficient, rows.row, rows.start), shape=shape)
    limits, low, high = problem.limits
    held: Any = (limits.tocsr(), limits.tocsc())
    return [
        _component(problem, own, (by_cell.tocsr(), by_cell), (*held, low, high))
        for own in linked(by_cell, free)
    ]


def linked(by_cell: Any, free: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return sets of free cells that rows of a sparse matrix `(r, n)` link, each ascending."""
    inner = scipy.sparse.csr_array(by_cell[:, free])
    graph = scipy.sparse.block_array([[None, inner], [inner.T, None]], format="csr")
    if not len(free):
        return []
    labels = scipy.sparse.csgraph.connected_components(graph, directed=False)[1][inner.shape[0] :]
    order = np.argsort(labels, kind="stable")
    return np.split(free[order], np.flatnonzero(np.diff(labels[order])) + 1)


def _component(problem: RowProblem, own: NDArray, factors: tuple, limits: tuple) -> IndependentPart:
    rows, used = problem.rows, np.unique(factors[1][:, own].indices)
    cells = np.union1d(own, factors[0][used].indices).astype(np.int64)
    part = factors[0][used][:, cells].tocsc()
    index = (part.indptr.astype(np.int64), part.indices.astype(np.int64), part.data.astype(float))
    hard = np.unique(limits[1][:, own].indices)
    return IndependentPart(
        cells,
        np.isin(cells, own),
        problem.box[:, cells],
        Rows(*index, rows.factors[used], rows.table),
        (scipy.sparse.csr_array(limits[0][hard][:, cells]), limits[2][hard], limits[3][hard]),
    )


def fixed_alone(problem: RowProblem) -> bool:
    """Return True if the rows without free cells allow the fixed counts."""
    free = problem.box[0] < problem.box[1]
    rows, n = problem.rows, problem.n
    touched = np.zeros(len(rows.factors), bool)
    touched[rows.row[np.repeat(free, np.diff(rows.start))]] = True
    x = np.where(free, 0, problem.box[0]).astype(np.int64)
    return bool(np.isfinite(log_levels(rows, sums(rows, x))[~touched]).all()) and n > 0


def pinned_counts(problem: RowProblem, cells: NDArray[np.int64], counts: NDArray[np.int64]) -> RowProblem:
    """Return the same problem with the counts of some cells given."""
    box = problem.box.copy()
    box[:, cells] = counts
    return replace(problem, box=box)
