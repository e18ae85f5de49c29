"""Laws of what other agencies publish: the probability of every published value given the true count."""

from __future__ import annotations

from trueup.noise.perturbed.base import Perturbation
from trueup.registry import Registry

PERTURBATIONS: Registry[Perturbation] = Registry(
    "trueup.noise.perturbed",
    {
        "random-rounding": "rounding.RandomRounding",
        "cell-key": "cell_key.CellKey",
        "rounded": "rounding.Rounded",
        "suppressed": "ranges.Suppressed",
        "interval": "ranges.CountInterval",
        "shown-counts": "composed.ShownCounts",
        "hidden-values": "hidden_values.HiddenValues",
    },
)
"""Every law, one line each."""
READ = ("interval", "shown-counts", "hidden-values")
"""Laws of codes, and of values beside codes, which the reader of tables makes; no spec names them, and they publish nothing."""
__getattr__ = PERTURBATIONS.attribute
