"""Projections of one table onto given margins, in real and in whole numbers.

Here: nearest tables with fixed margins: any number of axes, any set of margins, with or without x >= 0.

    minimise  1/2 sum (x - y)^2 / v   over   (sums of x over the axes not kept) = b_A for every margin A.

**Equality, equal variances.** "Subtract from every cell its share of the margin's gap" is the projection onto one
margin; on a product table these projections commute, so one sweep over the margins is the projection onto all.

**Otherwise** by the dual. With multipliers u_A of the margins and `lift` spreading them over the cells,
`x(u) = max(0, y + v lift(u))` and the dual `sum b_A u_A - 1/2 sum x(u)^2 / v` is concave, once differentiable, with
gradient the margins' gaps `b - margins of x(u)`. Exact ascent in one margin at a time (a piecewise linear equation a
line) is globally convergent and brings the set of positive cells nearly right; semismooth Newton steps, whose matrix
`u -> margins of (v 1[x > 0] lift(u))` is never formed but inverted by conjugate gradients, then finish in a handful.
Without the sign constraint the dual is quadratic and one Newton step is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trueup.errors import SpecError
from trueup.kernel import Status, largest

Margin = tuple[int, ...]
"""The axes that a margin keeps; `()` is the total."""

TOLERANCE = 1e-10  # largest gap in a margin, relative to the largest margin
NEWTON_STEPS = 60
LINE_STEPS = 25
LINE_TOLERANCE = 0.01  # how far a sweep solves a line, relative to its first gap


@dataclass(frozen=True)
class Projection:
    """A table projected onto given margins, with its residual and status.

    `residual` is the largest absolute gap in a margin (counts), recomputed from the table; `iterations` counts Newton
    steps. `nearest` is False where margins were settled before the cells, so that another table may be nearer.
    """

    table: np.ndarray
    status: Status
    residual: float
    iterations: int
    nearest: bool = True


def margin_of(table: np.ndarray, margin: Margin) -> np.ndarray:
    """Sum a table over all axes that do not belong to a margin.

    Examples
    --------
    >>> margin_of(np.arange(6).reshape(2, 3), (1,))
    array([3, 5, 7])
    """
    return table.sum(axis=tuple(i for i in range(table.ndim) if i not in margin))


def broadcast_margin(values: np.ndarray, margin: Margin, axes: int) -> np.ndarray:
    """Return a margin's values in a shape that broadcasts over the full table.

    Examples
    --------
    >>> broadcast_margin(np.array([1, 2]), (0,), 2)
    array([[1],
           [2]])
    """
    return np.expand_dims(values, tuple(i for i in range(axes) if i not in margin))


def inconsistent(
    margins: Sequence[Margin], sums: Sequence[np.ndarray], tolerance: float = 1e-9
) -> tuple[int, int] | None:
    """Return the first pair of margins that disagree where they overlap, or None.

    Examples
    --------
    >>> inconsistent([(0,), (1,)], [np.array([3.0, 4.0]), np.array([5.0, 1.0])])
    (0, 1)
    """
    scale = max(1.0, max(float(np.abs(b).max(initial=0)) for b in sums))
    for i, (first, b) in enumerate(zip(margins, sums, strict=True)):
        for j in range(i):
            common = set(first) & set(margins[j])
            one = margin_of(b, tuple(k for k, axis in enumerate(first) if axis in common))
            two = margin_of(sums[j], tuple(k for k, axis in enumerate(margins[j]) if axis in common))
            if np.abs(one - two).max() > tolerance * scale:
                return j, i
    return None


def residual(table: np.ndarray, margins: Sequence[Margin], sums: Sequence[np.ndarray]) -> float:
    """Return the largest absolute difference (counts) between a table's margins and the prescribed ones."""
    gaps = [np.abs(margin_of(table, m) - b).max(initial=0) for m, b in zip(margins, sums, strict=True)]
    return largest(gaps)


def equality(y: np.ndarray, margins: Sequence[Margin], sums: Sequence[np.ndarray]) -> np.ndarray:
    """Return the table nearest to `y` with given consistent margins, if all cells have equal variances.

    Program P of Zhu, Van Hentenryck & Fioretto (2021) on tables.

    Examples
    --------
    >>> equality(np.zeros((2, 2)), [(0,), (1,)], [np.array([3.0, 1.0]), np.array([2.0, 2.0])])
    array([[1.5, 1.5],
           [0.5, 0.5]])
    """
    x = np.array(y, dtype=float)
    for margin, b in zip(margins, sums, strict=True):
        gap = b - margin_of(x, margin)
        x += broadcast_margin(gap, margin, x.ndim) / (x.size / gap.size)
    return x


def nearest(
    y: np.ndarray,
    margins: Sequence[Margin],
    sums: Sequence[np.ndarray],
    *,
    variances: np.ndarray | None = None,
    nonnegative: bool = True,
    tolerance: float = TOLERANCE,
) -> Projection:
    """Return the table nearest to `y` in weighted squares that has given margins.

    Program P+ (and P) of Zhu, Van Hentenryck & Fioretto (2021) on tables of any number of axes.

    Parameters
    ----------
    y : table (n_1, ..., n_k) of noisy counts
    margins : kept axes of every margin
    sums : prescribed margins, consistent with each other
    variances : table of variances (counts squared); 0 holds a cell at `max(0, y)`; equal by default
    nonnegative : also require x >= 0
    tolerance : largest gap in a margin, relative to the largest prescribed one

    Examples
    --------
    >>> y = np.array([[-3.0, 4.0], [2.0, 1.0]])
    >>> nearest(y, [(0,), (1,)], [np.array([2.0, 3.0]), np.array([2.0, 3.0])]).table.round(9)
    array([[0., 2.],
           [2., 1.]])
    """
    y = np.asarray(y, dtype=float)
    if variances is None and not nonnegative:
        return _projection(equality(y, margins, sums), margins, sums, tolerance, 0)
    if variances is not None and not np.all(np.isfinite(variances) & (np.asarray(variances) >= 0)):
        raise SpecError(
            "the variance of a cell is negative, infinite or not a number",
            needed="a finite variance of 0 or more for each cell",
        )
    v = np.ones(y.shape) if variances is None else np.broadcast_to(np.asarray(variances, float), y.shape)
    dual = _Dual(y, v, list(margins), [np.asarray(b, float) for b in sums], nonnegative)
    return dual.solve(tolerance)


def _projection(x: np.ndarray, margins, sums, tolerance: float, steps: int) -> Projection:
    worst = residual(x, margins, sums)
    status = Status.SOLVED if worst <= tolerance * _scale(sums) else Status.UNSOLVED
    return Projection(x, status, worst, steps)


def _scale(sums: Sequence[np.ndarray]) -> float:
    return max(1.0, max(float(np.abs(b).max(initial=0)) for b in sums))


class _Dual:
    """The dual program of a projection: its multipliers as one vector, and the table that they give."""

    def __init__(self, y, v, margins, sums, nonnegative):
        self.y, self.v, self.margins, self.sums, self.nonnegative = y, v, margins, sums, nonnegative
        self.inverse = np.divide(1.0, v, out=np.zeros_like(y), where=v > 0)
        self.ends = np.cumsum([b.size for b in sums])

    def split(self, u: np.ndarray) -> list[np.ndarray]:
        parts = np.split(u, self.ends[:-1])
        return [part.reshape(b.shape) for part, b in zip(parts, self.sums, strict=True)]

    def lifted(self, u: np.ndarray) -> np.ndarray:
        out = np.zeros(self.y.shape)
        for part, margin in zip(self.split(u), self.margins, strict=True):
            out += broadcast_margin(part, margin, out.ndim)
        return out

    def margins_of(self, table: np.ndarray) -> np.ndarray:
        return np.concatenate([margin_of(table, m).ravel() for m in self.margins])

    def table(self, u: np.ndarray) -> np.ndarray:
        x = self.y + self.v * self.lifted(u)
        return np.maximum(x, 0.0) if self.nonnegative else x

    def slope(self, x: np.ndarray) -> np.ndarray:
        return self.v * (x > 0) if self.nonnegative else self.v

    def gap(self, x: np.ndarray) -> np.ndarray:
        return np.concatenate([b.ravel() for b in self.sums]) - self.margins_of(x)

    def objective(self, u: np.ndarray, x: np.ndarray) -> float:
        """Return the value of the concave dual program, which is maximised."""
        linear = sum(np.vdot(b, part) for b, part in zip(self.sums, self.split(u), strict=True))
        return float(linear - 0.5 * np.vdot(x * x, self.inverse))

    def solve(self, tolerance: float) -> Projection:
        u = np.zeros(self.ends[-1])
        goal = tolerance * _scale(self.sums)
        steps = 0
        while steps < NEWTON_STEPS:
            steps += 1
            u = self.ascend_margins(u)
            x = self.table(u)
            gap = self.gap(x)
            if np.abs(gap).max() <= goal:
                break
            u = self.newton(u, x, gap)
        return _projection(self.table(u), self.margins, self.sums, tolerance, steps)

    def ascend_margins(self, u: np.ndarray) -> np.ndarray:
        """Maximise the dual by one step of coordinate ascent over the margins."""
        u = u.copy()
        for part, margin, b in zip(self.split(u), self.margins, self.sums, strict=True):
            others = self.lifted(u) - broadcast_margin(part, margin, self.y.ndim)
            self._solve_lines(part, others, margin, b)
        return u

    def _solve_lines(self, part: np.ndarray, others: np.ndarray, margin: Margin, b: np.ndarray) -> None:
        """Solve the piecewise linear equations `margin of x(u) = b` by Newton's method."""
        base, goal = self.y + self.v * others, 0.0
        for _ in range(LINE_STEPS):
            x = base + self.v * broadcast_margin(part, margin, base.ndim)
            if self.nonnegative:
                np.maximum(x, 0.0, out=x)
            gap, slope = b - margin_of(x, margin), margin_of(self.slope(x), margin)
            worst = float(np.abs(gap).max())
            goal = goal or max(LINE_TOLERANCE * worst, 1e-13 * _scale(self.sums))
            part += np.divide(gap, slope, out=np.zeros_like(gap), where=slope > 0)
            shut = (slope == 0) & (gap > 0)
            if shut.any():
                part += np.where(shut, self._reopen(base, part, margin), 0.0)
            if worst <= goal:
                return

    def _reopen(self, base: np.ndarray, part: np.ndarray, margin: Margin) -> np.ndarray:
        """Return by how much each multiplier must rise until its line has a positive cell, else 0."""
        price = np.where(self.v > 0, -base * self.inverse, np.inf)
        dropped = tuple(i for i in range(base.ndim) if i not in margin)
        rise = price.min(axis=dropped) - part
        return np.where(np.isfinite(rise), rise * (1 + 1e-12) + 1e-9, 0.0)

    def newton(self, u: np.ndarray, x: np.ndarray, gap: np.ndarray) -> np.ndarray:
        """Return one semismooth Newton step, shortened until the dual increases."""
        slope = self.slope(x)
        direction = self._conjugate_gradients(slope, gap)
        value, promise, length = self.objective(u, x), float(np.vdot(gap, direction)), 1.0
        for _ in range(LINE_STEPS):
            trial = u + length * direction
            if self.objective(trial, self.table(trial)) >= value + 1e-4 * length * promise:
                return trial
            length /= 2
        return u

    def _conjugate_gradients(self, slope: np.ndarray, gap: np.ndarray) -> np.ndarray:
        """Solve `margins of (slope * lift(d)) = gap` by preconditioned conjugate gradients."""
        diagonal = self.margins_of(slope)
        floor = 1e-10 * max(float(diagonal.max()), 1e-300)
        diagonal = diagonal + floor
        d, r = np.zeros_like(gap), gap.copy()
        z = r / diagonal
        p, rz = z.copy(), float(np.vdot(r, z))
        goal = 1e-24 * rz
        for _ in range(2 * gap.size):
            q = self.margins_of(slope * self.lifted(p)) + floor * p
            curvature = float(np.vdot(p, q))
            if curvature <= 0:
                break
            alpha = rz / curvature
            d += alpha * p
            r -= alpha * q
            z = r / diagonal
            rz, before = float(np.vdot(r, z)), rz
            if rz <= goal:
                break
            p = z + (rz / before) * p
        return d
