"""Which moves a chain makes on a table of cells, and whether they are known to connect it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.kernel.lattice.structure import Lattice
from trueup.kernel.table_walks.proposals import LISTED, PAIR, SAME, SINGLE, SQUARE, Moves
from trueup.model.cells import Cells

LARGEST_LATTICE = 300
"""Cells up to which invariants are split into their pieces, and a lattice basis is listed."""
MOST_AXES = 4
"""Axes up to which every way to change two parts of them is a pattern; beyond it, single axes and all others."""


def table_moves(cells: Cells, active: NDArray[np.int64], levels: set[int], lattice: Lattice | None) -> Moves:
    """Lay out all patterns of moves, and the lattice basis of what they may not reach.

    Parameters
    ----------
    cells
        The finest cells.
    active
        Those that may vary, `(a,)`.
    levels
        Levels at which something is measured or held: a place changes within a place of one of them.
    lattice
        Of the exact rows over the active cells, if it was worked out.
    """
    tree = cells.tree
    above = sorted({0, *(level for level in levels if level < len(tree.levels) - 1)})
    group = np.array([tree.ancestors(len(tree.levels) - 1, level) for level in above], dtype=np.int64)
    bounds = np.zeros((len(above), tree.sizes[-1] + 1), np.int64)
    for row, level in zip(bounds, above):
        row[: tree.sizes[level] + 1] = tree.leaf_ptr(level)
    many = range(len(above)) if tree.sizes[-1] > 1 else ()
    patterns = list(_patterns([a.size for a in cells.attributes], many))
    vectors = _listed(active, lattice)
    if vectors:
        patterns.append((LISTED, (SAME, SAME), np.zeros((2, len(cells.attributes)), bool)))
    starts = np.cumsum([0, *(len(cell) for cell, _ in vectors)]).astype(np.int64)
    flat = [
        np.concatenate([np.zeros(0, np.int64), *(v[k] for v in vectors)]).astype(np.int64) for k in (0, 1)
    ]
    return Moves(
        active,
        np.array([a.size for a in cells.attributes], dtype=np.int64),
        group,
        bounds,
        np.array([kind for kind, _, _ in patterns], dtype=np.int64),
        np.array([places for _, places, _ in patterns], dtype=np.int64),
        np.array([axes for _, _, axes in patterns], dtype=bool).reshape(len(patterns), 2, -1),
        starts,
        *flat,
    )


def _patterns(sizes: list[int], many: Any) -> Iterator[tuple[int, tuple[int, int], NDArray[np.bool_]]]:
    """Yield kind, levels of the place's change, and axes that change, of every pattern."""
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


def exact_lattice(rows: Any, active: NDArray[np.int64]) -> Lattice | None:
    """Split the lattice of exact rows over the active cells; None where it is large, or has nothing to vary."""
    rows = scipy.sparse.csr_array(rows[:, active])
    rows = rows[np.diff(rows.indptr) > 0]
    if not rows.shape[0] or len(active) > LARGEST_LATTICE:
        return None
    whole = np.lcm.reduce([int(v.denominator) for v in _fractions(rows.data)])
    return Lattice.of(len(active), np.rint(rows.toarray() * whole).astype(np.int64))


def _fractions(data: NDArray):
    from fractions import Fraction

    return {Fraction(float(v)).limit_denominator(10**6) for v in np.unique(data)}


def _listed(active: NDArray[np.int64], lattice: Lattice | None) -> list[tuple[NDArray, NDArray]]:
    """A reduced basis of every piece that is neither one sum nor a two-way table."""
    found = []
    for piece in lattice.pieces if lattice else ():
        if piece.kind == "general":
            flat = active[piece.cells.ravel()]
            found += [(flat[vector != 0], vector[vector != 0]) for vector in piece.basis]
    return found


def known_to_connect(lattice: Lattice | None, exact_rows: int, inequalities: int) -> bool:
    """Whether the moves are known to join all tables: boxes alone, one sum a piece, or complete two-way tables.

    Single steps join all tables in a box; pairs those with one sum each, in any box; basic moves those with
    both margins (Diaconis and Sturmfels 1998), if cells have no upper bounds of their own.
    """
    if inequalities:
        return False
    if not exact_rows:
        return True
    return lattice is not None and all(piece.kind != "general" for piece in lattice.pieces)
