"""Graver bases: moves that connect all integer tables with the same sums, within any bounds on their cells.

The Graver basis of a lattice holds its vectors that are not a sum of two others of the lattice with no cancellation.
Any two tables `x`, `y` with the same sums differ by a sum of such vectors, none of which cancels another; added in
any order they lead from `x` to `y`, and every cell stays between its two values. So whatever bounds the cells have,
no table is out of reach. (A lattice basis has no such property: on the way a cell may have to be negative.)

They are found by project-and-lift. On coordinates where the lattice is all of `Z^d` the basis is the unit vectors.
Let G be the vectors of the lattice whose first `j` coordinates are its Graver basis there. With one coordinate more,
a lattice vector is still a sum of vectors of G without cancellation in the first `j`; where two of them cancel in the
new coordinate, their sum is written without cancellation or joins G. Only pairs that agree in sign on the first `j`
and differ on the new one matter.

Hemmecke (2002), "On the computation of Hilbert bases of cones"; Graver (1975); De Loera, Hemmecke and Koeppe (2013),
chapter 3.
"""

from __future__ import annotations

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.lattice import algebra
from trueup.kernel.lattice.algebra import Matrix

MOST_VECTORS = 5000
"""Vectors, on the way and in the end, beyond which to give up."""
MOST_DIMENSIONS = 24


def graver_basis(matrix: Matrix, most: int = MOST_VECTORS) -> Matrix | None:
    """Return the Graver basis `(g, n)` of `{v in Z^n : A v = 0}`, or None if it is too large.

    Parameters
    ----------
    matrix
        Invariants `A`, `(m, n)` integers.
    most
        Vectors beyond which to give up.

    Examples
    --------
    >>> graver_basis(np.array([[1, 2, 1]])).tolist()
    [[1, 0, -1], [2, -1, 0], [1, -1, 1], [0, 1, -2]]
    """
    lattice = algebra.basis(matrix)
    if not len(lattice):
        return lattice
    if len(lattice) > MOST_DIMENSIONS:
        return None
    vectors, order = _on_unit_coordinates(lattice)
    done, width = len(lattice), vectors.shape[1]
    while done < width:
        # The coordinate with the fewest pairs of opposite sign makes the least work.
        pairs = [int((vectors[:, k] != 0).sum()) for k in range(done, width)]
        chosen = done + int(np.argmin(pairs))
        vectors[:, [done, chosen]] = vectors[:, [chosen, done]]
        order[[done, chosen]] = order[[chosen, done]]
        room = np.zeros((most, width), np.int64)
        if len(vectors) > most:
            return None
        room[: len(vectors)] = vectors
        count = _complete(room, len(vectors), done)
        if count < 0:
            return None
        done += 1
        vectors = _minimal(room[:count], done)
    found = np.zeros((len(vectors), matrix.shape[1]), np.int64)
    real = order >= 0
    found[:, order[real]] = vectors[:, real]
    return _in_order(_minimal(found, found.shape[1]))


def _on_unit_coordinates(lattice: Matrix) -> tuple[Matrix, NDArray[np.int64]]:
    """Return a lattice basis whose first coordinates are unit vectors, and each coordinate's cell or -1.

    Where no cells have unit vectors, a vector's coefficients in the basis come first. What is minimal without them is
    minimal with them, so nothing is lost when they are dropped.
    """
    d, n = lattice.shape
    form = algebra.hermite(lattice)
    lead = np.array([np.flatnonzero(row)[0] for row in form])
    if (form[np.arange(d), lead] == 1).all():
        order = np.concatenate([lead, np.setdiff1d(np.arange(n), lead)]).astype(np.int64)
        return np.ascontiguousarray(form[:, order]), order
    return np.hstack([np.eye(d, dtype=np.int64), lattice]), np.concatenate([np.full(d, -1), np.arange(n)])


@njit(cache=True)
def _complete(vectors, count, done):
    """Add to `vectors` until sums that cancel only in coordinate `done` reduce to zero; return -1 if there is no space."""
    width = vectors.shape[1]
    rest = np.empty(width, np.int64)
    first = 1
    while first < count:
        for second in range(first):
            product = vectors[first, done] * vectors[second, done]
            if product == 0:
                continue
            sign = -1 if product > 0 else 1
            apart = False
            for i in range(done):
                if sign * vectors[first, i] * vectors[second, i] < 0:
                    apart = True
                    break
            if apart:
                continue
            for i in range(width):
                rest[i] = vectors[first, i] + sign * vectors[second, i]
            if _reduce(vectors, count, done + 1, rest):
                if count == len(vectors):
                    return -1
                vectors[count] = rest
                count += 1
        first += 1
    return count


@njit(cache=True)
def _reduce(vectors, count, done, rest):
    """Subtract vectors that fit into `rest` without cancellation, as long as possible; return True if `rest` is not zero."""
    again = True
    while again:
        again = False
        for k in range(count):
            sign = _fits(vectors[k], rest, done)
            if sign != 0:
                for i in range(rest.size):
                    rest[i] -= sign * vectors[k, i]
                again = True
    return bool(rest[:done].any())


@njit(cache=True)
def _fits(vector, rest, done):
    """Return 1 or -1 if the vector or its negative lies between 0 and `rest` in the first coordinates, else 0."""
    sign = 0
    for i in range(done):
        v, r = vector[i], rest[i]
        if v == 0:
            continue
        if abs(v) > abs(r):
            return 0
        own = 1 if (v > 0) == (r > 0) else -1
        if sign == 0:
            sign = own
        elif sign != own:
            return 0
    return sign


@njit(cache=True)
def _minimal_vectors(vectors, done):
    """Return a mask of the vectors into which no shorter one fits."""
    kept = np.ones(len(vectors), np.bool_)
    for k in range(len(vectors)):
        for other in range(k):
            if kept[other] and _fits(vectors[other], vectors[k], done) != 0:
                kept[k] = False
                break
    return kept


def _minimal(vectors: Matrix, done: int) -> Matrix:
    vectors = vectors[np.argsort(np.abs(vectors[:, :done]).sum(axis=1), kind="stable")]
    return np.ascontiguousarray(vectors[_minimal_vectors(vectors, done)])


def _in_order(vectors: Matrix) -> Matrix:
    """Return vectors with first entries positive, shorter vectors first."""
    lead = vectors[np.arange(len(vectors)), (vectors != 0).argmax(axis=1)]
    vectors = vectors * np.sign(lead)[:, None]
    keys = (*(-vectors).T[::-1], np.abs(vectors).sum(axis=1))
    return vectors[np.lexsort(keys)]


def reached(tables: Matrix, moves: Matrix) -> NDArray[np.int64]:
    """Return labels `(k,)` of tables, equal for tables that a sequence of moves connects.

    Parameters
    ----------
    tables
        `(k, n)` distinct integer tables.
    moves
        `(m, n)`; they may be added and taken away.

    Examples
    --------
    >>> reached(np.array([[0, 2], [1, 1], [2, 0]]), np.array([[2, -2]])).tolist()
    [0, 1, 0]
    """
    size, order = len(tables), np.lexsort(tables.T[::-1])
    keys, at, to = _keys(tables[order]), [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for move in moves:
        wanted = _keys(tables + move)
        found = np.minimum(np.searchsorted(keys, wanted), size - 1)
        hit = np.flatnonzero(keys[found] == wanted)
        at.append(hit)
        to.append(order[found[hit]])
    ends = (np.concatenate(at), np.concatenate(to))
    graph = scipy.sparse.coo_array((np.ones(len(ends[0])), ends), shape=(size, size))
    return scipy.sparse.csgraph.connected_components(graph, directed=False)[1].astype(np.int64)


def bridges(tables: Matrix, moves: Matrix) -> Matrix:
    """Return moves `(b, n)` that, together with given ones, connect a list of tables.

    Each is the difference between a table of the smallest part and the nearest table outside it, until there is one part.

    Examples
    --------
    >>> bridges(np.array([[0, 2], [1, 1], [2, 0]]), np.array([[2, -2]])).tolist()
    [[-1, 1]]
    """
    added = np.zeros((0, tables.shape[1]), np.int64)
    while True:
        labels = reached(tables, np.vstack([moves, added]))
        sizes = np.bincount(labels)
        if len(sizes) == 1:
            return added
        inside = labels == np.argmin(sizes)
        one = tables[np.argmax(inside)]
        others = tables[~inside]
        nearest = others[np.argmin(np.abs(others - one).sum(axis=1))]
        added = np.vstack([added, nearest - one])


def _keys(tables: Matrix) -> NDArray:
    """Return each row of a table as one value, which compares with others as the rows do."""
    flipped = np.ascontiguousarray(tables).astype(">i8") ^ np.int64(-(2**63)).astype(">i8")
    wide = np.ascontiguousarray(flipped.astype(">u8"))
    return wide.view(np.dtype((np.void, 8 * tables.shape[1]))).ravel()
