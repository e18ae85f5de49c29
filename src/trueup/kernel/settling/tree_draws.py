"""Draws of a tree's counts from noisy measurements and splits of a Dirichlet-multinomial prior.

The root is normal around its estimate, cut at its bounds. From the top, each level's parents are split among their
children given the children's estimates from their subtrees (see `kernel.settling.split_draws`), all with one concentration:
its posterior is found once, at posterior means of the levels above, and every draw takes a value from it.
"""

from __future__ import annotations

import numpy as np

from trueup.kernel.settling.split_draws import CONCENTRATIONS, EstimatedSplits
from trueup.kernel.settling.table_draws import drawn_totals


def tree_draws(
    child_ptr: np.ndarray,
    level_ptr: np.ndarray,
    estimates: np.ndarray,
    variances: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    number: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw the counts of all nodes.

    Parameters
    ----------
    child_ptr, level_ptr : the tree, in level order, and where each level starts
    estimates, variances : (nodes,) of every total from its own subtree (counts, counts squared)
    low, high : (nodes,) attainable totals
    number : of draws

    Returns
    -------
    (number, nodes) additive counts in fractions; a whole root

    Examples
    --------
    >>> child_ptr, level_ptr = np.array([1, 3, 3, 3]), np.array([0, 1, 3])
    >>> z, v = np.array([6.0, 8.0, -1.0]), np.array([2.0, 3.0, 3.0])
    >>> found = tree_draws(child_ptr, level_ptr, z, v, np.zeros(3), np.full(3, np.inf), 2, np.random.default_rng(1))
    >>> found.shape, bool(np.allclose(found[:, 0], found[:, 1:].sum(axis=1)))
    ((2, 3), True)
    """
    found = np.empty((number, len(estimates)))
    root = np.full(number, estimates[0])
    found[:, 0] = np.clip(np.rint(drawn_totals(root, np.full(number, variances[0]), rng)), low[0], high[0])
    mean = np.clip(estimates[:1], low[0], high[0])
    for level in range(1, len(level_ptr) - 1):
        parents, nodes = (slice(level_ptr[i], level_ptr[i + 1]) for i in (level - 1, level))
        first = child_ptr[level_ptr[level - 1] : level_ptr[level] + 1] - level_ptr[level]
        split = EstimatedSplits(first, estimates[nodes], variances[nodes], low[nodes], high[nodes])
        chances = split.concentrations(mean)
        mean = split.means(mean, float(CONCENTRATIONS[chances.argmax()]))
        for row, a in zip(found, rng.choice(CONCENTRATIONS, number, p=chances), strict=True):
            row[nodes] = split.draw(row[parents], float(a), rng)
    return found
