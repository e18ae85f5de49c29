"""The law of one part's error after projection on a known total, by inversion of its Fourier transform.

By Theorem 12 the error is `(1 - 1/n) eta_1 - sum of the other eta_j / n`. With Laplace noise of scale 1 its transform is
`1 / (1 + (1 - 1/n)^2 t^2) / (1 + t^2 / n^2)^(n - 1)`, real, so that the distribution function above zero is
`1/2 + integral_0^infinity sin(t x) transform(t) / t dt / pi`. The integral is summed at multiples of a step h: that is exact but
for the mass beyond `2 pi / h - x` (Poisson summation) and for what is cut off at the far end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

ACCURACY = 1e-4
STEP, FARTHEST = 0.1, 3_000.0
"""Error below 1e-8: mass beyond 2 pi / 0.1 - 20 is exp(-42), and a transform of at most 4 / t^2 over t is cut off at 3,000."""
LEFT_OUT = 1e-10
"""Sum of the weights that are left out before that: no sine is above 1, so it bounds the error."""


def distribution(n: int, x: Reals) -> Reals:
    """Probability that the error is at most `x` (in scales of the noise).

    Examples
    --------
    >>> distribution(1_000_000, np.array([0.0, 1.0])).round(3), round(1 - 0.5 * np.exp(-1), 3)
    (array([0.5  , 0.816]), np.float64(0.816))
    """
    t = STEP * (np.arange(int(FARTHEST / STEP)) + 0.5)
    own, others = (1 - 1 / n) ** 2, -(n - 1) * np.log1p(t**2 / n**2)
    weight = STEP / np.pi * np.exp(others) / (1 + own * t**2) / t
    kept = len(t) - np.searchsorted(np.cumsum(weight[::-1]), LEFT_OUT)
    return np.array([0.5 + np.sin(t[:kept] * each) @ weight[:kept] for each in x])


def distance(n: int) -> float:
    """Wasserstein distance (scales) of error and noise: twice the integral of `|F - G|` above zero.

    Right to a relative `ACCURACY`: Simpson's rule on 601 points, whose integrand has a kink where the functions cross.
    """
    from scipy.integrate import simpson

    x = 25.0 * np.linspace(0, 1, 601) ** 2
    gaps = np.abs(distribution(n, x) - (1 - 0.5 * np.exp(-x)))
    return 2 * float(simpson(gaps * 50.0 * np.linspace(0, 1, 601), dx=1 / 600))
