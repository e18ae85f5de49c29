"""The smallest change that keeps the same sums, of the cell that is hardest to change."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.lattice.smallest import Exhausted, Search, Vector
from trueup.kernel.lattice.structure import Lattice, Piece
from trueup.noise.cost import Sensitivity

MAX_CHANGE_NORM = 24
"""L1 norm of a change beyond which none is looked for."""
MAX_SEARCH_STEPS = 100_000
"""Partial changes of one piece that the search may visit: a second or two."""
MAX_LISTED_DIMENSIONS, LISTED = 8, 2_000_000
"""Dimensions of a piece up to which its short vectors are listed, and how many of them at most."""


def hardest_change(lattice: Lattice) -> Sensitivity | None:
    """Return the largest, over cells that vary, of the smallest changes through them, in either norm."""
    unlike = {(p.kind, p.cells.shape, p.invariants.tobytes()): p for p in lattice.pieces}
    found = [_of_piece(piece) for piece in unlike.values()]
    if None in found:
        return None
    l1, square = (max(norms) for norms in zip(*(each for each in found if each is not None), strict=True))
    return Sensitivity(Fraction(l1), Fraction(square))


def _of_piece(piece: Piece) -> tuple[int, int] | None:
    """Return the largest of the smallest changes of one piece; None if not found."""
    if piece.kind != "general":
        size = {"free": 1, "sum": 2, "table": 4, "grid": 4}[piece.kind]
        return size, size
    if piece.dimension <= MAX_LISTED_DIMENSIONS and (listed := _listed_norms(piece.basis)):
        return listed
    columns, counts = np.unique(piece.invariants, axis=1, return_counts=True)
    search, most = Search(columns, MAX_SEARCH_STEPS), (2, 2) if (counts > 1).any() else (0, 0)
    for cell in np.flatnonzero(counts == 1).tolist():  # cells with a twin lose to it what they gain
        norms = _through(search, cell, counts)
        if norms is None:
            return None
        most = max(most[0], norms[0]), max(most[1], norms[1])
    return most


def _through(search: Search, cell: int, counts: NDArray[np.int64]) -> tuple[int, int] | None:
    """Return the least L1 and squared L2 norm of changes through a kind of cell; None if not found in time.

    No whole vector has a smaller squared L2 than L1 norm, so vectors up to the least square found are all that matter.
    """
    least, square = 0, MAX_CHANGE_NORM**2
    try:
        for limit in range(1, MAX_CHANGE_NORM + 1):
            if limit > square:
                break
            for vector in search.within(cell, limit, every=True):
                least = least or limit
                square = min(square, _square(vector, counts))
    except Exhausted:
        return None
    return (least, square) if least and square <= MAX_CHANGE_NORM else None


def _listed_norms(basis: NDArray[np.int64]) -> tuple[int, int] | None:
    """Return a piece's norms from all candidates for its smallest vectors; None if there are too many.

    A vector is `c B`, so `c = v D` with the dual basis D, and `|c_i| <= |v|_1 max |D_i|` and `|c_i| <= |v|_2 |D_i|_2`. Through
    every cell some vector of the basis has at most the norms that are inserted.
    """
    dual = np.linalg.pinv(basis.astype(float))
    through = np.where(basis != 0, 1.0, np.inf)
    l1, square = (
        float((norms[:, None] * through).min(axis=0).max())
        for norms in (np.abs(basis).sum(axis=1), (basis**2).sum(axis=1))
    )
    reach = np.floor(
        np.maximum(l1 * np.abs(dual).max(axis=0), np.sqrt(square) * np.sqrt((dual**2).sum(axis=0))) + 1e-9
    ).astype(np.int64)
    if np.log(2 * reach + 1).sum() > np.log(LISTED):
        return None
    coefficients = np.indices(2 * reach + 1).reshape(len(reach), -1).T - reach
    v = np.abs(coefficients @ basis)
    norms = [
        np.where(v != 0, norm[:, None], LISTED**2).min(axis=0).max()
        for norm in (v.sum(axis=1), (v**2).sum(axis=1))
    ]
    return int(norms[0]), int(norms[1])


def _square(vector: Vector, counts: NDArray[np.int64]) -> int:
    """Return the least squared L2 norm of a vector whose values are spread over so many cells each."""
    total = 0
    for kind, value in vector:
        each, left = divmod(abs(value), int(counts[kind]))
        total += left * (each + 1) ** 2 + (int(counts[kind]) - left) * each**2
    return total
