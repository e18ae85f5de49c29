"""Products of two matrices given by their logarithms, accurate however small the entries."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit

Reals = NDArray[np.float64]


def log_product(a: Reals, b: Reals) -> Reals:
    """Return `log(exp(a) @ exp(b))`, every entry scaled by its own largest term.

    Parameters
    ----------
    a, b
        `(n, k)` and `(k, m)` logarithms; -inf for zero.

    Examples
    --------
    >>> log_product(np.array([[-5000.0, -5001.0]]), np.zeros((2, 1))).round(4)
    array([[-4999.6867]])
    """
    return _log_product(np.ascontiguousarray(a, float), np.ascontiguousarray(b.T, float))


@njit(cache=True)
def _log_product(a, b):
    out = np.empty((len(a), len(b)))
    for i in range(len(a)):
        for j in range(len(b)):
            top = -math.inf
            for k in range(a.shape[1]):
                top = max(top, a[i, k] + b[j, k])
            total = 0.0
            if top > -math.inf:
                for k in range(a.shape[1]):
                    total += math.exp(a[i, k] + b[j, k] - top)
            out[i, j] = top + math.log(total) if total > 0 else -math.inf
    return out
