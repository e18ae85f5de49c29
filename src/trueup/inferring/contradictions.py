"""Smallest sets of published values and rules that no table of counts satisfies.

Each value says an interval of a sum of counts, `low <= A x <= high` with x at least zero. By Farkas's lemma no x satisfies a
set of rows if and only if multipliers u (of upper ends) and l (of lower ends), all at least zero, have

    (u - l) A >= 0 in every cell        and        u high - l low < 0.

The smallest set is the one with the fewest rows whose multipliers are not zero: a mixed integer program with one binary
variable a row. It speaks of real x; on nested tables real and whole x are excluded together. Where rows are many or values
large, rows are left out one by one of those of a first certificate (a linear program's dual), as long as the rest excludes all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.errors import InfeasibleError
from trueup.model.constraints import Constraints
from trueup.model.linear_system import RowBlock, contradiction, margin_rows, polyhedron, rule_blocks
from trueup.model.records.measurements import Measurements
from trueup.noise.law import NO_LIMIT

MAX_ROWS_SEARCHED_FOR_SMALLEST = 1500
"""Rows up to which the smallest set of all is searched for."""
MAX_INTERVAL_END = 10_000
"""Ends of intervals up to which the solver's tolerance (1e-6) cannot take a multiplier for none."""
LARGEST_MULTIPLIER = 16.0
SECONDS = 20.0
SHOWN_ROWS = 8


class _Rows(NamedTuple):
    """Rows `low <= matrix x <= high` on nonnegative counts, each with its label."""

    matrix: Any
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    labels: list[str]

    def among(self, keep: NDArray[np.int64]) -> _Rows:
        return _Rows(self.matrix[keep], self.low[keep], self.high[keep], [self.labels[k] for k in keep])


def contradicting_values(measured: Measurements, constraints: Constraints) -> InfeasibleError | None:
    """Name a smallest set of published values and rules that no counts satisfy; None if none is found.

    Parameters
    ----------
    measured
        Published values, of which those of laws with bounds say intervals.
    constraints
        The rules.

    Examples
    --------
    See `tests/inferring/test_contradictions.py`.
    """
    blocks = [*_published_rows(measured), *rule_blocks(constraints)]
    if not blocks:
        return None
    rows = _Rows(
        scipy.sparse.vstack([block.matrix for block in blocks], format="csr"),
        np.concatenate([block.lower for block in blocks]),
        np.concatenate([block.upper for block in blocks]),
        [label for block in blocks for label in block.labels],
    )
    ends = (abs(end[np.isfinite(end)]) for end in (rows.low, rows.high))
    every = (
        len(rows.labels) <= MAX_ROWS_SEARCHED_FOR_SMALLEST
        and max(end.max(initial=0) for end in ends) < MAX_INTERVAL_END
    )
    at, proved = _smallest(rows) if every else (_irreducible(rows, _certificate(rows)), False)
    if len(at):
        coded = any("' from " in rows.labels[k] for k in at)
        least = "the smallest such set" if proved else "no part of them does"
        listed = getattr(measured.spec, "parents", None) is not None
        return InfeasibleError(
            f"no true counts explain these {len(at)} published values and rules together ({least}): "
            + "; ".join(rows.labels[k] for k in at[:SHOWN_ROWS])
            + (f"; and {len(at) - SHOWN_ROWS} more" if len(at) > SHOWN_ROWS else ""),
            remedy="correct a misprint, a law or a code; where a total or a part is read as a separate count, name it in `total` "
            "or leave it out by `only` or out of `cell`"
            + ("; where a place stands below the wrong one, correct the list of places" if listed else "")
            + (
                '; where a code also stands for larger counts, hidden because they would give small ones away, it says "unknown"'
                if coded
                else ""
            ),
        )
    return contradiction(*polyhedron(constraints, blocks), integer=True)


def _published_rows(measured: Measurements) -> Iterator[RowBlock]:
    """Yield the constraint rows, on sums of counts, that the published values imply."""
    cells = measured.cells
    for header, values in zip(measured.headers, measured.values):
        low, high = header.law.bounds(values)
        if (low <= -NO_LIMIT).all() and (high >= NO_LIMIT).all():
            continue
        groups = np.arange(cells.size(header.margin)) if header.groups is None else header.groups
        names = [
            f"'{cells.margin_label(header.margin, int(g))}' {header.law.says(v)}"
            for g, v in zip(groups, values.tolist())
        ]
        least, most = np.where(low <= -NO_LIMIT, -np.inf, low), np.where(high >= NO_LIMIT, np.inf, high)
        yield RowBlock(margin_rows(cells, header.margin, groups), least, most, names, equal=False)


def _certificate(rows: _Rows) -> NDArray[np.int64]:
    """Return the rows of one proof of infeasibility, found by minimising the total violation of all rows."""
    m, n = rows.matrix.shape
    one = scipy.sparse.eye_array(m, format="csr")
    upper, lower = np.flatnonzero(np.isfinite(rows.high)), np.flatnonzero(np.isfinite(rows.low))
    matrix = scipy.sparse.vstack(
        [
            scipy.sparse.hstack([rows.matrix[upper], -one[upper]]),
            scipy.sparse.hstack([-rows.matrix[lower], -one[lower]]),
        ],
        format="csr",
    )
    cost = np.concatenate([np.zeros(n), np.ones(m)])
    found: Any = scipy.optimize.linprog(
        cost, matrix, np.concatenate([rows.high[upper], -rows.low[lower]]), bounds=(0, None), method="highs"
    )
    if found.status != 0 or found.fun < 1e-6:
        return np.zeros(0, np.int64)
    held = np.abs(found.ineqlin.marginals) > 1e-9
    return np.unique(np.concatenate([upper, lower])[held])


def _smallest(rows: _Rows) -> tuple[NDArray[np.int64], bool]:
    """Return the smallest set of contradictory rows found, and True if no smaller set exists."""
    m = len(rows.labels)
    columns = scipy.sparse.csc_array(rows.matrix)
    columns.sort_indices()
    first = dict.fromkeys(range(columns.shape[1]))
    distinct: dict[bytes, int] = {}
    for cell in first:  # cells in the same rows say the same
        at = slice(columns.indptr[cell], columns.indptr[cell + 1])
        distinct.setdefault(columns.indices[at].tobytes() + columns.data[at].tobytes(), cell)
    held = scipy.sparse.csr_array(columns[:, list(distinct.values())].T)
    free_high, free_low = ~np.isfinite(rows.high), ~np.isfinite(rows.low)
    most = LARGEST_MULTIPLIER
    one = scipy.sparse.eye_array(m, format="csr")
    none = scipy.sparse.csr_array((held.shape[0], m))
    conditions = [
        scipy.optimize.LinearConstraint(scipy.sparse.hstack([held, -held, none]), 0, np.inf),
        scipy.optimize.LinearConstraint(scipy.sparse.hstack([one, one, -most * one]), -np.inf, 0),
        scipy.optimize.LinearConstraint(
            np.concatenate(
                [np.where(free_high, 0, rows.high), -np.where(free_low, 0, rows.low), np.zeros(m)]
            )[None],
            -np.inf,
            -1,
        ),
    ]
    top = np.concatenate([np.where(free_high, 0, most), np.where(free_low, 0, most), np.ones(m)])
    found: Any = scipy.optimize.milp(
        np.concatenate([np.zeros(2 * m), np.ones(m)]),
        constraints=conditions,
        integrality=np.concatenate([np.zeros(2 * m), np.ones(m)]),
        bounds=scipy.optimize.Bounds(np.zeros(3 * m), top),
        options={"time_limit": SECONDS},
    )
    if found.x is None:
        return np.zeros(0, np.int64), False
    return np.flatnonzero(found.x[2 * m :] > 0.5), found.status == 0


def _irreducible(rows: _Rows, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return contradictory rows, without rows that are not needed for the contradiction."""
    size = max(len(at) // 2, 1)
    while len(at):
        start = 0
        while start < len(at):
            less = np.delete(at, slice(start, start + size))
            if len(less) and _excluded(rows.among(less)):
                at = less
            else:
                start += size
        if size == 1:
            break
        size //= 2
    return at


def _excluded(rows: _Rows) -> bool:
    """Return True if a linear program finds no nonnegative counts that satisfy the rows."""
    upper, lower = np.isfinite(rows.high), np.isfinite(rows.low)
    matrix = scipy.sparse.csc_array(
        scipy.sparse.vstack([rows.matrix[upper], -rows.matrix[lower]], format="csc")
    )
    matrix = matrix[:, np.diff(matrix.indptr) > 0]
    sides = np.concatenate([rows.high[upper], -rows.low[lower]])
    found: Any = scipy.optimize.linprog(
        np.zeros(matrix.shape[1]), matrix, sides, bounds=(0, None), method="highs"
    )
    return found.status == 2
