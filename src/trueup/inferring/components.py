"""Independent components of a posterior, and the moves of Markov chains on their cells.

Counts that nothing links are a small problem of their own. A row (a measured sum, a rule, a prior on a total) links the counts
that it holds and that may vary. What no row links factorises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.kernel.table_walks.moves import (
    LISTED,
    PAIR,
    SAME,
    SINGLE,
    SQUARE,
    Moves,
    Rows,
    enumerate_fibre,
    log_levels,
    sums,
)
from trueup.layouts.rows import RowProblem
from trueup.model.cells import Cells

ROW_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class IndependentPart:
    """An independent component: free cells that share constraint rows, with the fixed cells of these rows.

    Attributes
    ----------
    cells
        Positions `(k,)` of the cells in the problem.
    free
        `(k,)` mask of the cells that may vary.
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
        """Return the free cells of this component."""
        return self.cells[self.free]

    def tables(self, most: int) -> NDArray[np.int64] | None:
        """List all tables of counts `(t, k)` that satisfy the exact rows; None if more than `most`."""
        matrix, low, high = self.limits
        return enumerate_fibre(
            matrix, low - ROW_TOLERANCE, high + ROW_TOLERANCE, (self.box[0], self.box[1]), most
        )


def components(problem: RowProblem) -> list[IndependentPart]:
    """Split a problem into sets of free cells, such that no constraint row links two sets.

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
    """Return the sets of free cells that are linked by rows of a sparse matrix `(r, n)`."""
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
    """Return True if the fixed counts satisfy every constraint row that has no free cell."""
    free = problem.box[0] < problem.box[1]
    rows, n = problem.rows, problem.n
    touched = np.zeros(len(rows.factors), bool)
    touched[rows.row[np.repeat(free, np.diff(rows.start))]] = True
    x = np.where(free, 0, problem.box[0]).astype(np.int64)
    return bool(np.isfinite(log_levels(rows, sums(rows, x))[~touched]).all()) and n > 0


def pinned_counts(problem: RowProblem, cells: NDArray[np.int64], counts: NDArray[np.int64]) -> RowProblem:
    """Return the problem with the counts of the given cells fixed."""
    box = problem.box.copy()
    box[:, cells] = counts
    return replace(problem, box=box)


Vector = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Cells and what is added to them."""
MOST_AXES = 4
"""Axes up to which every way to change two parts of them is a pattern; beyond it, single axes and all others."""


def table_moves(cells: Cells, active: NDArray[np.int64], levels: set[int]) -> Moves:
    """Return all patterns of Markov chain moves on the free cells, in the layout of the compiled kernel.

    Parameters
    ----------
    cells
        The finest cells.
    active
        Those that may vary, `(a,)`.
    levels
        Levels at which something is measured or held: a place changes within a place of one of them.
    """
    tree = cells.tree
    above = sorted({0, *(level for level in levels if level < len(tree.levels) - 1)})
    group = np.array([tree.ancestors(len(tree.levels) - 1, level) for level in above], dtype=np.int64)
    bounds = np.zeros((len(above), tree.sizes[-1] + 1), np.int64)
    for row, level in zip(bounds, above):
        row[: tree.sizes[level] + 1] = tree.leaf_ptr(level)
    many = range(len(above)) if tree.sizes[-1] > 1 else ()
    patterns = list(_patterns([a.size for a in cells.attributes], many))
    none = np.zeros(0, np.int64)
    return Moves(
        active,
        np.array([a.size for a in cells.attributes], dtype=np.int64),
        group,
        bounds,
        np.array([kind for kind, _, _ in patterns], dtype=np.int64),
        np.array([places for _, places, _ in patterns], dtype=np.int64),
        np.array([axes for _, _, axes in patterns], dtype=bool).reshape(len(patterns), 2, -1),
        np.zeros(1, np.int64),
        none,
        none,
    )


def with_vectors(moves: Moves, vectors: Sequence[Vector]) -> Moves:
    """Return the moves with one more pattern, which draws from a list of vectors unless it is empty."""
    if not vectors:
        return moves
    return moves._replace(
        kinds=np.append(moves.kinds, LISTED),
        places=np.vstack([moves.places, [(SAME, SAME)]]),
        axes=np.concatenate([moves.axes, np.zeros((1, *moves.axes.shape[1:]), bool)]),
        start=np.cumsum([0, *(len(cell) for cell, _ in vectors)]).astype(np.int64),
        cell=np.concatenate([cell for cell, _ in vectors]).astype(np.int64),
        coefficient=np.concatenate([change for _, change in vectors]).astype(np.int64),
    )


def _patterns(sizes: list[int], many: Any) -> Iterator[tuple[int, tuple[int, int], NDArray[np.bool_]]]:
    """Yield every pattern of moves: kind, levels within which places change, and axes that change."""
    yield SINGLE, (SAME, SAME), np.zeros((2, len(sizes)), bool)
    longer = [axis for axis, size in enumerate(sizes) if size > 1]
    axes: list[int] = [*longer, *([-1] if len(many) else [])]
    for one, other in _parts(axes):
        wheres = [many if -1 in part else (SAME,) for part in (one, other)]
        for places in product(*wheres):
            flags = np.array([[axis in part for axis in range(len(sizes))] for part in (one, other)])
            yield (SQUARE if other else PAIR), (places[0], places[1]), flags.reshape(2, len(sizes))


def _parts(axes: list[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield pairs of disjoint sets of axes; the second set may be empty."""
    if len(axes) <= MOST_AXES:
        for sides in product((0, 1, 2), repeat=len(axes)):
            one, other = (tuple(a for a, side in zip(axes, sides) if side == k) for k in (1, 2))
            # (one, other) and (other, one) are the same moves.
            if one and (not other or one < other):
                yield one, other
        return
    yield tuple(axes), ()
    for axis in axes:
        yield (axis,), ()
        yield (axis,), tuple(a for a in axes if a != axis)
    for pair in combinations(axes, 2):
        yield (pair[0],), (pair[1],)
