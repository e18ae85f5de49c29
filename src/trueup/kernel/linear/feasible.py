"""Feasibility of linear inequalities: a point inside, or a contradictory set."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


class Region(NamedTuple):
    """`rows @ theta >= bounds` on the box `low <= theta <= high`; whole numbers if `discrete`."""

    rows: Reals
    bounds: Reals
    low: Reals
    high: Reals
    discrete: bool


def feasible_point(region: Region) -> tuple[Reals | None, list[int]]:
    """Return a point of a region, as far inside as one unit, or None with a conflict.

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
    """Return a point of a bounded region where `cost @ theta` is least; None if not found.

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
    """Find a point with the largest common slack, at most 1, of the kept inequalities."""
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
    """Accept a solver's point only if it satisfies every kept inequality."""
    m, n = len(region.bounds), len(point)
    point = np.clip(
        point, np.where(kept[m : m + n], region.low, -np.inf), np.where(kept[m + n :], region.high, np.inf)
    )
    slack = region.rows @ point - region.bounds
    return point if (slack[kept[:m]] >= -1e-9).all() else None


def _irreducible(region: Region) -> list[int]:
    """Drop inequalities one by one while the rest stays contradictory (deletion filter)."""
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
