"""Counting invariants as integer rows, each fixing how many units fall into a set of cells, or a weighted sum of its counts.

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
    """Return all invariants as whole rows over the finest cells, `(m, n)` int64; rows may depend on each other.

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
    """Return the invariants that are sums of groups of a margin, as whole rows over them, `(k, groups)` int64."""
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
    groups, rows = margin_rows(cells, margin), margin_rows(cells, invariant)
    mean = scipy.sparse.csr_array((rows @ groups.T).multiply(1 / groups.sum(axis=1)))
    # A sum of groups counts all cells of a group equally often.
    return None if abs(mean @ groups - rows).max() > 1e-6 else mean.rint().astype(np.int64)
