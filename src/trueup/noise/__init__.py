"""Laws of noise (mass, moments, exact sampler, privacy cost), and laws of what others publish, which have no cost."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from trueup.errors import SpecError, did_you_mean
from trueup.noise.cost import Cost, Currency, Sensitivity
from trueup.noise.law import Law, Words
from trueup.noise.perturbed import PERTURBATIONS
from trueup.registry import Registry

LAWS: Registry[Law] = Registry(
    "trueup.noise",
    {
        "discrete-laplace": "laws.discrete_laplace.DiscreteLaplace",
        "discrete-gaussian": "laws.discrete_gaussian.DiscreteGaussian",
        "truncated-geometric": "laws.truncated_geometric.TruncatedGeometric",
        "exact": "laws.exact.Exact",
        "laplace": "laws.laplace.Laplace",
        "gaussian": "laws.gaussian.Gaussian",
    },
)
"""Laws of one count, one file and one line each."""
JOINT_LAWS: Registry[Any] = Registry(
    "trueup.noise.lattice",
    {
        "lattice-laplace": "laws.LatticeLaplace",
        "lattice-l2-laplace": "laws.LatticeL2Laplace",
        "lattice-gaussian": "laws.LatticeGaussian",
        "add-up-laplace": "add_up.AddUpLaplace",
        "within-laplace": "within.WithinLaplace",
    },
)
_EVERY = (LAWS, JOINT_LAWS, PERTURBATIONS)
ALIASES = {"two-sided-geometric": "discrete-laplace"}

__all__ = [
    "ALIASES",
    "JOINT_LAWS",
    "LAWS",
    "PERTURBATIONS",
    "Cost",
    "Currency",
    "Law",
    "Sensitivity",
    "Words",
    "law_named",
]


def __getattr__(name: str) -> Any:
    """Return a law by the name of its class: `trueup.noise.DiscreteLaplace`."""
    for listed in _EVERY:
        with suppress(AttributeError):
            return listed.attribute(name)
    raise AttributeError(f"module 'trueup.noise' has no attribute '{name}'")


def law_named(name: object) -> type[Any]:
    """Return the class of the law called `name` (or its alias `two-sided-geometric`).

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
    for listed in _EVERY:
        if known in listed.names:
            return listed.named(known)
    names = [each for listed in _EVERY for each in listed.names]
    shown = repr(name) if isinstance(name, str) and len(name) <= 60 else f"a {type(name).__name__}"
    raise SpecError(
        f"there is no law {shown}",
        needed=f"one of {', '.join(names)}",
        remedy=did_you_mean(name, [*names, *ALIASES]),
    )
