"""Splits with extra zeros, slowly: the mass of a sum of parts by convolving their factors one after the other."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln


def part(x, a, q):
    """The factor of a part at the counts `x`."""
    return np.exp(gammaln(x + a) - gammaln(a) - gammaln(x + 1.0)) + q * (x == 0)


def sum_of_parts(k, a, q, most):
    """The mass of the sum of `k` parts at 0, ..., `most`."""
    own, out = part(np.arange(most + 1), a, q), np.ones(1)
    for _ in range(k):
        out = np.convolve(out, own)[: most + 1]
    return out
