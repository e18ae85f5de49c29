"""Method of a reconciliation by parts, and the plan that all parts share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trueup.errors import SpecError
from trueup.model.build import build_constraints, cells_of_sizes
from trueup.model.header import Measured
from trueup.model.problem import Problem
from trueup.model.spec import Spec
from trueup.reconciling import choose
from trueup.reconciling.method import Method

if TYPE_CHECKING:
    from trueup.reconciling.segments import SegmentPlan


def plan_of(problem: Problem) -> tuple[Method, SegmentPlan]:
    """Let the method divide the problem among parts of the places."""
    spec, headers = problem.spec, problem.headers
    if problem.cells.is_family:
        raise SpecError(
            "a family of tables is released in memory",
            remedy="give --engine memory: only the cells of its tables are held",
        )
    if not spec.attributes:
        raise SpecError(
            "the spec declares no attribute, and places are reconciled by parts as histograms over attributes",
            remedy="give --engine memory: without attributes it holds millions of places",
        )
    if conditional := next((i for i in spec.constraints.invariants if i.where), None):
        raise SpecError(
            f"an invariant of level '{conditional.level}' counts the units alone that meet a condition, and places are "
            "reconciled by parts as whole histograms",
            remedy="give --engine memory, or declare the whole table an invariant",
        )
    if joint := next((h for h in headers if h.law.joint), None):
        raise SpecError(
            f"query '{joint.query}' has noise '{joint.law.name}', which is drawn for all places together, and places are "
            "measured by parts",
            remedy="give --engine memory, or use 'discrete-laplace' and leave the invariants to reconciliation",
        )
    return divided(spec, headers)


def divided(spec: Spec, headers: tuple[Measured, ...]) -> tuple[Method, SegmentPlan]:
    """Return the method and the plan that all parts share, which knows levels but no places."""
    from trueup.reconciling.histogram_tree import HistogramTree  # it loads the kernels of histograms

    constraints = build_constraints(spec, cells_of_sizes(spec, [1] * len(spec.levels)))
    method = choose(spec.reconcile, constraints)
    if method.refuses_parts() and not spec.reconcile:
        method = HistogramTree(estimates="least-squares")
    if why := method.refuses_parts():
        raise SpecError(
            f"the method '{method.name}' with these parameters does not work by parts: {why}",
            needed=f"the method '{HistogramTree.name}' with whole numbers",
            remedy="name it under [reconcile], or give --engine memory",
        )
    return method, method.divide(constraints, headers)
