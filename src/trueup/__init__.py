"""Differentially private counts that add up: measure, reconcile, infer, assess, report.

Names are loaded when first used, so that importing trueup loads NumPy and little else.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as _numpy  # noqa: F401  (everything below needs it; loading it here shows its cost here)

from trueup.version import __version__

_HOMES = {
    "Assessment": "trueup.model.assessment",
    "Attribute": "trueup.model.cells",
    "Cells": "trueup.model.cells",
    "Constraints": "trueup.model.constraints",
    "Margin": "trueup.model.cells",
    "Measured": "trueup.model.measurements",
    "Measurements": "trueup.model.measurements",
    "Posterior": "trueup.model.posterior",
    "Release": "trueup.model.release",
    "Spec": "trueup.model.spec",
    "Tree": "trueup.model.tree",
    "TrueupError": "trueup.errors",
    "check_bundle": "trueup.check",
    "load_spec": "trueup.model.spec",
    "parse_spec": "trueup.model.spec",
    "read_measurements": "trueup.io.bundle",
    "read_release": "trueup.workflow",
    "release": "trueup.workflow",
    "simulate": "trueup.measure",
    "synthesize": "trueup.synth",
    "write_areas": "trueup.areas",
}
"""Where each public name lives. """

_VERBS = ("assess", "infer", "measure", "reconcile", "report")
_FOLDERS = (*_VERBS, "theory")
__all__ = ["__version__", *_FOLDERS, *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _FOLDERS:
        return import_module(f"trueup.{name}")
    raise AttributeError(f"module 'trueup' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *_FOLDERS, *_HOMES])
