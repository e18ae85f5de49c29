"""The exact optimum of least squares over a polyhedron, from a point near it, with its certificate.

    minimise  sum_i w_i (M_i x - y_i)^2   over   lower <= C x <= upper

`x` is the optimum if and only if it is feasible and minus half the gradient, `-M' p` with `p = w (M x - y)`, is a
combination of the rows that it touches with multipliers of the right sign (Karush, Kuhn and Tucker): not negative on
an upper limit, not positive on a lower one. On given rows, held as equalities, `x` and the multipliers `l` are one
linear system

    M' p + C' l = 0,   M x - p / w = y,   C x = limits

in which a narrow variance `1 / w` is nearly an equality and does no harm. Rows whose multiplier has the wrong sign are
let go, rows that are crossed are held, until the conditions hold. An interior point touches nearly the right rows, so
one or two systems do; by itself it stops about the square root of its tolerance short of a limit whose multiplier
vanishes, and far from the optimum where weights differ by many orders.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # its parts load when first used

from trueup.kernel.linear.fit import Fit
from trueup.kernel.linear.polyhedron import Polyhedron

NEAR = 1e-5  # distance from a limit, relative to the largest count, at which an interior point touches it
CROSSED = 1e-9  # likewise, beyond a limit, at which it is crossed
SIGN = 1e-12  # multiplier, relative to the largest, that has no sign
SYSTEMS = 20
REGULAR = 1e-11  # added to the diagonal, so that rows may depend on each other; taken out again by refinement
REFINEMENTS = 30
REFINED = 1e-13  # last step of the counts, relative to the largest
HELD = 1e-9  # what a solution may leave of a system, relative to the counts or the multipliers


@dataclass(frozen=True)
class _Limits:
    """All limits as rows: those of the polyhedron, then every count itself where it must not be negative."""

    rows: scipy.sparse.csr_array
    lower: np.ndarray
    upper: np.ndarray

    @classmethod
    def of(cls, polyhedron: Polyhedron) -> _Limits:
        lower, upper = polyhedron.bounds
        signed = polyhedron.cells if polyhedron.nonnegative else 0
        one = scipy.sparse.csr_array(scipy.sparse.eye_array(polyhedron.cells))[:signed]
        return cls(
            scipy.sparse.csr_array(scipy.sparse.vstack([polyhedron.matrix, one])),
            np.append(lower, np.zeros(signed)),
            np.append(upper, np.full(signed, np.inf)),
        )

    def excess(self, x: np.ndarray, slack: float = 0.0) -> np.ndarray:
        """How far (counts) every row is above its upper limit, or below its lower one (negative); a slack widens both."""
        value = self.rows @ x
        return np.maximum(value - self.upper - slack, 0.0) - np.maximum(self.lower - slack - value, 0.0)

    def held(self, fit: Fit, side: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """The optimum with rows held at their lower (-1) or upper (1) limit, and every row's multiplier."""
        at = side != 0
        solved = _on_face(fit, self.rows[at], np.where(side < 0, self.lower, self.upper)[at])
        if solved is None:
            return None
        multipliers = np.zeros(side.size)
        multipliers[at] = solved[1]
        return solved[0], multipliers


def optimum_near(
    polyhedron: Polyhedron, fit: Fit, x: np.ndarray, near: float | None = None
) -> np.ndarray | None:
    """The optimum, if a point leads to it.

    Parameters
    ----------
    polyhedron, fit : what to minimise over, and what; the least weight should be 1
    x : (n,) a point near the optimum
    near : distance (counts) from a limit at which x touches it; by default `NEAR` of the largest count

    Returns
    -------
    (n,) a point at which the conditions of optimality were found to hold; None if no such point was found

    Examples
    --------
    >>> p = Polyhedron.of(2, [[1, 1]], [3.0])
    >>> fit = Fit(scipy.sparse.csr_array(np.eye(2)), np.array([5.0, -1.0]), np.ones(2))
    >>> optimum_near(p, fit, np.array([2.9, 0.1])).round(12) + 0.0
    array([3., 0.])
    """
    limits = _Limits.of(polyhedron)
    size = max(1.0, float(np.abs(x).max(initial=0.0)))
    touched = np.sign(limits.excess(x, -(NEAR * size if near is None else near))).astype(int)
    touched[limits.lower == limits.upper] = -1
    hasty = _search(limits, fit, touched, size, most=touched.size)
    return hasty if hasty is not None else _search(limits, fit, touched, size, most=1)


def _search(limits: _Limits, fit: Fit, side: np.ndarray, size: float, most: int) -> np.ndarray | None:
    """Hold and let go of rows, so many at once, until the conditions of optimality hold.

    All at once is quick, but it may cycle, or hold rows that exclude each other.
    """
    fixed = limits.lower == limits.upper
    for system in range(SYSTEMS):
        if (solved := limits.held(fit, side)) is None:
            return None
        x, multipliers = solved
        over = np.where(side == 0, limits.excess(x), 0.0)
        pull = np.where(fixed, 0.0, -side * multipliers)
        crossed = np.abs(over) > CROSSED * size
        wrong = pull > SIGN * (1 + np.abs(multipliers).max(initial=0.0))
        if not crossed.any() and not wrong.any():
            return x
        if crossed.any() and (system % 2 == 0 or not wrong.any()):
            side = np.where(_worst(crossed, np.abs(over), most), np.sign(over).astype(int), side)
        else:
            side = np.where(_worst(wrong, pull, most), 0, side)
    return None


def _worst(chosen: np.ndarray, amount: np.ndarray, most: int) -> np.ndarray:
    """Of the chosen rows, so many at most: those of the largest amounts."""
    kept = np.zeros(chosen.size, bool)
    kept[np.argsort(np.where(chosen, -amount, np.inf), kind="stable")[: min(most, chosen.sum())]] = True
    return kept


def _on_face(
    fit: Fit, rows: scipy.sparse.csr_array, limits: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Least squares of a fit on `rows x = limits`, and the multipliers; None where the system has no solution."""
    n, q, m = rows.shape[1], fit.values.size, limits.size
    variance = scipy.sparse.diags_array(1 / fit.weights)
    system = scipy.sparse.block_array(
        [
            [None, fit.matrix.T, rows.T],
            [fit.matrix, -variance, None],
            [rows, None, scipy.sparse.csr_array((m, m))],
        ],
        format="csc",
    )
    regular = scipy.sparse.diags_array(np.repeat([REGULAR, 0.0, -REGULAR], [n, q, m]))
    right = np.concatenate([np.zeros(n), fit.values, limits])
    point = _refined(system, regular, right, n)
    if point is None:
        return None
    left = np.abs(right - system @ point)
    sizes = np.abs(point[:n]).max(initial=1.0), np.abs(point[n:]).max(initial=1.0)
    holds = left[:n].max(initial=0.0) <= HELD * sizes[1] and left[n:].max(initial=0.0) <= HELD * sizes[0]
    return (point[:n], point[n + q :]) if holds else None


def _refined(system, regular, right: np.ndarray, n: int) -> np.ndarray | None:
    """Solve a system by the factors of a regular one beside it; None if its n counts do not converge.

    Multipliers of rows that depend on each other need not.
    """
    try:
        factor = scipy.sparse.linalg.splu(scipy.sparse.csc_matrix(system + regular))
    except RuntimeError:
        return None
    point = np.zeros(right.size)
    for _ in range(REFINEMENTS):
        step = factor.solve(right - system @ point)
        point += step
        if not np.isfinite(point).all():
            return None
        if np.abs(step[:n]).max(initial=0.0) <= REFINED * np.abs(point[:n]).max(initial=1.0):
            return point
    return None
