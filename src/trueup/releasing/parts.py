"""Releases by parts: every part is measured, then the tree is passed upward and downward; a run can be resumed anytime.

    total      check the confidential counts, and sum them into the roots of every part       (lowest layer first)
    measure    draw noise, all parts at once; a committed part is never drawn again
    seal       the digest of all measurements, after which nothing is drawn
    up         what a part's measurements and those below tell about its roots                (lowest layer first)
    down       settle below the settled roots, check, write tables                            (highest layer first)

Up to the seal the confidential counts are needed, and after it they are gone; what comes then is a function of the
measurements and of nothing else, its seed included. So a run that was killed ends with the integers of one that was not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from trueup.errors import BudgetError, BundleError, ResourceError
from trueup.files.owner import owning
from trueup.files.target import refuse_occupied
from trueup.io.bundle.manifest import (
    MANIFEST,
    guarantee_in,
    margin_out,
    measured_file,
    public_files,
    read_manifest,
    slug,
)
from trueup.io.bundle.read import StoredRelease
from trueup.io.bundle.write import NOTE, begin_bundle, describe_measured, sealed
from trueup.ledger.account import Account
from trueup.ledger.request import read_request
from trueup.ledger.reservation import Reservation
from trueup.model.build import cells_of_sizes
from trueup.model.cells import Margin
from trueup.model.records.release import Miss, Release
from trueup.model.spec import Spec
from trueup.reconciling.histogram_parts import tie_seed
from trueup.releasing import Log
from trueup.releasing.data import check_data, notes_on_data
from trueup.releasing.engine import divided
from trueup.releasing.errors_of_parts import errors_of_parts
from trueup.releasing.run_folder import RunFolder
from trueup.releasing.start import cut_anew
from trueup.releasing.tasks import CHECKS, Down, Measure, Up
from trueup.run import Executor
from trueup.run.parts import Parts


@dataclass(frozen=True)
class ByParts:
    """A run of many parts, kept in a folder beside the output folder.

    Attributes
    ----------
    folder
        The run folder.
    data
        The confidential table; it is read where it was not read yet.
    executor
        Carries out the parts' tasks; all its workers see the folder.
    log
        Timings of the run.
    take_over
        True if a user states that a process of the run that no longer reports has ended.
    """

    folder: RunFolder
    data: Any
    executor: Executor
    log: Log
    take_over: bool = False

    @property
    def out(self) -> Path:
        """Return the output path of the run."""
        return Path(self.folder.plan["out"])

    @property
    def spent(self) -> str:
        """Return the sentence, for errors after drawing has begun, that the loss stays spent and how to resume."""
        return "Noise was drawn: the loss stays spent, and the run goes on from its folder."

    @property
    def spec(self) -> Spec:
        """Return the spec that the run releases."""
        return self.folder.spec

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from the run folder for the duration of a block."""
        with owning(self.folder.path, take_over=self.take_over) as owner:
            self.log.before = owner.refuse_followed
            self.log.go_on(self.folder.path / "log.jsonl")
            yield

    def published(self, account: Account | None) -> StoredRelease | None:
        """Return the release that the run has already written, or None."""
        if (self.out / MANIFEST).is_file():
            manifest = read_manifest(self.out)
            if manifest.get("run") == self.folder.plan["run"]:
                return StoredRelease(self.out, manifest)
        try:
            refuse_occupied(self.out)
        except BundleError as error:
            raise BundleError(
                error.given,
                needed=error.needed,
                remedy="move away what is at the target, then continue with --resume; a run keeps its target",
            ) from None
        return None

    def reserve(self, account: Account | None) -> Reservation | None:
        """Charge the privacy loss to the account, unless an earlier attempt has done so."""
        if account is None:
            return None
        try:
            reservation = account.reserve(
                read_request(self.folder.plan["request"]), name=self.folder.plan["run"]
            )
        except BudgetError:
            if not self.folder.tabulated and not self.folder.draws.begun:
                self.folder.remove()  # nothing was read: a run that is granted begins anew
            raise
        if done := reservation.committed:
            raise BudgetError(
                f"the run is already released to '{done.final}', and the budget does not cover a second draw",
                remedy=f"use that release, and remove '{self.folder.path}'",
            )
        return reservation

    def read(self) -> None:
        """Read and check the confidential counts, unless an earlier attempt has done so."""
        if not self.folder.draws.begun:
            cut_anew(self.folder, self.executor)
        if not self.folder.draws.complete:
            check_data(self.folder, self.data, self.executor, self.log)

    def begin(self, reservation: Reservation | None) -> None:
        """Record that drawing begins; refuse a folder that is an older copy of the run."""
        older = ""
        if reservation and reservation.drawn and not self.folder.draws.begun:
            older = "noise was drawn for this run, but the run's folder is an older copy without it"
        elif reservation and reservation.sealed and not self.folder.draws.is_sealed:
            older = "all measurements of this run were drawn, but the run's folder has no record of them"
        if older:
            raise BudgetError(
                f"the ledger records that {older}",
                needed="the latest copy of the run's folder; the budget does not cover a second draw",
                remedy=f"restore that copy, or remove '{self.folder.path}' and begin a new run with its own charge",
            )
        if reservation:
            reservation.begin()
        self.folder.draws.begin()

    def measure(self, target: Path) -> str:
        """Draw the noise of every part not drawn yet, and then remove the confidential counts."""
        draws = self.folder.draws
        if not draws.is_sealed:
            self.log.map(
                "measuring",
                Measure(self.folder.path),
                self.folder,
                self.folder.all_parts,
                self.executor,
                lambda part: draws.note(str(part)),
            )
        seal = draws.seal()
        self.folder.forget_counts()
        return seal

    def settle(self, target: Path) -> tuple[Release, Mapping[str, Any]]:
        """Reconcile all parts up and down the tree, and link the tables into the bundle; return the manifest entries."""
        folder, layers = self.folder, self.folder.cut.parts
        method, plan = divided(folder.spec, folder.headers)
        for parts in layers[:0:-1]:
            self.log.map(f"up to {folder.top_of(parts)}", Up(folder.path, plan), folder, parts, self.executor)
        seed = int(tie_seed(np.random.default_rng(int(folder.seal, 16))))
        for parts in layers:
            task = Down(folder.path, plan, seed)
            self.log.map(f"down from {folder.top_of(parts)}", task, folder, parts, self.executor)
        self.log.notes |= {
            "engine": self.executor.name,
            "workers": self.executor.workers,
            "memory": folder.plan["memory"],
            **notes_on_data(folder),
        }
        with self.log.stage("linking the tables"):
            manifest = self._link(target)
        # Digests come with the manifest, once the report is written.
        listed = {"files": dict.fromkeys(public_files(target), "")}
        with self.log.stage("simulating the errors to expect"):
            expected = errors_of_parts(folder, method, StoredRelease(target, manifest | listed))
        manifest |= {"expected errors": expected.written()}
        return StoredRelease(target, manifest | listed), manifest

    def _link(self, target: Path) -> dict[str, Any]:
        """Add the files of all parts to the bundle as hard links."""
        folder, manifest = self.folder, self._manifest()
        public = begin_bundle(target, folder.spec_text)
        link_part(folder.places, "all", public / "places.parquet")
        for part in folder.all_parts:
            link_part(folder.measured, str(part), public / measured_file(str(part)))
        for part in folder.all_parts:
            for number, _ in folder.released_by(part.layer):
                file = manifest["counts"][int(number)]["files"].replace("*", str(part))
                link_part(folder.tables, f"{number}-{part}", public / file)
        return manifest

    def _manifest(self) -> dict[str, Any]:
        folder, plan = self.folder, self.folder.plan
        names = [level.name for level in folder.spec.levels]
        cells = cells_of_sizes(folder.spec, plan["sizes"])
        return {
            **describe_measured(
                folder.spec_text,
                dict(zip(names, plan["sizes"])),
                cells.n // plan["sizes"][-1],
                folder.headers,
                guarantee_in(plan["guarantee"]),
            ),
            **sealed(folder.draws.parts),
            "measurements": folder.seal,
            "kind": "release",
            "run": plan["run"],
            "method": plan["method"],
            "checks": dict.fromkeys(CHECKS, True),  # a part that breaks one ends the run
            "stats": _worst(report["stats"] for report in self._reports),
            "misses": [asdict(miss) for miss in _misses(m for r in self._reports for m in r["misses"])],
            "counts": [
                {
                    "files": f"counts/{slug(m if cells.is_family else Margin(m.level))}/part-*.parquet",
                    **margin_out(m),
                }
                for m in folder.released
            ],
            "not listed": NOTE,
        }

    @cached_property
    def _reports(self) -> list[dict[str, Any]]:
        held = (self.folder.settled.path(f"report-{part}") for part in self.folder.all_parts)
        return [json.loads(path.read_text()) for path in held]

    def finish(self) -> StoredRelease:
        """Remove the run folder once the release is complete."""
        out = self.out
        self.folder.remove()
        return StoredRelease(out, read_manifest(out))


def link_part(parts: Parts, name: str, target: Path) -> None:
    """Add the file of a part to a bundle as a hard link.

    Raises
    ------
    BundleError
        If it is not the one that was committed, or the disk refuses.
    """
    source = parts.path(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
        target.chmod(0o644)
    except OSError as error:
        raise ResourceError(
            f"cannot link '{target.name}': {error.strerror}",
            remedy="free space on that disk, or get permission to write in the folder of the output",
        ) from None


def _worst(stats: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the largest value of each statistic over all parts."""
    found: dict[str, float] = {}
    for part in stats:
        found = {key: max(value, found.get(key, value)) for key, value in part.items()}
    return found


def _misses(parts: Iterable[Mapping[str, Any]]) -> list[Miss]:
    """Return the root mean square adjustment for each query and level, given the sums of squares of all parts."""
    sums: dict[tuple[str, str], tuple[int, float]] = {}
    for part in parts:
        counts, squares = sums.get((part["query"], part["level"]), (0, 0.0))
        sums[part["query"], part["level"]] = counts + part["counts"], squares + part["squares"]
    return [Miss(query, level, n, (squares / n) ** 0.5) for (query, level), (n, squares) in sums.items()]
