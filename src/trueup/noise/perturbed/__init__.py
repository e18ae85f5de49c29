"""Laws of what other agencies publish: each says how probable every published value is, given the true count."""

from __future__ import annotations

from trueup.noise.perturbed.base import Perturbation
from trueup.noise.perturbed.cell_key import CellKey
from trueup.noise.perturbed.interval import CountInterval
from trueup.noise.perturbed.random_rounding import RandomRounding
from trueup.noise.perturbed.rounded import Rounded
from trueup.noise.perturbed.suppressed import Suppressed

PERTURBATIONS: tuple[type[Perturbation], ...] = (RandomRounding, CellKey, Rounded, Suppressed, CountInterval)
"""Every law, one file each."""

__all__ = [
    "PERTURBATIONS",
    "CellKey",
    "CountInterval",
    "Perturbation",
    "RandomRounding",
    "Rounded",
    "Suppressed",
]
