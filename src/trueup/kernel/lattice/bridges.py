"""Connection of the tables of a list by moves, and moves to add where they do not connect."""

from __future__ import annotations

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.kernel.lattice.algebra import Matrix


def reached(tables: Matrix, moves: Matrix) -> NDArray[np.int64]:
    """Label `(k,)` each of k distinct tables by the part of the list that moves reach from it, one by one and within the list.

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
    """Return moves `(b, n)` that connect a list of tables together with those that are given.

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
    """Return rows as single values that sort as the rows do."""
    flipped = np.ascontiguousarray(tables).astype(">i8") ^ np.int64(-(2**63)).astype(">i8")
    wide = np.ascontiguousarray(flipped.astype(">u8"))
    return wide.view(np.dtype((np.void, 8 * tables.shape[1]))).ravel()
