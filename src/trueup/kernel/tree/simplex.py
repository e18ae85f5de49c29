"""Projection on a bounded simplex: parts that must have a given total, each within its bounds."""

from __future__ import annotations

import numpy as np

from trueup.kernel.compiled import njit


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
        The sum the parts must have. It must be attainable (the caller checks: `trueup.kernel.tree.bounds`).
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
    _project_rows(spread, lower, upper, total, np.atleast_2d(x))
    return x


@njit(cache=True)
def _project_rows(spread, lower, upper, total, values):
    free = np.empty(spread.size, np.int64)
    for i in range(values.shape[0]):
        project_part(0, spread.size, spread, lower, upper, total, values[i], free)


@njit(cache=True)
def project_part(a, b, spread, lower, upper, total, x, free):
    """Project the parts ``a .. b - 1`` of ``x`` in place; ``free`` is scratch of at least ``b - a``."""
    unmeasured = 0
    low, high, kept = 0.0, 0.0, 0.0
    for c in range(a, b):
        if spread[c] == np.inf:
            free[unmeasured] = c
            unmeasured += 1
            low += lower[c]
            high += upper[c]
            x[c] = 0.0
        elif spread[c] > 0.0:
            kept += min(max(x[c], lower[c]), upper[c])
        else:
            total -= x[c]
    if unmeasured:
        # The limit of equal variances that grow without end: the measured parts move no further than to
        # their bounds as long as the unmeasured ones can make up the difference.
        difference = min(max(total - kept, low), high)
        _fix_variables(free, unmeasured, spread, lower, upper, difference, x)
        total -= difference
    measured = 0
    for c in range(a, b):
        if 0.0 < spread[c] < np.inf:
            free[measured] = c
            measured += 1
    _fix_variables(free, measured, spread, lower, upper, total, x)


@njit(cache=True)
def _fix_variables(free, size, spread, lower, upper, total, x):
    """Fix parts at bounds until the remaining price moves none of the others across one."""
    equal = size > 0 and spread[free[0]] == np.inf  # all of them are: any common variance will do
    while size > 0:
        value, room = 0.0, 0.0
        for k in range(size):
            value += x[free[k]]
            room += 1.0 if equal else spread[free[k]]
        price = (total - value) / room
        short, excess = 0.0, 0.0
        for k in range(size):
            c = free[k]
            moved = x[c] + price * (1.0 if equal else spread[c])
            short += max(lower[c] - moved, 0.0)
            excess += max(moved - upper[c], 0.0)
        kept = 0
        for k in range(size):
            c = free[k]
            moved = x[c] + price * (1.0 if equal else spread[c])
            if moved < lower[c] and short >= excess:
                x[c] = lower[c]
                total -= lower[c]
            elif moved > upper[c] and excess >= short:
                x[c] = upper[c]
                total -= upper[c]
            elif short == excess == 0.0:
                x[c] = moved
            else:
                free[kept] = c
                kept += 1
        size = kept
