"""Laws of what other agencies publish: the probability of every published value given the true count."""

from __future__ import annotations

from trueup.noise.perturbed.base import Perturbation
from trueup.registry import Registry

PERTURBATIONS: Registry[Perturbation] = Registry(
    "trueup.noise.perturbed",
    {
        "random-rounding": "random_rounding.RandomRounding",
        "cell-key": "cell_key.CellKey",
        "rounded": "rounded.Rounded",
        "suppressed": "suppressed.Suppressed",
        "interval": "interval.CountInterval",
        "shown-counts": "composed.ShownCounts",
        "hidden-values": "hidden_values.HiddenValues",
    },
)
"""Every law, one file and one line each."""
READ = ("interval", "shown-counts", "hidden-values")
"""Laws of codes, and of values beside codes, which the reader of tables makes; no spec names them, and they publish nothing."""
__getattr__ = PERTURBATIONS.attribute
