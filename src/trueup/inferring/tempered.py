"""Markov chains with relaxed copies, for published sums in ranges so narrow that few moves are possible.

Ranges of crossing sums may leave a table so little room that no single move is allowed, though there are many tables. Each
chain then gets copies on *rungs*: on rung k a published sum may miss its range by d counts (at most `MOST_MISSED`) at a
density lower by `exp(-b_k d)`, and b_k falls from rung to rung. The tables x and y of neighbours k and l are exchanged with
probability `min(1, p_k(y) p_l(x) / (p_k(x) p_l(y)))`, which keeps the product of all densities. Draws are kept of rung 0 alone,
which has the posterior as it is.

References
----------
Geyer (1991), "Markov chain Monte Carlo maximum likelihood": chains on several densities that exchange their states.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.table_walks.metropolis import Tuning, metropolis_walk
from trueup.kernel.table_walks.moves import HIGH, LOW, TABLED, Rows, log_densities

MOST_MISSED = 8
"""Counts by which a sum may miss its range at most."""
MOST_ROWS = 1000
"""Published sums that may be relaxed: more of them take more rungs than their exchange is worth."""
LEAST_PENALTY, FALL, FIRST = 0.6, 4.4, 1.7
"""Nats for each count missed on the last rung; the ratio between rungs of m sums is `1 - FALL / sqrt(m)`, and the first one
`log(m) - FIRST`: at both about a quarter of all exchanges succeed."""
SWEEPS = 10
"""Sweeps of each rung between two exchanges."""


def may_relax(rows: Rows) -> bool:
    """Return True if relaxed copies are possible: some published sums have ranges, but not too many."""
    return 0 < len(_sums(rows)) <= MOST_ROWS


def _sums(rows: Rows) -> NDArray[np.int64]:
    """Return the rows that contain several cells and whose law is a table between finite limits."""
    cells, factors = np.bincount(rows.row, minlength=len(rows.factors)), rows.factors
    return np.flatnonzero((factors[:, TABLED] != 0) & np.isfinite(factors[:, HIGH]) & (cells > 1))


def penalties(sums: int) -> list[float]:
    """Return the penalties (nats per count) of all relaxed copies, from the largest to the smallest.

    Examples
    --------
    >>> [round(one, 1) for one in penalties(300)]
    [4.0, 3.0, 2.2, 1.7, 1.2, 0.9, 0.7]
    """
    ratio = min(max(1 - FALL / math.sqrt(sums), 0.5), 0.95)
    first = max(math.log(sums) - FIRST, 2.0)
    many = math.ceil(math.log(first / LEAST_PENALTY) / -math.log(ratio))
    return [first * ratio**k for k in range(many)]


def relaxed(rows: Rows, penalty: float) -> Rows:
    """Return factors that let published sums leave their ranges, at `penalty` nats per count."""
    factors, tables, size, known = rows.factors.copy(), [rows.table], len(rows.table), {}
    missed = penalty * np.arange(1, MOST_MISSED + 1)
    for r in _sums(rows):
        low, high = math.ceil(factors[r, LOW]), math.floor(factors[r, HIGH])
        first = math.floor(low + factors[r, TABLED])
        if (first, high - low) not in known:
            log = rows.table[first : first + high - low + 1]
            tables.append(np.concatenate([log[0] - missed[::-1], log, log[-1] - missed]))
            known[first, high - low] = size
            size += len(tables[-1])
        factors[r, LOW] -= MOST_MISSED
        factors[r, HIGH] += MOST_MISSED
        factors[r, TABLED] = known[first, high - low] - (low - MOST_MISSED) + 0.5
    return rows._replace(factors=factors, table=np.concatenate(tables))


def rungs_of(rows: Rows) -> list[Rows]:
    """Return the factors of the posterior, followed by those of each relaxed copy."""
    return [rows, *(relaxed(rows, one) for one in penalties(len(_sums(rows))))]


@dataclass(eq=False)
class Ladder:
    """A Markov chain with its relaxed copies, one on each rung of a ladder of penalties.

    Attributes
    ----------
    rungs
        Factors of each rung; those of the first are the posterior's.
    tables
        `(n,)` the table on each rung.
    """

    rungs: list[Rows]
    tables: list[NDArray[np.int64]]

    def walk(
        self,
        rng: np.random.Generator,
        moves: Any,
        box: NDArray,
        tuning: Tuning,
        count: int,
        thin: int,
        stopped: Callable[[], bool],
    ) -> tuple[NDArray[np.int64], NDArray]:
        """Return `count` tables of the chain on the first rung, and a tally of its moves.

        Once it is `stopped`, what remains is filled with the last table.
        """
        out, tally = np.empty((count, len(self.tables[0])), np.int64), np.zeros((3, len(tuning.chances)))
        for draw in range(count):
            for _ in range(0 if stopped() else thin):
                for k, (rows, table) in enumerate(zip(self.rungs, self.tables)):
                    made = metropolis_walk(rng, rows, moves, box, tuning, table, 1, SWEEPS)[1]
                    tally += made if k == 0 else 0.0
                self._exchange(rng)
            out[draw] = self.tables[0]
        return out, tally

    def _exchange(self, rng: np.random.Generator) -> None:
        """Propose to exchange the tables of each pair of neighbouring rungs."""
        for k in range(len(self.rungs) - 1):
            pair = np.stack(self.tables[k : k + 2])
            here, there = (log_densities(rows, pair) for rows in self.rungs[k : k + 2])
            now, then = here[0] + there[1], here[1] + there[0]
            if (
                now == -np.inf or math.log(1 - rng.random()) < then - now
            ):  # a start may be impossible: laws have holes
                self.tables[k], self.tables[k + 1] = self.tables[k + 1], self.tables[k]
