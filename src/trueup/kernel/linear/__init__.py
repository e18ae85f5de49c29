"""Quadratic programs and integer points under general linear rules.

Here: fits of a program: measured sums with weights, convex losses and their secants, and lower bounds that prices prove.

*Losses.* At whole deviations a convex loss is the largest of its secants, the lines through its values at k and k + 1. A model
with some of them is below the loss everywhere and equals it at their ends; its upper envelope is piecewise linear.

*Lower bounds of fits over a polyhedron*, proved by any prices, however found.
Weighted least squares `F(x) = sum_i w_i (M_i x - y_i)^2` over `lower <= C x <= upper`. For any prices `p` (q,) of the
measured sums, and multipliers `l` of the limits, not negative where a row has an upper limit only and not positive
where it has a lower one only,

    F(x) / 2  >=  p'(M x - y) - sum p_i^2 / (2 w_i)                       a square lies above its tangents
              >=  s'x - p'y - sum p_i^2 / (2 w_i) - sum l_i limit_i,      s = M'p + C'l

where `limit_i` is the upper one for positive `l_i` and the lower one for negative. At the optimum `s = 0` and the
bound is attained (Dorn 1960; for absolute deviations it is the duality of linear programs); here `s` is what rounding
leaves of it. Points that matter are at least as good as the one in hand, `F(x) <= F`, so a count that is measured by
itself differs from its measurement by `sqrt(F / w_j)` at most; over that interval `s_j x_j` is least at one of its
ends. So the bound needs no solver's word, and what rounding may have changed in its own evaluation is taken off too.

One file: bounds are proved of the losses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum

import numpy as np
import scipy  # its parts load when first used


@dataclass(frozen=True)
class Fit:
    """Measured sums of n counts: matrix (q, n), values (q,) and weights (q,) proportional to 1 / variance."""

    matrix: scipy.sparse.csr_array
    values: np.ndarray
    weights: np.ndarray

    def objective(self, x: np.ndarray) -> float:
        """Return the weighted sum of squared deviations."""
        return float(self.weights @ (self.matrix @ x - self.values) ** 2)

    def around(self, origin: np.ndarray) -> Fit:
        """Return the fit for changes from an origin (n,)."""
        return Fit(self.matrix, self.values - self.matrix @ origin, self.weights)

    def relative(self) -> Fit:
        """Return the fit with smallest weight 1, because the tolerances of solvers are absolute.

        Examples
        --------
        >>> Fit(scipy.sparse.csr_array(np.eye(2)), np.zeros(2), np.array([1e17, 4e17])).relative().weights
        array([1., 4.])
        """
        return Fit(self.matrix, self.values, self.weights / self.weights.min(initial=np.inf))

    def shuffled(self, order: np.ndarray, rng: np.random.Generator) -> Fit:
        """Return the fit in another order of cells `order`, with measured sums in random order."""
        rows = rng.permutation(self.values.size)
        return Fit(self.matrix[rows][:, order], self.values[rows], self.weights[rows])


@dataclass(frozen=True)
class FitOptimum:
    """An optimum (n,) of a fit, its weighted squares, and a lower bound on those of all feasible points."""

    x: np.ndarray
    objective: float
    bound: float


RELATIVE_LOSS_TOLERANCE = (
    1e-9  # by how much a model may be below a loss, relative to the loss, to be called equal to it
)


@dataclass(frozen=True)
class FitLoss:
    """Convex losses `square (d - at)^2 + absolute |d|` of the deviations d (q,) of a fit.

    Differences of values are formulas of their own: squares of deviations of a billion leave no digits for them.
    """

    square: np.ndarray
    absolute: np.ndarray
    at: np.ndarray

    @classmethod
    def squares(cls, weights: np.ndarray, at: np.ndarray | float = 0.0) -> FitLoss:
        """Return the loss with a weighted square of each deviation's distance from `at`."""
        return cls(weights, np.zeros(weights.size), np.broadcast_to(at, weights.size).astype(float))

    @classmethod
    def absolutes(cls, weights: np.ndarray) -> FitLoss:
        """Return the loss with a weighted absolute value of each deviation."""
        return cls(np.zeros(weights.size), weights, np.zeros(weights.size))

    def total(self, d: np.ndarray) -> float:
        """Return the loss of all deviations (q,) together."""
        return float((self.square * (d - self.at) ** 2 + self.absolute * np.abs(d)).sum())

    def rise(self, row: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return the loss at `end` minus the loss at `start`, for the deviations with indices `row`."""
        squares = self.square[row] * (end - start) * (start + end - 2 * self.at[row])
        return squares + self.absolute[row] * (np.abs(end) - np.abs(start))


@dataclass(frozen=True)
class SecantModel:
    """Piecewise linear models of convex losses (q,), made of secants over unit steps.

    Secant k of deviation `row[k]` passes through `at[k]` and `at[k] + 1`. Its values are relative to those of
    the loss at `origin`.
    """

    loss: FitLoss
    origin: np.ndarray  # (q,)
    row: np.ndarray  # ascending
    at: np.ndarray  # ascending within a row

    @classmethod
    def around(cls, loss: FitLoss, centre: np.ndarray) -> SecantModel:
        """Return three secants around every deviation, and two at 0, so that no model is unbounded."""
        near = np.floor(centre + 1e-7)
        at = np.concatenate([near - 1, near, near + 1, np.full(near.size, -1.0), np.zeros(near.size)])
        return cls(loss, near, *_distinct_points(np.tile(np.arange(near.size), 5), at))

    @property
    def least(self) -> float:
        """Return the value of the losses at the origin, to which all values of the model are relative."""
        return self.loss.total(self.origin)

    def refined(self, deviations: np.ndarray) -> SecantModel | None:
        """Return the model with secants added, so that it equals the loss at given deviations (q,).

        Return None if it equals the loss already.
        """
        lines = self._value + self._slope * (deviations[self.row] - self.at)
        every = np.arange(self.origin.size)
        below = np.maximum.reduceat(lines, np.searchsorted(self.row, every))
        true = self.loss.rise(every, self.origin, deviations)
        short = np.flatnonzero(true - below > RELATIVE_LOSS_TOLERANCE * np.maximum(1.0, np.abs(true)))
        if short.size == 0:
            return None
        row = np.concatenate([self.row, short, short])
        at = np.concatenate([self.at, deviations[short] - 1, deviations[short]])
        row, at = _distinct_points(row, at)
        return None if row.size == self.row.size else replace(self, row=row, at=at)

    @property
    def _value(self) -> np.ndarray:
        return self.loss.rise(self.row, self.origin[self.row], self.at)

    @property
    def _slope(self) -> np.ndarray:
        return self.loss.rise(self.row, self.at, self.at + 1)

    def pieces(self) -> LinearPieces:
        """Return the upper envelope of the secants, as a piecewise linear function."""
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


def _distinct_points(row: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.lexsort((at, row))
    row, at = row[order], at[order]
    new = np.append(True, (row[1:] != row[:-1]) | (at[1:] != at[:-1]))[: row.size]
    return row[new], at[new]


@dataclass(frozen=True)
class LinearPieces:
    """Columns of a linear program that express a piecewise linear function of every deviation.

    A deviation is `anchor - left + sum of the others`. Pieces that reach down to minus infinity have a column
    of their own that counts downwards.
    """

    row: np.ndarray
    slope: np.ndarray
    start: np.ndarray
    end: np.ndarray
    anchor: np.ndarray  # (q,) where the first piece of a row ends
    height: np.ndarray  # (q,) the function there

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return row, sign, cost and length of every column of the linear program."""
        down, up = np.isinf(self.start), np.isfinite(self.start)
        alone = down & np.isinf(self.end)  # a straight line goes both ways
        row = np.concatenate([self.row[down], self.row[up], self.row[alone]])
        sign = np.concatenate([-np.ones(down.sum()), np.ones(up.sum() + alone.sum())])
        cost = np.concatenate([-self.slope[down], self.slope[up], self.slope[alone]])
        length = np.concatenate(
            [np.full(down.sum(), np.inf), (self.end - self.start)[up], np.full(alone.sum(), np.inf)]
        )
        return row, sign, cost, length


EPSILON = float(np.finfo(float).eps)


def least_squares_bound(
    fit: Fit,
    rows: scipy.sparse.csr_array,
    limits: np.ndarray,
    prices: np.ndarray,
    multipliers: np.ndarray,
    most: float,
) -> float:
    """Return a lower bound on the weighted squares over a polyhedron, or `most` if that is less.

    Parameters
    ----------
    fit : the weighted squares that are minimised
    rows, limits : (k, n), (k,) every row's upper limit where its multiplier is positive, else its lower one
    prices : (q,) near `w (M x - y)` at the optimum
    multipliers : (k,) 0 where a row has no limit on that side
    most : squares of a point in hand

    Returns
    -------
    Minus infinity where a count that no measured sum holds by itself has a price left

    Examples
    --------
    >>> fit = Fit(scipy.sparse.csr_array(np.eye(2)), np.array([5.0, -1.0]), np.ones(2))
    >>> rows, limits = scipy.sparse.csr_array([[1.0, 1.0], [0.0, 1.0]]), np.array([3.0, 0.0])
    >>> round(least_squares_bound(fit, rows, limits, np.array([-2.0, 1.0]), np.array([2.0, -3.0]), 6.0), 9)
    5.0
    """
    reach = np.sqrt(most / fit.weights)
    tangents = -0.5 * prices**2 / fit.weights
    return min(most, 2 * _least_slope(fit, rows, limits, prices, multipliers, reach, tangents))


def least_absolute_bound(
    fit: Fit,
    rows: scipy.sparse.csr_array,
    limits: np.ndarray,
    prices: np.ndarray,
    multipliers: np.ndarray,
    most: float,
) -> float:
    """Return a lower bound on weighted absolute deviations, from dual values that are at most the weights.

    Examples
    --------
    >>> fit = Fit(scipy.sparse.csr_array(np.eye(2)), np.array([5.0, -1.0]), np.ones(2))
    >>> rows, limits = scipy.sparse.csr_array([[1.0, 1.0], [0.0, 1.0]]), np.array([3.0, 0.0])
    >>> round(least_absolute_bound(fit, rows, limits, np.array([-1.0, 1.0]), np.array([1.0, -2.0]), 4.0), 9)
    3.0
    """
    cut = np.clip(prices, -fit.weights, fit.weights)
    return min(most, _least_slope(fit, rows, limits, cut, multipliers, most / fit.weights, np.zeros(0)))


def _least_slope(fit: Fit, rows, limits, prices, multipliers, reach, constants) -> float:
    """Return the minimum of a linear function of the counts, plus constants, over counts near their own measurements."""
    held = np.flatnonzero(multipliers)
    slope = fit.matrix.T @ prices + rows.T @ multipliers
    size = abs(fit.matrix).T @ abs(prices) + abs(rows).T @ abs(multipliers)
    blur = _longest(fit.matrix, rows) * EPSILON * size
    low, high = _reach(fit, reach)
    left, spent = slope != 0, blur != 0
    terms = np.concatenate(
        [
            constants,
            -prices * fit.values,
            -multipliers[held] * limits[held],
            slope[left] * np.where(slope > 0, low, high)[left],
            -blur[spent] * np.maximum(abs(low), abs(high))[spent],
        ]
    )
    return fsum(terms) - 4 * EPSILON * fsum(abs(terms)) if np.isfinite(terms).all() else -np.inf


def _longest(*matrices: scipy.sparse.csr_array) -> int:
    """Return the number of terms in the longest column, which limits rounding errors."""
    return sum(int(np.bincount(m.indices, minlength=1).max()) for m in matrices) + 2


def _reach(fit: Fit, radius: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the interval (n,), (n,) of every count whose own measurement is off by at most a radius (q,)."""
    n = fit.matrix.shape[1]
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    alone = np.flatnonzero(np.diff(fit.matrix.indptr) == 1)
    at = fit.matrix.indptr[alone]
    cell, factor = fit.matrix.indices[at], fit.matrix.data[at]
    ends = (fit.values[alone] + radius[alone] * (1 + 1e-9) * [[-1.0], [1.0]]) / factor
    np.maximum.at(low, cell, ends.min(axis=0))
    np.minimum.at(high, cell, ends.max(axis=0))
    return low, high
