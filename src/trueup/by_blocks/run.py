"""A release by blocks: measure every bundle, then up the tree, then down, then publish. Killed anywhere, it goes on.

    total      check the confidential counts, and sum them into the roots of every bundle     (lowest stage first)
    reserve    the privacy loss, in the ledger, once however often the run goes on
    measure    draw noise, all bundles at once; a committed part is never drawn again
    up         what a bundle's measurements and those below tell about its roots              (lowest stage first)
    down       settle below the settled roots, check, write tables                            (highest stage first)
    publish    a folder beside the target, then the ledger's commit and one rename

Up to `measure` the confidential counts are needed; what comes after is a function of the committed measurements and
of nothing else, its seed included. So a run that was killed ends with the integers of one that was not.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trueup.by_blocks.cut import Bundle
from trueup.by_blocks.folder import RunFolder
from trueup.by_blocks.publish import published_by, read_published, write_bundle
from trueup.by_blocks.start import Settings, begin, digest_of, plan_of, run_path
from trueup.by_blocks.tasks import Down, Measure, Task, Total, Up, Work
from trueup.errors import BudgetError, BundleError, DataError, InfeasibleError, SpecError
from trueup.io.bundle import guarantee_in
from trueup.io.geography import read_tree
from trueup.io.staging import replace_whole, staged
from trueup.io.table import COUNT
from trueup.io.tabulate import row_columns
from trueup.io.tabulate_blocks import tabulate_blocks
from trueup.ledger.account import Account
from trueup.ledger.ledger import Reservation
from trueup.measure.fingerprint import fingerprint
from trueup.model.build import build_cells
from trueup.model.by_blocks import ReleaseByBlocks
from trueup.model.spec import read_spec_text
from trueup.reconcile.on_segments import tie_seed
from trueup.run.executor import Executor

Watch = Callable[[str, int, int], None]
"""Hears what is being done, how many bundles of it are done, and how many there are."""


def quiet(what: str, done: int, of: int) -> None:
    """Hear nothing."""


def release_by_blocks(
    spec_path: str | Path,
    data: Any,
    out: str | Path,
    *,
    executor: Executor,
    geography: Any = None,
    account: Account | None = None,
    memory: int = Settings.memory,
    places: int | None = None,
    watch: Watch = quiet,
) -> ReleaseByBlocks:
    """Measure, reconcile and report in bundles of places; the folder `out` appears whole or not at all.

    Parameters
    ----------
    spec_path, data, out, geography, account
        As for `workflow.release`.
    executor
        Carries out the bundles' tasks; all its workers see the folder beside `out`.
    memory
        Bytes for all workers together.
    places
        Places that are worked on together at most; by default what the memory allows.
    watch
        Hears how far the run is.

    Returns
    -------
    ReleaseByBlocks
        What was released and how; the tables are in the folder.

    Raises
    ------
    TrueupError
        Before any noise is drawn where spec, places, method, data or budget are at fault. After that, whatever
        stops the run, `resume` goes on with it.
    """
    out = Path(out)
    folder = begin(spec_path, data, out, geography, account, Settings(memory, executor.workers, places))
    if folder is None:
        return read_published(out)
    try:
        return _carry_on(folder, data, account, executor, watch)
    except (DataError, InfeasibleError, SpecError):
        if not folder.measured.names():  # nothing was drawn, and what is at fault is not the run
            shutil.rmtree(folder.path, ignore_errors=True)
        raise


def resume(
    folder: str | Path,
    *,
    executor: Executor,
    spec_path: str | Path | None = None,
    data: Any = None,
    geography: Any = None,
    out: str | Path | None = None,
    account: Account | None = None,
    watch: Watch = quiet,
) -> ReleaseByBlocks:
    """Go on with a run that was interrupted.

    Parameters
    ----------
    folder
        The run folder, `OUT.run`.
    spec_path, data, geography, out
        Need not be given again; where they are, they must be those that the run began with. The data are read only if
        not all bundles are measured.
    account
        The ledger that the run was charged to.

    Raises
    ------
    TrueupError
        If something differs from what the run began with, or another process works on it.
    """
    run = RunFolder(Path(folder).absolute())  # workers may stand elsewhere
    _refuse_changes(run, spec_path, geography, out, account)
    if account:
        account.ledger.recover()
    if data is not None and run.counts.folder.exists():
        _refuse_other_data(run, data)
    return _carry_on(run, run.plan["data"] if data is None else data, account, executor, watch)


@dataclass
class _Log:
    """What a run took, by what was done: internal, since it depends on the data."""

    watch: Watch
    entries: list[dict[str, Any]] = field(default_factory=list)

    def map(self, what: str, task: Task, bundles: list[Bundle], executor: Executor) -> None:
        """Carry out a task on the bundles for which it was not done before, and take note."""
        folder = RunFolder(task.path)
        left = [b for b in bundles if not task.done(folder, b)]
        start, done, before = time.perf_counter(), [], len(bundles) - len(left)
        self.watch(what, before, len(bundles))
        for _, work in executor.map(task, left):
            done.append(work)
            self.watch(what, before + len(done), len(bundles))
        self.note(what, time.perf_counter() - start, done)

    def note(self, what: str, seconds: float, done: Iterable[Work] = ()) -> None:
        """Write down what was done."""
        done = list(done)
        self.entries.append(
            {
                "what": what,
                "bundles": len(done),
                "seconds": seconds,
                "worker seconds": sum(w.seconds for w in done),
                "core seconds": sum(w.core_seconds for w in done),
                "peak bytes": max((w.peak for w in done), default=0),
            }
        )


def _carry_on(
    folder: RunFolder, data: Any, account: Account | None, executor: Executor, watch: Watch
) -> ReleaseByBlocks:
    with folder.held():
        if (done := published_by(folder)) is None:
            done = _all_stages(folder, data, account, executor, _Log(watch))
        shutil.rmtree(folder.path)
        return done


def _all_stages(
    folder: RunFolder, data: Any, account: Account | None, executor: Executor, log: _Log
) -> ReleaseByBlocks:
    stages = folder.cut.bundles
    unmeasured = [b for bundles in stages for b in bundles if folder.measured.find(str(b)) is None]
    if unmeasured:
        _tabulate(folder, data, executor, log)
        for bundles in reversed(stages):
            log.map(f"checking {_level(folder, bundles)}", Total(folder.path), bundles, executor)
    reservation = _reserved(folder, account)
    if unmeasured:
        log.map("measuring", Measure(folder.path), unmeasured, executor)
    digest = measurements_digest(folder)
    plan = plan_of(folder.spec, folder.headers)
    for bundles in stages[:0:-1]:
        log.map(f"up to {_level(folder, bundles)}", Up(folder.path, plan), bundles, executor)
    seed = int(tie_seed(np.random.default_rng(int(digest, 16))))
    for bundles in stages:
        log.map(f"down from {_level(folder, bundles)}", Down(folder.path, plan, seed), bundles, executor)
    return _publish(folder, digest, reservation, executor, log)


def _level(folder: RunFolder, bundles: list[Bundle]) -> str:
    return folder.spec.levels[folder.cut.stages[bundles[0].stage].top].name


def _tabulate(folder: RunFolder, data: Any, executor: Executor, log: _Log) -> None:
    """Tabulate the confidential table by bundle, unless that was done."""
    if folder.counts.folder.exists():
        return
    if data is None:
        raise DataError(
            "the run has not read all its data yet", needed="the confidential table", remedy="give --data"
        )
    start = time.perf_counter()
    log.watch("tabulating", 0, 1)
    _refuse_other_data(folder, data)
    with _grouped(folder, data, executor) as (source, rows):
        tabulate_blocks(
            folder.spec,
            build_cells(folder.spec, folder.tree()),
            source,
            folder.counts.folder,
            folder.cut.bundle_of_leaf(),
            memory=f"{folder.plan['memory'] // 2_000_000}MB",
            threads=folder.plan["workers"],
            rows=rows,
        )
    log.watch("tabulating", 1, 1)
    log.note("tabulating", time.perf_counter() - start)


@contextmanager
def _grouped(folder: RunFolder, data: Any, executor: Executor) -> Iterator[tuple[Any, str | None]]:
    """Records whose equal rows the engine has counted where they live, if it can; else the data themselves."""
    target = folder.confidential / "grouped"
    shutil.rmtree(target, ignore_errors=True)  # of an attempt that was killed
    columns = row_columns(folder.spec)
    try:
        if folder.spec.table.kind == "records" and executor.grouped(data, columns, COUNT, target):
            yield target, COUNT
        else:
            yield data, None
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _refuse_other_data(folder: RunFolder, data: Any) -> None:
    """Keep a keyed fingerprint of the data with the run; refuse data with another one."""
    path = folder.confidential / "fingerprint"
    key = bytes.fromhex((folder.confidential / "key").read_text())
    found = fingerprint(data, key)
    if found is None:
        return
    if not path.exists():
        replace_whole(path, found["hmac-sha256"])
    elif path.read_text() != found["hmac-sha256"]:
        raise DataError(
            "the data are not those that the run began with", remedy="give the same file, or start a new run"
        )


def _reserved(folder: RunFolder, account: Account | None) -> Reservation | None:
    """Take the privacy loss out of the budget, unless an earlier attempt of this run has done so."""
    if account is None:
        return None
    guarantee = guarantee_in(folder.plan["guarantee"])
    reservation = account.reserve(folder.spec.table.name, guarantee, name=folder.plan["run"])
    if done := reservation.committed:
        raise BudgetError(
            f"the run was released before, to '{done.final}'; a second draw would not be paid for",
            remedy=f"use that release, and remove '{folder.path}'",
        )
    return reservation


def measurements_digest(folder: RunFolder) -> str:
    """SHA-256 over the digests of all parts of the measurements: the seed of everything after them."""
    whole = hashlib.sha256()
    for bundle in (b for bundles in folder.cut.bundles for b in bundles):
        whole.update(f"{bundle} {folder.measured.part(str(bundle)).digest}\n".encode())
    return whole.hexdigest()


def _publish(
    folder: RunFolder, digest: str, reservation: Reservation | None, executor: Executor, log: _Log
) -> ReleaseByBlocks:
    out = Path(folder.plan["out"])
    log.watch("publishing", 0, 1)
    stamp = dict(reservation.stamp) if reservation else None
    with staged(out) as target:
        settings = {"engine": executor.name, "workers": executor.workers, "memory": folder.plan["memory"]}
        write_bundle(folder, target, digest, stamp, {**settings, "stages": log.entries})
        if reservation:
            reservation.commit(target, out)
    log.watch("publishing", 1, 1)
    done = published_by(folder)
    assert done is not None, "what was published stands in place"
    return done


def _refuse_changes(
    folder: RunFolder,
    spec_path: str | Path | None,
    geography: Any,
    out: str | Path | None,
    account: Account | None,
) -> None:
    plan, home = folder.plan, run_path(Path(folder.plan["out"]))
    if not (home.exists() and home.samefile(folder.path)):
        raise BundleError(
            f"'{folder.path}' is a copy, or was moved: its run began in '{home}'",
            needed="the folder that the run began in; from a copy noise would be drawn a second time",
            remedy="give that folder, or move this one back if it is the only one",
        )
    if hashlib.sha256(folder.spec_text.encode()).hexdigest() != plan["spec"]:
        raise BundleError(f"the spec in '{folder.path}' was altered", remedy="restore it")
    if spec_path is not None and read_spec_text(spec_path) != folder.spec_text:
        raise SpecError(
            "the spec is not the one that the run began with", remedy="give the same spec, or start a new run"
        )
    if geography is not None and digest_of(read_tree(folder.spec, geography)) != plan["places"]:
        raise DataError(
            "the places are not those that the run began with",
            remedy="give the same file, or start a new run",
        )
    if out is not None and str(Path(out).absolute()) != plan["out"]:
        raise BundleError(f"the run goes to '{plan['out']}'", remedy="give that folder as --out, or none")
    if plan["charged"] != (account is not None):
        was = "was charged to a ledger" if plan["charged"] else "began without a ledger"
        raise BudgetError(f"the run {was}", remedy="give --ledger and --analyst as before")
