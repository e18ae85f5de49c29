"""The exact least-squares optimum over a polyhedron, found from a nearby point, with a certificate.

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

What is sought is the change of a whole-number origin near the optimum. All sides of the system are then as small as
the noise, whatever the size of the counts: sums of whole numbers up to 2^53 are exact, so nothing is lost in moving.
A point that is found is moved to once more, unless it is near already.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy  # its parts load when first used

from trueup.kernel.linear import Fit, FitOptimum, least_squares_bound
from trueup.kernel.linear.polyhedron import Polyhedron

# Distances from a limit, relative to the counts in its unit, at which an interior point touches it: the next one is tried
# where the rows of the one before exclude each other.
TOUCHING_TOLERANCES = (1e-5, 1e-7, 1e-9)
CROSSED = (
    1e-9  # likewise, beyond a limit, at which it is crossed; relative to what is measured around the origin
)
SIGN = 1e-12  # multiplier, relative to the largest, that has no sign
SIGNED = 1e-7  # what multipliers of the right signs may leave of the prices, relative to the largest
SYSTEMS = 20
MAX_ROWS_TRIED_SINGLY = 1000  # rows and counts up to which one row at a time is tried, too
ORIGINS = 4
CHANGE = 10.0  # counts by which the optimum may differ from its origin
REGULAR = 1e-11  # added to the diagonal, so that rows may depend on each other; taken out again by refinement
REFINEMENTS = 30
REFINED = 1e-13  # last step of the counts, relative to the sides of the system
SYSTEM_TOLERANCE = 1e-9  # what a solution may leave of a system, relative to its sides or the multipliers


@dataclass(frozen=True)
class _Face:
    """The optimum on a face, where `side` is -1 at a lower and 1 at an upper limit, with dual values."""

    side: np.ndarray
    x: np.ndarray
    prices: np.ndarray
    multipliers: np.ndarray


@dataclass(frozen=True)
class _Limits:
    """All limits as rows: those of the polyhedron, then those of counts that must not be negative."""

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

    def around(self, origin: np.ndarray) -> _Limits:
        """Return the limits of the change of an origin (n,)."""
        held = self.rows @ origin
        return _Limits(self.rows, self.lower - held, self.upper - held)

    def excess(self, x: np.ndarray, slack: float = 0.0) -> np.ndarray:
        """Return each row's violation (counts) of its limits beyond a slack, negative if below."""
        value = self.rows @ x
        return np.maximum(value - self.upper - slack, 0.0) - np.maximum(self.lower - slack - value, 0.0)

    def touched(self, x: np.ndarray, near: float) -> np.ndarray:
        """Return, for every limit, the side that a point (n,) touches: -1, 0 or 1."""
        side = np.sign(self.excess(x, -near)).astype(int)
        side[self.lower == self.upper] = -1
        return side

    def face(self, fit: Fit, side: np.ndarray) -> _Face | None:
        """Return the optimum on the face where some rows are at a limit, or None if there is none."""
        at = side != 0
        solved = _on_face(fit, self.rows[at], np.where(side < 0, self.lower, self.upper)[at])
        if solved is None:
            return None
        x, prices, held = solved
        multipliers = np.zeros(side.size)
        multipliers[at] = held
        return _Face(side, x, prices, multipliers)

    def with_signs(self, fit: Fit, face: _Face) -> _Face | None:
        """Return the face with multipliers of the right signs, if linear programming finds such multipliers."""
        at = np.flatnonzero(face.side)
        wanted, one = -(fit.matrix.T @ face.prices), scipy.sparse.eye_array(fit.matrix.shape[1])
        size = np.abs(wanted).max(initial=1.0)
        free, sign = (self.lower == self.upper)[at], face.side[at]
        rows = scipy.sparse.hstack([self.rows[at].T, one, -one])
        least, most = np.where(free | (sign < 0), -np.inf, 0.0), np.where(free | (sign > 0), np.inf, 0.0)
        spare = 2 * one.shape[0]
        answer = scipy.optimize.linprog(
            np.append(np.zeros(at.size), np.ones(spare)),
            A_eq=rows,
            b_eq=wanted / size,
            bounds=np.stack([np.append(least, np.zeros(spare)), np.append(most, np.full(spare, np.inf))], 1),
            method="highs",
        )
        if answer.x is None or answer.fun > SIGNED:
            return None
        multipliers = np.zeros(face.side.size)
        multipliers[at] = size * answer.x[: at.size]
        return replace(face, multipliers=multipliers)

    def bound(self, fit: Fit, face: _Face) -> float:
        """Return the lower bound on weighted squares that a face's dual values prove."""
        right = (self.lower == self.upper) | (face.side * face.multipliers > 0)
        multipliers = np.where(right, face.multipliers, 0.0)
        limits = np.where(multipliers > 0, self.upper, self.lower)
        return least_squares_bound(fit, self.rows, limits, face.prices, multipliers, fit.objective(face.x))


def optimum_near(
    polyhedron: Polyhedron, fit: Fit, x: np.ndarray, unit: float | None = None
) -> FitOptimum | None:
    """Return the optimum if the search from a given point finds it, or else None.

    Parameters
    ----------
    polyhedron, fit : the feasible set, and the squares to be minimised; the least weight should be 1
    x : (n,) a point near the optimum
    unit : counts in the unit of the solver that found x, which its errors are relative to; by default the largest count

    Returns
    -------
    A point at which the conditions of optimality were found to hold, with what its multipliers prove; None if no such
    point was found

    Examples
    --------
    >>> p = Polyhedron.of(2, [[1, 1]], [3.0])
    >>> fit = Fit(scipy.sparse.csr_array(np.eye(2)), np.array([5.0, -1.0]), np.ones(2))
    >>> found = optimum_near(p, fit, np.array([2.9, 0.1]))
    >>> found.x.round(12) + 0.0, round(found.objective, 6), round(found.bound, 6)
    (array([3., 0.]), 5.0, 5.0)
    """
    limits, unit = _Limits.of(polyhedron), unit or max(1.0, float(np.abs(x).max(initial=0.0)))
    origin = np.floor(np.maximum(x, 0.0) if polyhedron.nonnegative else x)
    sides = {
        side.tobytes(): side for side in (limits.touched(x, near * unit) for near in TOUCHING_TOLERANCES)
    }
    tried = (_optimum_from(limits, fit, side, origin) for side in sides.values())
    return next((found for found in tried if found is not None), None)


def _optimum_from(limits: _Limits, fit: Fit, side: np.ndarray, origin: np.ndarray) -> FitOptimum | None:
    """Return the optimum if the search from a given set of active rows finds it, or else None."""
    for _ in range(ORIGINS):
        moved, rest = limits.around(origin), fit.around(origin)
        face = _search_optimal_face(moved, rest, side, most=side.size)
        if face is None and side.size <= MAX_ROWS_TRIED_SINGLY:
            face = _search_optimal_face(moved, rest, side, most=1)
        if face is None:
            return None
        if np.abs(face.x).max(initial=0.0) <= CHANGE:
            return FitOptimum(origin + face.x, rest.objective(face.x), moved.bound(rest, face))
        origin, side = origin + np.floor(face.x), face.side
    return None


def _search_optimal_face(limits: _Limits, fit: Fit, side: np.ndarray, most: int) -> _Face | None:
    """Add rows to the active set and remove them, until the optimality conditions hold.

    All at once is quick, but it may cycle, or hold rows that exclude each other: then there is none.
    """
    fixed, doubtful = limits.lower == limits.upper, True
    for system in range(SYSTEMS):
        if (face := limits.face(fit, side)) is None:
            return None
        size = max(1.0, np.abs(face.x).max(initial=0.0), np.abs(fit.values).max(initial=0.0))
        over = np.where(side == 0, limits.excess(face.x), 0.0)
        pull = np.where(fixed, 0.0, -side * face.multipliers)
        crossed = np.abs(over) > CROSSED * size
        wrong = pull > SIGN * (1 + np.abs(face.multipliers).max(initial=0.0))
        if not crossed.any() and not wrong.any():
            return face
        if not crossed.any() and doubtful:
            if (signed := limits.with_signs(fit, face)) is not None:
                return signed
            doubtful = False
        if crossed.any() and (system % 2 == 0 or not wrong.any()):
            side = np.where(_worst(crossed, np.abs(over), most), np.sign(over).astype(int), side)
        else:
            side = np.where(_worst(wrong, pull, most), 0, side)
    return None


def _worst(chosen: np.ndarray, amount: np.ndarray, most: int) -> np.ndarray:
    """Return a mask of the chosen rows with the largest violations, up to a number of rows."""
    kept = np.zeros(chosen.size, bool)
    kept[np.argsort(np.where(chosen, -amount, np.inf), kind="stable")[: min(most, chosen.sum())]] = True
    return kept


def _on_face(
    fit: Fit, rows: scipy.sparse.csr_array, limits: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the least-squares point on the face `rows x = limits`, with its dual values.

    Return None if there is no solution.
    """
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
    counts = max(np.abs(right).max(initial=1.0), np.abs(point[:n]).max(initial=1.0))
    multipliers = np.abs(point[n:]).max(initial=1.0)
    holds = (
        left[:n].max(initial=0.0) <= SYSTEM_TOLERANCE * multipliers
        and left[n:].max(initial=0.0) <= SYSTEM_TOLERANCE * counts
    )
    return (point[:n], point[n : n + q], point[n + q :]) if holds else None


def _refined(system, regular, right: np.ndarray, n: int) -> np.ndarray | None:
    """Solve a linear system by factors of a regularised one; return None if it does not converge.

    Multipliers of rows that depend on each other need not.
    """
    try:
        factor = scipy.sparse.linalg.splu(scipy.sparse.csc_matrix(system + regular))
    except RuntimeError:
        return None
    point, sides = np.zeros(right.size), np.abs(right).max(initial=1.0)
    for _ in range(REFINEMENTS):
        step = factor.solve(right - system @ point)
        point += step
        if not np.isfinite(point).all():
            return None
        if np.abs(step[:n]).max(initial=0.0) <= REFINED * max(sides, np.abs(point[:n]).max(initial=0.0)):
            return point
    return None
