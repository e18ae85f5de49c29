"""Exact draws of tables with probability proportional to integer weights.

The factor `exp(-rate)` is a whole number of units of 2^-32, so that weights are whole and draws are exact.
"""

from __future__ import annotations

from bisect import bisect_right
from math import exp, floor, log

import numpy as np

from trueup.noise.law import Integers, Reals, Words

BITS = 32
"""Binary digits of the factor `exp(-rate)` that whole weights are drawn from; it is rounded up, which lowers the loss."""
MOST_STEPS, MOST_BYTES = 2_000_000, 2**29
"""Products and memory for the tables of sums up to which cells are drawn by them."""


def factor_above(rate: float) -> int:
    """Return `exp(-rate)` in units of 2^-32, rounded up."""
    return min(floor(exp(-rate) * 2**BITS) + 1, 2**BITS)


def rate_of(factor: int) -> float:
    """Return the rate whose `exp(-rate)` is the given factor, in units of 2^-32."""
    return BITS * log(2) - log(factor)


def draw_position(running: list[int], words: Words) -> int:
    """Draw a position with probability proportional to integer weights, given as running sums."""
    total = running[-1]
    size = (total.bit_length() + 7) // 8
    while (number := int.from_bytes(words(size), "little") >> (8 * size - total.bit_length())) >= total:
        pass
    return bisect_right(running, number)


def draw_numbers_below(size: int, count: int, words: Words) -> Integers:
    """Draw uniform integers `(count,)` from 0 to `size - 1`, exactly."""
    out, left = np.empty(count, np.int64), np.arange(count)
    most = 2**32 // size * size
    while left.size:
        drawn = np.frombuffer(words(4 * left.size), np.uint32)
        kept = drawn < most
        out[left[kept]] = drawn[kept] % size
        left = left[~kept]
    return out


class CellSums:
    """The sums of bounded cells that lie within limits, tabulated cell by cell.

    Attributes
    ----------
    small
        True if the tables are small enough; otherwise they are not finished.
    widths
        Distance between the bounds of each cell.
    behind
        For each cell, the last one first: `(sums, width + 1)` the place of what is left among the sums of the next one.
    """

    def __init__(self, matrix: Reals, low: Reals, high: Reals, least: Reals, most: Reals) -> None:
        """Tabulate the sums `matrix @ y` from `least` to `most` of cells `low <= y <= high`."""
        self.low, width = low.astype(np.int64), high - low
        self.widths, columns = width.astype(np.int64).tolist(), np.rint(matrix.T).astype(np.int64)
        ends = np.stack([np.minimum(matrix, 0) * width, np.maximum(matrix, 0) * width])
        before = np.cumsum(ends, axis=2) - ends  # the least and the most that cells before have
        least, most = least - matrix @ low, most - matrix @ low
        sums, self.behind, steps, size, self.small = np.zeros((1, len(least)), np.int64), [], 0, 0, False
        for i in reversed(range(len(columns))):
            values, states = self.widths[i] + 1, len(sums)
            steps, size = steps + states * values, size + states * int(width[i:].sum()) * BITS // 8
            if max(steps / MOST_STEPS, size / MOST_BYTES, 8 * states * values * len(least) / MOST_BYTES) > 1:
                return
            grown = (sums[:, None] + np.arange(values)[:, None] * columns[i]).reshape(-1, len(least))
            inside = (grown >= least - before[1, :, i]) & (grown <= most - before[0, :, i])
            left = np.flatnonzero(inside.all(axis=1))
            sums, place = _distinct_rows(grown[left])
            self.behind.append(np.full((len(sums), values), states))  # beyond the last: it cannot be
            self.behind[-1][place, left % values] = left // values
        self.small = True

    def draw(self, x: Integers, count: int, factor: int, words: Words) -> Integers:
        """Draw tables `(count, cells)` cell by cell, with probability proportional to integer weights."""
        weights = [
            np.array([factor ** abs(v - c) << BITS * (w - abs(v - c)) for v in range(w + 1)], object)
            for c, w in zip((x - self.low).tolist(), self.widths)
        ]
        left = [np.array([1, 0], object)]  # of the cells from each one on, the weight of each sum; 0 of none
        for row, behind in zip(reversed(weights), self.behind):
            left.append(np.append(left[-1][behind] @ row, 0))
        running = np.cumsum(left[-1]).tolist()
        out = np.empty((count, x.size), np.int64)
        for drawn in out:
            state = draw_position(running, words)
            for i, row in enumerate(weights):
                then = self.behind[-1 - i][state]
                drawn[i] = draw_position(np.cumsum(row * left[-2 - i][then]).tolist(), words)
                state = then[drawn[i]]
        return out + self.low


def _distinct_rows(rows: Integers) -> tuple[Integers, Integers]:
    """Return the distinct rows of a matrix, and the position of each row among them."""
    above = rows - rows.min(axis=0)
    sizes = above.max(axis=0) + 1
    if np.prod(sizes.astype(float)) >= 2**62:
        found, place = np.unique(rows, axis=0, return_inverse=True)
        return found, place.ravel()
    code = above @ np.append(1, np.cumprod(sizes)[:-1])
    _, first, place = np.unique(code, return_index=True, return_inverse=True)
    return rows[first], place
