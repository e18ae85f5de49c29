"""A release by blocks: measure every bundle, then up the tree, then down, then publish. Killed anywhere, it goes on.

    reserve    the privacy loss and all that the run finds out exactly, once however often it goes on
    total      check the confidential counts, and sum them into the roots of every bundle     (lowest stage first)
    begin      record in the ledger that drawing begins; what ends before it gives the loss back
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
from pathlib import Path
from typing import Any

import numpy as np

from trueup.errors import BudgetError
from trueup.files.staging import claimed, staged, to_disk
from trueup.io.bundle.read import read_published
from trueup.ledger.account import Account
from trueup.ledger.request import read_request
from trueup.ledger.reservation import Reservation
from trueup.model.problem import Problem
from trueup.model.records.release_by_parts import ReleaseByBlocks
from trueup.reconciling.histogram_parts import tie_seed
from trueup.releasing.data import check_data, contribution_note, refuse_other_data
from trueup.releasing.log import Log, Watch, quiet
from trueup.releasing.publish import published_by, write_bundle
from trueup.releasing.resume import refuse_changes, refuse_taken_run, same_account
from trueup.releasing.run_folder import RunFolder
from trueup.releasing.start import Settings, begin, plan_of
from trueup.releasing.tasks import Down, Measure, Up
from trueup.run.executor import Executor


def release_by_blocks(
    spec_path: str | Path | Problem,
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
        As for `trueup.release`.
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
    return _carry_on(folder, data, account, executor, watch)


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
    refuse_changes(run, spec_path, geography, out)
    if account := same_account(run, account):
        account.ledger.recover()
    if data is not None and run.tabulated:
        refuse_other_data(run, data)
    return _carry_on(run, run.plan["data"] if data is None else data, account, executor, watch)


def _carry_on(
    folder: RunFolder, data: Any, account: Account | None, executor: Executor, watch: Watch
) -> ReleaseByBlocks:
    with folder.held(), claimed(Path(folder.plan["out"])):
        if (done := published_by(folder)) is None:
            refuse_taken_run(folder)
            done = _all_stages(folder, data, account, executor, Log(watch))
        shutil.rmtree(folder.path)
        return done


def _all_stages(
    folder: RunFolder, data: Any, account: Account | None, executor: Executor, log: Log
) -> ReleaseByBlocks:
    stages = folder.cut.bundles
    reservation = _checked(folder, data, account, executor, log)
    log.map("measuring", Measure(folder.path), [b for bundles in stages for b in bundles], executor)
    digest = measurements_digest(folder)
    plan = plan_of(folder.spec, folder.headers)
    for bundles in stages[:0:-1]:
        log.map(f"up to {folder.top_of(bundles)}", Up(folder.path, plan), bundles, executor)
    seed = int(tie_seed(np.random.default_rng(int(digest, 16))))
    for bundles in stages:
        log.map(f"down from {folder.top_of(bundles)}", Down(folder.path, plan, seed), bundles, executor)
    return _publish(folder, digest, reservation, executor, log)


def _checked(
    folder: RunFolder, data: Any, account: Account | None, executor: Executor, log: Log
) -> Reservation | None:
    """Reserve, then read and check the confidential table, then record that drawing begins."""
    if account is None:
        check_data(folder, data, executor, log)
        return None
    reservation = _reserved(folder, account)
    with reservation.returning():
        check_data(folder, data, executor, log)
        _refuse_older(folder, reservation)
        reservation.begin()
    return reservation


def _refuse_older(folder: RunFolder, reservation: Reservation) -> None:
    """Refuse a run folder from before noise was drawn under its reservation: it would be drawn a second time."""
    mark = folder.path / "drawing"
    if reservation.drawn and not mark.exists():
        raise BudgetError(
            "the ledger knows that noise was drawn for this run, and the run's folder is from before that",
            needed="the folder as the run left it; a second draw would not be paid for",
            remedy=f"put that folder back, or remove '{folder.path}' and begin a run that is charged anew",
        )
    mark.touch()
    to_disk(folder.path)


def _reserved(folder: RunFolder, account: Account) -> Reservation:
    """Take the privacy loss out of the budget, unless an earlier attempt of this run has done so."""
    try:
        reservation = account.reserve(read_request(folder.plan["request"]), name=folder.plan["run"])
    except BudgetError:
        if not folder.tabulated:
            shutil.rmtree(folder.path)  # nothing was read: a run that is granted begins anew
        raise
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
    folder: RunFolder, digest: str, reservation: Reservation | None, executor: Executor, log: Log
) -> ReleaseByBlocks:
    out = Path(folder.plan["out"])
    log.watch("publishing", 0, 1)
    stamp = dict(reservation.stamp) if reservation else None
    with staged(out) as target:
        settings = {"engine": executor.name, "workers": executor.workers, "memory": folder.plan["memory"]}
        write_bundle(
            folder, target, digest, stamp, {**settings, **contribution_note(folder), "stages": log.entries}
        )
        if reservation:
            reservation.commit(target, out)
    log.watch("publishing", 1, 1)
    done = published_by(folder)
    assert done is not None, "what was published stands in place"
    return done
