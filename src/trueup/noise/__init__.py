"""Laws of noise: mass, moments, exact sampler, privacy cost; and laws of what others publish, which have no cost."""

from __future__ import annotations

from typing import Any

from trueup.errors import SpecError, did_you_mean
from trueup.noise.cost import Cost, Currency, Sensitivity
from trueup.noise.lattice.laws import LatticeGaussian, LatticeL2Laplace, LatticeLaplace
from trueup.noise.law import Law, Words
from trueup.noise.laws.discrete_gaussian import DiscreteGaussian
from trueup.noise.laws.discrete_laplace import DiscreteLaplace
from trueup.noise.laws.exact import Exact
from trueup.noise.laws.gaussian import Gaussian
from trueup.noise.laws.laplace import Laplace
from trueup.noise.laws.truncated_geometric import TruncatedGeometric
from trueup.noise.perturbed import PERTURBATIONS

LAWS = (DiscreteLaplace, DiscreteGaussian, TruncatedGeometric, Exact, Laplace, Gaussian)
JOINT_LAWS = (LatticeLaplace, LatticeL2Laplace, LatticeGaussian)
"""Laws of whole vectors, bound to invariants before they sample."""
ALIASES = {"two-sided-geometric": "discrete-laplace"}

__all__ = [
    "ALIASES",
    "JOINT_LAWS",
    "LAWS",
    "PERTURBATIONS",
    "Cost",
    "Currency",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exact",
    "Gaussian",
    "Laplace",
    "Law",
    "Sensitivity",
    "TruncatedGeometric",
    "Words",
    "law_named",
]


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
    laws: dict[str, type[Any]] = {law.name: law for law in (*LAWS, *JOINT_LAWS, *PERTURBATIONS)}
    if isinstance(name, str) and (known := ALIASES.get(name, name)) in laws:
        return laws[known]
    shown = repr(name) if isinstance(name, str) and len(name) <= 60 else f"a {type(name).__name__}"
    raise SpecError(
        f"there is no law {shown}",
        needed=f"one of {', '.join(laws)}",
        remedy=did_you_mean(name, [*laws, *ALIASES]),
    )
