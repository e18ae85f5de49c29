"""Noise laws for single counts with a given privacy loss."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf
from typing import TypeAlias

from trueup.arrays.exact import Number, exact_number
from trueup.errors import SpecError
from trueup.noise.law import Law
from trueup.noise.laws import probabilities
from trueup.noise.laws.discrete_gaussian import DiscreteGaussian
from trueup.noise.laws.geometric import DiscreteLaplace, TruncatedGeometric
from trueup.noise.laws.undrawn import Gaussian, Laplace

Laws: TypeAlias = "Law | Sequence[Law | None]"
"""One law for all counts, or one for each; None where a count is not measured."""


def discrete_laplace(epsilon: Number, sensitivity: Number = 1) -> DiscreteLaplace:
    """Return two-sided geometric noise with privacy loss epsilon, for counts of the given L1 sensitivity.

    Parameters
    ----------
    epsilon
        The loss. 0.5, "1/2" and Fraction(1, 2) are the same exact number.
    sensitivity
        Largest L1 distance between the counts of two neighbours.

    Returns
    -------
    The law, with the exact loss per count: `pmf`, `logpmf`, `cdf`, `sf`, `quantile`, `variance`, `tail`, `cost`.

    Raises
    ------
    SpecError
        If a number is not positive, or the noise would be wider than 2^28 counts or narrower than 2^-28.

    References
    ----------
    Wang and Reiter (2021), section 2.1.

    Examples
    --------
    >>> law = discrete_laplace(0.5)
    >>> law, round(law.variance, 3), float(law.pmf(0).round(4))
    (DiscreteLaplace(epsilon=Fraction(1, 2)), 7.835, 0.2449)
    """
    return DiscreteLaplace(exact_number(epsilon, "epsilon") / exact_number(sensitivity, "sensitivity"))


def truncated_geometric(epsilon: Number, bound: int = 50, sensitivity: Number = 1) -> TruncatedGeometric:
    """Return two-sided geometric noise limited to `-bound .. bound`, which adds a delta to its loss.

    References
    ----------
    Wang (2020), section 2.1, who truncates at 50.

    Examples
    --------
    >>> truncated_geometric(1)
    TruncatedGeometric(epsilon=Fraction(1, 1), bound=50)
    """
    return TruncatedGeometric(
        exact_number(epsilon, "epsilon") / exact_number(sensitivity, "sensitivity"), bound
    )


def discrete_gaussian(
    rho: Number | None = None, sensitivity: Number = 1, *, sigma2: Number | None = None
) -> DiscreteGaussian:
    """Return discrete Gaussian noise with privacy loss rho (zCDP), for counts of the given L2 sensitivity.

    Parameters
    ----------
    rho
        The loss; or give `sigma2`, the variance parameter (counts squared).
    sensitivity
        Largest L2 distance between the counts of two neighbours.

    Raises
    ------
    SpecError
        Unless one of rho and sigma2 is given, besides what `discrete_laplace` refuses.

    References
    ----------
    Canonne, Kamath and Steinke (2020), "The discrete Gaussian for differential privacy".

    Examples
    --------
    >>> discrete_gaussian(rho=0.125), discrete_gaussian(sigma2="4")
    (DiscreteGaussian(sigma2=Fraction(4, 1)), DiscreteGaussian(sigma2=Fraction(4, 1)))
    """
    return DiscreteGaussian(_one_variance(rho, sensitivity, sigma2))


def continuous_laplace(scale: Number) -> Laplace:
    """Return the law of continuous Laplace noise in values of another publisher, for analysis only.

    References
    ----------
    Zhu, Van Hentenryck and Fioretto (2021); Janicki et al.

    Examples
    --------
    >>> continuous_laplace(5).variance
    50.0
    """
    return Laplace(exact_number(scale, "scale"))


def continuous_gaussian(sigma2: Number) -> Gaussian:
    """Return the law of continuous Gaussian noise in values of another publisher, for analysis only.

    Examples
    --------
    >>> continuous_gaussian(0.25).variance
    0.25
    """
    return Gaussian(exact_number(sigma2, "sigma2"))


def noise_interval(law: Law, probability: float = 0.95) -> tuple[float, float]:
    """Return the shortest interval around zero that contains the noise (counts) with a given probability.

    For whole noise its ends are whole, so that it may hold more. For noise that keeps sums see `law_keeping`.

    Examples
    --------
    >>> noise_interval(discrete_laplace(1), 0.9), round(noise_interval(continuous_gaussian(1), 0.9)[1], 3)
    ((-2.0, 2.0), 1.645)
    """
    beyond = 1 - float(probabilities(probability))
    if beyond == 0:
        return -inf, inf
    reach = law.tail(beyond).counts if law.discrete else law.quantile(1 - beyond / 2)
    return 0.0 - float(reach), float(reach)


def each_law(laws: Laws, n: int) -> list[Law | None]:
    """Return a list of n noise laws, given one law or a list of n.

    Examples
    --------
    >>> each_law([discrete_laplace(1), None], 2)
    [DiscreteLaplace(epsilon=Fraction(1, 1)), None]
    """
    each: list[Law | None] = [*laws] if isinstance(laws, Sequence) else [laws] * n
    if len(each) != n:
        raise SpecError(f"{len(each)} laws for {n} counts", needed="one law, or one for each count")
    if others := [law for law in each if law is not None and (not isinstance(law, Law) or law.joint)]:
        raise SpecError(
            f"a law is of type {type(others[0]).__name__}", needed="a law such as discrete_laplace(1)"
        )
    return each


def _one_variance(rho: Number | None, sensitivity: Number, sigma2: Number | None) -> Fraction:
    if (rho is None) == (sigma2 is None):
        given = "neither rho nor sigma2 is given" if rho is None else "both rho and sigma2 are given"
        raise SpecError(given, needed="either rho or sigma2")
    if sigma2 is not None:
        return exact_number(sigma2, "sigma2")
    assert rho is not None
    return exact_number(sensitivity, "sensitivity") ** 2 / (2 * exact_number(rho, "rho"))
