"""Slow obvious twin of `trueup.kernel.linear.active_set`: every set of touched limits, in fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import product


def least_squares(matrix, values, weights, rows, lower, upper):
    """The one x that minimises `sum w (M x - y)^2` over `lower <= C x <= upper`, as fractions; M has full rank.

    Limits are numbers, or None where there is none; a row whose limits are equal is always touched.
    """
    exact = [[Fraction(v) for v in row] for row in matrix]
    cone = [[Fraction(v) for v in row] for row in rows]
    kinds = [[-1] if low == high else [0] + [-1] * (low is not None) + [1] * (high is not None)
             for low, high in zip(lower, upper)]  # fmt: skip
    for sides in product(*kinds):
        held = [
            (row, low if side < 0 else high)
            for row, low, high, side in zip(cone, lower, upper, sides)
            if side
        ]
        solved = _held(exact, values, weights, held)
        if solved is None:
            continue
        x, multipliers = solved
        sums = [sum(a * b for a, b in zip(row, x)) for row in cone]
        inside = all((low is None or s >= low) and (high is None or s <= high)
                     for s, low, high in zip(sums, lower, upper))  # fmt: skip
        free = [(side, low == high) for side, low, high in zip(sides, lower, upper) if side]
        if inside and all(fixed or side * m >= 0 for (side, fixed), m in zip(free, multipliers)):
            return x
    raise AssertionError("a strictly convex program on a set that is not empty has an optimum")


def _held(matrix, values, weights, held):
    """Solve `M'W(M x - y) + C'l = 0, C x = limits`; None where rows depend on each other."""
    n, m = len(matrix[0]), len(held)
    system = [[Fraction(0)] * (n + m + 1) for _ in range(n + m)]
    for row, value, weight in zip(matrix, values, weights):
        for i in range(n):
            for j in range(n):
                system[i][j] += weight * row[i] * row[j]
            system[i][-1] += weight * row[i] * value
    for k, (row, limit) in enumerate(held):
        for i in range(n):
            system[i][n + k] = system[n + k][i] = row[i]
        system[n + k][-1] = Fraction(limit)
    solved = _eliminated(system)
    return None if solved is None else (solved[:n], solved[n:])


def _eliminated(system):
    """Gauss and Jordan, exactly."""
    size = len(system)
    for k in range(size):
        pivot = next((i for i in range(k, size) if system[i][k]), None)
        if pivot is None:
            return None
        system[k], system[pivot] = system[pivot], system[k]
        system[k] = [v / system[k][k] for v in system[k]]
        for i in range(size):
            if i != k and system[i][k]:
                system[i] = [a - system[i][k] * b for a, b in zip(system[i], system[k])]
    return [row[-1] for row in system]
