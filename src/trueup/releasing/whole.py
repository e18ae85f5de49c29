"""Runs of one part in this process's memory; nothing is kept until the bundle is whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from trueup.files.source import frame_library
from trueup.io.bundle.read import read_measurements, read_release
from trueup.io.bundle.write import write_measurements, write_release
from trueup.io.microdata.truncate import Limit
from trueup.measuring import draw, draw_left_out, limit_of, read_confidential
from trueup.measuring.fingerprint import fingerprinting
from trueup.model.problem import Problem
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.spec import Spec
from trueup.reconciling import BEFORE_NOISE, Prepared, refuse_inexact
from trueup.releasing import Log

if TYPE_CHECKING:
    from trueup.ledger.account import Account
    from trueup.ledger.request import Request
    from trueup.ledger.reservation import Reservation


@dataclass
class Whole:
    """A run of one part.

    Attributes
    ----------
    problem, data, out
        What is released, from what, and where to.
    prepared
        The method, ready; None where the measurements alone are released.
    request
        What the run asks of the ledger.
    log
        What the run took.
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
        """Return the spec."""
        return self.problem.spec

    @property
    def spent(self) -> str:
        """Return what is said of the loss if the run ends after it began to draw."""
        return "Noise was drawn: the loss stays spent, and what was drawn is gone."

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold nothing: nobody else can reach what is in memory."""
        yield

    def published(self, account: Account | None) -> Release | Measurements | None:
        """Return what was committed under the account's key, which is not drawn again."""
        if account and self.request and account.holds(self.request, self.out):
            return read_release(self.out) if self.prepared else read_measurements(self.out)
        return None

    def reserve(self, account: Account | None) -> Reservation | None:
        """Take the privacy loss out of the budget."""
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
                refuse_inexact(problem.cells.sum(self.counts, problem.cells.coarsest), BEFORE_NOISE)
        self.log.notes |= {"engine": "memory", "workers": 1, "input": found.get()}
        self.log.notes |= {"contribution": asdict(limit)} if limit else {}

    def begin(self, reservation: Reservation | None) -> None:
        """Record that drawing begins."""
        if reservation:
            reservation.begin()

    def measure(self, target: Path) -> str:
        """Draw the noise, write the measurements and seal them, and release the counts."""
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
        """Reconcile and write the tables; return the record and its manifest entries."""
        assert self.measurements is not None
        assert self.sealed is not None
        if self.prepared is None:
            return self.measurements, self.sealed
        return settled(target, self.prepared, self.measurements, self.sealed, self.log)

    def finish(self) -> Release | Measurements | None:
        """Do nothing: nothing is left to remove."""


def settled(
    target: Path, prepared: Prepared, measurements: Measurements, manifest: Mapping[str, Any], log: Log
) -> tuple[Release, Mapping[str, Any]]:
    """Reconcile in-memory measurements and write the released tables."""
    with log.stage("reconciling"):
        released = prepared.reconcile(measurements)
    with log.stage("simulating the errors to expect"):
        _ = released.expected
    with log.stage("writing the tables"):
        return released, {**manifest, **write_release(target, released)}
