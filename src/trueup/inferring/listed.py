"""Exact posteriors of problems with few tables: list them all and weigh them, component by component."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.independent import IndependentPart
from trueup.kernel.table_walks.rows import log_densities
from trueup.model.cells import Cells, Margin
from trueup.model.linear_system import margin_rows
from trueup.model.records.drawn import Drawn, Marginals

MOST_MASSES = 1 << 22
"""Masses that a margin's windows may hold; where few tables lie so far apart, draws speak for the margin."""


class Weighed(NamedTuple):
    """All tables of a component.

    Attributes
    ----------
    cells
        Its free cells `(f,)`.
    tables
        Their counts `(t, f)`.
    masses
        Posterior probabilities `(t,)`.
    """

    cells: NDArray[np.int64]
    tables: NDArray[np.int64]
    masses: NDArray[np.float64]

    def draw(self, draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return `(draws, f)` independent draws."""
        at = np.searchsorted(np.cumsum(self.masses), rng.random(draws), side="right")
        return self.tables[np.minimum(at, len(self.tables) - 1)]


def weigh(part: IndependentPart, most: int) -> Weighed | None:
    """List a component's tables and weigh them; return None if there are more than `most`.

    No table has a probability where none is possible: then there are none.
    """
    tables = part.tables(most)
    if tables is None:
        return None
    logs = log_densities(part.rows, tables) if len(tables) else np.zeros(0)
    top = logs.max(initial=-np.inf)
    masses = np.exp(logs - top) if np.isfinite(top) else np.zeros(len(logs))
    tables, masses = tables[masses > 0][:, part.free], masses[masses > 0]
    return Weighed(part.own, tables, masses / masses.sum())


def drawn(
    cells: Cells,
    margins: Iterable[Margin],
    fixed: NDArray[np.int64],
    parts: Sequence[Weighed],
    draws: int,
    rng: np.random.Generator,
) -> Drawn:
    """Return exact marginals of the margins, a mode, and independent draws, from all components of a problem.

    `fixed` `(n,)` holds the counts of all other cells.
    """
    counts, mode = np.tile(fixed, (draws, 1)), fixed.copy()
    for part in parts:
        counts[:, part.cells] = part.draw(draws, rng)
        mode[part.cells] = part.tables[np.argmax(part.masses)]
    found = {margin: listed_marginals(cells, margin, fixed, parts) for margin in margins}
    return Drawn(
        counts[None],
        independent=True,
        marginals={margin: exact for margin, exact in found.items() if exact is not None},
        mode=mode,
        stats={
            "draws": draws,
            "tables": sum(len(part.tables) for part in parts),
            "independent_parts": len(parts),
            "interrupted": False,
        },
    )


def listed_marginals(
    cells: Cells, margin: Margin, fixed: NDArray[np.int64], parts: Sequence[Weighed]
) -> Marginals | None:
    """Return masses of every group of a margin: a group's count is a sum of independent components.

    Returns
    -------
    Marginals, or None where the windows would hold more than `MOST_MASSES`.
    """
    rows = margin_rows(cells, margin).tocsc()
    rest = fixed.copy()
    rest[np.concatenate([np.zeros(0, np.int64), *(part.cells for part in parts)])] = 0
    offset = np.rint(rows @ rest).astype(np.int64)
    masses, room = [np.ones(1)] * len(offset), MOST_MASSES
    for part in parts:
        own = rows[:, part.cells].tocsr()
        for g in np.flatnonzero(np.diff(own.indptr)):
            counts = part.tables[:, own.indices[own.indptr[g] : own.indptr[g + 1]]].sum(axis=1)
            low, width = int(counts.min()), int(np.ptp(counts)) + len(masses[g])
            if (room := room - width) < 0:
                return None
            offset[g] += low
            masses[g] = np.convolve(masses[g], np.bincount(counts - low, part.masses))
    start = np.cumsum([0, *map(len, masses)])
    return Marginals(start, offset, np.concatenate(masses))
