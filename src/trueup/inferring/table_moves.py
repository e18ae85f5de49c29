"""The moves that a chain makes on a table of cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.table_walks.moves import LISTED, PAIR, SAME, SINGLE, SQUARE, Moves
from trueup.model.cells import Cells

Vector = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Cells and what is added to them."""
MOST_AXES = 4
"""Axes up to which every way to change two parts of them is a pattern; beyond it, single axes and all others."""


def table_moves(cells: Cells, active: NDArray[np.int64], levels: set[int]) -> Moves:
    """Lay out all patterns of moves.

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
    """Add a pattern that draws from a list of vectors, if there are any."""
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
    """Yield kind, levels of the place's change, and changed axes of every pattern."""
    yield SINGLE, (SAME, SAME), np.zeros((2, len(sizes)), bool)
    longer = [axis for axis, size in enumerate(sizes) if size > 1]
    axes: list[int] = [*longer, *([-1] if len(many) else [])]
    for one, other in _parts(axes):
        wheres = [many if -1 in part else (SAME,) for part in (one, other)]
        for places in product(*wheres):
            flags = np.array([[axis in part for axis in range(len(sizes))] for part in (one, other)])
            yield (SQUARE if other else PAIR), (places[0], places[1]), flags.reshape(2, len(sizes))


def _parts(axes: list[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield two disjoint sets of axes, the second perhaps empty."""
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
