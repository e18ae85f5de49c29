"""Draws of tables from their estimates, in place of the nearest tables or of posterior means.

A root's total is normal around its estimate, cut at zero, and its tables are split as `split_draws` says, marginal by
marginal. Below it, a parent's children are drawn cell by cell from gamma laws with their posterior means and variances,
and their totals likewise; what ties them to their sums moves them in the metric of these variances, which for normal laws
is the law given the sums. Where there are no such means, each cell of the parent is split among its children by itself.
"""

from __future__ import annotations

import numpy as np

from trueup.kernel.histogram import Marginal, cell_groups
from trueup.kernel.settling.nearest import Metric
from trueup.kernel.settling.refine import Coarse
from trueup.kernel.settling.split_draws import CONCENTRATIONS, MIN_DRAWN_COUNT, EstimatedSplits, drawn_totals


def total_of(marginal: Marginal) -> Marginal:
    """Return the total of the same histograms.

    Examples
    --------
    >>> total_of((np.array([0, 1]),))
    (array([0, 0]),)
    """
    return tuple(np.zeros_like(groups) for groups in marginal)


def drawn_cells(means: np.ndarray, variances: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw from gamma laws with these means and variances (counts, counts squared), shaped like them.

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
    """Return the cells' average variance (rows, 1) in every row's table (counts squared).

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
    """Draw a marginal's tables (rows, m), each a split of the coarser marginal's counts; totals if there is no coarser one.

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
    """Draw parents' children (rows, n), each cell of a parent split among them separately.

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
