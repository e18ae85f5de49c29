"""Least squares under equalities and bounds if every count is measured separately, by Newton steps on the dual.

    minimise  1/2 sum w_i (x_i - y_i)^2   over   A x = b,   low <= x <= high

With prices `u` of the equalities the minimum over `x` alone is `x(u) = min(max(y + A'u / w, low), high)`, and what is left,

    q(u) = 1/2 sum w (x(u) - y)^2 + u'(b - A x(u)),

is concave with gradient `b - A x(u)`, which is piecewise linear. Newton's matrix is `A diag(free / w) A'`, of the m equalities
alone, where an interior point factors one of counts, measurements and rows together. Shortened until q rises, the steps
converge, and end after finitely many where the counts at a bound no longer change (Qi and Sun 1993). Only the equalities
are approximate at any step: optimality holds by construction.

Everything is the change of the whole numbers nearest to `y`, so that large counts cost no digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts load when first used

from trueup.kernel.linear import Fit, FitOptimum
from trueup.kernel.linear.polyhedron import Polyhedron

MAX_NEWTON_STEPS = 100
SHORTER = 40  # halvings of a step
RISE = 1e-4  # of what the slope promises, that a step must gain
EQUALITY_TOLERANCE = 1e-13  # largest gap of an equality, relative to the size of its terms, that is rounding
REGULAR = 1e-13  # added to Newton's matrix, relative to its largest diagonal entry: equalities may depend on each other
MAX_DENSE_COEFFICIENTS = 10**5  # coefficients up to which a full matrix is quicker in any case
MIN_DENSE_SHARE = (
    0.05  # share of nonzero coefficients from which on the equalities are multiplied as a full matrix
)
DENSE = 3000  # equalities up to which Newton's matrix may be full
MAX_SPARSE_SHARE = 0.005  # share of entries that are not zero, up to which it is factored as a sparse one


@dataclass(frozen=True)
class _Dual:
    """The least-squares program of a change of counts, under equalities and bounds on single counts."""

    y: np.ndarray
    w: np.ndarray
    low: np.ndarray
    high: np.ndarray
    matrix: Any
    sums: np.ndarray

    def point(self, prices: np.ndarray) -> np.ndarray:
        return np.clip(self.y + (self.matrix.T @ prices) / self.w, self.low, self.high)

    def value(self, prices: np.ndarray, x: np.ndarray, gap: np.ndarray) -> float:
        return float(0.5 * self.w @ (x - self.y) ** 2 + prices @ gap)

    def step(self, x: np.ndarray, gap: np.ndarray) -> np.ndarray | None:
        """Return the Newton step (m,), or None if its matrix is too large or not positive definite."""
        scale = np.where((x > self.low) & (x < self.high), 1 / np.sqrt(self.w), 0.0)
        if isinstance(self.matrix, np.ndarray):
            rows = self.matrix * scale
            return _solved(rows @ rows.T, gap)
        rows = self.matrix.multiply(scale[None])
        return _solved(scipy.sparse.csc_array(rows @ rows.T), gap)


def separable_optimum(polyhedron: Polyhedron, fit: Fit) -> FitOptimum | None:
    """Return the optimum if each count is measured by itself and limited by itself, or else None.

    None where the program is of another kind, where there is no such point, or where the steps do not settle.

    Examples
    --------
    >>> p = Polyhedron.of(2, [[1, 1]], [3.0])
    >>> fit = Fit(scipy.sparse.csr_array(np.eye(2)), np.array([5.0, -1.0]), np.ones(2))
    >>> separable_optimum(p, fit).x
    array([3., 0.])
    """
    measured, box = _measured_alone(fit), _box(polyhedron)
    if measured is None or box is None or (box[0] > box[1]).any():
        return None
    y, w = measured
    origin = np.clip(np.rint(y), np.ceil(box[0]), np.floor(box[1]))
    matrix: Any = polyhedron.equal
    if matrix.nnz > MIN_DENSE_SHARE * np.prod(matrix.shape) or np.prod(matrix.shape) < MAX_DENSE_COEFFICIENTS:
        matrix = matrix.toarray()
    dual = _Dual(y - origin, w, box[0] - origin, box[1] - origin, matrix, polyhedron.sums - matrix @ origin)
    found = _ascend(dual)
    if found is None:
        return None
    x, prices = found  # x is the least of the Lagrangian in the box, so the dual's value is a bound
    bound = 2 * dual.value(prices, x, dual.sums - dual.matrix @ x)
    return FitOptimum(origin + x, fit.around(origin).objective(x), bound)


def _measured_alone(fit: Fit) -> tuple[np.ndarray, np.ndarray] | None:
    """Return each count's measured value and weight, or None unless each is measured once by itself."""
    matrix = fit.matrix
    q, n = matrix.shape
    if (
        q != n
        or not (np.diff(matrix.indptr) == 1).all()
        or np.bincount(matrix.indices, minlength=n).max(initial=1) > 1
    ):
        return None
    order = np.argsort(matrix.indices)
    factor = matrix.data[order]
    if not factor.all():
        return None
    return fit.values[order] / factor, fit.weights[order] * factor**2


def _box(polyhedron: Polyhedron) -> tuple[np.ndarray, np.ndarray] | None:
    """Return lower and upper bounds (n,) of every count, or None if some row limits several counts."""
    ranged, n = polyhedron.ranged, polyhedron.cells
    low, high = np.full(n, 0.0 if polyhedron.nonnegative else -np.inf), np.full(n, np.inf)
    if not (np.diff(ranged.indptr) == 1).all() or not ranged.data.all():
        return None
    ends = np.sort(np.stack([polyhedron.lower, polyhedron.upper]) / ranged.data, axis=0)
    np.maximum.at(low, ranged.indices, ends[0])
    np.minimum.at(high, ranged.indices, ends[1])
    return low, high


def _ascend(dual: _Dual) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the point that satisfies the equalities, and its multipliers, or None on failure."""
    prices = np.zeros(dual.sums.size)
    size = np.maximum(1.0, abs(dual.matrix) @ np.abs(dual.point(prices)) + np.abs(dual.sums))
    x = dual.point(prices)
    gap = dual.sums - dual.matrix @ x
    value = dual.value(prices, x, gap)
    for _ in range(MAX_NEWTON_STEPS):
        if (np.abs(gap) <= EQUALITY_TOLERANCE * size).all():
            return x, prices
        step = dual.step(x, gap)
        if step is None or not np.isfinite(step).all():  # the gap may be one that no counts close
            return None
        slope, length = float(gap @ step), 1.0
        for _ in range(SHORTER):
            moved = prices + length * step
            there = dual.point(moved)
            left = dual.sums - dual.matrix @ there
            higher = dual.value(moved, there, left)
            if higher >= value + RISE * length * slope or np.abs(left).max() <= 1e-3 * np.abs(gap).max():
                break
            length /= 2
        else:
            return (x, prices) if (np.abs(gap) <= 1e3 * EQUALITY_TOLERANCE * size).all() else None
        prices, x, gap, value = moved, there, left, higher
    return (x, prices) if (np.abs(gap) <= 1e3 * EQUALITY_TOLERANCE * size).all() else None


def _solved(matrix: Any, right: np.ndarray) -> np.ndarray | None:
    """Return the solution of a positive semidefinite linear system, by factors of a regularised one.

    None where it is too large, zero, or not positive.
    """
    m, largest = matrix.shape[0], float(matrix.diagonal().max(initial=0.0))
    thin, shift = scipy.sparse.issparse(matrix) and matrix.nnz <= MAX_SPARSE_SHARE * m * m, REGULAR * largest
    if largest == 0 or (m > DENSE and not thin):
        return None
    try:
        solve = _by_thin(matrix, shift) if thin else _by_full(matrix, shift)
    except (RuntimeError, np.linalg.LinAlgError):
        return None
    found = solve(right)
    return found + solve(right - matrix @ found) if np.isfinite(found).all() else None


def _by_full(matrix: Any, shift: float) -> Callable[[np.ndarray], np.ndarray]:
    full = matrix.toarray() if scipy.sparse.issparse(matrix) else matrix.copy()
    full[np.diag_indices(len(full))] += shift
    factor = scipy.linalg.cho_factor(full, overwrite_a=True)
    return lambda right: scipy.linalg.cho_solve(factor, right)


def _by_thin(matrix: Any, shift: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return the solver of a symmetric matrix with a constant added to its diagonal."""
    whole = scipy.sparse.csc_matrix(matrix + shift * scipy.sparse.eye_array(matrix.shape[0]))
    alike = {"SymmetricMode": True}
    return scipy.sparse.linalg.splu(
        whole, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=alike
    ).solve
