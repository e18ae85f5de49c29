"""The smallest changes that keep every invariant: the unit in which privacy is stated.

Where one sum is fixed, one record may move between any two cells (L1 norm 2); where both margins of a
table are fixed, two records swap (norm 4). In general no single pair of cells says it all, so the
unit is the smallest norm whose vectors *generate* the lattice: then any database with the same invariants
is reached from any other by such changes, one after another.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations_with_replacement, product
from typing import NamedTuple

import numpy as np

from trueup.kernel.lattice import algebra
from trueup.kernel.lattice.algebra import Matrix
from trueup.kernel.lattice.structure import Lattice, Piece

MOST_COLUMNS = 24
"""Distinct columns up to which short vectors are enumerated; beyond it the reduced basis bounds the norm."""
_LONGEST = 6


class Reach(NamedTuple):
    """Norms of the smallest changes.

    Attributes
    ----------
    l1
        Largest L1 norm among them (counts).
    l2_squared
        Largest squared L2 norm (counts squared).
    sharp
        Whether no smaller norm generates the lattice; else both are upper bounds.
    """

    l1: int
    l2_squared: int
    sharp: bool


def smallest_moves(lattice: Lattice) -> Reach:
    """Return how far one smallest change moves the counts, over all pieces of a lattice.

    Examples
    --------
    >>> smallest_moves(Lattice.of(4, [[1, 1, 1, 1]]))
    Reach(l1=2, l2_squared=2, sharp=True)
    """
    found = {_signature(piece): piece for piece in lattice.pieces}
    reaches = [_reach(piece) for piece in found.values()]
    return Reach(
        max(r.l1 for r in reaches), max(r.l2_squared for r in reaches), all(r.sharp for r in reaches)
    )


def _signature(piece: Piece):
    return piece.kind if piece.kind != "general" else piece.invariants.tobytes()


def _reach(piece: Piece) -> Reach:
    known = {"free": Reach(1, 1, True), "sum": Reach(2, 2, True), "table": Reach(4, 4, True)}
    return known[piece.kind] if piece.kind in known else _search(piece.invariants)


def _search(matrix: Matrix) -> Reach:
    """Try norms 1, 2, ... until the vectors up to one of them generate the lattice.

    Cells with equal columns trade at norm 2, so one column of each kind is enough.
    """
    columns, sizes = np.unique(matrix, axis=1, return_counts=True)
    twins = sizes.max() > 1
    target = algebra.basis(columns)
    longest = int(np.abs(target).sum(axis=1).max(initial=0))
    for norm in range(1, min(longest, _LONGEST + 1) if columns.shape[1] <= MOST_COLUMNS else 0):
        moves = short_vectors(columns, norm)
        if len(moves) and algebra.same_lattice(moves, target):
            return _norms(moves[np.gcd.reduce(moves, axis=1) == 1], twins, True)
    # The basis itself generates; a norm below its longest vector might, too, if not tried.
    sharp = not len(target) or (longest <= _LONGEST + 1 and columns.shape[1] <= MOST_COLUMNS)
    return _norms(target, twins, sharp)


def _norms(moves: Matrix, twins: bool, sharp: bool) -> Reach:
    l1 = int(np.abs(moves).sum(axis=1).max(initial=0))
    l2 = int((moves**2).sum(axis=1).max(initial=0))
    return Reach(max(l1, 2 * twins), max(l2, 2 * twins), sharp)


def short_vectors(matrix: Matrix, norm: int) -> Matrix:
    """Return all vectors of the lattice of L1 norm 1 to `norm`, up to sign: halves that meet.

    Examples
    --------
    >>> short_vectors(np.array([[1, 1, 1]]), 2).tolist()
    [[0, 1, -1], [1, -1, 0], [1, 0, -1]]
    """
    halves = defaultdict(list)
    for size in range((norm + 1) // 2 + 1):
        for vector in _of_norm(matrix.shape[1], size):
            halves[(matrix @ vector).tobytes()].append(vector)
    found = set()
    for meeting in halves.values():
        for left, right in product(meeting, repeat=2):
            difference = left - right
            if 0 < np.abs(difference).sum() <= norm and difference[np.flatnonzero(difference)[0]] > 0:
                found.add(tuple(difference.tolist()))
    return np.array(sorted(found), dtype=np.int64).reshape(-1, matrix.shape[1])


def _of_norm(n: int, size: int):
    """Yield every integer vector of L1 norm `size`, once."""
    for cells in combinations_with_replacement(range(n), size):
        kinds = sorted(set(cells))
        counts = [cells.count(cell) for cell in kinds]
        for signs in product((1, -1), repeat=len(kinds)):
            vector = np.zeros(n, np.int64)
            vector[kinds] = np.array(counts, dtype=np.int64) * signs
            yield vector
