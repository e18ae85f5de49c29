"""Problems with few tables: list them all, weigh them, and everything follows from exact masses."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.table_walks.rows import enumerate_fibre, log_densities
from trueup.layouts.rows import RowProblem
from trueup.model.cells import Cells, Margin
from trueup.model.records.posterior import Drawn, Marginals

MOST_MASSES = 1 << 22
"""Masses that a margin's windows may hold; where few tables lie so far apart, draws speak for the margin."""


def every_table(problem: RowProblem, most: int) -> NDArray[np.int64] | None:
    """List the tables `(k, n)` that satisfy what is exact; None where they are more than `most`."""
    matrix, low, high = problem.limits
    return enumerate_fibre(matrix, low - 1e-6, high + 1e-6, (problem.box[0], problem.box[1]), most)


def weigh(
    problem: RowProblem,
    cells: Cells,
    margins: Iterable[Margin],
    tables: NDArray[np.int64],
    draws: int,
    rng: np.random.Generator,
) -> Drawn | None:
    """Return exact marginals of the margins, a mode, and independent draws; None if no table is possible."""
    logs = log_densities(problem.rows, tables) if len(tables) else np.zeros(0)
    if not np.isfinite(logs).any():
        return None
    masses = np.exp(logs - logs.max())
    masses /= masses.sum()
    found = {margin: marginals(cells.sum(tables, margin), masses) for margin in margins}
    at = np.minimum(np.searchsorted(np.cumsum(masses), rng.random(draws), side="right"), len(tables) - 1)
    return Drawn(
        tables[at][None],
        independent=True,
        marginals={margin: exact for margin, exact in found.items() if exact is not None},
        mode=tables[np.argmax(logs)],
        stats={"draws": draws, "tables": len(tables), "interrupted": False},
    )


def marginals(counts: NDArray[np.int64], masses: NDArray[np.float64]) -> Marginals | None:
    """Add up the masses of tables by the count of each group.

    Parameters
    ----------
    counts
        `(tables, groups)`.
    masses
        `(tables,)`, summing to 1.

    Returns
    -------
    Marginals, or None where the windows would hold more than `MOST_MASSES`.

    Examples
    --------
    >>> marginals(np.array([[0, 7], [2, 7]]), np.array([0.25, 0.75])).mean.tolist()
    [1.5, 7.0]
    """
    counts, masses = counts[masses > 0], masses[masses > 0]
    low = counts.min(axis=0)
    start = np.concatenate([[0], np.cumsum(counts.max(axis=0) - low + 1)])
    if start[-1] > MOST_MASSES:
        return None
    at = start[:-1] + counts - low
    added = np.bincount(at.ravel(), np.repeat(masses, len(low)), int(start[-1])).astype(np.float64)
    return Marginals(start, low, added)
