"""Slow, obvious twins of the tree kernels: dense algebra, bisection and enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np


def children(child_ptr, v):
    return range(child_ptr[v], child_ptr[v + 1])


def aggregate(child_ptr, values):
    """Replace every inner node of `values` `(n,)` or `(b, n)` by the sum of its children, in place."""
    for v in np.flatnonzero(child_ptr[:-1] < child_ptr[1:])[::-1]:
        values[..., v] = values[..., child_ptr[v] : child_ptr[v + 1]].sum(axis=-1)
    return values


def leaves(child_ptr):
    return [v for v in range(len(child_ptr) - 1) if child_ptr[v] == child_ptr[v + 1]]


def summing_matrix(child_ptr):
    """(n, leaves) matrix of 0 and 1: node totals from leaf counts."""
    n, columns = len(child_ptr) - 1, leaves(child_ptr)
    matrix = np.zeros((n, len(columns)))
    for v in reversed(range(n)):
        if v in columns:
            matrix[v, columns.index(v)] = 1.0
        for c in children(child_ptr, v):
            matrix[v] += matrix[c]
    return matrix


def solution_and_covariance(child_ptr, variance, y, zero=()):
    """Weighted least squares with exact nodes (and given leaves at 0) as equalities, by a null space.

    The covariance is that of the node totals; None where the measurements do not determine the counts.
    """
    s = summing_matrix(child_ptr)
    measured = (variance > 0) & np.isfinite(variance)
    exact = variance == 0
    free = [j for j, v in enumerate(leaves(child_ptr)) if v not in zero]
    s_free = s[:, free]
    equal, target = s_free[exact], y[exact]
    start = np.linalg.lstsq(equal, target, rcond=None)[0] if exact.any() else np.zeros(len(free))
    if exact.any() and np.abs(equal @ start - target).max(initial=0) > 1e-9 * (1 + np.abs(target).max()):
        return None, None
    basis = null_space(equal, len(free))
    half = s_free[measured] @ basis / np.sqrt(variance[measured])[:, None]
    if basis.shape[1] and np.linalg.matrix_rank(half, tol=1e-9) < basis.shape[1]:
        return None, None
    rest = (y[measured] - s_free[measured] @ start) / np.sqrt(variance[measured])
    step = np.linalg.lstsq(half, rest, rcond=None)[0] if basis.shape[1] else np.zeros(0)
    through = s_free @ basis
    covariance = through @ np.linalg.pinv(half.T @ half) @ through.T
    return s_free @ (start + basis @ step), covariance


def null_space(matrix, size):
    if matrix.size == 0:
        return np.eye(size)
    _, singular, rows = np.linalg.svd(matrix)
    return rows[int((singular > 1e-10).sum()) :].T


def objective(variance, y, x):
    measured = (variance > 0) & np.isfinite(variance)
    return float(np.sum((x - y)[measured] ** 2 / variance[measured]))


def nonnegative(child_ptr, variance, y):
    """The best feasible point over every choice of the leaves that are 0."""
    best, value = None, np.inf
    columns = leaves(child_ptr)
    for choice in product((False, True), repeat=len(columns)):
        x, _ = solution_and_covariance(child_ptr, variance, y, {v for v, z in zip(columns, choice) if z})
        if x is not None and x.min() > -1e-9 and objective(variance, y, x) < value - 1e-12:
            best, value = x, objective(variance, y, x)
    return best


def project(spread, lower, upper, total, z):
    """Bisection on the price: x = clip(z + price V)."""
    low, high = -1e9, 1e9
    for _ in range(300):
        middle = (low + high) / 2
        if np.clip(z + middle * spread, lower, upper).sum() < total:
            low = middle
        else:
            high = middle
    return np.clip(z + (low + high) / 2 * spread, lower, upper)


def topdown(child_ptr, estimates, spread, lower, upper):
    """Project each parent's children, one parent after the other, by bisection."""
    x = estimates.copy()
    x[0] = np.clip(x[0], lower[0], upper[0])
    for v in range(x.size):
        c = list(children(child_ptr, v))
        if c:
            x[c] = project(spread[c], lower[c], upper[c], x[v], x[c])
    return x


def attainable(child_ptr, lower, upper, node, values):
    """Which of the integers ``values`` can the total of ``node`` be? By enumeration of its leaves."""
    inside = [node]
    for v in inside:
        inside.extend(children(child_ptr, v))
    below = [v for v in inside if v in leaves(child_ptr)]
    found = set()
    for combination in product(*(range(int(lower[v]), int(upper[v]) + 1) for v in below)):
        x = np.zeros(len(child_ptr) - 1)
        x[below] = combination
        for v in reversed(inside):
            if v not in below:
                x[v] = sum(x[c] for c in children(child_ptr, v))
        if all(lower[v] <= x[v] <= upper[v] for v in inside):
            found.add(x[node])
    return [value for value in values if value in found]


def integer_tables(child_ptr, ranges):
    """Every additive integer table whose leaves lie in the given ranges."""
    s = summing_matrix(child_ptr).astype(int)
    for combination in product(*ranges):
        yield s @ np.array(combination)


def controlled_rounding_cost(child_ptr, weight, x):
    """Least cost of an additive rounding to floors and ceilings, by enumeration."""
    low = np.floor(x + 1e-9).astype(int)
    high = np.ceil(x - 1e-9).astype(int)
    tables = integer_tables(child_ptr, [range(low[v], high[v] + 1) for v in leaves(child_ptr)])
    return min(float(np.sum(weight * (t - x) ** 2)) for t in tables if ((low <= t) & (t <= high)).all())


def integer_cost(child_ptr, square, absolute, y, lower, upper, top):
    """Least sum of square (X - y)^2 + absolute |X - y| over additive integers, by enumeration up to top."""
    columns = leaves(child_ptr)
    ranges = [range(int(max(lower[v], 0)), int(min(upper[v], top)) + 1) for v in columns]
    costs = (
        float(np.sum(square * (t - y) ** 2 + absolute * np.abs(t - y)))
        for t in integer_tables(child_ptr, ranges)
        if ((lower <= t) & (t <= upper)).all()
    )
    return min(costs, default=np.inf)
