"""Convex losses of whole deviations, and models of them by secants.

At whole deviations a convex loss is the largest of its secants, the lines through its values at k and k + 1. A model
with some of them is below the loss everywhere and equals it at their ends; its upper envelope is piecewise linear.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

AGREE = 1e-9  # by how much a model may be below a loss, relative to the loss, to be called equal to it


@dataclass(frozen=True)
class FitLoss:
    """Convex losses `square (d - at)^2 + absolute |d|` of deviations d (q,); weights at least 0, (q,).

    Differences of values are formulas of their own: squares of deviations of a billion leave no digits for them.
    """

    square: np.ndarray
    absolute: np.ndarray
    at: np.ndarray

    @classmethod
    def squares(cls, weights: np.ndarray, at: np.ndarray | float = 0.0) -> FitLoss:
        """Return weighted squares of distances from `at`."""
        return cls(weights, np.zeros(weights.size), np.broadcast_to(at, weights.size).astype(float))

    @classmethod
    def absolutes(cls, weights: np.ndarray) -> FitLoss:
        """Return weighted absolute deviations."""
        return cls(np.zeros(weights.size), weights, np.zeros(weights.size))

    def total(self, d: np.ndarray) -> float:
        """Return the loss of all deviations (q,) together."""
        return float((self.square * (d - self.at) ** 2 + self.absolute * np.abs(d)).sum())

    def rise(self, row: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return the loss at the end less the loss at the start, for deviations `row`."""
        squares = self.square[row] * (end - start) * (start + end - 2 * self.at[row])
        return squares + self.absolute[row] * (np.abs(end) - np.abs(start))


@dataclass(frozen=True)
class SecantModel:
    """Secants of a loss (q,): secant k of deviation `row[k]` goes through `at[k]` and `at[k] + 1`.

    Its values are relative to those of the loss at `origin`.
    """

    loss: FitLoss
    origin: np.ndarray  # (q,)
    row: np.ndarray  # ascending
    at: np.ndarray  # ascending within a row

    @classmethod
    def around(cls, loss: FitLoss, centre: np.ndarray) -> SecantModel:
        """Return three secants around every deviation, and the two at 0, where losses are least: no model is unbounded."""
        near = np.floor(centre + 1e-7)
        at = np.concatenate([near - 1, near, near + 1, np.full(near.size, -1.0), np.zeros(near.size)])
        return cls(loss, near, *_distinct(np.tile(np.arange(near.size), 5), at))

    @property
    def least(self) -> float:
        """Return the loss at the origin, to which all values are relative."""
        return self.loss.total(self.origin)

    def refined(self, deviations: np.ndarray) -> SecantModel | None:
        """Return the model with the secants that make it equal to the loss at given deviations (q,); None if it is already."""
        lines = self._value + self._slope * (deviations[self.row] - self.at)
        every = np.arange(self.origin.size)
        below = np.maximum.reduceat(lines, np.searchsorted(self.row, every))
        true = self.loss.rise(every, self.origin, deviations)
        short = np.flatnonzero(true - below > AGREE * np.maximum(1.0, np.abs(true)))
        if short.size == 0:
            return None
        row = np.concatenate([self.row, short, short])
        at = np.concatenate([self.at, deviations[short] - 1, deviations[short]])
        row, at = _distinct(row, at)
        return None if row.size == self.row.size else replace(self, row=row, at=at)

    @property
    def _value(self) -> np.ndarray:
        return self.loss.rise(self.row, self.origin[self.row], self.at)

    @property
    def _slope(self) -> np.ndarray:
        return self.loss.rise(self.row, self.at, self.at + 1)

    def pieces(self) -> LinearPieces:
        """Return the upper envelope of the secants as pieces of a piecewise linear function, from left to right."""
        slope = self._slope
        first = np.append(True, self.row[1:] != self.row[:-1])
        keep = first | np.append(True, slope[1:] > slope[:-1])
        row, at, value, slope = self.row[keep], self.at[keep], self._value[keep], slope[keep]
        same = row[1:] == row[:-1]
        steeper = np.where(same, slope[1:] - slope[:-1], 1.0)
        # Where a secant meets the next one of its row; the last of a row has no end.
        rise = self.loss.rise(row[:-1], at[:-1], at[1:])
        meet = at[:-1] + (slope[1:] * (at[1:] - at[:-1]) - rise) / steeper
        end = np.append(np.where(same, meet, np.inf), np.inf)
        start = np.append(-np.inf, np.where(same, meet, -np.inf))
        begin = np.flatnonzero(np.append(True, ~same))
        anchor = np.where(np.isfinite(end[begin]), end[begin], at[begin])
        height = value[begin] + slope[begin] * (anchor - at[begin])
        return LinearPieces(row, slope, start, end, anchor, height)


def _distinct(row: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.lexsort((at, row))
    row, at = row[order], at[order]
    new = np.append(True, (row[1:] != row[:-1]) | (at[1:] != at[:-1]))[: row.size]
    return row[new], at[new]


@dataclass(frozen=True)
class LinearPieces:
    """Columns of a piecewise linear function of every deviation d: `d = anchor - left + sum of the others`.

    Pieces that reach down to minus infinity have a column of their own that counts downwards.
    """

    row: np.ndarray
    slope: np.ndarray
    start: np.ndarray
    end: np.ndarray
    anchor: np.ndarray  # (q,) where the first piece of a row ends
    height: np.ndarray  # (q,) the function there

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return row, sign, cost and length of every column."""
        down, up = np.isinf(self.start), np.isfinite(self.start)
        alone = down & np.isinf(self.end)  # a straight line goes both ways
        row = np.concatenate([self.row[down], self.row[up], self.row[alone]])
        sign = np.concatenate([-np.ones(down.sum()), np.ones(up.sum() + alone.sum())])
        cost = np.concatenate([-self.slope[down], self.slope[up], self.slope[alone]])
        length = np.concatenate(
            [np.full(down.sum(), np.inf), (self.end - self.start)[up], np.full(alone.sum(), np.inf)]
        )
        return row, sign, cost, length
