"""Laws of noise with masses, moments, exact samplers and privacy costs, and laws of perturbations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from math import log, sqrt
from typing import Any

from trueup.errors import SpecError, did_you_mean
from trueup.noise.law import Cost, Currency, Law, Sensitivity, Words
from trueup.registry import Registry

LAWS: Registry[Law] = Registry(
    "trueup.noise",
    {
        "discrete-laplace": "laws.geometric.DiscreteLaplace",
        "discrete-gaussian": "laws.discrete_gaussian.DiscreteGaussian",
        "truncated-geometric": "laws.geometric.TruncatedGeometric",
        "exact": "laws.undrawn.Exact",
        "laplace": "laws.undrawn.Laplace",
        "gaussian": "laws.undrawn.Gaussian",
    },
)
"""Laws of one count, one line each."""
JOINT_LAWS: Registry[Any] = Registry(
    "trueup.noise.lattice",
    {
        "lattice-laplace": "LatticeLaplace",
        "lattice-l2-laplace": "LatticeL2Laplace",
        "lattice-gaussian": "LatticeGaussian",
        "add-up-laplace": "feasible.AddUpLaplace",
        "within-laplace": "feasible.WithinLaplace",
    },
)
ALIASES = {"two-sided-geometric": "discrete-laplace"}

__all__ = [
    "ALIASES",
    "JOINT_LAWS",
    "LAWS",
    "OF_VARIANCE",
    "Cost",
    "Currency",
    "Law",
    "Sensitivity",
    "Words",
    "law_named",
    "law_of_variance",
]


def _every() -> Iterator[Registry[Any]]:
    """Yield the registries of laws, which are loaded only when they are needed."""
    yield from (LAWS, JOINT_LAWS)
    from trueup.noise.perturbed import PERTURBATIONS

    yield PERTURBATIONS


def __getattr__(name: str) -> Any:
    """Return the law whose class has a given name, such as `trueup.noise.DiscreteLaplace`."""
    for listed in _every():
        with suppress(AttributeError):
            return listed.attribute(name)
    raise AttributeError(f"module 'trueup.noise' has no attribute '{name}'")


def law_named(name: object) -> type[Any]:
    """Return the class of the law with a given name, or the alias `two-sided-geometric`.

    Raises
    ------
    SpecError
        If no law has that name; it names the nearest one.

    Examples
    --------
    >>> law_named("two-sided-geometric").name
    'discrete-laplace'
    >>> law_named("discrete-laplac")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    trueup.errors.SpecError: there is no law 'discrete-laplac'. ... To do: did you mean 'discrete-laplace'?
    """
    known = ALIASES.get(name, name) if isinstance(name, str) else None
    for listed in _every():
        if known in listed.names:
            return listed.named(known)
    names = [each for listed in _every() for each in listed.names]
    shown = repr(name) if isinstance(name, str) and len(name) <= 60 else f"a {type(name).__name__}"
    raise SpecError(
        f"there is no law {shown}",
        needed=f"one of {', '.join(names)}",
        remedy=did_you_mean(name, [*names, *ALIASES]),
    )


OF_VARIANCE: dict[str, Callable[[Fraction], Fraction]] = {
    "discrete-gaussian": lambda variance: variance,
    "discrete-laplace": lambda variance: _epsilon(float(variance)),
    "gaussian": lambda variance: variance,
    "laplace": lambda variance: Fraction(sqrt(variance / 2)).limit_denominator(10**9),
}
"""The parameter of each law that tables with a variance in every row may have, given the variance."""


def law_of_variance(name: str, variance: Fraction) -> Law:
    """Return the law of the given name and variance (counts squared), or the law without noise for 0.

    Examples
    --------
    >>> law_of_variance("gaussian", Fraction(4)), law_of_variance("gaussian", Fraction(0))
    (Gaussian(sigma2=Fraction(4, 1)), Exact())
    """
    law: Any = LAWS.named(name if variance else "exact")
    return law(OF_VARIANCE[name](variance)) if variance else law()


def _epsilon(variance: float) -> Fraction:
    """Return the epsilon of discrete Laplace noise of a given variance, rounded for a file."""
    return Fraction(-log((variance + 1 - sqrt(2 * variance + 1)) / variance)).limit_denominator(10**9)
