"""Division of invariants into independent pieces, each of the simplest kind.

Three reductions, in this order: cells that no invariant touches are free; a laminar family of
0/1 invariants (any two nested or disjoint) fixes the same lattice as a partition, because the
sum over a set less the sums over the sets inside it is a sum over what is left; and pieces that
share no invariant are independent. A piece is then recognised as one sum, as a two-way
table with fixed margins, or left general.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.errors import PrivacyError, SpecError
from trueup.kernel.lattice import algebra
from trueup.kernel.lattice.algebra import Matrix

Cells = NDArray[np.int64]
REDUCED_TOGETHER = 300
"""Cells up to which a whole basis is reduced, in under a second; beyond it one vector for each kind of cell."""


@dataclass(frozen=True)
class Piece:
    """Cells that share invariants with each other and with no other cells.

    Attributes
    ----------
    kind
        `free` (no invariant), `sum` (one fixed sum), `table` (both margins fixed), `grid` (the one-way margins of three axes or
        more) or `general`.
    cells
        Indices of the piece's cells, `(k,)`; of a table or grid with its axes.
    invariants
        Its independent invariants, `(m, k)`, over the cells in flat order.
    """

    kind: Literal["free", "sum", "table", "grid", "general"]
    cells: Cells
    invariants: Matrix

    @cached_property
    def basis(self) -> Matrix:
        """Return a short basis `(d, k)` of the piece's lattice.

        Of one sum the differences of neighbours; of a table the products of such differences of rows and columns. Else
        cells with equal columns differ by neighbours too, and one of each kind has a reduced basis (Hermite form and LLL).
        """
        if self.kind in ("free", "sum"):
            return _steps(self.cells.size) if self.kind == "sum" else np.eye(self.cells.size, dtype=np.int64)
        if self.kind == "table":
            return np.kron(*(_steps(size) for size in self.cells.shape))
        members = [
            np.flatnonzero(self.aggregates == aggregate) for aggregate in range(self.aggregates.max() + 1)
        ]
        firsts = np.array([cells[0] for cells in members])
        reduced = algebra.basis(self.invariants[:, firsts])
        between = np.zeros((len(reduced), self.cells.size), np.int64)
        between[:, firsts] = reduced
        within = np.zeros((self.cells.size - len(firsts), self.cells.size), np.int64)
        places = np.concatenate([np.stack([cells[:-1], cells[1:]], axis=1) for cells in members])
        within[np.arange(len(places))[:, None], places] = 1, -1
        joined = np.vstack([between, within])
        return algebra.reduced(joined) if self.cells.size <= REDUCED_TOGETHER else joined

    @cached_property
    def aggregates(self) -> NDArray[np.int64]:
        """Return a label `(k,)` of each cell, equal for cells that are in the same invariants."""
        return np.unique(self.invariants, axis=1, return_inverse=True)[1].ravel()

    @property
    def dimension(self) -> int:
        """Return the dimension of the piece's lattice."""
        return self.cells.size - len(self.invariants)


@dataclass(frozen=True)
class Lattice:
    """The integer vectors on `n` cells that leave all invariants unchanged.

    Attributes
    ----------
    n
        Number of cells.
    pieces
        Independent pieces with something left to vary.
    pinned
        Cells that the invariants determine, ascending: they are published exactly.

    Examples
    --------
    >>> lattice = Lattice.of(4, [[1, 1, 1, 0], [0, 0, 0, 1]])
    >>> [piece.kind for piece in lattice.pieces], lattice.pinned.tolist()
    (['sum'], [3])
    """

    n: int
    pieces: tuple[Piece, ...]
    pinned: Cells

    @classmethod
    def of(cls, n: int, invariants: Any, zeros: NDArray[np.bool_] | None = None) -> Lattice:
        """Split the lattice of `(m, n)` integer invariants, dense or sparse, into its pieces.

        Cells that `zeros` marks, `(n,)`, never vary: structural zeros.

        Raises
        ------
        SpecError
            Invariants that are not integers, are over no cell, or have another number of cells.
        PrivacyError
            The invariants determine every cell: nothing is left to protect.
        """
        rows = _invariant_rows(n, invariants)
        free = np.arange(n) if zeros is None else np.flatnonzero(~zeros)
        rows = rows[:, free]
        parts = _components(len(free), _partition(rows[np.diff(rows.indptr) > 0]))
        pieces = [piece for part in parts for piece in _recognise(*part)]
        lattice = _assemble(n, [replace(piece, cells=free[piece.cells]) for piece in pieces])
        if len(lattice.pinned) == n:
            raise PrivacyError(
                "the invariants determine every cell",
                needed="at least one cell that may vary",
                remedy="drop an invariant, or publish the table without noise",
            )
        return lattice

    @property
    def dimension(self) -> int:
        """Return the dimension of the lattice."""
        return sum(piece.dimension for piece in self.pieces)


def _invariant_rows(n: int, invariants: Any) -> Any:
    if not scipy.sparse.issparse(invariants):
        invariants = algebra.integer_matrix(invariants) if np.size(invariants) else np.zeros((0, n), np.int64)
    rows: Any = scipy.sparse.csr_array(invariants)
    if rows.shape[1] != n:
        raise SpecError(
            f"the invariants have coefficients for {rows.shape[1]} cells",
            needed=f"a coefficient for each of {n} cells",
        )
    if not (np.abs(rows.data) < 2**53).all():
        raise SpecError(
            "a coefficient of an invariant is not a number, or is 2^53 or more in size",
            needed="whole numbers below 2^53 in size",
        )
    if not np.array_equal(rows.data, np.rint(rows.data)):
        raise SpecError(
            "an invariant has a fraction as a coefficient",
            needed="whole numbers",
            remedy="multiply the invariant by the common denominator of its coefficients",
        )
    rows = rows.astype(np.int64)
    rows.eliminate_zeros()
    if np.any(np.diff(rows.indptr) == 0):
        empty = int(np.flatnonzero(np.diff(rows.indptr) == 0)[0])
        raise SpecError(f"invariant {empty} has only zeros", remedy="leave out this invariant")
    return rows


def _partition(rows: Any) -> Any:
    """Replace nested invariants by a partition with the same lattice; leave other invariants unchanged."""
    if not np.all(rows.data == 1):
        return rows
    top = np.full(rows.shape[1], -1)
    sizes, blocks = np.diff(rows.indptr), []
    for row in np.argsort(sizes, kind="stable"):
        cells = rows.indices[rows.indptr[row] : rows.indptr[row + 1]]
        inside, counts = np.unique(top[cells], return_counts=True)
        if np.any(sizes[inside[inside >= 0]] != counts[inside >= 0]):
            return rows
        blocks.append(cells[top[cells] < 0])
        top[cells] = row
    blocks = [block for block in blocks if len(block)]
    pointer = np.cumsum([0, *map(len, blocks)])
    indices = np.concatenate(blocks) if blocks else np.zeros(0, np.int64)
    return scipy.sparse.csr_array(
        (np.ones(len(indices), np.int64), indices, pointer), shape=(len(blocks), len(top))
    )


def _components(n: int, rows: Any):
    """Yield the `(cells, invariants)` of each connected component of the invariants."""
    graph = scipy.sparse.block_array([[None, rows], [rows.T, None]])
    labels = scipy.sparse.csgraph.connected_components(graph, directed=False)[1]
    of_row, of_cell = labels[: rows.shape[0]], labels[rows.shape[0] :]
    bound = np.diff(rows.tocsc().indptr) > 0
    if not bound.all():
        yield np.flatnonzero(~bound), np.zeros((0, n - bound.sum()), np.int64)
    for cells, members in _label_groups(of_cell[bound], np.flatnonzero(bound), of_row):
        yield cells, rows[members][:, cells].toarray()


def _label_groups(labels, cells, row_labels):
    order, row_order = np.argsort(labels, kind="stable"), np.argsort(row_labels, kind="stable")
    found, starts = np.unique(labels[order], return_index=True)
    low = np.searchsorted(row_labels[row_order], found)
    high = np.searchsorted(row_labels[row_order], found, side="right")
    for chunk, a, b in zip(np.split(cells[order], starts[1:]), low, high):
        yield chunk, row_order[a:b]


def _recognise(cells: Cells, matrix: Matrix) -> list[Piece]:
    """Return the pieces of one connected component, which determined cells may divide."""
    if len(matrix) == 0:
        return [Piece("free", cells, matrix)]
    if len(matrix) == 1 and np.all(np.abs(matrix) == 1):
        kind = "sum" if np.all(matrix == matrix[0, 0]) else "general"
        return [Piece(kind, cells, matrix)] if len(cells) > 1 else []
    grid = _grid(matrix)
    if grid is not None:
        ordered = matrix[algebra.independent_rows(matrix)][:, grid.ravel()]
        return (
            [Piece("table" if grid.ndim == 2 else "grid", cells[grid], ordered)]
            if min(grid.shape) > 1
            else []
        )
    matrix = matrix[algebra.independent_rows(matrix)]
    varies = ~algebra.pinned(matrix)
    if varies.all():
        return [Piece("general", cells, matrix)]
    # Cutting out determined cells can disconnect the rest or make it simpler.
    cells, matrix = cells[varies], matrix[:, varies]
    rows = scipy.sparse.csr_array(np.unique(matrix[matrix.any(axis=1)], axis=0))
    return [
        piece
        for part, sub in _components(len(cells), _partition(rows))
        for piece in _recognise(cells[part], sub)
    ]


def _steps(size: int) -> Matrix:
    """Return differences of neighbouring cells `(size - 1, size)`: a basis of the vectors with sum 0."""
    return np.eye(size - 1, size, dtype=np.int64) - np.eye(size - 1, size, 1, dtype=np.int64)


def _grid(matrix: Matrix) -> NDArray[np.intp] | None:
    """Return an arrangement of cells along axes whose one-way margins are the invariants, or None."""
    total = (matrix == 1).all(axis=1)
    margins = np.unique(matrix[~total], axis=0)
    if not (len(margins) and np.all((margins == 0) | (margins == 1))):
        return None
    axes = _axes(margins)
    if total.any() or any(axis.sum(axis=0).all() for axis in axes):
        axes = [_completed(axis) for axis in axes]
    if len(axes) < 2 or not all(np.all(axis.sum(axis=0) == 1) for axis in axes):
        return None
    shape = tuple(map(len, axes))
    place: Any = np.ravel_multi_index([np.argmax(axis, axis=0) for axis in axes], shape)
    grid: Any = np.argsort(place)
    return grid.reshape(shape) if np.array_equal(place[grid], np.arange(math.prod(shape))) else None


def _completed(axis: Matrix) -> Matrix:
    """Add the margin that an axis lacks, which the known total determines."""
    covered = axis.sum(axis=0)
    return axis if covered.all() else np.vstack([axis, 1 - covered])


def _axes(margins: Matrix) -> list[Matrix]:
    """Group margins into axes: margins of one axis share no cell, and those of different axes do."""
    axes = []
    while len(margins):
        apart = margins @ margins[0] == 0
        apart[0] = True
        axes.append(margins[apart])
        margins = margins[~apart]
    return axes


def _assemble(n: int, pieces: list[Piece]) -> Lattice:
    varies = np.zeros(n, bool)
    for piece in pieces:
        varies[piece.cells.ravel()] = True
    return Lattice(n, tuple(pieces), np.flatnonzero(~varies))
