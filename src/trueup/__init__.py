"""Differentially private counts that add up: measure, reconcile, infer, assess, report.

Names are loaded when first used: importing trueup loads nothing but its own names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trueup.version import __version__ as __version__

if TYPE_CHECKING:  # what editors and type checkers read; nothing of it is loaded
    from trueup import arrays as arrays
    from trueup import theory as theory
    from trueup.assessing import assess as assess
    from trueup.assessing.truth import made_up_truth as made_up_truth
    from trueup.checking.bundle import check as check
    from trueup.errors import TrueupError as TrueupError
    from trueup.files.source import JoinedTables as JoinedTables
    from trueup.inferring import infer as infer
    from trueup.inferring.questions import ask as ask
    from trueup.io.bundle.areas import write_areas as write_areas
    from trueup.io.bundle.kept_posterior import read_posterior as read_posterior
    from trueup.io.bundle.read import read_measurements as read_measurements
    from trueup.io.bundle.read import read_release as read_release
    from trueup.io.export import export as export
    from trueup.io.microdata.tabulate import read_released as read_released
    from trueup.io.published.perturbed import read_perturbed as read_perturbed
    from trueup.measuring import measure as measure
    from trueup.measuring import simulate as simulate
    from trueup.model.cells import Attribute as Attribute
    from trueup.model.cells import Cells as Cells
    from trueup.model.cells import Margin as Margin
    from trueup.model.constraints import Constraints as Constraints
    from trueup.model.header import Measured as Measured
    from trueup.model.problem import Problem as Problem
    from trueup.model.proposal import propose_spec as propose_spec
    from trueup.model.records.answer import CountChanges as CountChanges
    from trueup.model.records.answer import PosteriorAnswer as PosteriorAnswer
    from trueup.model.records.assessment import Assessment as Assessment
    from trueup.model.records.measurements import Measurements as Measurements
    from trueup.model.records.posterior import Posterior as Posterior
    from trueup.model.records.release import Release as Release
    from trueup.model.records.release import ReleasedCounts as ReleasedCounts
    from trueup.model.spec import Spec as Spec
    from trueup.model.spec import load_spec as load_spec
    from trueup.model.spec import parse_spec as parse_spec
    from trueup.model.tree import Tree as Tree
    from trueup.planning.allocation import planned_spec as planned_spec
    from trueup.planning.meeting import Planner as Planner
    from trueup.planning.plan import plan as plan
    from trueup.reconciling import reconcile as reconcile
    from trueup.releasing.by_size import MarginsBySize as MarginsBySize
    from trueup.releasing.by_size import margins_by_size as margins_by_size
    from trueup.releasing.changing import changes as changes
    from trueup.releasing.explain import explain as explain
    from trueup.releasing.pipeline import release as release
    from trueup.reporting import report as report
    from trueup.synth import synthesize as synthesize

_HOMES = {
    "Assessment": "trueup.model.records.assessment",
    "Attribute": "trueup.model.cells",
    "Cells": "trueup.model.cells",
    "Constraints": "trueup.model.constraints",
    "CountChanges": "trueup.model.records.answer",
    "JoinedTables": "trueup.files.source",
    "Margin": "trueup.model.cells",
    "Measured": "trueup.model.header",
    "MarginsBySize": "trueup.releasing.by_size",
    "Measurements": "trueup.model.records.measurements",
    "Planner": "trueup.planning.meeting",
    "Posterior": "trueup.model.records.posterior",
    "PosteriorAnswer": "trueup.model.records.answer",
    "Problem": "trueup.model.problem",
    "Release": "trueup.model.records.release",
    "ReleasedCounts": "trueup.model.records.release",
    "Spec": "trueup.model.spec",
    "Tree": "trueup.model.tree",
    "TrueupError": "trueup.errors",
    "ask": "trueup.inferring.questions",
    "assess": "trueup.assessing",
    "changes": "trueup.releasing.changing",
    "check": "trueup.checking.bundle",
    "explain": "trueup.releasing.explain",
    "export": "trueup.io.export",
    "infer": "trueup.inferring",
    "load_spec": "trueup.model.spec",
    "margins_by_size": "trueup.releasing.by_size",
    "made_up_truth": "trueup.assessing.truth",
    "measure": "trueup.measuring",
    "parse_spec": "trueup.model.spec",
    "plan": "trueup.planning.plan",
    "planned_spec": "trueup.planning.allocation",
    "propose_spec": "trueup.model.proposal",
    "read_measurements": "trueup.io.bundle.read",
    "read_perturbed": "trueup.io.published.perturbed",
    "read_posterior": "trueup.io.bundle.kept_posterior",
    "read_release": "trueup.io.bundle.read",
    "read_released": "trueup.io.microdata.tabulate",
    "reconcile": "trueup.reconciling",
    "release": "trueup.releasing.pipeline",
    "report": "trueup.reporting",
    "simulate": "trueup.measuring",
    "synthesize": "trueup.synth",
    "write_areas": "trueup.io.bundle.areas",
}
"""Module of each public name."""

__all__ = sorted(["__version__", "arrays", "theory", *_HOMES])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in ("arrays", "theory"):
        return import_module(f"trueup.{name}")
    from trueup.errors import did_you_mean

    raise AttributeError(
        f"module 'trueup' has no attribute '{name}'; {did_you_mean(name, __all__)}".rstrip("; ")
    )


def __dir__() -> list[str]:
    return __all__
