"""Proofs that the moves of a Markov chain can reach every table, with further moves that a proof requires.

Bounds on single cells and rows of several cells (invariants, rules, bounds of margins) split the free cells into
pieces that no such row links; moves connect all tables if they connect those of every piece. They do, in a piece

- without rows: steps of one cell stay inside bounds;
- where a corner of the box satisfies all rows and no row has terms of both signs: steps lead through that corner (a
  sum with an upper limit alone is such a row);
- with one sum: pairs move what one cell has too much to one that has too little, inside any bounds;
- that is a two-way table with both margins: squares do, if no cell has an upper bound of its own (Diaconis and
  Sturmfels 1998);
- whose Graver basis is known (`trueup.kernel.lattice.graver`), inside any bounds; a row between limits counts as an
  equality with one cell more, the difference from its limit;
- whose tables can all be listed: moves are added until a search reaches each from each.

Of any other piece a lattice basis is all there is, and nothing is known. A prior with impossible counts between
possible ones is not covered either, since a step may have to stop on one.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.errors import PrivacyError
from trueup.inferring.components import ROW_TOLERANCE, Vector, linked
from trueup.kernel.lattice import algebra
from trueup.kernel.lattice.graver import bridges, graver_basis
from trueup.kernel.lattice.structure import Lattice, Piece
from trueup.kernel.table_walks.moves import PAIR, SAME, SQUARE, Moves, enumerate_fibre
from trueup.layouts.rows import RowProblem

MAX_PIECE_CELLS = 300
"""Cells of a piece up to which its lattice is worked out."""
MOST_TABLES = 2000
"""Tables of a piece up to which a search joins them."""
MOST_ENTRIES = 1 << 23
"""Rows times cells of a piece up to which it is looked at."""
SINGLE_STEPS = 0
"""The pattern of steps of one cell, which comes first."""


class Joined(NamedTuple):
    """Proofs, for each component of a problem, that the moves of a Markov chain connect all tables.

    Attributes
    ----------
    vectors
        Moves to list.
    patterns
        Patterns of moves that the proof needs.
    known
        True if the moves are proved to reach every table.
    pieces
        The free cells of each piece that steps of one cell do not connect.
    """

    vectors: list[Vector]
    patterns: list[int]
    known: bool
    pieces: list[NDArray[np.int64]]


class _Rows(NamedTuple):
    """Whole-number constraints `low <= matrix x <= high` on a component's k free cells."""

    matrix: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    box: NDArray[np.float64]
    table: NDArray[np.int64]


def join(problem: RowProblem, shape: tuple[int, ...], moves: Moves, table: NDArray[np.int64]) -> Joined:
    """Return proofs that moves connect all tables of each component, and the moves that the proofs require.

    Parameters
    ----------
    problem
        The posterior as rows.
    shape
        Shape of the grid of cells.
    moves
        The patterns that a chain may use.
    table
        `(n,)` a table that satisfies everything.
    """
    matrix, low, high = problem.limits
    free = np.flatnonzero(problem.box[0] < problem.box[1])
    rest = matrix @ np.where(problem.box[0] < problem.box[1], 0, table)
    columns, every = matrix.tocsc(), matrix.tocsr()
    vectors, patterns, pieces, rowed, known = [], [], [], 0, not problem.has_holes
    for own in linked(columns, free):
        used = np.unique(columns[:, own].indices)
        if len(used) * len(own) > MOST_ENTRIES:
            pieces.append(own)
            rowed, known = rowed + len(own), False
            continue
        rows = _integer_rows(
            every[used][:, own], (low - rest)[used], (high - rest)[used], problem.box[:, own], table[own]
        )
        if not len(rows.matrix):
            continue
        rowed += len(own)
        found = _connected(rows, own, shape, moves)
        known = known and found is not None
        chosen, needed = found if found is not None else (_basis(rows), [])
        vectors += [(own[v != 0], v[v != 0]) for v in chosen]
        patterns += needed
        if needed != [SINGLE_STEPS]:
            pieces.append(own)
    if rowed < len(free):
        patterns.append(SINGLE_STEPS)
    return Joined(vectors, sorted(set(patterns)), known, pieces)


def _integer_rows(matrix, low, high, box, table) -> _Rows:
    """Multiply constraint rows until they are whole numbers; turn rows of one cell into bounds."""
    dense, box = matrix.toarray(), box.copy()
    scale = np.array([_denominator(row) for row in dense])
    dense, low, high = np.rint(dense * scale[:, None]).astype(np.int64), low * scale, high * scale
    single = (dense != 0).sum(axis=1) == 1
    for row, least, most in zip(dense[single], low[single], high[single]):
        (cell,) = np.flatnonzero(row)
        ends = sorted((least / row[cell], most / row[cell]))
        box[:, cell] = max(box[0, cell], ends[0]), min(box[1, cell], ends[1])
    return _Rows(dense[~single], low[~single], high[~single], box, table)


def _denominator(row: NDArray[np.float64]) -> int:
    return int(np.lcm.reduce([Fraction(float(v)).limit_denominator(10**6).denominator for v in row]))


def _connected(rows: _Rows, own: NDArray, shape: tuple[int, ...], moves: Moves):
    """Return vectors and patterns of moves that connect all tables of a component, or None."""
    none = np.zeros((0, len(own)), np.int64)
    equal = rows.high - rows.low <= 2 * ROW_TOLERANCE
    if _through_a_corner(rows):
        return none, [SINGLE_STEPS]
    if len(own) > MAX_PIECE_CELLS:
        return None
    if not equal.all():
        return _listed_or_none(rows, _with_slack(rows, equal))
    try:
        pieces = Lattice.of(len(own), rows.matrix).pieces
    except PrivacyError:  # every cell is determined: one table
        return none, []
    vectors, patterns = [none], []
    for piece in pieces:
        if (found := _simple(piece, rows, own, shape, moves)) is None:
            return None
        vectors.append(found[0])
        patterns += found[1]
    return np.vstack(vectors), patterns


def _through_a_corner(rows: _Rows) -> bool:
    """Return True if some corner of the bounds satisfies all rows, and moves towards it never break a row."""
    one_way = (rows.matrix >= 0).all(axis=1) | (rows.matrix <= 0).all(axis=1)
    for corner in rows.box:
        if one_way.all() and np.isfinite(corner).all():
            at = rows.matrix @ corner
            if (rows.low - ROW_TOLERANCE <= at).all() and (at <= rows.high + ROW_TOLERANCE).all():
                return True
    return False


def _with_slack(rows: _Rows, equal: NDArray[np.bool_]):
    """Return the Graver basis of rows with limits, by slack cells, or None if it is too large."""
    more = -np.eye(len(equal), dtype=np.int64)[:, ~equal]
    found = _graver(np.hstack([rows.matrix, more]))
    return None if found is None else np.unique(found[:, : rows.matrix.shape[1]], axis=0)


def _listed_or_none(rows: _Rows, graver):
    if graver is not None:
        return graver, []
    matrix, ends = scipy.sparse.csr_array(rows.matrix.astype(float)), (rows.box[0], rows.box[1])
    limits = rows.low - ROW_TOLERANCE, rows.high + ROW_TOLERANCE
    if (tables := enumerate_fibre(matrix, *limits, ends, MOST_TABLES)) is None:
        return None
    basis = _basis(rows)
    return np.vstack([basis, bridges(tables, basis)]), []


def _basis(rows: _Rows):
    """Return a reduced lattice basis of the changes that keep all equalities, empty if too large."""
    equal = rows.high - rows.low <= 2 * ROW_TOLERANCE
    k = rows.matrix.shape[1]
    if k > MAX_PIECE_CELLS or not equal.any():
        return np.zeros((0, k), np.int64)
    return algebra.basis(rows.matrix[equal])


def _simple(piece: Piece, rows: _Rows, own: NDArray, shape: tuple[int, ...], moves: Moves):
    """Return moves that connect all tables of a sum, two-way table or lattice; None if unknown."""
    cells, none = piece.cells.ravel(), np.zeros((0, len(own)), np.int64)
    spot = np.stack(np.unravel_index(own[piece.cells], shape))
    if piece.kind == "free":
        return none, []
    if piece.kind == "sum":
        pattern = _pattern(moves, PAIR, (_varying(spot),), spot)
        return (none, [pattern]) if pattern is not None else (_transfers(cells, len(own)), [])
    if piece.kind == "table" and not _held_above(piece, rows):
        ways = (_varying(spot, axis=1), _varying(spot, axis=2))
        pattern = _pattern(moves, SQUARE, ways, spot)
        if pattern is not None:
            return none, [pattern]
    table = rows.table[cells]
    sides = (piece.invariants @ table).astype(float)
    part = _Rows(piece.invariants, sides, sides, rows.box[:, cells], table)
    found = _listed_or_none(part, _graver(piece.invariants))
    return None if found is None else (_spread_vectors(found[0], cells, len(own)), [])


def _transfers(cells: NDArray, k: int):
    """Return moves of one unit between successive cells, which connect all divisions of a sum."""
    vectors = np.zeros((len(cells) - 1, k), np.int64)
    at = np.arange(len(cells) - 1)
    vectors[at, cells[:-1]], vectors[at, cells[1:]] = 1, -1
    return vectors


def _spread_vectors(vectors, cells, k):
    out = np.zeros((len(vectors), k), np.int64)
    out[:, cells] = vectors
    return out


def _held_above(piece: Piece, rows: _Rows) -> bool:
    """Return True if a cell's own upper bound is below what its row and column sums allow."""
    low, high = rows.box[:, piece.cells]
    table = rows.table[piece.cells]
    if not np.isfinite(low).all():
        return bool(np.isfinite(high).any())
    above = (table - low).sum(axis=1, keepdims=True), (table - low).sum(axis=0, keepdims=True)
    return bool((high < low + np.minimum(*above)).any())


def _varying(spot: NDArray, axis: int | None = None) -> NDArray[np.bool_]:
    """Return a mask of the coordinates that differ among cells, or along one axis of a table."""
    other = tuple(range(1, spot.ndim)) if axis is None else (axis,)
    return np.asarray((spot.max(axis=other) != spot.min(axis=other)).reshape(len(spot), -1).any(axis=1))


def _pattern(moves: Moves, kind: int, ways: tuple[NDArray[np.bool_], ...], spot: NDArray) -> int | None:
    """Return the moves' simplest pattern that changes exactly the given coordinates, or None."""
    if len(ways) == 2 and (ways[0] & ways[1]).any():
        return None
    fits = []
    for p in np.flatnonzero(moves.kinds == kind):
        for order in ((0, 1), (1, 0))[: len(ways)]:
            if all(_covers(moves, int(p), part, way, spot) for part, way in zip(order, ways)):
                fits.append((int(moves.axes[p].sum() + (moves.places[p] != SAME).sum()), int(p)))
    return min(fits)[1] if fits else None


def _covers(moves: Moves, p: int, part: int, way: NDArray[np.bool_], spot: NDArray) -> bool:
    """Return True if one part of a pattern of moves changes all the given coordinates."""
    if not moves.axes[p, part][way[1:]].all():
        return False
    level = moves.places[p, part]
    return not way[0] or (level != SAME and len(np.unique(moves.group[level][spot[0].ravel()])) == 1)


def _graver(matrix: NDArray[np.int64]):
    return _graver_of(matrix.shape, np.ascontiguousarray(matrix).tobytes())


@lru_cache(maxsize=64)
def _graver_of(shape: tuple[int, int], data: bytes):
    """Return the Graver basis of a matrix, cached because many components have equal matrices."""
    return graver_basis(np.frombuffer(data, np.int64).reshape(shape))
