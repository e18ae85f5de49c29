"""The set `A x = b, lower <= R x <= upper, x >= 0`: violations, feasibility, and proofs that it is empty.

Rows are counted through: the m equalities first, then the inequalities. `x >= 0` is a background: it takes part in
every conflict but is not a row. Candidates for a conflict come from linear programming (HiGHS, through SciPy). A
conflict is named only once it is proved: by multipliers of the rows whose combination reads `0 < 0` in exact fractions
(Farkas 1902), or, where rows exclude whole numbers alone, by branch and bound run twice, with its presolver and
without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import scipy  # its parts load when first used

from trueup.kernel import largest

SECONDS = 10.0  # after which a system that may have no whole-number point counts as having one
NARROWED = 400  # rows of a conflict above which it is not narrowed down
FEASIBLE = 1e-6  # least total violation (counts) below which a point counts as feasible
DENOMINATORS = (1, 12, 2520, 10**6)  # of multipliers and coefficients that are tried as exact fractions


def between(matrix: Any, low: Any, high: Any) -> scipy.optimize.LinearConstraint:
    """Return the rows `low <= matrix x <= high` in the form of SciPy's integer programs."""
    return scipy.optimize.LinearConstraint(matrix, low, high)


def box(low: Any, high: Any) -> scipy.optimize.Bounds:
    """Return bounds of the variables, for SciPy's integer programs."""
    return scipy.optimize.Bounds(low, high)


@dataclass(frozen=True)
class Polyhedron:
    """Linear constraints on n counts.

    Parameters
    ----------
    cells : n
    equal : (m, n) sparse matrix A
    sums : (m,) right-hand sides b
    ranged : (r, n) sparse matrix R
    lower, upper : (r,) bounds, infinite where absent
    nonnegative : True if x >= 0 is required too

    Examples
    --------
    >>> p = Polyhedron.of(2, [[1, 1]], [3.0], nonnegative=True)
    >>> p.residual(np.array([4.0, -1.0]))
    1.0
    """

    cells: int
    equal: scipy.sparse.csr_array
    sums: np.ndarray
    ranged: scipy.sparse.csr_array
    lower: np.ndarray
    upper: np.ndarray
    nonnegative: bool = True

    @classmethod
    def of(
        cls, n: int, equal=(), sums=(), ranged=(), lower=(), upper=(), *, nonnegative: bool = True
    ) -> Polyhedron:
        """Return the polyhedron that matrices and limits describe; an empty matrix has no rows."""
        return cls(
            n,
            _matrix(equal, n),
            np.asarray(sums, float),
            _matrix(ranged, n),
            np.asarray(lower, float),
            np.asarray(upper, float),
            nonnegative,
        )

    @property
    def rows(self) -> int:
        """Return the number of rows, equalities and inequalities."""
        return self.sums.size + self.lower.size

    @property
    def matrix(self) -> scipy.sparse.csr_array:
        """Return the matrix of all rows, equalities first."""
        return scipy.sparse.csr_array(scipy.sparse.vstack([self.equal, self.ranged], format="csr"))

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper bounds of all rows."""
        return np.concatenate([self.sums, self.lower]), np.concatenate([self.sums, self.upper])

    @property
    def scale(self) -> float:
        """Return the size of the largest right-hand side (counts), at least 1."""
        ends = np.abs(np.concatenate(self.bounds))
        return max(1.0, float(ends[np.isfinite(ends)].max(initial=0.0)))

    def violations(self, x: np.ndarray) -> np.ndarray:
        """Return the amount (counts) by which every row is violated."""
        low, high = self.bounds
        value = np.concatenate([self.equal @ x, self.ranged @ x])
        return np.maximum(np.maximum(low - value, value - high), 0.0)

    def residual(self, x: np.ndarray) -> float:
        """Return the largest violation (counts), including negative cells if they are forbidden."""
        negative = float(-x.min(initial=0.0)) if self.nonnegative else 0.0
        return largest([negative, self.violations(x).max(initial=0.0)])

    def of_rows(self, keep: Sequence[int] | np.ndarray) -> Polyhedron:
        """Return the polyhedron with only some of its rows."""
        keep, m = np.asarray(keep, int), self.sums.size
        one, two = keep[keep < m], keep[keep >= m] - m
        return self._with(self.equal[one], self.ranged[two], one, two)

    def shuffled(self, order: np.ndarray, rng: np.random.Generator) -> Polyhedron:
        """Return the polyhedron in another order of cells `order`, with rows in random order."""
        one, two = rng.permutation(self.sums.size), rng.permutation(self.lower.size)
        return self._with(self.equal[one][:, order], self.ranged[two][:, order], one, two)

    def _with(self, equal: Any, ranged: Any, one: np.ndarray, two: np.ndarray) -> Polyhedron:
        """Return the polyhedron of other matrices, with the limits of the rows `one` and `two`."""
        limits = {"sums": self.sums[one], "lower": self.lower[two], "upper": self.upper[two]}
        return replace(self, equal=equal, ranged=ranged, **limits)

    def merged(self) -> Polyhedron:
        """Return a polyhedron with equal cells merged, which is empty if and only if this one is.

        Examples
        --------
        >>> p = Polyhedron.of(4, [[1, 1, 1, 0]], [3.0], [[1, 1, 0, 0]], [-np.inf], [2.0]).merged()
        >>> p.matrix.toarray().tolist()
        [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
        """
        columns = scipy.sparse.csc_array(self.matrix)
        columns.sort_indices()
        ends = zip(columns.indptr[:-1], columns.indptr[1:], strict=True)
        keys = [(columns.indices[a:b].tobytes(), columns.data[a:b].tobytes()) for a, b in ends]
        first = np.unique(np.array([*{key: i for i, key in reversed([*enumerate(keys)])}.values()], int))
        return replace(self, cells=first.size, equal=self.equal[:, first], ranged=self.ranged[:, first])

    def refuted(self, *, integer: bool = False) -> bool:
        """Return True if it is proved that no point satisfies all rows of the polyhedron.

        Examples
        --------
        >>> Polyhedron.of(2, [[1, 0], [1, 1]], [3.0, 2.0]).refuted(), Polyhedron.of(1, [[1]], [3.0]).refuted()
        (True, False)
        >>> Polyhedron.of(1, [[2]], [3.0]).refuted(integer=True)
        True
        """
        prices = self._least_violation()[1]
        if any(self._contradicts(prices, most) for most in DENOMINATORS):
            return True
        return integer and not any(self.feasible(integer=True, presolve=on) for on in (True, False))

    def _contradicts(self, prices: np.ndarray, most: int) -> bool:
        """Return True if multipliers, as fractions with denominators up to `most`, prove a contradiction exactly.

        For `p >= 0` on lower limits and `r >= 0` on upper ones, every point has `(p - r)' A x >= p' low - r' high`. If
        no count has a positive coefficient on the left (none at all where counts may be negative) and the right-hand
        side is positive, there is no point.
        """
        (low, high), matrix = self.bounds, scipy.sparse.csr_array(self.matrix)
        left: dict[int, Fraction] = {}
        right = Fraction(0)
        for row in np.flatnonzero(prices):
            price = _fraction(prices[row], most)
            side = low[row] if price > 0 else high[row]
            if price and not np.isfinite(side):
                return False
            right += price * _fraction(side, max(DENOMINATORS)) if price else 0
            for k in range(matrix.indptr[row], matrix.indptr[row + 1]):
                cell = int(matrix.indices[k])
                left[cell] = left.get(cell, Fraction(0)) + price * _fraction(
                    matrix.data[k], max(DENOMINATORS)
                )
        none = all(c <= 0 if self.nonnegative else c == 0 for c in left.values())
        return none and right > 0

    def feasible(self, *, integer: bool = False, presolve: bool = True) -> bool:
        """Return True if a point is found that satisfies all rows of the polyhedron."""
        if integer:
            low, high = self.bounds
            rows = [between(self.matrix, low, high)] if self.rows else []
            start = 0.0 if self.nonnegative else -np.inf
            answer = scipy.optimize.milp(
                np.zeros(self.cells),
                constraints=rows,
                bounds=(start, np.inf),
                integrality=np.ones(self.cells),
                options={"time_limit": SECONDS, "presolve": presolve},
            )
            return answer.status != 2
        return self._least_violation()[0] <= self._feasible

    @property
    def _feasible(self) -> float:
        return max(FEASIBLE, 1e-12 * self.scale)

    def _least_violation(self) -> tuple[float, np.ndarray]:
        """Return the smallest total violation that the rows allow, and the dual value of each row."""
        low, high = self.bounds
        n, m = self.cells, self.rows
        if m == 0:
            return 0.0, np.zeros(0)
        below, above = np.isfinite(low), np.isfinite(high)
        one = scipy.sparse.eye_array(m, format="csr")
        under = scipy.sparse.csr_array(scipy.sparse.hstack([-self.matrix, -one, 0 * one]))[below]
        over = scipy.sparse.csr_array(scipy.sparse.hstack([self.matrix, 0 * one, -one]))[above]
        start = 0.0 if self.nonnegative else None
        answer = scipy.optimize.linprog(
            np.concatenate([np.zeros(n), np.ones(2 * m)]),
            A_ub=scipy.sparse.vstack([under, over], format="csr"),
            b_ub=np.concatenate([-low[below], high[above]]),
            bounds=[(start, None)] * n + [(0, None)] * (2 * m),
            method="highs",
        )
        if answer.status != 0:
            return 0.0, np.zeros(m)
        share = np.zeros(m)
        prices = -answer.ineqlin.marginals
        share[below] += prices[: below.sum()]
        share[above] -= prices[below.sum() :]
        return float(answer.fun), share

    def conflict(self, *, integer: bool = False) -> list[int]:
        """Return a minimal set of contradictory rows, which is empty if there is no contradiction.

        The multipliers of the least total violation name rows whose combination proves the contradiction
        (Farkas). Of these rows one connected part is taken, which contradicts itself alone; a deletion filter then
        drops every row that the contradiction does not need, unless they are more than `NARROWED`.

        Parameters
        ----------
        integer : look for whole-number points; the filter then starts from all rows, one integer program a row

        Examples
        --------
        >>> Polyhedron.of(2, [[1, 0], [1, 1], [0, 1]], [1.0, 5.0, 2.0]).conflict()
        [0, 1, 2]
        """
        low, high = self.bounds
        crossed = np.flatnonzero(low > high + self._feasible)
        if crossed.size:  # the multipliers of its two ends would cancel
            return [int(crossed[0])]
        least, share = self._least_violation()
        if least > self._feasible:
            rows = self._first_part(np.flatnonzero(np.abs(share) > 1e-9))
            narrow = self._filter(rows, integer=False)
            found = [self._filter(narrow, integer=True) if integer else narrow, rows]
        elif integer and not self.feasible(integer=True):
            found = [self._filter(np.arange(self.rows), integer=True)]
        else:
            return []
        return next(
            (list(map(int, rows)) for rows in found if self.of_rows(rows).refuted(integer=integer)), []
        )

    def _first_part(self, rows: np.ndarray) -> np.ndarray:
        """Return the first connected component of the rows that is contradictory by itself, or all rows."""
        shared = self.matrix[rows] != 0
        _, part = scipy.sparse.csgraph.connected_components(shared.astype(int) @ shared.T.astype(int))
        parts = (rows[part == p] for p in range(part.max() + 1))
        return next((some for some in parts if not self.of_rows(some).feasible()), rows)

    def _filter(self, rows: Sequence[int] | np.ndarray, *, integer: bool) -> list[int]:
        needed = list(rows)
        for row in rows if len(rows) <= NARROWED else ():
            without = [r for r in needed if r != row]
            if not self.of_rows(without).feasible(integer=integer):
                needed = without
        return [int(r) for r in needed]


def _fraction(x: float, most: int) -> Fraction:
    return Fraction(float(x)).limit_denominator(most)


def _matrix(rows, n: int) -> scipy.sparse.csr_array:
    empty = not hasattr(rows, "shape") and len(rows) == 0
    return scipy.sparse.csr_array((0, n)) if empty else scipy.sparse.csr_array(rows, dtype=float)
