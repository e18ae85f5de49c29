"""Common code of methods that settle tables from the top: parameters, chunks of rows, and figures of settling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trueup.kernel import Status, largest
from trueup.kernel.histogram import Marginal
from trueup.kernel.settling.descend import SettledTables, Settling
from trueup.reconciling.method import Method, Solution

CHUNK_CELLS = 500_000
"""Cells up to which rows of values are solved together."""


@dataclass(frozen=True)
class FromTheTop(Method):
    """A method that settles tables from the top."""

    rounding: Literal["controlled", "none"] = "controlled"
    estimates: Literal["posterior-means", "least-squares"] = "posterior-means"

    @property
    def integer(self) -> bool:
        """Return True if it returns whole numbers."""
        return self.rounding == "controlled"

    @property
    def posterior(self) -> bool:
        """Return True if tables are settled at posterior means."""
        return self.estimates == "posterior-means"

    def settling(self, first: Sequence[Marginal] = (), drawn: np.random.Generator | None = None) -> Settling:
        """Return how tables are settled; see `Settling` for the root's marginals `first`, and for tables that are drawn."""
        return Settling(integer=self.integer, posterior=self.posterior, first=first, drawn=drawn)


def in_chunks(
    values: NDArray,
    cells: int,
    rng: np.random.Generator,
    solve: Callable[[NDArray, NDArray], Solution],
    *,
    together: bool = False,
) -> Solution:
    """Solve for values `(q,)` or `(b, q)`, some rows at a time, each with a seed of its own.

    Parameters
    ----------
    cells
        Cells of one row's solution.
    solve
        Takes rows `(k, q)` and seeds `(k,)`; returns cells `(k, cells)`.
    together
        Whether all rows are solved at once.
    """
    rows = np.atleast_2d(values)
    seeds = rng.integers(2**63, size=len(rows), dtype=np.uint64)
    size = len(rows) if together else max(1, CHUNK_CELLS // cells)
    parts = [slice(i, i + size) for i in range(0, len(rows), size)]
    done = [solve(rows[part], seeds[part]) for part in parts]
    counts = np.concatenate([each.values for each in done]).reshape(*values.shape[:-1], cells)
    stats = {key: largest(each.stats[key] for each in done) for key in done[0].stats}
    return Solution(counts, Status.worst(each.status for each in done), stats)


def settling_stats(*tables: SettledTables) -> dict[str, float]:
    """Return the figures of settling for all tables together."""
    return {
        "largest optimality residual (counts)": largest(t.residual for t in tables),
        "units without a place": sum(t.misplaced for t in tables),
        "parents settled without their margins": sum(t.relaxed for t in tables),
        "most iterations": max((t.iterations for t in tables), default=0),
    }
