"""Diagnostics of Markov chains, moments of draws, and confidence sets of ratios.

Here: Fieller's confidence sets for a ratio of two noisy counts: not always intervals.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import SpecError

INTERVAL, COMPLEMENT, WHOLE_LINE = "interval", "complement", "whole line"


def fieller(
    numerator: ArrayLike, denominator: ArrayLike, variances: tuple[ArrayLike, ArrayLike], quantile: float
) -> tuple[NDArray[np.str_], NDArray[np.float64], NDArray[np.float64]]:
    """Return Fieller's set of ratios `r` with `(num - r den)^2 <= q^2 (var num + r^2 var den)`.

    Parameters
    ----------
    numerator, denominator
        Noisy counts with independent, approximately normal noise; broadcast together.
    variances
        Their variances (counts squared).
    quantile
        Two-sided normal quantile, 1.645 for 90 %.

    Returns
    -------
    kind, low, high
        `interval`: low..high. `complement`: everything but the open interval low..high, when the
        denominator may be zero. `whole line`: the data exclude nothing; -inf, inf.

    Raises
    ------
    SpecError
        A count is not finite, a variance negative or the quantile not above zero.

    References
    ----------
    Fieller (1954), "Some problems in interval estimation".

    Examples
    --------
    >>> kind, low, high = fieller([20.0, 20.0, 1.0], [10.0, 1.0, 0.1], (1.0, 1.0), 1.645)
    >>> kind.tolist(), low.round(2).tolist(), high.round(2).tolist()
    (['interval', 'complement', 'whole line'], [1.68, -30.97, -inf], [2.43, 7.52, inf])
    """
    num, den, var_num, var_den = np.broadcast_arrays(numerator, denominator, *variances)
    if not (np.isfinite(num) & np.isfinite(den)).all():
        raise SpecError("a numerator or denominator is infinite or not a number", needed="finite counts")
    if not ((var_num >= 0) & (var_den >= 0)).all():
        raise SpecError("a variance is negative or not a number", needed="variances of 0 or more")
    if not quantile > 0:
        raise SpecError(f"the quantile is {quantile}", needed="a quantile above 0")
    # a r^2 - 2 b r + c <= 0
    a = den**2 - quantile**2 * var_den
    b = num * den
    c = num**2 - quantile**2 * var_num
    root = np.sqrt(np.maximum(b * b - a * c, 0.0))
    whole = (a <= 0) & (b * b <= a * c)
    # The root of larger size has no cancellation; the other follows from their product c / a.
    large = b + np.where(b >= 0, root, -root)
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.sort(np.stack([large / a, c / large]), axis=0)
    kind = np.where(whole, WHOLE_LINE, np.where(a > 0, INTERVAL, COMPLEMENT))
    return kind, np.where(whole, -np.inf, ends[0]), np.where(whole, np.inf, ends[1])
