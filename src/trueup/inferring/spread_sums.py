"""Counts known through their sum alone, under a flat prior: the sum's law is exact, its parts are spread evenly.

`C(t + k - 1, k - 1)` tables of k nonnegative counts have the sum t, all as probable as each other. Its masses are these
numbers times its factors, and given it the table is Dirichlet-multinomial with parameters 1. Log-concave factors have one mode,
from which masses are written down until they are `SUM_DEPTH_NATS` below it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from trueup.inferring.independent import IndependentPart
from trueup.kernel.table_walks.rows import CURVE, HIGH, LOW, REACH, SLOPE, TABLED, Rows, U, log_densities

SUM_DEPTH_NATS = 60.0
"""Log masses below the largest that are left out: less than 1e-20 of the whole in all."""
MAX_SUMS = 1 << 23
"""Sums that may be written down."""
MAX_EXACT_SUM = 1 << 52
"""Sums beyond which whole numbers are not exact."""


class SpreadSum(NamedTuple):
    """The law of one sum.

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
        """Return `(draws, k)` independent draws."""
        at = np.searchsorted(np.cumsum(self.masses), rng.random(draws), side="right")
        sums = self.low + np.minimum(at, len(self.masses) - 1)
        return rng.multinomial(sums, rng.dirichlet(np.ones(len(self.cells)), draws))


def spread_sum(part: IndependentPart) -> SpreadSum | None:
    """Return the law of a component's sum; None if more is known of its counts, or its law is too wide to write down.

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
    """Return the least and the largest sum that the rows allow; None if there is none."""
    factors = rows.factors
    low = int(np.ceil(max(0.0, factors[:, LOW].max())))
    high = int(np.floor(min(factors[:, HIGH].min(), MAX_EXACT_SUM)))
    return (low, high) if low <= high and np.isinf(factors[:, REACH]).all() else None


def _window(log, low: int, high: int) -> tuple[int, int] | None:
    """Return where log masses are within `SUM_DEPTH_NATS` of the largest; None if these are more than `MAX_SUMS` sums.

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
        """Return a sum beyond t whose log mass is below `enough`, no further than needed: far log masses lose digits."""
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
