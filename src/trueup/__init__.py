"""Differentially private counts that add up: measure, reconcile, infer, assess, report.

Names are loaded when first used: importing trueup loads nothing but its own names.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from trueup.version import __version__ as __version__

_HOMES = {
    "Assessment": "trueup.model.records.assessment",
    "Attribute": "trueup.model.cells",
    "Cells": "trueup.model.cells",
    "Constraints": "trueup.model.constraints",
    "JoinedTables": "trueup.files.source",
    "Margin": "trueup.model.cells",
    "Measured": "trueup.model.header",
    "MarginsBySize": "trueup.releasing.by_size",
    "Measurements": "trueup.model.records.measurements",
    "Planner": "trueup.planning.planner",
    "Posterior": "trueup.model.records.posterior",
    "Problem": "trueup.model.problem",
    "Release": "trueup.model.records.release",
    "Spec": "trueup.model.spec",
    "Tree": "trueup.model.tree",
    "TrueupError": "trueup.errors",
    "assess": "trueup.assessing",
    "check": "trueup.checking.bundle:check_bundle",
    "explain": "trueup.releasing.explain",
    "export": "trueup.io.export",
    "infer": "trueup.inferring",
    "load_spec": "trueup.model.spec",
    "margins_by_size": "trueup.releasing.by_size",
    "made_up_truth": "trueup.assessing.truth",
    "measure": "trueup.measuring",
    "parse_spec": "trueup.model.spec",
    "plan": "trueup.planning.plan",
    "planned_spec": "trueup.planning.planned_spec",
    "propose_spec": "trueup.model.proposal",
    "read_measurements": "trueup.io.bundle.read",
    "read_perturbed": "trueup.io.published.perturbed",
    "read_release": "trueup.io.bundle.read",
    "reconcile": "trueup.reconciling",
    "release": "trueup.releasing.pipeline",
    "report": "trueup.reporting",
    "simulate": "trueup.measuring",
    "synthesize": "trueup.synth",
    "write_areas": "trueup.io.bundle.areas",
}
"""Where each public name lives; after a colon, what it is called there."""
_RENAMED = {"check_bundle": "check"}
"""Old names, which work for one release."""

__all__ = sorted(["__version__", "theory", *_HOMES])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        from trueup.model.verb import warn_old_form

        warn_old_form(f"trueup.{name}", f"trueup.{_RENAMED[name]}")
        name = _RENAMED[name]
    if name in _HOMES:
        home, _, called = _HOMES[name].partition(":")
        return getattr(import_module(home), called or name)
    if name == "theory":
        return import_module("trueup.theory")
    from trueup.errors import did_you_mean

    raise AttributeError(
        f"module 'trueup' has no attribute '{name}'; {did_you_mean(name, __all__)}".rstrip("; ")
    )


def __dir__() -> list[str]:
    return __all__
