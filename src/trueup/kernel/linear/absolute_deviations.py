"""Least absolute deviations under general linear constraints, and the set of all their optima.

Here too: feasibility of linear inequalities, as a point inside or a contradictory set.

Solvers work in units of the largest count; residuals and bounds are recomputed from the returned point.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.kernel import Status
from trueup.kernel.linear import Fit, least_absolute_bound
from trueup.kernel.linear.polyhedron import Polyhedron
from trueup.kernel.linear.programs import (
    PASSES,
    Answer,
    constrained_least_squares,
    rank_of,
    relative_gap,
    status_of,
)

ACCURACY = 1e-6  # relative excess of a second program over the first that its tolerance explains


def least_absolute(polyhedron: Polyhedron, fit: Fit) -> Answer:
    """Minimise the weighted absolute deviations of a fit and, among all minima, the squared deviations.

    A linear program gives the optimum and its prices; by complementary slackness the optima are the points whose
    deviations have the signs, and whose rows have the slack, that these prices allow. That set is a polyhedron, on
    which the least squares are taken.

    Examples
    --------
    >>> p = Polyhedron.of(2, [[1, 1]], [3.0])
    >>> fit = Fit(scipy.sparse.csr_array(np.eye(2)), np.array([5.0, 4.0]), np.ones(2))
    >>> least_absolute(p, fit).x.round(6)
    array([2., 1.])
    """
    fit = fit.relative()
    vertex, optima = absolute_optima(polyhedron, fit)
    if vertex.status not in (Status.SOLVED, Status.INACCURATE):
        return vertex
    even = constrained_least_squares(optima, fit)
    total = float(fit.weights @ np.abs(fit.matrix @ even.x - fit.values))
    excess = (total - vertex.objective) / max(1.0, abs(vertex.objective))
    if even.status is not Status.SOLVED or not excess <= ACCURACY:
        return replace(vertex, even=False)
    residual = polyhedron.residual(even.x)
    return Answer(even.x, status_of(residual, polyhedron), residual, total, vertex.gap)


def absolute_optima(polyhedron: Polyhedron, fit: Fit) -> tuple[Answer, Polyhedron]:
    """Return one minimum of the absolute deviations, and the set of all minima.

    The vertex is the origin of another try where it breaks a rule or is not proved: counts of billions leave a solver few
    digits for what is left of them there.
    """
    tries, origin = [], np.zeros(polyhedron.cells)
    for _ in range(PASSES):
        tries.append(_absolute_optima(polyhedron, fit, origin))
        vertex = tries[-1][0]
        if vertex.status is Status.SOLVED and vertex.gap == 0.0:
            break
        near = vertex.x if np.isfinite(vertex.x).all() else constrained_least_squares(polyhedron, fit).x
        if not np.isfinite(near).all():
            break
        origin = np.floor(near)  # sums of whole numbers are exact: rows that follow from each other still do
    return min(tries, key=lambda each: rank_of(each[0]))


def _absolute_optima(polyhedron: Polyhedron, fit: Fit, origin: np.ndarray) -> tuple[Answer, Polyhedron]:
    n, q = polyhedron.cells, fit.values.size
    sums, moved = polyhedron.sums - polyhedron.equal @ origin, polyhedron.ranged @ origin
    rest = fit.around(origin)
    unit = max(1.0, float(np.abs(sums).max(initial=0.0)), float(np.abs(rest.values).max(initial=0.0)))
    one = scipy.sparse.eye_array(q)
    ranged = scipy.sparse.csr_array(
        scipy.sparse.hstack([polyhedron.ranged, scipy.sparse.csr_array((polyhedron.lower.size, 2 * q))])
    )
    below, above = np.isfinite(polyhedron.lower), np.isfinite(polyhedron.upper)
    lowest = -origin / unit if polyhedron.nonnegative else np.full(n, -np.inf)
    answer = scipy.optimize.linprog(
        np.concatenate([np.zeros(n), fit.weights, fit.weights]),
        A_ub=scipy.sparse.vstack([ranged[above], -ranged[below]]),
        b_ub=np.concatenate([(polyhedron.upper - moved)[above], (moved - polyhedron.lower)[below]]) / unit,
        A_eq=scipy.sparse.block_array(
            [[polyhedron.equal, None, None], [fit.matrix, -one, one]], format="csr"
        ),
        b_eq=np.concatenate([sums, rest.values]) / unit,
        bounds=np.stack([np.append(lowest, np.zeros(2 * q)), np.full(n + 2 * q, np.inf)], axis=1),
        method="highs",
    )
    if answer.x is None:
        return Answer(np.full(n, np.nan), Status.UNSOLVED, np.inf, np.inf, None), polyhedron
    x = origin + answer.x[:n] * unit
    x = np.maximum(x, 0.0) if polyhedron.nonnegative else x
    residual, total = (
        polyhedron.residual(x),
        float(fit.weights @ np.abs(rest.matrix @ (x - origin) - rest.values)),
    )
    status = status_of(residual, polyhedron) if answer.status == 0 else Status.UNSOLVED
    bound = _priced(polyhedron, rest, origin, answer, below, above, total)
    vertex = Answer(x, status, residual, total, relative_gap(total, bound))
    return vertex, _optima(polyhedron, fit, answer, below, above)


def _priced(polyhedron: Polyhedron, fit: Fit, origin: np.ndarray, answer, below, above, most: float) -> float:
    """Return the lower bound that the dual values of a linear program prove.

    Dual values of the wrong sign count as 0.
    """
    m = polyhedron.sums.size
    multipliers = -np.concatenate([answer.eqlin.marginals[:m], np.zeros(polyhedron.lower.size)])
    multipliers[m:][above] = np.maximum(-answer.ineqlin.marginals[: above.sum()], 0.0)
    multipliers[m:][below] += np.minimum(answer.ineqlin.marginals[above.sum() :], 0.0)
    rows, held = polyhedron.matrix, np.where(multipliers > 0, polyhedron.bounds[1], polyhedron.bounds[0])
    limits = held - rows @ origin
    if polyhedron.nonnegative:
        one = scipy.sparse.csr_array(scipy.sparse.eye_array(polyhedron.cells))
        rows = scipy.sparse.csr_array(scipy.sparse.vstack([rows, one]))
        limits = np.append(limits, -origin)
        multipliers = np.append(multipliers, np.minimum(-answer.lower.marginals[: polyhedron.cells], 0.0))
    return least_absolute_bound(fit, rows, limits, -answer.eqlin.marginals[m:], multipliers, most)


def _optima(polyhedron: Polyhedron, fit: Fit, answer, below: np.ndarray, above: np.ndarray) -> Polyhedron:
    """Return all optima of a linear program, from one optimal dual."""
    n = polyhedron.cells
    price = answer.eqlin.marginals[polyhedron.sums.size :]
    slack = 1e-7  # the least weight is 1
    low = fit.values + np.where(price >= (1 - slack) * fit.weights, -np.inf, 0.0)
    high = fit.values + np.where(price <= (slack - 1) * fit.weights, np.inf, 0.0)
    lower, upper = polyhedron.lower.copy(), polyhedron.upper.copy()
    active = np.abs(answer.ineqlin.marginals) > slack
    lower[above] = np.where(active[: above.sum()], upper[above], lower[above])
    upper[below] = np.where(active[above.sum() :], lower[below], upper[below])
    empty = np.flatnonzero(answer.lower.marginals[:n] > slack)
    return Polyhedron(
        n,
        polyhedron.equal,
        polyhedron.sums,
        scipy.sparse.csr_array(
            scipy.sparse.vstack(
                [polyhedron.ranged, fit.matrix, scipy.sparse.csr_array(scipy.sparse.eye_array(n))[empty]]
            )
        ),
        np.concatenate([lower, low, np.full(empty.size, -np.inf)]),
        np.concatenate([upper, high, np.zeros(empty.size)]),
        polyhedron.nonnegative,
    )


Reals = NDArray[np.float64]


class Region(NamedTuple):
    """The region `rows @ theta >= bounds` in the box `low <= theta <= high`, in whole numbers if `discrete`."""

    rows: Reals
    bounds: Reals
    low: Reals
    high: Reals
    discrete: bool


def feasible_point(region: Region) -> tuple[Reals | None, list[int]]:
    """Return a point inside a region, or None with a minimal set of contradictory inequalities.

    Returns
    -------
    point, conflict
        The conflict lists rows `0..m-1`, then lower bounds `m..m+n-1`, then upper bounds that
        exclude each other (an irreducible set: without any one of them the rest is feasible).

    Examples
    --------
    >>> region = Region(np.array([[1.0, 1.0], [-1.0, -1.0]]), np.array([5.0, -4.0]),
    ...                 np.zeros(2), np.full(2, np.inf), False)
    >>> feasible_point(region)
    (None, [0, 1])
    """
    point = _inner_point(region, np.ones(_size(region), bool))
    if point is not None:
        return point, []
    return None, _irreducible(region)


def extreme_point(region: Region, cost: Reals) -> Reals | None:
    """Return the point of a bounded region where `cost @ theta` is least, or None if it is not found.

    Examples
    --------
    >>> extreme_point(Region(np.array([[1.0, 1.0]]), np.array([1.0]), np.zeros(2), np.full(2, 4.0), True), np.array([1.0, -1.0]))
    array([0., 4.])
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    rows: list = [LinearConstraint(region.rows, region.bounds)] if len(region.bounds) else []  # pyright: ignore[reportArgumentType]
    box = Bounds(region.low, region.high)  # pyright: ignore[reportArgumentType]
    found = milp(cost, integrality=np.full(len(cost), int(region.discrete)), bounds=box, constraints=rows)
    if found.x is None:
        return None
    point = np.round(found.x) if region.discrete else found.x
    return _recheck(region, np.ones(_size(region), bool), point)


def _size(region: Region) -> int:
    return len(region.bounds) + 2 * len(region.low)


def _inner_point(region: Region, kept: NDArray[np.bool_]) -> Reals | None:
    """Find a point with the largest common slack, at most 1, of the given inequalities."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    m, n = region.rows.shape if region.rows.size else (0, len(region.low))
    rows_kept, low_kept, high_kept = kept[:m], kept[m : m + n], kept[m + n :]
    low = np.where(low_kept, region.low, -np.inf)
    high = np.where(high_kept, region.high, np.inf)
    free = low < high
    # theta and a slack t in 0..1: rows' theta - |row| t >= b, and theta_i -/+ t inside a free box
    norm = np.abs(region.rows[rows_kept]).sum(axis=1, initial=0.0)
    blocks = [np.column_stack([region.rows[rows_kept], -norm])]
    lower = [region.bounds[rows_kept]]
    for ends, sign in ((low, 1.0), (high, -1.0)):
        at = free & np.isfinite(ends)
        blocks.append(np.column_stack([sign * np.eye(n)[at], -np.ones(at.sum())]))
        lower.append(sign * ends[at])
    matrix, bound = np.vstack(blocks), np.concatenate(lower)
    cost = np.append(np.zeros(n), -1.0)
    box = Bounds(np.append(low, 0.0), np.append(high, 1.0))  # pyright: ignore[reportArgumentType]
    whole = np.append(np.full(n, int(region.discrete)), 0)
    if np.any(low > high):
        return None
    constraints = [LinearConstraint(matrix, bound)] if len(bound) else []  # pyright: ignore[reportArgumentType]
    found = milp(cost, integrality=whole, bounds=box, constraints=constraints)
    if found.x is None or (not region.discrete and free.any() and found.x[-1] < 1e-9):
        return None
    return _recheck(region, kept, np.round(found.x[:-1]) if region.discrete else found.x[:-1])


def _recheck(region: Region, kept: NDArray[np.bool_], point: Reals) -> Reals | None:
    """Accept a solver's point only if it satisfies every given inequality."""
    m, n = len(region.bounds), len(point)
    point = np.clip(
        point, np.where(kept[m : m + n], region.low, -np.inf), np.where(kept[m + n :], region.high, np.inf)
    )
    slack = region.rows @ point - region.bounds
    return point if (slack[kept[:m]] >= -1e-9).all() else None


def _irreducible(region: Region) -> list[int]:
    """Remove inequalities one by one as long as the rest remains contradictory (deletion filter)."""
    kept = np.ones(_size(region), bool)
    finite = np.concatenate(
        [np.ones(len(region.bounds), bool), np.isfinite(region.low), np.isfinite(region.high)]
    )
    kept &= finite
    for k in np.flatnonzero(finite)[::-1]:
        kept[k] = False
        if _inner_point(region, kept) is not None:
            kept[k] = True
    return [int(k) for k in np.flatnonzero(kept)]
