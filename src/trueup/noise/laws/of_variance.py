"""Laws of noise of a given variance, for tables with a variance in every row."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import log, sqrt
from typing import Any

from trueup.noise.laws.discrete_gaussian import DiscreteGaussian
from trueup.noise.laws.discrete_laplace import DiscreteLaplace
from trueup.noise.laws.exact import Exact
from trueup.noise.laws.gaussian import Gaussian
from trueup.noise.laws.laplace import Laplace

OF_VARIANCE: dict[str, Callable[[Fraction], Any]] = {
    "discrete-gaussian": DiscreteGaussian,
    "discrete-laplace": lambda variance: DiscreteLaplace(_epsilon(variance)),
    "gaussian": Gaussian,
    "laplace": lambda variance: Laplace(Fraction(sqrt(variance / 2)).limit_denominator(10**9)),
}
"""Laws by the names of a spec: those that were published, and the continuous ones of studies of them."""


def law_of_variance(name: str, variance: Fraction) -> Any:
    """Return the law with a name and a variance (counts squared); no noise if it is 0.

    Examples
    --------
    >>> law_of_variance("gaussian", Fraction(4)), law_of_variance("gaussian", Fraction(0))
    (Gaussian(sigma2=Fraction(4, 1)), Exact())
    """
    return OF_VARIANCE[name](variance) if variance else Exact()


def _epsilon(variance: Fraction) -> Fraction:
    """Solve `2 q / (1 - q)^2 = variance` for epsilon = -log q, to the digits the file gives."""
    v = float(variance)
    return Fraction(-log((v + 1 - sqrt(2 * v + 1)) / v)).limit_denominator(10**9)
