"""Engines of a release: the whole in memory, or by parts."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.files.memory import CELL, PROCESS, memory_text
from trueup.files.values import OBJECT
from trueup.model.build import build_constraints, cells_of_sizes
from trueup.model.cells import Cells
from trueup.model.header import Measured
from trueup.model.problem import Problem
from trueup.model.spec import Spec
from trueup.model.tree import Tree
from trueup.reconciling import choose
from trueup.reconciling.method import Method

if TYPE_CHECKING:
    from trueup.reconciling.family_parts import FamilyPlan
    from trueup.reconciling.segments import SegmentPlan

ENGINES = ("memory", "local", "spark")
"""The whole problem in the memory of one process; by parts on this machine; by parts on Apache Spark."""
MEMORY_BYTES = 4_000_000_000
"""Bytes that a run may use, unless told otherwise."""


def refuse_unknown(engine: str) -> None:
    """Refuse an engine that does not exist."""
    if engine not in ENGINES:
        raise SpecError(f"there is no engine '{engine}'", needed=f"one of: {', '.join(ENGINES)}")


def default_engine(problem: Problem, memory: int) -> str:
    """Choose the engine from public sizes: in memory if it fits, by parts if it does not and can be divided.

    Examples
    --------
    >>> from trueup.demo.areas import AREAS_BY_SEX
    >>> from trueup.model.tree import Tree
    >>> problem = Problem.of(AREAS_BY_SEX, Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> default_engine(problem, 10**9), default_engine(problem, 100)
    ('memory', 'local')
    """
    if (needed := whole_bytes(problem.cells)) <= memory:
        return "memory"
    try:
        plan_of(problem)
    except SpecError as error:
        raise SpecError(
            f"the whole problem needs about {memory_text(needed)} of memory, and may use {memory_text(memory)}; by parts it "
            f"cannot be released: {error.given}",
            remedy="raise --memory, or give --engine memory to try all the same",
        ) from None
    return "local"


def whole_bytes(cells: Cells) -> int:
    """Return about how many bytes a problem needs in memory as a whole: its places, their keys and its cells."""
    return driver_bytes(cells.tree) + CELL * cells.n


PLACE = 100
"""Bytes of a place in the driver beside its keys."""
KEYS = 2
"""How often the driver holds the keys of all levels at once: as they were read, and in order."""


def driver_bytes(tree: Tree) -> int:
    """Return about how many bytes the driver needs at most: itself, the public places and their keys."""
    keys = sum(_key_bytes(column) for level in tree.keys for column in level.values())
    names = sum(_key_bytes(column) for column in tree.names if column is not None)
    return PROCESS + int(tree.sizes[-1] * (PLACE + KEYS * (keys + names)))


def _key_bytes(column: NDArray) -> float:
    """Return the mean bytes of one key of a column."""
    if column.dtype != object:
        return column.itemsize
    return OBJECT + sum(map(len, column.tolist())) / max(1, column.size)


def plan_of(problem: Problem) -> tuple[Method, SegmentPlan | FamilyPlan]:
    """Let the method divide the problem among parts of the places."""
    spec, headers = problem.spec, problem.headers
    if problem.cells.is_family and prod(problem.cells.shape[1:]) >= 2**31:
        raise SpecError(
            "a record lies in one of more than 2^31 cells of a place, more than are tabulated by parts",
            remedy="give --engine memory, or leave out attributes",
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


def divided(spec: Spec, headers: tuple[Measured, ...]) -> tuple[Method, SegmentPlan | FamilyPlan]:
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
