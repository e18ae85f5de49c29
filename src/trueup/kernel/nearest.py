"""Nearest nonnegative histograms under every parent of a level, in the metric of their covariance.

    minimise  sum_c (x_c - t_c)' V_c^+ (x_c - t_c)   over   sum_c x_c = x_p,  x_c >= 0

for the children c of every parent p at once, where the targets t_c obey the sums already. With `l` the multipliers of
`x >= 0` the tables are `x(l) = t + W l`, W the covariance of the children given their sum, and the dual is
`min 1/2 l'Wl + t'l, l >= 0`. W is applied by the fast transform of `anova.Domain`, its largest eigenvalue on child c
is at most that of V_c, and the accelerated projected gradient with restarts converges at a rate set by the ratio of
the components' variances (tens, not thousands). Every iterate obeys the sums, and whatever V_c holds fixed; what is
left at the end, a negative count or a gap in complementarity, is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trueup.kernel.anova import Domain
from trueup.kernel.histogram import product, pseudo_inverse

TOLERANCE = 1e-6  # counts
ITERATIONS = 10_000
BATCH = 8  # iterations between two looks at which parents have converged


@dataclass(frozen=True)
class Metric:
    """Covariances (children or 1, D, D) of every component of a domain.

    `first` says where each parent's children start among the rows; `tied` whether they must keep their sum (the
    root has no parent).
    """

    domain: Domain
    variances: tuple[np.ndarray, ...]
    first: np.ndarray
    rows: int
    tied: bool = True

    @property
    def counts(self) -> np.ndarray:
        """Number of children of every parent."""
        return np.diff(np.append(self.first, self.rows))

    def sums(self, x: np.ndarray) -> np.ndarray:
        """Sum rows over every parent's children; one row stands for all."""
        if x.shape[0] == 1 and self.rows > 1:
            return self.counts.reshape(-1, *(1,) * (x.ndim - 1)) * x
        return np.add.reduceat(x, self.first, axis=0)

    @cached_property
    def inverse(self) -> tuple[np.ndarray, ...]:
        """`U^+`, U the sum of the children's covariances, of every parent and component."""
        return tuple(pseudo_inverse(self.sums(v)) for v in self.variances)

    def largest(self) -> np.ndarray:
        """Largest eigenvalue of every child's covariance, over all components."""
        tops = [v[:, 0, 0] if v.shape[-1] == 1 else np.linalg.eigvalsh(v)[:, -1] for v in self.variances]
        return np.max([np.broadcast_to(t, self.rows) for t in tops], axis=0)

    def apply(self, multipliers: np.ndarray) -> np.ndarray:
        """`W l`: the change of the tables (rows, n) that multipliers of the cells make."""
        coefficients = self.domain.forward(multipliers)
        for component, v, inverse in zip(self.domain.components, self.variances, self.inverse, strict=True):
            part = component.view(coefficients)
            moved = product(v, part)
            if self.tied:
                price = np.repeat(product(inverse, self.sums(moved)), self.counts, axis=0)
                moved -= product(v, price)
            part[...] = moved
        return self.domain.backward(coefficients)

    def tie(self, tables: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Move tables, nearest first, until the children of every parent sum to `sums`."""
        gap = self.domain.forward(sums - self.sums(tables))
        moved = np.empty_like(tables)
        for component, v, inverse in zip(self.domain.components, self.variances, self.inverse, strict=True):
            price = np.repeat(product(inverse, component.view(gap)), self.counts, axis=0)
            component.view(moved)[...] = product(v, price)
        return tables + self.domain.backward(moved)

    def of_parents(self, keep: np.ndarray) -> tuple[Metric, np.ndarray]:
        """The same for some of the parents (their positions) only, and which rows theirs are."""
        counts = self.counts[keep]
        first = np.cumsum(counts) - counts
        rows = np.repeat(self.first[keep] - first, counts) + np.arange(counts.sum())
        parts = tuple(v if v.shape[0] == 1 else v[rows] for v in self.variances)
        return Metric(self.domain, parts, first, rows.size, self.tied), rows


@dataclass
class _Dual:
    """Accelerated projected gradient on the multipliers of `x >= 0`; one momentum a parent."""

    metric: Metric
    tables: np.ndarray
    zeros: np.ndarray | None
    largest: np.ndarray  # (rows, 1)
    multipliers: np.ndarray
    x: np.ndarray
    before: tuple[np.ndarray, np.ndarray]  # multipliers and x one step earlier
    momentum: np.ndarray  # (parents,)

    @classmethod
    def start(cls, metric: Metric, tables: np.ndarray, zeros: np.ndarray | None) -> _Dual:
        nothing = np.zeros_like(tables)
        largest = metric.largest()[:, None]
        ones = np.ones(metric.counts.size)
        return cls(metric, tables, zeros, largest, nothing, tables, (nothing, tables), ones)

    def run(self, iterations: int) -> np.ndarray:
        """Take some steps; return every parent's residual in counts."""
        for _ in range(iterations):
            self._step()
        gap = np.abs(np.minimum(self.x, self.multipliers * self.largest))
        if self.zeros is not None:
            gap = np.where(self.zeros, np.abs(self.x), gap)
        return self._per_parent(np.maximum, gap.max(axis=1))

    def _step(self) -> None:
        following = (1 + np.sqrt(1 + 4 * self.momentum**2)) / 2
        ahead = np.repeat((self.momentum - 1) / following, self.metric.counts)[:, None]
        multipliers = self.multipliers + ahead * (self.multipliers - self.before[0])
        x = self.x + ahead * (self.x - self.before[1])
        new = multipliers - np.divide(x, self.largest, out=np.zeros_like(x), where=self.largest > 0)
        new = np.maximum(new, 0) if self.zeros is None else np.where(self.zeros, new, np.maximum(new, 0))
        uphill = self._per_parent(np.add, (x * (new - self.multipliers)).sum(axis=1)) > 0
        self.momentum = np.where(uphill, 1.0, following)
        self.before = (self.multipliers, self.x)
        self.multipliers = new
        self.x = self.tables + self.metric.apply(new)

    def _per_parent(self, ufunc: np.ufunc, values: np.ndarray) -> np.ndarray:
        return ufunc.reduceat(values, self.metric.first)

    def of_parents(self, keep: np.ndarray) -> _Dual:
        """The same for some of the parents only."""
        metric, rows = self.metric.of_parents(np.flatnonzero(keep))
        return _Dual(
            metric,
            self.tables[rows],
            None if self.zeros is None else self.zeros[rows],
            self.largest[rows],
            self.multipliers[rows],
            self.x[rows],
            (self.before[0][rows], self.before[1][rows]),
            self.momentum[keep],
        )


def nearest_nonnegative(
    metric: Metric, tables: np.ndarray, zeros: np.ndarray | None = None, tolerance: float = TOLERANCE
) -> tuple[np.ndarray, np.ndarray, int]:
    """Nearest tables without negative cells, all parents at once.

    Parameters
    ----------
    metric : covariances of the children, and which children share a parent
    tables : (rows, n) the tables to project; they obey the equalities already
    zeros : (rows, n) True where a cell is zero by definition
    tolerance : counts

    Returns
    -------
    (rows, n) tables; every parent's optimality residual in counts (a negative cell, or a positive one whose
    multiplier is positive too; above `tolerance` if no table obeys the equalities); iterations

    Notes
    -----
    Accelerated projected gradient (Beck & Teboulle 2009) with adaptive restart (O'Donoghue & Candes 2015).
    """
    result = np.empty_like(tables)
    owner = np.repeat(np.arange(metric.counts.size), metric.counts)
    active = np.ones(metric.counts.size, bool)
    state, residuals, iteration = _Dual.start(metric, tables, zeros), np.zeros(active.size), 0
    while active.any():
        iteration += BATCH
        residual = state.run(BATCH)
        done = residual <= tolerance if iteration < ITERATIONS else np.ones(residual.size, bool)
        if done.any():
            residuals[np.flatnonzero(active)[done]] = residual[done]
            rows = np.repeat(done, state.metric.counts)
            result[np.flatnonzero(active[owner])[rows]] = state.x[rows]
            state = state.of_parents(~done)
            active[np.flatnonzero(active)[done]] = False
    return result, residuals, iteration
