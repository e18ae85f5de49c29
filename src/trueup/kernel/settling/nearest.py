"""Nonnegative histograms nearest to estimates in the metric of their covariance, parent by parent.

    minimise  sum_c (x_c - t_c)' V_c^+ (x_c - t_c)   over   sum_c x_c = x_p,  u_c >= x_c >= 0

for the children c of every parent p at once, where the targets t_c obey the sums already. With `l` the multipliers of
`x >= 0` the tables are `x(l) = t + W l`, W the covariance of the children given their sum, and the dual is
`min 1/2 l'Wl + t'l, l >= 0`; a negative l is the multiplier of an upper bound u and costs -u'l. W is applied by the fast
transform of `anova.Domain`, its largest eigenvalue on child c is at most that of V_c, and the accelerated projected
gradient with restarts converges at a rate set by the ratio of the components' variances (tens, not thousands). Every
iterate obeys the sums, and whatever V_c holds fixed; what is left at the end, a count beyond a bound or a gap in
complementarity, is reported. A parent's tables are projected by themselves, in cache, and end when they have converged.

One file: the metric, the projection in it, and how near the optimum it stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from trueup.kernel.compiled import copy_line, copy_table, njit
from trueup.kernel.histogram import Marginal, cell_groups
from trueup.kernel.histogram.anova import Component, Domain, product, pseudo_inverse
from trueup.kernel.histogram.helmert import backward, forward, sum_rows

TOLERANCE = 1e-6  # counts
PRECISION = (
    1e-12  # the same relative to the largest count, where that is more: what sums in double precision leave
)
KNOWN_VARIANCE_SHARE = 1e-12  # variance of what is known, as a share of the largest
ITERATIONS = 10_000
BATCH = 8  # iterations between two checks of convergence


@dataclass(frozen=True)
class Metric:
    """The covariances (children or 1, D, D) of children's estimates in every component of a domain.

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
        """Return the number of children of every parent."""
        return np.diff(np.append(self.first, self.rows))

    def sums(self, x: np.ndarray) -> np.ndarray:
        """Return the sums of rows over each parent's children, or of a single row that is used for all."""
        if x.shape[0] == 1 and self.rows > 1:
            return self.counts.reshape(-1, *(1,) * (x.ndim - 1)) * x
        return np.add.reduceat(x, self.first, axis=0)

    @cached_property
    def inverse(self) -> tuple[np.ndarray, ...]:
        """Return the pseudo-inverse of the sum of each parent's children's covariances, by component."""
        return tuple(pseudo_inverse(self.sums(v)) for v in self.variances)

    def largest(self) -> np.ndarray:
        """Return the largest eigenvalue of each child's covariance over all components."""
        tops = [v[:, 0, 0] if v.shape[-1] == 1 else np.linalg.eigvalsh(v)[:, -1] for v in self.variances]
        return np.max([np.broadcast_to(t, self.rows) for t in tops], axis=0)

    def of_marginal(self, marginal: Marginal, component: Component) -> np.ndarray:
        """Return the covariance `M V M'` of one component of a marginal's tables."""
        fine = next(i for i, c in enumerate(self.domain.components) if c.contrast == component.contrast)
        matrix = self.domain.matrix(marginal, self.domain.components[fine])
        return matrix @ self.variances[fine] @ matrix.T

    def coarsened(self, marginal: Marginal, tables: np.ndarray) -> tuple[Metric, np.ndarray]:
        """Return the metric of a marginal's tables (rows, m), and these tables of given ones (rows, n)."""
        domain, groups = self.domain.coarsened(marginal), cell_groups(marginal)
        variances = tuple(self.of_marginal(marginal, c) for c in domain.components)
        own = replace(self, domain=domain, variances=variances)
        return own, sum_rows(tables, groups, int(groups.max()) + 1)

    def knows(self, marginal: Marginal) -> bool:
        """Return True if the tables of a marginal have practically no variance."""
        components = self.domain.coarsened(marginal).components
        largest = max(float(np.abs(v).max(initial=0.0)) for v in self.variances)
        own = max(float(np.abs(self.of_marginal(marginal, c)).max(initial=0.0)) for c in components)
        return own <= KNOWN_VARIANCE_SHARE * largest

    @property
    def components(self) -> np.ndarray:
        """Return per component the start of its coefficients, their shape, and the start of its covariances."""
        parts = self.domain.components
        at = np.cumsum([0] + [c.dense**2 for c in parts[:-1]])
        return np.array([(c.start, c.dense, c.columns, a) for c, a in zip(parts, at, strict=True)])

    def tie(self, tables: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Return the tables nearest to given ones whose sums over each parent's children are `sums`."""
        gap = self.domain.forward(sums - self.sums(tables))
        moved = np.empty_like(tables)
        for component, v, inverse in zip(self.domain.components, self.variances, self.inverse, strict=True):
            price = np.repeat(product(inverse, component.view(gap)), self.counts, axis=0)
            component.view(moved)[...] = product(v, price)
        return tables + self.domain.backward(moved)

    def of_parents(self, keep: np.ndarray) -> tuple[Metric, np.ndarray]:
        """Return the metric of the children of some parents, and the rows of these children."""
        counts = self.counts[keep]
        first = np.cumsum(counts) - counts
        rows = np.repeat(self.first[keep] - first, counts) + np.arange(counts.sum())
        return self._of(rows, first), rows

    def of_rows(self, keep: np.ndarray) -> tuple[Metric, np.ndarray]:
        """Return the metric of some of the children, and the parents of these children."""
        owner = np.repeat(np.arange(self.first.size), self.counts)[keep]
        parents, first = np.unique(owner, return_index=True)
        return self._of(keep, first), parents

    def _of(self, rows: np.ndarray, first: np.ndarray) -> Metric:
        parts = tuple(v if v.shape[0] == 1 else v[rows] for v in self.variances)
        return Metric(self.domain, parts, first, rows.size, self.tied)


def tolerance_for(tables: np.ndarray, tolerance: float = TOLERANCE) -> float:
    """Return a tolerance (counts) that suits the size of the counts in tables.

    Examples
    --------
    >>> tolerance_for(np.array([10.0])), tolerance_for(np.array([1e9]))
    (1e-06, 0.001)
    """
    return max(tolerance, PRECISION * float(np.abs(tables).max(initial=0.0)))


@njit(cache=True)
def _weigh(w, v, components, place, result):
    """Write a histogram's coefficients, multiplied by their covariances (D, D), to `result`."""
    for c in range(components.shape[0]):
        start, dense, columns, at = components[c]
        if dense == 1:
            for q in range(start, start + columns):
                result[place[q]] = v[at] * w[place[q]]
            continue
        for q in range(columns):
            for i in range(dense):
                total = 0.0
                for j in range(dense):
                    total += v[at + i * dense + j] * w[place[start + j * columns + q]]
                result[place[start + i * columns + q]] = total


@njit(cache=True)
def _dual_change(multipliers, v, inverse, tied, components, layout, x, scratch):
    """Compute the change `x` of children's tables (children, n) at given multipliers of the cells."""
    axes, codes, pointer, place = layout
    total, price, run = scratch
    total[:] = 0.0
    for c in range(x.shape[0]):
        copy_line(price, multipliers[c])
        forward(price, axes, codes, pointer, run)
        _weigh(price, v[c % v.shape[0]], components, place, x[c])
        for k in range(total.size):
            total[k] += x[c, k]
    if tied:
        _weigh(total, inverse, components, place, price)
    for c in range(x.shape[0]):
        if tied:
            _weigh(price, v[c % v.shape[0]], components, place, total)
            for k in range(total.size):
                x[c, k] -= total[k]
        backward(x[c], axes, codes, pointer, run)


@njit(cache=True)
def _residual(x, multipliers, held, most, largest):
    """Return the largest violation of a bound or of complementarity (counts), or infinity if x has NaN."""
    worst = 0.0
    for c in range(x.shape[0]):
        for k in range(x.shape[1]):
            if np.isnan(x[c, k]):
                return np.inf
            price = multipliers[c, k] * largest[c]
            gap = x[c, k] if held[c, k] else min(x[c, k], max(price, 0.0))
            worst = max(worst, abs(gap))
            if most.size and not held[c, k]:
                worst = max(worst, abs(min(most[c, k] - x[c, k], max(-price, 0.0))))
    return worst


class Targets(NamedTuple):
    """The tables of children with structural zeros and upper bounds, and the projected tables (rows, n)."""

    tables: np.ndarray
    held: np.ndarray
    most: np.ndarray
    x: np.ndarray


class ChildSpread(NamedTuple):
    """The covariances of children, and the inverse of the sum of siblings' covariances."""

    v: np.ndarray
    inverse: np.ndarray
    tied: bool
    largest: np.ndarray
    components: Any
    layout: Any


@njit(cache=True)
def _project(targets, spread, tolerance, limit):
    """Project the tables of one parent's children by accelerated gradients; return residual and steps."""
    tables, held, most, x = targets
    v, inverse, tied, largest, components, layout = spread
    children, n = tables.shape
    multipliers, before = np.zeros((children, n)), np.zeros((children, n))
    copy_table(x, tables)
    x_before, scratch = tables.copy(), (np.empty(n), np.empty(n), np.empty(n))
    momentum, residual = 1.0, _residual(x, multipliers, held, most, largest)
    iteration = 0
    while tolerance < residual < np.inf and iteration < limit:
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = (momentum - 1.0) / following
        uphill = 0.0
        for c in range(children):
            step = 1.0 / largest[c] if largest[c] > 0.0 else 0.0
            for k in range(n):
                old, y = multipliers[c, k], x[c, k]
                point = y + ahead * (y - x_before[c, k])
                new = old + ahead * (old - before[c, k]) - step * point
                if new < 0.0 and not held[c, k]:
                    if most.size and new + step * most[c, k] < 0.0:
                        new, point = new + step * most[c, k], point - most[c, k]
                    else:
                        new = 0.0
                uphill += point * (new - old)
                before[c, k], x_before[c, k], multipliers[c, k] = old, y, new
        momentum = 1.0 if uphill > 0.0 else following
        _dual_change(multipliers, v, inverse, tied, components, layout, x, scratch)
        for c in range(children):
            for k in range(n):
                x[c, k] += tables[c, k]
        iteration += 1
        if iteration % BATCH == 0:
            residual = _residual(x, multipliers, held, most, largest)
    return residual, iteration


@njit(cache=True)
def _project_all(targets, first, spread, tolerance, limit):
    """Project the tables of every parent's children, one parent at a time."""
    tables, held, most, x = targets
    v, inverses, tied, largest, components, layout = spread
    residuals, iterations = np.zeros(first.size - 1), 0
    for p in range(first.size - 1):
        rows = slice(first[p], first[p + 1])
        own = v if v.shape[0] == 1 else v[rows]
        residuals[p], steps = _project(
            Targets(tables[rows], held[rows], most[rows], x[rows]),
            ChildSpread(own, inverses[p], tied, largest[rows], components, layout),
            tolerance,
            limit,
        )
        iterations = max(iterations, steps)
    return residuals, iterations


def nearest_nonnegative(
    metric: Metric,
    tables: np.ndarray,
    zeros: np.ndarray | None = None,
    tolerance: float = TOLERANCE,
    most: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the nonnegative tables nearest to given ones, separately for the children of every parent.

    Parameters
    ----------
    metric : covariances of the children, and which children share a parent
    tables : (rows, n) the tables to project; they obey the equalities already
    zeros : (rows, n) True where a cell is zero by definition
    tolerance : counts; more where the tables are so large that double precision leaves more, see `tolerance_for`
    most : (rows, n) upper bounds of the cells, infinite where there is none

    Returns
    -------
    (rows, n) tables; every parent's optimality residual in counts (a cell beyond a bound, or inside it
    whose multiplier is not zero; above `tolerance` if no table obeys the equalities, infinite if one is not a number);
    the most iterations

    Notes
    -----
    Accelerated projected gradient (Beck & Teboulle 2009) with adaptive restart (O'Donoghue & Candes 2015).
    """
    result = np.empty(tables.shape)
    targets = Targets(
        np.ascontiguousarray(tables, dtype=float),
        np.zeros(tables.shape, np.bool_) if zeros is None else zeros,
        np.zeros((0, 0)) if most is None else np.ascontiguousarray(most, dtype=float),
        result,
    )
    inverse = flat(metric.inverse) + np.zeros((metric.counts.size, 1))
    spread = ChildSpread(
        flat(metric.variances),
        inverse,
        metric.tied,
        metric.largest(),
        metric.components,
        metric.domain.layout,
    )
    first = np.append(metric.first, metric.rows)
    residuals, iterations = _project_all(targets, first, spread, tolerance_for(tables, tolerance), ITERATIONS)
    return result, residuals, iterations


def flat(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Return the blocks (rows or 1, D, D) of all components in one array (rows or 1, entries)."""
    rows = max(len(b) for b in blocks)
    return np.concatenate([np.broadcast_to(b.reshape(len(b), -1), (rows, b[0].size)) for b in blocks], axis=1)
