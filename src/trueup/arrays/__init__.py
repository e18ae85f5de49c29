"""Functions on NumPy arrays without spec or files: noise, projections and posteriors of vectors of counts.

The verbs stand on these functions: a spec's problem is lowered to arrays and calls them. Names are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trueup.arrays.chains import JudgedChain as JudgedChain
    from trueup.arrays.chains import judge_chain as judge_chain
    from trueup.arrays.drawing import NoisyCounts as NoisyCounts
    from trueup.arrays.drawing import add_up as add_up
    from trueup.arrays.drawing import noise_keeping as noise_keeping
    from trueup.arrays.drawing import noise_within as noise_within
    from trueup.arrays.drawing import sample as sample
    from trueup.arrays.inequalities import CountsPosterior as CountsPosterior
    from trueup.arrays.inequalities import posterior_of_counts as posterior_of_counts
    from trueup.arrays.lattice import LatticeLaw as LatticeLaw
    from trueup.arrays.lattice import law_keeping as law_keeping
    from trueup.arrays.laws import continuous_gaussian as continuous_gaussian
    from trueup.arrays.laws import continuous_laplace as continuous_laplace
    from trueup.arrays.laws import discrete_gaussian as discrete_gaussian
    from trueup.arrays.laws import discrete_laplace as discrete_laplace
    from trueup.arrays.laws import noise_interval as noise_interval
    from trueup.arrays.laws import truncated_geometric as truncated_geometric
    from trueup.arrays.losses import delta_of as delta_of
    from trueup.arrays.losses import epsilon_of as epsilon_of
    from trueup.arrays.losses import rho_of as rho_of
    from trueup.arrays.posteriors import ReleasedPosterior as ReleasedPosterior
    from trueup.arrays.posteriors import TreePosterior as TreePosterior
    from trueup.arrays.posteriors import posterior_of_released as posterior_of_released
    from trueup.arrays.posteriors import posterior_of_tree as posterior_of_tree
    from trueup.arrays.projection import project as project
    from trueup.arrays.trees import project_table as project_table
    from trueup.arrays.trees import reconcile_tree as reconcile_tree
    from trueup.arrays.within import NoiseWithin as NoiseWithin
    from trueup.kernel.linear.programs import Answer as Answer
    from trueup.kernel.multinomial.mode import multinomial_mode as multinomial_mode
    from trueup.kernel.statistics import fieller as fieller
    from trueup.noise.law import Cost as Cost
    from trueup.noise.law import Sensitivity as Sensitivity
    from trueup.privacy import compose as compose
    from trueup.theory.bias import bias_bound as bias_bound
    from trueup.theory.bias import projection_bias as projection_bias
    from trueup.theory.bias import projection_covariance as projection_covariance
    from trueup.theory.bias import region as region

_NAMES = {
    "trueup.arrays.chains": "JudgedChain judge_chain",
    "trueup.arrays.drawing": "NoisyCounts add_up noise_keeping noise_within sample",
    "trueup.arrays.inequalities": "CountsPosterior posterior_of_counts",
    "trueup.arrays.lattice": "LatticeLaw law_keeping",
    "trueup.arrays.laws": "continuous_gaussian continuous_laplace discrete_gaussian discrete_laplace noise_interval "
    "truncated_geometric",
    "trueup.arrays.losses": "delta_of epsilon_of rho_of",
    "trueup.arrays.posteriors": "ReleasedPosterior TreePosterior posterior_of_released posterior_of_tree",
    "trueup.arrays.projection": "project",
    "trueup.arrays.trees": "project_table reconcile_tree",
    "trueup.arrays.within": "NoiseWithin",
    "trueup.kernel.linear.programs": "Answer",
    "trueup.kernel.multinomial.mode": "multinomial_mode",
    "trueup.kernel.statistics": "fieller",
    "trueup.noise.law": "Cost Sensitivity",
    "trueup.privacy": "compose",
    "trueup.theory.bias": "bias_bound projection_bias projection_covariance region",
}
"""Names by the module where they live."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'trueup.arrays' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
