"""Projection of one parent's parts on a known total within bounds: the step of `trueup.kernel.tree.topdown`, alone."""

from __future__ import annotations

import numpy as np

from trueup.kernel.tree.topdown import project_part


def project_on_total(
    spread: np.ndarray, lower: np.ndarray, upper: np.ndarray, total: float, values: np.ndarray
) -> np.ndarray:
    """Solve min sum (x_i - z_i)^2 / V_i over sum x = total, lower <= x <= upper, exactly.

    Parameters
    ----------
    spread
        Variances V, (n,), counts squared. A part with V = 0 is exact and stays at its value; parts with
        V = inf are not measured and take up the difference first, equally.
    lower, upper
        Bounds, (n,), counts; -inf and inf allowed.
    total
        The sum the parts must have. It must be attainable (the caller checks: `trueup.kernel.tree.whole`).
    values
        The parts z, (n,) or (b, n); where V = inf, they count as 0.

    Returns
    -------
    numpy.ndarray
        x, shaped like ``values``.

    Notes
    -----
    The solution is ``x_i = clip(z_i + price V_i)``. Variable fixing (Bitran & Hax 1981; with lower bounds
    alone, Michelot 1986): solve without bounds; if the parts below their lower bounds fall short by more
    than those above their upper bounds exceed, the price can only rise once these are fixed, so the
    short ones are final (and conversely). Every pass fixes at least one part.

    Examples
    --------
    >>> project_on_total(np.ones(3), np.zeros(3), np.full(3, np.inf), 6.0, np.array([5.0, 3.0, -2.0]))
    array([4., 2., 0.])
    """
    x = np.array(values, dtype=float, order="C")
    free = np.empty(spread.size, np.int64)
    for row in np.atleast_2d(x):
        project_part(0, spread.size, spread, lower, upper, total, row, free)
    return x
