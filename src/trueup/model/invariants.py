"""Counting invariants as integer rows, each fixing how many units fall into a set of cells.

Source: Dharangutte, Gao, Gong and Yu, "Integer Subspace Differential Privacy", definition 1 and equation 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # its parts load when first used

from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.linear_system import margin_rows


def invariant_matrix(constraints: Constraints) -> scipy.sparse.csr_array:
    """Return all invariants as 0/1 rows over the finest cells, `(m, n)` int64; rows may depend on each other.

    Structural zeros are not among them: what may vary is `{v : A v = 0, v = 0 at constraints.zero_cells}`.

    Examples
    --------
    >>> from trueup.model.cells import Attribute
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all"], [{}]), (Attribute("sex", ("f", "m")), Attribute("age", ("y", "o"))))
    >>> women = Margin("all", where=((("sex", "f"),),))
    >>> invariant_matrix(Constraints(cells, (), (women, Margin("all")))).toarray().tolist()
    [[1, 1, 0, 0], [1, 1, 1, 1]]
    """
    return invariants_over(constraints, constraints.cells.finest)


def invariants_over(constraints: Constraints, margin: Margin) -> scipy.sparse.csr_array:
    """Return the invariants that are sums of groups of a margin, as 0/1 rows over them, `(k, groups)` int64."""
    cells = constraints.cells
    rows = [over for each in constraints.invariants if (over := _over(cells, each, margin)) is not None]
    none: Any = scipy.sparse.csr_array((0, cells.size(margin)), dtype=np.int64)
    stacked = scipy.sparse.csr_array(scipy.sparse.vstack([none, *rows], format="csr", dtype=np.int64))
    return stacked[np.flatnonzero(np.diff(stacked.indptr))]


def _over(cells: Cells, invariant: Margin, margin: Margin) -> Any:
    """Return one invariant as rows over the groups of a margin, or None if it is no sum of them."""
    size = cells.size(margin)
    if cells.contains(invariant, margin):
        ones = np.ones(size, np.int64)
        place = (cells.groups(margin, invariant), np.arange(size))
        return scipy.sparse.csr_array((ones, place), shape=(cells.size(invariant), size))
    if not invariant.where:
        return None
    groups = margin_rows(cells, margin)
    shared = scipy.sparse.csr_array(margin_rows(cells, invariant) @ groups.T)
    # A sum of groups holds all cells of each group that it shares one with.
    if not np.array_equal(shared.data, np.asarray(groups.sum(axis=1)).ravel()[shared.indices]):
        return None
    return scipy.sparse.csr_array(
        (np.ones(shared.nnz, np.int64), shared.indices, shared.indptr), shape=shared.shape
    )
