"""Splits into parts of two kinds, slowly: the mass of a sum of parts by convolving their factors one after the other."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln


def part(x, a, b, q):
    """The factor of a part at the counts `x`."""
    return sum(
        weight * np.exp(gammaln(x + c) - gammaln(c) - gammaln(x + 1.0)) for weight, c in ((1.0, a), (q, b))
    )


def sum_of_parts(k, a, b, q, most):
    """The mass of the sum of `k` parts at 0, ..., `most`."""
    own, out = part(np.arange(most + 1), a, b, q), np.ones(1)
    for _ in range(k):
        out = np.convolve(out, own)[: most + 1]
    return out
