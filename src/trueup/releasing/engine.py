"""Choice of the engine of a release, and the run of a release in one part.

Of a run in memory nothing is kept until the bundle is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.files.memory import BYTES_PER_CELL, PROCESS_BYTES, memory_text
from trueup.files.source import frame_library
from trueup.files.values import BYTES_PER_PYTHON_TEXT
from trueup.io.bundle.write import write_measurements, write_release
from trueup.io.microdata.truncate import Limit
from trueup.measuring import draw, draw_left_out, limit_of, read_confidential
from trueup.measuring.fingerprint import fingerprinting
from trueup.model.build import build_constraints, cells_of_sizes
from trueup.model.cells import Cells
from trueup.model.header import Measured
from trueup.model.problem import Problem
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.spec import Spec
from trueup.model.tree import Tree
from trueup.reconciling import MAX_TRUE_COUNT, Prepared, choose, refuse_inexact
from trueup.reconciling.method import Method
from trueup.releasing import Log

if TYPE_CHECKING:
    from trueup.ledger.account import Account
    from trueup.ledger.request import Request
    from trueup.ledger.reservation import Reservation
    from trueup.reconciling.family_tree import FamilyPlan
    from trueup.reconciling.segments import SegmentPlan

MEMORY_BYTES = 4_000_000_000
"""Bytes that a run may use, unless told otherwise."""


def default_engine(problem: Problem, memory: int) -> str:
    """Choose the engine by public sizes: in memory if the whole problem fits, otherwise by parts.

    Examples
    --------
    >>> from trueup.demo import AREAS_BY_SEX
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
            f"the whole problem needs about {memory_text(needed)} of memory but may use {memory_text(memory)}, and it "
            f"cannot be released by parts: {error.given}",
            remedy="raise --memory, or give --engine memory to try anyway",
        ) from None
    return "local"


def whole_bytes(cells: Cells) -> int:
    """Return the approximate memory (bytes) for the whole problem in one part."""
    return driver_bytes(cells.tree) + BYTES_PER_CELL * cells.n


BYTES_PER_PLACE = 100
"""Bytes of a place in the driver beside its keys."""
KEY_COPIES = 2
"""Copies of all levels' keys that the driver holds at once: as they were read, and in order."""


def driver_bytes(tree: Tree) -> int:
    """Return the approximate memory (bytes) for the driver of a run by parts."""
    keys = sum(_key_bytes(column) for level in tree.keys for column in level.values())
    names = sum(_key_bytes(column) for column in tree.names if column is not None)
    return PROCESS_BYTES + int(tree.sizes[-1] * (BYTES_PER_PLACE + KEY_COPIES * (keys + names)))


def _key_bytes(column: NDArray) -> float:
    """Return the mean size (bytes) of the keys in a column."""
    if column.dtype != object:
        return column.itemsize
    return BYTES_PER_PYTHON_TEXT + sum(map(len, column.tolist())) / max(1, column.size)


def plan_of(problem: Problem) -> tuple[Method, SegmentPlan | FamilyPlan]:
    """Return the method, and the plan that all parts of the places share."""
    spec, headers = problem.spec, problem.headers
    if problem.cells.is_family and prod(problem.cells.shape[1:]) >= 2**31:
        raise SpecError(
            "one place has more than 2^31 combinations of attribute values, too many for a release by parts",
            remedy="give --engine memory, or leave out attributes",
        )
    if not spec.attributes:
        raise SpecError(
            "the spec declares no attribute, but a release by parts needs attributes",
            remedy="give --engine memory, which holds millions of places without attributes",
        )
    if conditional := next((i for i in spec.constraints.invariants if i.where), None):
        raise SpecError(
            f"an invariant of level '{conditional.level}' has a condition, which a release by parts cannot keep",
            remedy="give --engine memory, or declare the whole table an invariant",
            needed="invariants of whole tables",
        )
    if joint := next((h for h in headers if h.law.joint), None):
        raise SpecError(
            f"query '{joint.query}' has noise '{joint.law.name}', which is drawn for all places together, so that "
            "places cannot be measured by parts",
            remedy="give --engine memory, or use 'discrete-laplace' and let reconciliation keep the invariants",
        )
    return divided(spec, headers)


def divided(spec: Spec, headers: tuple[Measured, ...]) -> tuple[Method, SegmentPlan | FamilyPlan]:
    """Return the method that a spec names and its plan for all parts; refuse a method that cannot work by parts."""
    from trueup.reconciling.histogram_tree import HistogramTree  # it loads the kernels of histograms

    constraints = build_constraints(spec, cells_of_sizes(spec, [1] * len(spec.levels)))
    method = choose(spec.reconcile, constraints)
    if method.refuses_parts() and not spec.reconcile:
        method = HistogramTree(estimates="least-squares")
    if why := method.refuses_parts():
        raise SpecError(
            f"method '{method.name}' with these parameters cannot release by parts: {why}",
            needed=f"the method '{HistogramTree.name}' with whole numbers",
            remedy="name it under [reconcile], or give --engine memory",
        )
    return method, method.divide(constraints, headers)


@dataclass
class Whole:
    """A run in one part, which is kept in memory.

    Attributes
    ----------
    problem, data, out
        The problem, the confidential data, and the output folder.
    prepared
        The method, ready; None where the measurements alone are released.
    request
        The run's request to the ledger.
    log
        Timings of the run.
    """

    problem: Problem
    data: Any
    out: Path
    prepared: Prepared | None
    request: Request | None
    log: Log
    counts: NDArray | None = field(default=None, init=False)
    limit: Limit | None = field(default=None, init=False)
    measurements: Measurements | None = field(default=None, init=False)
    sealed: Mapping[str, Any] | None = field(default=None, init=False)

    @property
    def spec(self) -> Spec:
        """Return the spec that the run releases."""
        return self.problem.spec

    @property
    def spent(self) -> str:
        """Return the sentence, for errors after drawing has begun, that the privacy loss stays spent."""
        return "Noise was drawn: the loss stays spent, and what was drawn is gone."

    @contextmanager
    def held(self) -> Iterator[None]:
        """Do nothing, because no other process can reach a run that is kept in memory."""
        yield

    def published(self, account: Account | None) -> Release | Measurements | None:
        """Return the release that was made earlier under the key of the account; None if there is none."""
        if account and self.request and account.holds(self.request, self.out):
            from trueup.io.bundle.read import read_measurements, read_release

            return read_release(self.out) if self.prepared else read_measurements(self.out)
        return None

    def reserve(self, account: Account | None) -> Reservation | None:
        """Charge the privacy loss to the account."""
        return account.reserve(self.request) if account and self.request else None

    def read(self) -> None:
        """Read and check the confidential counts; draw nothing."""
        problem = self.problem
        with self.log.stage("reading the confidential counts"), fingerprinting(self.data) as found:
            self.limit = limit = limit_of(problem.spec)
            self.counts = read_confidential(
                problem.spec, problem.cells, self.data, limit, problem.constraints, problem.rows
            )
            if self.prepared:
                refuse_inexact(problem.cells.sum(self.counts, problem.cells.coarsest), MAX_TRUE_COUNT)
        self.log.notes |= {"engine": "memory", "workers": 1, "input": found.get()}
        self.log.notes |= {"contribution": asdict(limit)} if limit else {}

    def begin(self, reservation: Reservation | None) -> None:
        """Record that drawing begins, after which the loss stays spent."""
        if reservation:
            reservation.begin()

    def measure(self, target: Path) -> str:
        """Draw the noise and write the measurements; return the seal on the written files."""
        problem = self.problem
        assert self.counts is not None
        with self.log.stage("drawing exact noise"):
            drawn = draw(problem.cells, self.counts, problem.headers, problem.guarantee)
            drawn = replace(drawn, left_out=draw_left_out(problem.spec, self.limit))
            self.measurements, self.counts = drawn.of(problem, frame_library(self.data)), None
        with self.log.stage("writing the measurements"):
            self.sealed = write_measurements(target, problem.written(), self.measurements)
        return self.sealed["seal"]

    def settle(self, target: Path) -> tuple[Release | Measurements, Mapping[str, Any]]:
        """Reconcile the measurements and write the tables; return the release and its manifest entries."""
        assert self.measurements is not None
        assert self.sealed is not None
        if self.prepared is None:
            return self.measurements, self.sealed
        return settled(target, self.prepared, self.measurements, self.sealed, self.log)

    def finish(self) -> Release | Measurements | None:
        """Do nothing, because there is nothing to remove."""


def settled(
    target: Path, prepared: Prepared, measurements: Measurements, manifest: Mapping[str, Any], log: Log
) -> tuple[Release, Mapping[str, Any]]:
    """Reconcile in-memory measurements, write the released tables, and return the release with its manifest entries."""
    with log.stage("reconciling"):
        released = prepared.reconcile(measurements)
    with log.stage("simulating the errors to expect"):
        _ = released.expected
    with log.stage("writing the tables"):
        return released, {**manifest, **write_release(target, released)}
