"""Records that have given agreeing tables as their margins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class Edge(NamedTuple):
    """A table below its parent in a junction tree: of each cell of either, the shared cell `(cells,)` that holds it."""

    table: int
    parent: int
    own: Integers
    parents: Integers


def joined_records(
    tables: Sequence[Integers], root: int, edges: Sequence[Edge], rng: np.random.Generator
) -> list[Integers]:
    """Draw whole records with these tables: for every table the cell `(records,)` of each record.

    Given the cells of its parent, a table's cells fall to the records of each shared cell in random order, so tables are
    independent given what they share.

    Parameters
    ----------
    tables
        Whole counts `(cells,)` that agree on what they share.
    root, edges
        A junction tree, parents before their children.

    Examples
    --------
    >>> edge = Edge(1, 0, np.array([0, 0, 1]), np.array([0, 1]))
    >>> found = joined_records([np.array([2, 1]), np.array([1, 1, 1])], 0, [edge], np.random.default_rng(1))
    >>> found[0].tolist(), sorted(found[1].tolist())
    ([0, 0, 1], [0, 1, 2])
    """
    found = [np.zeros(0, np.int64)] * len(tables)
    found[root] = np.repeat(np.arange(len(tables[root])), tables[root])
    for edge in edges:
        shared = edge.parents[found[edge.parent]]
        records = np.lexsort((rng.random(shared.size), shared))
        cells = np.repeat(np.arange(len(tables[edge.table])), tables[edge.table])
        found[edge.table] = np.empty(shared.size, np.int64)
        found[edge.table][records] = cells[np.argsort(edge.own[cells], kind="stable")]
    return found
