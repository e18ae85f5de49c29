"""arrays: what the papers begin with, a vector and a matrix. NumPy in, NumPy out; no spec and no files.

The verbs stand on these functions: a spec's problem is lowered to arrays and calls them. Names are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trueup.arrays.drawing import Kept as Kept
    from trueup.arrays.drawing import noise_keeping as noise_keeping
    from trueup.arrays.drawing import sample as sample
    from trueup.arrays.lattice import LatticeNoise as LatticeNoise
    from trueup.arrays.laws import discrete_gaussian as discrete_gaussian
    from trueup.arrays.laws import discrete_laplace as discrete_laplace
    from trueup.arrays.laws import gaussian as gaussian
    from trueup.arrays.laws import interval as interval
    from trueup.arrays.laws import laplace as laplace
    from trueup.arrays.laws import truncated_geometric as truncated_geometric
    from trueup.arrays.losses import delta_of as delta_of
    from trueup.arrays.losses import epsilon_of as epsilon_of
    from trueup.arrays.losses import rho_of as rho_of
    from trueup.arrays.projection import Projected as Projected
    from trueup.arrays.projection import project as project
    from trueup.noise.cost import Cost as Cost
    from trueup.noise.cost import Sensitivity as Sensitivity
    from trueup.privacy.accountant import compose as compose

_HOMES = {
    "Cost": "trueup.noise.cost",
    "Kept": "trueup.arrays.drawing",
    "LatticeNoise": "trueup.arrays.lattice",
    "Projected": "trueup.arrays.projection",
    "Sensitivity": "trueup.noise.cost",
    "compose": "trueup.privacy.accountant",
    "delta_of": "trueup.arrays.losses",
    "discrete_gaussian": "trueup.arrays.laws",
    "discrete_laplace": "trueup.arrays.laws",
    "epsilon_of": "trueup.arrays.losses",
    "gaussian": "trueup.arrays.laws",
    "interval": "trueup.arrays.laws",
    "laplace": "trueup.arrays.laws",
    "noise_keeping": "trueup.arrays.drawing",
    "project": "trueup.arrays.projection",
    "rho_of": "trueup.arrays.losses",
    "sample": "trueup.arrays.drawing",
    "truncated_geometric": "trueup.arrays.laws",
}
"""Where each name lives."""

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'trueup.arrays' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
