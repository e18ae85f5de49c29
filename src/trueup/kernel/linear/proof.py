"""Lower bounds of fits over a polyhedron, proved by any prices, however found.

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
"""

from __future__ import annotations

from math import fsum

import numpy as np
import scipy  # its parts load when first used

from trueup.kernel.linear.fit import Fit

EPSILON = float(np.finfo(float).eps)


def least_squares_bound(
    fit: Fit,
    rows: scipy.sparse.csr_array,
    limits: np.ndarray,
    prices: np.ndarray,
    multipliers: np.ndarray,
    most: float,
) -> float:
    """Return a lower bound of weighted squares over a polyhedron, or `most` if that is less.

    Parameters
    ----------
    fit : what is minimised
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
    """Return a lower bound of weighted absolute deviations: `w |d|` lies above `p d` for prices up to `w`; others are cut off.

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
    """Return the least of `s'x - p'y - l'limits` plus constants, over counts within reach of their own measurements."""
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
    """Return the terms of the longest column, all matrices together: how often a sum down a column rounds, at most."""
    return sum(int(np.bincount(m.indices, minlength=1).max()) for m in matrices) + 2


def _reach(fit: Fit, radius: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the interval (n,), (n,) of every count whose own measurement is off by up to a radius (q,)."""
    n = fit.matrix.shape[1]
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    alone = np.flatnonzero(np.diff(fit.matrix.indptr) == 1)
    at = fit.matrix.indptr[alone]
    cell, factor = fit.matrix.indices[at], fit.matrix.data[at]
    ends = (fit.values[alone] + radius[alone] * (1 + 1e-9) * [[-1.0], [1.0]]) / factor
    np.maximum.at(low, cell, ends.min(axis=0))
    np.minimum.at(high, cell, ends.max(axis=0))
    return low, high
