"""A top-down algorithm like the census's, written from its description: none of the package's methods is called.

From the root down, each parent's children get tables from the measurements of their own level. First pass: totals,
the nearest to the measured ones that are nonnegative and add up to the parent's, then rounded. Second pass: tables by
weighted least squares on all measurements, nonnegative, with the parent's table and these totals kept; then rounded.
The *controlled rounder* takes whole numbers between floors and ceilings, nearest in absolute distance, all these sums
kept (Abowd et al., "The 2020 Census Disclosure Avoidance System TopDown Algorithm", 2022, sections 5.2 and 5.3).
"""

from __future__ import annotations

import numpy as np
import piqp
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from trueup.kernel.histogram import cell_groups
from trueup.model.cells import Cells
from trueup.model.header import Measured, split

NEAR = 1e-6  # counts within which a solver's answer is a whole number


def release(cells: Cells, headers: tuple[Measured, ...], values: NDArray) -> NDArray[np.int64]:
    """Whole counts `(n,)` from noisy values `(q,)`."""
    tree = cells.tree
    answers = list(zip(headers, split(values, headers, cells), strict=True))
    above, tables = np.zeros(1, int), np.zeros((0, 0), np.int64)
    for at, level in enumerate(tree.levels):
        noisy = [
            (_matrix(cells, h), float(h.law.variance), y.reshape(tree.sizes[at], -1).astype(float))
            for h, y in answers
            if h.margin.level == level and not h.exact
        ]
        exact, below = _exact_totals(cells, answers, at), []
        for parent in range(above[-1] + 1):
            rows = above == parent
            own = [(m, v, y[rows]) for m, v, y in noisy]
            known = None if exact is None else exact[rows]
            below.append(_children(tables[parent] if at else None, own, known, cells.n // tree.sizes[-1]))
        tables = np.concatenate(below)
        above = tree.ancestors(at + 1, at) if at + 1 < len(tree.levels) else above
    return tables.ravel()


def _matrix(cells: Cells, header: Measured) -> NDArray:
    """`(groups, cells of a place)`: which cells a measured table adds up."""
    groups = cell_groups(cells.marginal(header.margin.attributes))
    return np.equal.outer(np.arange(groups.max() + 1), groups).astype(float)


def _exact_totals(cells: Cells, answers, at: int):
    """Totals of a level's places that invariants of that level or of those below it fix."""
    known = [(cells.tree.level(h.margin.level), y) for h, y in answers if h.exact and not h.margin.attributes]
    for level, y in known:
        if level >= at:
            return np.bincount(cells.tree.ancestors(level, at), y, cells.tree.sizes[at])
    return None


def _children(parent, noisy, totals, size: int) -> NDArray[np.int64]:
    """Tables `(children, size)` of a parent's children; of the root if there is no parent."""
    children = len(noisy[0][2])
    open_ = np.ones(size, bool) if parent is None else parent > 0
    if not open_.any():
        return np.zeros((children, size), np.int64)
    if totals is None:
        totals = _totals(None if parent is None else parent.sum(), noisy)
    result = np.zeros((children, size), np.int64)
    equal, sums = _sums(children, None if parent is None else parent[open_], totals, open_.sum())
    result[:, open_] = _rounded(_nearest(noisy, open_, equal, sums), equal, sums).reshape(children, -1)
    return result


def _totals(whole, noisy) -> NDArray[np.int64] | None:
    """First pass; None where no total is measured."""
    measured = [(v, y[:, 0]) for m, v, y in noisy if len(m) == 1]
    if not measured:
        return None
    y = np.average([y for _, y in measured], axis=0, weights=[1 / v for v, _ in measured])
    if whole is None:
        return np.rint(np.maximum(y, 0)).astype(np.int64)
    down = np.sort(y)[::-1]
    shifts = (whole - np.cumsum(down)) / np.arange(1, y.size + 1)
    nearest = np.maximum(y + shifts[np.flatnonzero(down + shifts > 0)[-1] if whole else -1], 0) * (whole > 0)
    return _rounded(nearest, np.ones((1, y.size)), np.array([whole]))


def _sums(children: int, parent, totals, open_: int):
    """The equations of a parent's cells and of its children's totals (one of them follows from the others)."""
    of_cells = sparse.kron(np.ones((1, children)), sparse.eye_array(open_))
    of_children = sparse.kron(sparse.eye_array(children), np.ones((1, open_)))
    if totals is None:
        return sparse.csc_matrix(of_cells), parent
    if parent is None:
        return sparse.csc_matrix(of_children), totals
    both = sparse.csr_matrix(sparse.vstack([of_cells, of_children]))
    return both[:-1], np.append(parent, totals)[:-1]


def _nearest(noisy, open_, equal, sums) -> NDArray:
    """Weighted least squares, nonnegative, with given sums: cells x, and variables for the tables that add them up."""
    children, size = len(noisy[0][2]), equal.shape[1]
    weights, right, rows = [np.zeros(size)], [np.zeros(size)], [equal]
    for matrix, variance, y in noisy:
        matrix = matrix[:, open_]
        seen = matrix.any(axis=1)
        if (matrix.sum(axis=1) <= 1).all() and seen.sum() == open_.sum():  # the cells themselves
            weights[0] += 1 / variance
            right[0] += (y @ matrix).ravel() / variance
            continue
        weights.append(np.full(children * seen.sum(), 1 / variance))
        right.append(y[:, seen].ravel() / variance)
        rows.append(sparse.kron(sparse.eye_array(children), matrix[seen], format="csr"))
    tables = sum(map(len, weights)) - size
    joined = -sparse.eye_array(rows[0].shape[0] + tables, tables, k=-rows[0].shape[0])
    weight, total = np.concatenate(weights), np.append(np.asarray(sums, float), np.zeros(tables))
    solver = piqp.SparseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-9
    constraints = sparse.csc_matrix(sparse.hstack([sparse.vstack(rows), joined]))
    least = np.append(np.zeros(size), np.full(tables, -np.inf))
    squares = sparse.csc_matrix(sparse.diags_array(weight))
    solver.setup(squares, -np.concatenate(right), constraints, total, x_l=least)
    status = solver.solve()
    assert status == piqp.PIQP_SOLVED, status
    return np.maximum(solver.result.x[:size], 0)


def _rounded(x: NDArray, equal, sums) -> NDArray[np.int64]:
    """The controlled rounder: up or down, as a linear program, whose corners are whole."""
    whole = np.floor(x + NEAR)
    share, left = x - whole, sums - equal @ whole
    open_ = share > NEAR
    if open_.any():
        found = linprog(
            1 - 2 * share[open_], A_eq=equal[:, open_], b_eq=left, bounds=(0, 1), method="highs-ds"
        )
        assert found.status == 0, found.message
        whole[open_] += np.rint(found.x)
    return whole.astype(np.int64)
