"""Exact posteriors of components without Markov chains: all tables listed, or the law of one sum.

*Few tables* are all listed and weighed, component by component.

*A sum alone*, under a flat prior: its law is exact, its parts are spread evenly. `C(t + k - 1, k - 1)` tables of k nonnegative
counts have the sum t, all as probable as each other. Its masses are these numbers times its factors, and given it the table is
Dirichlet-multinomial with parameters 1. Log-concave factors have one mode, from which masses are written down until they are
`SUM_DEPTH_NATS` below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from trueup.inferring.components import IndependentPart
from trueup.kernel.table_walks.moves import CURVE, HIGH, LOW, REACH, SLOPE, TABLED, Rows, U, log_densities
from trueup.model.cells import Cells, Margin
from trueup.model.linear_system import margin_rows
from trueup.model.records.drawn import Drawn, Marginals

MOST_MASSES = 1 << 22
"""Masses that a margin's windows may hold; where few tables lie so far apart, draws speak for the margin."""


class Weighed(NamedTuple):
    """All tables of counts of one component, with their posterior probabilities.

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
        """Return independent draws `(draws, f)` of the counts of the component's free cells."""
        at = np.searchsorted(np.cumsum(self.masses), rng.random(draws), side="right")
        return self.tables[np.minimum(at, len(self.tables) - 1)]


def weigh(part: IndependentPart, most: int) -> Weighed | None:
    """Return all tables of a component with their probabilities, or None if there are more than `most`.

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
    """Return exact marginals, a mode and independent draws, from the tables of all components.

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
    """Return the probabilities of the counts in every group of a margin, or None if too many.

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


SUM_DEPTH_NATS = 60.0
"""Log masses below the largest that are left out: less than 1e-20 of the whole in all."""
MAX_SUMS = 1 << 23
"""Sums that may be written down."""
MAX_EXACT_SUM = 1 << 52
"""Sums beyond which whole numbers are not exact."""


class SpreadSum(NamedTuple):
    """The posterior law of the sum of a component's counts.

    Attributes
    ----------
    cells
        Its cells `(k,)`.
    low
        The smallest sum.
    masses
        Posterior probabilities from there on.
    """

    cells: NDArray[np.int64]
    low: int
    masses: NDArray[np.float64]

    def draw(self, draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return independent draws `(draws, k)` of the counts of the component's cells."""
        at = np.searchsorted(np.cumsum(self.masses), rng.random(draws), side="right")
        sums = self.low + np.minimum(at, len(self.masses) - 1)
        return rng.multinomial(sums, rng.dirichlet(np.ones(len(self.cells)), draws))


def spread_sum(part: IndependentPart) -> SpreadSum | None:
    """Return the law of a component's sum of counts; None if it has other rules or is too wide.

    Examples
    --------
    Of `a + b = 7 +- 2` it is a discrete normal law times t + 1. See `tests/inferring/test_lattice_moves.py`.
    """
    rows, k, r = part.rows, len(part.cells), len(part.rows.factors)
    whole = len(rows.row) == k * r and (rows.coefficient == 1.0).all()
    open_ = part.free.all() and (part.box[0] == 0).all() and np.isinf(part.box[1]).all()
    smooth = (rows.factors[:, [U, TABLED]] == 0).all()
    if not (whole and open_ and smooth and r and (rows.factors[:, [SLOPE, CURVE]] > 0).any()):
        return None
    one = Rows(np.array([0, r]), np.arange(r), np.ones(r), rows.factors, rows.table)

    def log(t: NDArray) -> NDArray:
        return log_densities(one, t[:, None].astype(np.int64)) + gammaln(t + k) - gammaln(t + 1)

    bounds = _bounds(rows)
    if bounds is None or (found := _window(log, *bounds)) is None:
        return None
    low, high = found
    logs = log(np.arange(low, high + 1))
    masses = np.exp(logs - logs.max())
    return SpreadSum(part.own, low, masses / masses.sum())


def _bounds(rows: Rows) -> tuple[int, int] | None:
    """Return the least and the largest sum that the rows allow, or None if they allow none."""
    factors = rows.factors
    low = int(np.ceil(max(0.0, factors[:, LOW].max())))
    high = int(np.floor(min(factors[:, HIGH].min(), MAX_EXACT_SUM)))
    return (low, high) if low <= high and np.isinf(factors[:, REACH]).all() else None


def _window(log, low: int, high: int) -> tuple[int, int] | None:
    """Return the first and last sum of notable log mass, or None if there are too many between them.

    A concave sequence rises up to its mode and falls from there: both ends and the mode are found by halving.
    """

    def first(holds, low: int, high: int) -> int:
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if holds(middle) else (middle + 1, high)
        return low

    def at(t: int) -> float:
        return float(log(np.array([t]))[0])

    def below(t: int, enough: float) -> int:
        """Return a sum beyond t whose log mass is below `enough`."""
        step = 1
        while t + step < high and at(t + step) >= enough:
            step *= 2
        return min(t + step, high)

    far = 1
    while low + far < high and at(low + far) >= at(low + far // 2):
        far *= 2
    mode = first(lambda t: at(t + 1) <= at(t), low, min(low + far, high))
    enough = at(mode) - SUM_DEPTH_NATS
    begin = first(lambda t: at(t) >= enough, low, mode)
    end = first(lambda t: at(t) < enough, mode, below(mode, enough))
    return (begin, end) if end - begin < MAX_SUMS else None
