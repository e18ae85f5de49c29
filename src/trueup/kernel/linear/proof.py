"""Lower bounds of fits over a polyhedron, proved by any prices, however they were found.

Weighted least squares `F(x) = sum_i w_i (M_i x - y_i)^2` over `lower <= C x <= upper`. For any prices `p` (q,) of the
measured sums, and multipliers `l` of the limits, not negative where a row has an upper limit only and not positive
where it has a lower one only,

    F(x) / 2  >=  p'(M x - y) - sum p_i^2 / (2 w_i)                       a square lies above its tangents
              >=  s'x - p'y - sum p_i^2 / (2 w_i) - sum l_i limit_i,      s = M'p + C'l

where `limit_i` is the upper one for positive `l_i` and the lower one for negative. At the optimum `s = 0` and the
bound is attained (Dorn 1960); here `s` is what rounding leaves of it. Points that matter are at least as good as
the one in hand, `F(x) <= F`, so a count that is measured by itself differs from its measurement by
`sqrt(F / w_j)` at most; over that interval `s_j x_j` is least at one of its ends. So the bound needs no solver's word,
and what rounding may have changed in its own evaluation is taken off too.
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
    """A lower bound of weighted squares over a polyhedron, or `most` if that is less.

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
    held = np.flatnonzero(multipliers)
    slope = fit.matrix.T @ prices + rows.T @ multipliers
    blur = (
        _longest(fit.matrix, rows)
        * EPSILON
        * (abs(fit.matrix).T @ abs(prices) + abs(rows).T @ abs(multipliers))
    )
    low, high = _reach(fit, most)
    left, spent = slope != 0, blur != 0
    terms = np.concatenate(
        [
            -0.5 * prices**2 / fit.weights,
            -prices * fit.values,
            -multipliers[held] * limits[held],
            slope[left] * np.where(slope > 0, low, high)[left],
            -blur[spent] * np.maximum(abs(low), abs(high))[spent],
        ]
    )
    if not np.isfinite(terms).all():
        return -np.inf
    return min(most, 2 * (fsum(terms) - 4 * EPSILON * fsum(abs(terms))))


def _longest(*matrices: scipy.sparse.csr_array) -> int:
    """Terms of the longest column, all matrices together: how often a sum down a column rounds, at most."""
    return sum(int(np.bincount(m.indices, minlength=1).max()) for m in matrices) + 2


def _reach(fit: Fit, most: float) -> tuple[np.ndarray, np.ndarray]:
    """The interval (n,), (n,) of every count at points with squares up to `most`, from its own measurements."""
    n = fit.matrix.shape[1]
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    lengths = np.diff(fit.matrix.indptr)
    alone = np.flatnonzero(lengths == 1)
    cell, factor = fit.matrix.indices[fit.matrix.indptr[alone]], fit.matrix.data[fit.matrix.indptr[alone]]
    radius = np.sqrt(most / fit.weights[alone]) * (1 + 1e-9)
    ends = (fit.values[alone] + radius * [[-1.0], [1.0]]) / factor
    np.maximum.at(low, cell, ends.min(axis=0))
    np.minimum.at(high, cell, ends.max(axis=0))
    return low, high
