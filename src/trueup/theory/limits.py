"""Distance of the error after projection from the raw noise: Theorems 13 and 14 of Zhu et al."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from trueup.theory.marginal import MarginalError, Noise, projected_error

POINTS = 20_001
"""Points above zero at which distribution functions of continuous errors are compared."""


def variance_limit(law: Noise) -> float:
    """Return the limit (counts squared) of a part's error variance as its siblings grow in number.

    Theorem 13: `Var(error) = (1 - 1/n) Var(noise)` increases with n and tends to the variance of the noise.
    What is missing at n is `Var(noise) / n` exactly, whatever the law.

    Examples
    --------
    >>> from trueup.noise import Laplace
    >>> variance_limit(Laplace("10"))
    200.0
    """
    return law.variance


def wasserstein(law: Noise, n: int) -> float:
    """Return the Wasserstein-1 distance (counts) of the noise from the error after projection on a known total.

    It is `integral |F - G|` of the two distribution functions, and at most `wasserstein_bound`.

    Parameters
    ----------
    law
        Noise of every part.
    n
        Number of parts.

    Returns
    -------
    float
        Right to a relative 1e-6 for continuous noise (a sum over 20,000 intervals); for noise on the integers the
        sum over all steps is exact but for rounding.

    References
    ----------
    Zhu, Van Hentenryck and Fioretto (2021), Figure 5.

    Examples
    --------
    >>> from trueup.noise import Laplace
    >>> [round(wasserstein(Laplace("10"), n), 3) for n in (2, 10, 100)]
    [2.5, 0.523, 0.066]
    """
    gaps, widths = _gaps(projected_error(law, n), n)
    return 2 * float(gaps @ widths)


def kolmogorov(law: Noise, n: int) -> float:
    """Return the largest difference of the distribution functions of the noise and of the error after projection.

    Theorem 14: the error converges in distribution to the noise as n grows, so this goes to zero for
    continuous noise. For noise on the integers it does not: the error spreads each integer's mass over
    multiples of 1/n around it, and a distribution function with steps is approached everywhere but at its steps. The
    theorem holds there too, and `wasserstein` shows it.

    Examples
    --------
    >>> from trueup.noise import Laplace
    >>> [round(kolmogorov(Laplace("10"), n), 3) for n in (2, 10, 100)]
    [0.051, 0.013, 0.003]
    """
    return float(_gaps(projected_error(law, n), n)[0].max())


def wasserstein_bound(law: Noise, n: int) -> float:
    """Bound (counts) on `wasserstein`, good for any law: `sqrt(Var(noise) / n)`.

    Error and noise differ by the mean of all parts' noise, so their mean distance is at most its standard
    deviation. This proves Theorem 14 for every law of finite variance, with a rate.

    Examples
    --------
    >>> from trueup.noise import Gaussian
    >>> wasserstein_bound(Gaussian("4"), 100)
    0.2
    """
    return sqrt(law.variance / n)


def _gaps(error: MarginalError, n: int) -> tuple[NDArray, NDArray]:
    """Return absolute differences of the distribution functions above zero, and their widths."""
    if error.discrete:
        # Both functions are constant between multiples of 1/n: their middles stand for whole steps.
        x = (np.arange(int(1 - error.own.quantile(1e-13)) * n) + 0.5) / n
        widths = np.full(len(x), 1 / n)
    else:
        # Most points stand where most mass is.
        ends = -error.own.quantile(1e-12) * np.linspace(0, 1, POINTS) ** 2
        x, widths = 0.5 * (ends[1:] + ends[:-1]), np.diff(ends)
    return np.abs(error.own.cdf(x) - error.cdf(x)), widths
