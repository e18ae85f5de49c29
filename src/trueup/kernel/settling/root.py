"""Tables without a parent: their totals and measured marginals are settled before any cell is held at zero.

Cells below zero that are held at zero lift what they belong to, and the more cells the further: of 384 cells that share
1,000 units, a total that is their sum is 39 too large. So marginals are settled first, the coarsest first: of each the
nearest nonnegative tables in the metric of what its estimates' covariance is once those before it are known. As that
covariance says what they fix, marginals that cross each other agree on what they share. Cells come last, given all of
them. An estimate that is nowhere below zero is kept, so that the total is that of least squares, cut at zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trueup.kernel.histogram.helmert import sum_rows
from trueup.kernel.histogram.marginals import Marginal, cell_groups, marginalise, refines, spread
from trueup.kernel.settling.nearest import TOLERANCE, Metric, nearest_nonnegative
from trueup.kernel.settling.refine import Coarse


def settle_marginals(
    metric: Metric,
    tables: np.ndarray,
    marginals: Sequence[Marginal],
    zeros: np.ndarray | None = None,
    tolerance: float = TOLERANCE,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return nonnegative tables whose marginals are each the nearest to their estimates, given the coarser ones.

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
    >>> from trueup.kernel.histogram.marginals import identity, summed
    >>> domain = Domain.of([(identity(3),)])
    >>> metric = Metric(domain, tuple(np.ones((1, 1, 1)) for _ in domain.components), np.zeros(1, int), 1, tied=False)
    >>> settle_marginals(metric, np.array([[5.0, 1.0, -2.0]]), [(summed(3),)])[0].round(6)
    array([[4., 0., 0.]])
    """
    held = np.zeros(tables.shape, bool) if zeros is None else zeros
    worst, most = np.zeros(len(tables)), 0
    for marginal in ordered(marginals):
        settled, residual, steps = _settled(metric, tables, marginal, held, tolerance)
        worst, most = np.maximum(worst, residual), max(most, steps)
        narrowed, tables = Coarse(marginal, settled).given(metric.domain, metric.variances, tables)
        metric = replace(metric, variances=narrowed)
        held = held | spread(settled == 0, marginal)
    x, residual, steps = nearest_nonnegative(metric, tables, held, tolerance)
    return np.where(held, 0.0, np.maximum(x, 0.0)), np.maximum(worst, residual), max(most, steps)


def ordered(marginals: Sequence[Marginal]) -> list[Marginal]:
    """Return marginals coarsest first, each once.

    Examples
    --------
    >>> from trueup.kernel.histogram.marginals import identity, shape, summed
    >>> rows, total = (identity(2), summed(3)), (summed(2), summed(3))
    >>> [shape(m) for m in ordered([rows, total, rows])]
    [(1, 1), (2, 1)]
    """
    chosen: list[Marginal] = []
    for marginal in sorted(marginals, key=lambda m: np.prod([g.max() + 1 for g in m])):
        if not any(refines(marginal, other) and refines(other, marginal) for other in chosen):
            chosen.append(marginal)
    return chosen


def _settled(metric: Metric, tables: np.ndarray, marginal: Marginal, held: np.ndarray, tolerance: float):
    """Return the nearest nonnegative tables of a marginal, every row's residual, and the most iterations."""
    domain = metric.domain.coarsened(marginal)
    variances = tuple(metric.of_marginal(marginal, c) for c in domain.components)
    groups = cell_groups(marginal)
    own = sum_rows(tables, groups, int(groups.max()) + 1)
    closed = marginalise(~held, marginal) == 0
    x, residual, steps = nearest_nonnegative(
        replace(metric, domain=domain, variances=variances), own, closed, tolerance
    )
    return np.where(closed, 0.0, np.maximum(x, 0.0)), residual, steps
