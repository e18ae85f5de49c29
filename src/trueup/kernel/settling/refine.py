"""Nonnegative whole-number tables of one marginal, given the parents' tables and a coarser marginal.

Tables without a parent: their totals and measured marginals are settled before any cell is held at zero.
Cells below zero that are held at zero lift what they belong to, and the more cells the further: of 384 cells that share
1,000 units, a total that is their sum is 39 too large. So marginals are settled first, the coarsest first: of each the
nearest nonnegative tables in the metric of what its estimates' covariance is once those before it are known. As that
covariance says what they fix, marginals that cross each other agree on what they share. Cells come last, given all of
them. An estimate that is nowhere below zero is kept, so that the total is that of least squares, cut at zero.

Draws of tables take the place of the nearest tables or of posterior means. A root's total is normal around its estimate, cut at
zero, and its tables are split as `split_draws` says, marginal by marginal. Below it, a parent's children are drawn cell by cell
from gamma laws with their posterior means and variances, and their totals likewise; what ties them to their sums moves them in
the metric of these variances, which for normal laws is the law given the sums. Where there are no such means, each cell of the
parent is split among its children by itself.

One file: a stage gives the nearest tables, or draws of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trueup.kernel.histogram import Marginal, cell_groups, marginalise, refines, relative, spread
from trueup.kernel.histogram.anova import condition
from trueup.kernel.settling.nearest import TOLERANCE, Metric, nearest_nonnegative
from trueup.kernel.settling.split_draws import CONCENTRATIONS, MIN_DRAWN_COUNT, EstimatedSplits, drawn_totals
from trueup.kernel.settling.transport import SNAP, nudges, round_children
from trueup.kernel.settling.two_way import nearest_two_way


@dataclass(frozen=True)
class Coarse:
    """A coarser marginal and the known counts of its tables."""

    marginal: Marginal
    counts: np.ndarray  # (rows, families)

    @classmethod
    def of(cls, marginal: Marginal, coarse: Marginal, counts: np.ndarray) -> Coarse:
        """Return the marginal `coarse` as a marginal of the table of `marginal`, with its counts."""
        return cls(relative(marginal, coarse), counts)

    def given(self, metric: Metric, tables: np.ndarray) -> tuple[Metric, np.ndarray]:
        """Return the metric and the tables of a marginal given the coarser marginal's counts."""
        domain, narrowed = metric.domain, list(metric.variances)
        coefficients = domain.forward(tables)
        own = domain.coarsened(self.marginal)
        known = {c.contrast: c.view(part) for part in [own.forward(self.counts)] for c in own.components}
        for i, component in enumerate(domain.components):
            if domain.informs(self.marginal, component):
                rows = domain.matrix(self.marginal, component)
                gain, narrowed[i] = condition(metric.variances[i], rows)
                part = component.view(coefficients)
                part[...] = part + gain @ (known[component.contrast] - rows @ part)
        return replace(metric, variances=tuple(narrowed)), domain.backward(coefficients)

    def determined(self, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return a mask of the rows that the coarser counts determine, and the tables of these rows."""
        open_cells = (~held).astype(np.int64)
        choice = marginalise(open_cells, self.marginal)
        known = ((choice == 1) | (self.counts == 0)).all(axis=1)
        return known, np.where(held, 0.0, spread(self.counts, self.marginal))


@dataclass(frozen=True)
class SettlingStage:
    """Tables (rows, m) of one marginal to make nonnegative and whole, with their sums and constraints.

    `sums` (parents, m) are the parents' tables, None at the root; `zeros` cells that are zero by definition; `keys`
    (rows,) settle ties of rounding; `most` (rows, m) upper bounds.
    """

    metric: Metric
    tables: np.ndarray
    sums: np.ndarray | None
    coarse: Coarse | None
    zeros: np.ndarray | None
    keys: np.ndarray | None
    most: np.ndarray | None = None

    def above(self, least: np.ndarray) -> SettlingStage:
        """Return the tables, sums and bounds after subtracting lower bounds (rows, m)."""
        sums = None if self.sums is None else self.sums - self.metric.sums(least)
        coarse = self.coarse
        if coarse is not None:
            coarse = Coarse(coarse.marginal, coarse.counts - marginalise(least, coarse.marginal))
        most = None if self.most is None else self.most - least
        return replace(self, tables=self.tables - least, sums=sums, coarse=coarse, most=most)

    @property
    def held(self) -> np.ndarray | None:
        """Return a mask of the cells that must be zero by definition, by a bound, or by a sum of zero."""
        empty = [] if self.zeros is None else [self.zeros]
        if self.most is not None:
            empty.append(self.most <= 0)
        if self.sums is not None:
            empty.append(np.repeat(self.sums == 0, self.metric.counts, axis=0))
        if self.coarse is not None:
            empty.append(spread(self.coarse.counts == 0, self.coarse.marginal))
        return np.logical_or.reduce(empty) if empty else None

    def nearest(self, tolerance: float) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the nearest nonnegative tables, every parent's residual, and the most iterations used."""
        held = self.held
        if held is None or self.coarse is None:
            found = nearest_nonnegative(self.metric, self.tables, held, tolerance, self.most)
        else:
            found = self._after_the_forced(self.coarse, held, tolerance)
        x = np.clip(found[0], 0.0, self.most)
        return x if held is None else np.where(held, 0.0, x), *found[1:]

    def tied(self, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the nearest nonnegative tables for independent cells, and every parent's residual."""
        assert self.sums is not None
        first = np.append(self.metric.first, self.metric.rows)
        if self.coarse is None:
            return nearest_two_way(self.tables, variances, first, self.sums)
        family = cell_groups(self.coarse.marginal)
        return nearest_two_way(self.tables, variances, first, self.sums, self.coarse.counts, family)

    def _after_the_forced(
        self, coarse: Coarse, held: np.ndarray, tolerance: float
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the nearest tables, of which only the rows that are not yet determined are projected."""
        known, forced = coarse.determined(held)
        x, rest, steps = np.where(known[:, None], forced, 0.0), np.flatnonzero(~known), 0
        left = None if self.sums is None else self.sums - self.metric.sums(x)
        # Where no row is left, what the sums miss.
        residual = np.zeros(self.metric.counts.size) if left is None else np.abs(left).max(axis=1)
        if rest.size:
            metric, parents = self.metric.of_rows(rest)
            tables = self.tables[rest] if left is None else metric.tie(self.tables[rest], left[parents])
            most = None if self.most is None else self.most[rest]
            found = nearest_nonnegative(metric, tables, held[rest], tolerance, most)
            x[rest], residual[parents], steps = found
        return x, residual, steps

    def rounded(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return whole-number tables with the same sums, and how many units of each parent found no cell."""
        first = np.append(self.metric.first, self.metric.rows)
        open_ = None if self.zeros is None else ~self.zeros
        if self.most is not None:
            inside = np.floor(x + SNAP) < self.most
            open_ = inside if open_ is None else open_ & inside
        more = {
            "column_sums": None if self.sums is None else np.rint(self.sums),
            "allowed": open_,
            "nudge": None if self.keys is None else nudges(self.keys, x.shape[1]),
        }
        if self.coarse is None:
            return round_children(x, first, **more)
        family = cell_groups(self.coarse.marginal)
        return round_children(x, first, family=family, row_sums=self.coarse.counts, **more)


def settle_marginals(
    metric: Metric,
    tables: np.ndarray,
    marginals: Sequence[Marginal],
    zeros: np.ndarray | None = None,
    tolerance: float = TOLERANCE,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return nonnegative tables whose marginals are nearest to their estimates, given coarser marginals.

    Parameters
    ----------
    metric : covariances of the tables, which are tied to no parent
    tables : (rows, n) least squares
    marginals : in any order; a marginal that follows from another one is settled before it
    zeros : (rows, n) True where a cell is zero by definition
    tolerance : counts

    Returns
    -------
    (rows, n) tables; the largest optimality residual of every row in counts, above `tolerance` where the marginals are
    settled at values that no nonnegative table has together; the most iterations

    Examples
    --------
    >>> from trueup.kernel.histogram.anova import Domain
    >>> from trueup.kernel.histogram import identity, summed
    >>> domain = Domain.of([(identity(3),)])
    >>> metric = Metric(domain, tuple(np.ones((1, 1, 1)) for _ in domain.components), np.zeros(1, int), 1, tied=False)
    >>> settle_marginals(metric, np.array([[5.0, 1.0, -2.0]]), [(summed(3),)])[0].round(6)
    array([[4., 0., 0.]])
    """
    held = np.zeros(tables.shape, bool) if zeros is None else zeros
    worst, most = np.zeros(len(tables)), 0
    for marginal in ordered(marginals):
        closed = marginalise(~held, marginal) == 0
        x, residual, steps = nearest_nonnegative(*metric.coarsened(marginal, tables), closed, tolerance)
        settled = np.where(closed, 0.0, np.maximum(x, 0.0))
        worst, most = np.maximum(worst, residual), max(most, steps)
        metric, tables = Coarse(marginal, settled).given(metric, tables)
        held = held | spread(settled == 0, marginal)
    x, residual, steps = nearest_nonnegative(metric, tables, held, tolerance)
    return np.where(held, 0.0, np.maximum(x, 0.0)), np.maximum(worst, residual), max(most, steps)


def ordered(marginals: Sequence[Marginal]) -> list[Marginal]:
    """Return distinct marginals in order, from the coarsest to the finest.

    Examples
    --------
    >>> from trueup.kernel.histogram import identity, shape, summed
    >>> rows, total = (identity(2), summed(3)), (summed(2), summed(3))
    >>> [shape(m) for m in ordered([rows, total, rows])]
    [(1, 1), (2, 1)]
    """
    chosen: list[Marginal] = []
    for marginal in sorted(marginals, key=lambda m: np.prod([g.max() + 1 for g in m])):
        if not any(refines(marginal, other) and refines(other, marginal) for other in chosen):
            chosen.append(marginal)
    return chosen


def total_of(marginal: Marginal) -> Marginal:
    """Return the marginal that sums all cells of the same histograms.

    Examples
    --------
    >>> total_of((np.array([0, 1]),))
    (array([0, 0]),)
    """
    return tuple(np.zeros_like(groups) for groups in marginal)


def drawn_cells(means: np.ndarray, variances: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw counts from gamma laws with given means and variances.

    Examples
    --------
    >>> drawn_cells(np.array([0.0, 3.0]), np.array([1.0, 0.0]), np.random.default_rng(1))
    array([0., 3.])
    """
    free = (means > MIN_DRAWN_COUNT) & (variances > MIN_DRAWN_COUNT)
    draws = np.where(free, 0.0, np.maximum(means, 0.0))
    m, v = means[free], variances[free]
    draws[free] = rng.gamma(m * m / v) * (v / m)
    return draws


def mean_variances(metric: Metric) -> np.ndarray:
    """Return the average variance (counts squared) of the cells in each row's table, as (rows, 1).

    Examples
    --------
    >>> from trueup.kernel.histogram.anova import Domain
    >>> from trueup.kernel.histogram import identity
    >>> domain = Domain.of([(identity(3),)])
    >>> metric = Metric(domain, tuple(np.full((1, 1, 1), 4.0) for _ in domain.components), np.zeros(1, int), 1)
    >>> mean_variances(metric)
    array([[4.]])
    """
    pairs = zip(metric.domain.components, metric.variances, strict=True)
    total = sum(c.columns * np.trace(v, axis1=-2, axis2=-1) for c, v in pairs)
    return np.broadcast_to(np.reshape(total, (-1, 1)) / metric.domain.cells, (metric.rows, 1))


def drawn_parts(
    metric: Metric,
    tables: np.ndarray,
    coarse: Coarse | None,
    held: np.ndarray | None,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw a marginal's tables (rows, m), each by splitting the counts of the coarser marginal.

    Parameters
    ----------
    metric : covariances of the tables
    tables : (rows, m) estimates
    coarse : the coarser marginal and its counts
    held : (rows, m) True where a cell can only be zero
    """
    variances = np.broadcast_to(mean_variances(metric), tables.shape)
    if coarse is None:
        return drawn_totals(tables, variances, rng)
    rows, cells = tables.shape
    family = cell_groups(coarse.marginal)
    order = np.argsort(family, kind="stable")
    sizes = np.tile(np.bincount(family), rows)
    free = variances.copy()
    if held is not None:
        tables, free = np.where(held, 0.0, tables), np.where(held, 0.0, free)
    split = EstimatedSplits(np.append(0, np.cumsum(sizes)), tables[:, order].ravel(), free[:, order].ravel())
    found = np.empty((rows, cells))
    found[:, order] = _drawn(split, coarse.counts.ravel().astype(float), rng).reshape(rows, cells)
    return found


def drawn_columns(
    metric: Metric, tables: np.ndarray, sums: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw the tables (rows, n) of children by splitting each cell of their parent separately.

    Parameters
    ----------
    metric : covariances of the children, and which share a parent
    tables : (rows, n) estimates
    sums : (parents, n) the parents' tables
    """
    rows, cells = tables.shape
    variances = np.broadcast_to(mean_variances(metric), tables.shape)
    first = np.append(metric.first, metric.rows)
    starts = np.append((np.arange(cells)[:, None] * rows + first[:-1]).ravel(), cells * rows)
    split = EstimatedSplits(starts, tables.T.ravel(), variances.T.ravel())
    return _drawn(split, sums.T.ravel().astype(float), rng).reshape(cells, rows).T


def _drawn(split: EstimatedSplits, totals: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    a = rng.choice(CONCENTRATIONS, p=split.concentrations(totals))
    return split.draw(totals, a, rng)
