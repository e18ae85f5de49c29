"""Start of a run by parts: all public information is written before confidential counts are read."""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trueup.errors import BundleError, SpecError
from trueup.files import address_of
from trueup.files.memory import PROCESS_BYTES, memory_text
from trueup.files.owner import owning, refuse_owned
from trueup.files.target import is_own, refuse_occupied, refuse_strange
from trueup.files.writing import writing
from trueup.io.bundle.manifest import guarantee_out, header_out
from trueup.io.bundle.places import write_places
from trueup.ledger.account import Account
from trueup.ledger.request import write_request
from trueup.measuring import entropy
from trueup.model.problem import Problem
from trueup.model.tree import Tree
from trueup.reconciling import describe
from trueup.reconciling.family_tree import FamilyPlan
from trueup.reconciling.method import Method
from trueup.reconciling.segments import SegmentPlan
from trueup.releasing.cut import Cut, cut_tree
from trueup.releasing.engine import MEMORY_BYTES, divided, driver_bytes
from trueup.releasing.run_folder import PLAN, REMOVED, RunFolder
from trueup.run import Executor
from trueup.version import __version__

MIN_WORKER_BYTES = 50_000_000


@dataclass(frozen=True)
class Settings:
    """Settings of the execution of a run, which do not affect released counts.

    Attributes
    ----------
    memory
        Bytes for all processes of one machine together; of a cluster those of its workers.
    workers
        Number of workers.
    most
        Places of a part at most; by default what the memory allows.
    each
        Bytes of each worker, where that is said; then the driver is beside them, and `memory` what tabulation may use.
    driver
        Bytes that the driver takes out of the memory.
    """

    memory: int = MEMORY_BYTES
    workers: int = 1
    most: int | None = None
    each: int | None = None
    driver: int = PROCESS_BYTES

    @classmethod
    def of(cls, executor: Executor, most: int | None, tree: Tree, memory: int | None = None) -> Settings:
        """Return the settings from options and the executor; a memory limit of the executor takes precedence."""
        memory, each, driver = executor.memory or memory, executor.worker_memory, driver_bytes(tree)
        if each and executor.beside_driver and executor.workers == 1:
            memory, each = each, None  # the only worker is the driver itself
        total = memory or (executor.workers * each + driver if each else MEMORY_BYTES)
        return cls(total, executor.workers, most, each, driver if executor.beside_driver else 0)

    def places(self, cells: int, answers: int) -> int:
        """Return the number of places for which a worker's share of the memory suffices.

        Raises
        ------
        SpecError
            If the memory does not even hold the workers.
        """
        own = PROCESS_BYTES * (self.workers > 1 or not self.driver) + MIN_WORKER_BYTES
        share = (self.each or (self.memory - self.driver) / self.workers) - own
        if share < MIN_WORKER_BYTES:
            least = self.driver * (not self.each) + (1 if self.each else self.workers) * (
                own + MIN_WORKER_BYTES
            )
            raise SpecError(
                f"{memory_text(self.each or self.memory)} of memory are too little for "
                + ("a worker" if self.each else f"{self.workers} worker{'s' * (self.workers > 1)}"),
                needed=f"at least {memory_text(least)}"
                + (
                    f", {memory_text(self.driver)} of it for the driver with all places"
                    if self.driver and not self.each
                    else ""
                ),
                remedy="raise --worker-memory" if self.each else "raise --memory or lower --workers",
            )
        held = max(2, int(share / place_bytes(cells, answers)))
        return held if self.most is None else min(self.most, held)


def place_bytes(cells: int, answers: int) -> int:
    """Return the approximate memory (bytes) that a task needs for each place."""
    return 8 * (5 * cells + 3 * answers)


def begin(
    problem: Problem,
    method: Method,
    plan: SegmentPlan | FamilyPlan,
    data: Any,
    out: Path,
    geography: Any,
    account: Account | None,
    settings: Settings,
    *,
    take_over: bool = False,
) -> RunFolder | None:
    """Write all public information of a run into its folder.

    None if the release stands in the target already, committed under the account's key.

    Raises
    ------
    TrueupError
        If spec, places, method or memory are at fault, the data's file is missing, or the target or its run folder is
        occupied.
    """
    finish_removed(out)
    spec_text, cells, headers = problem.written(), problem.cells, problem.headers
    request = account.request(problem, out, data) if account else None
    if account and request and account.holds(request, out):
        return None
    refuse_occupied(out)
    document = {
        "trueup": __version__,
        "run": uuid.uuid4().hex,
        "out": str(out.absolute()),
        "data": address_of(data),
        "geography": address_of(
            data if geography is None and problem.spec.table.keys == "public" else geography
        ),
        "account": None if account is None else account_out(account),
        "spec": hashlib.sha256(spec_text.encode()).hexdigest(),
        "rows": problem.rows,
        "places": cells.tree.digest,
        "sizes": list(cells.tree.sizes),
        "request": None if request is None else write_request(request),
        "guarantee": guarantee_out(problem.guarantee),
        "headers": [header_out(h) for h in headers],
        "method": describe(method),
        "cut": (cut := _place_cut(cells.tree, plan, settings)).plain(),
        **_settings_out(settings),
    }
    with new_run(run_path(out), take_over) as folder:
        folder.places.commit("all", lambda path: write_places(path, cells), ".parquet")
        folder.write_branches(cells.tree, cut)
        folder.write_plan(spec_text, document)
    return folder


def _place_cut(tree: Tree, plan: SegmentPlan | FamilyPlan, settings: Settings) -> Cut:
    return cut_tree(tree, settings.places(*plan.place_cells(tree.sizes)), settings.workers)


def _settings_out(settings: Settings) -> dict[str, int | None]:
    return {
        "memory": settings.memory,
        "workers": settings.workers,
        "most": settings.most,
        "worker memory": settings.each,
    }


def cut_anew(folder: RunFolder, executor: Executor) -> None:
    """Divide the places of a run again, for other workers or memory, before anything is drawn.

    What was tabulated by the old parts goes first, so that a kill in between leaves a run that tabulates again.

    Raises
    ------
    TrueupError
        If the memory is too little.
    """
    before = folder.plan
    asked = (executor.memory or before["memory"], executor.workers, executor.worker_memory)
    if asked == (before["memory"], before["workers"], before["worker memory"]):
        return
    tree = folder.tree()
    settings = Settings.of(executor, before["most"], tree, asked[0])
    cut = _place_cut(tree, divided(folder.spec, folder.headers)[1], settings)
    (folder.confidential / "counts.json").unlink(missing_ok=True)
    folder.forget_counts()
    for part in folder.all_parts:
        folder.places.forget(str(part))
    folder.write_plan(folder.spec_text, {**before, "cut": cut.plain(), **_settings_out(settings)})
    folder.write_branches(tree, cut)


def account_out(account: Account) -> dict[str, str | None]:
    """Return the analyst, the key and the ledger's identifier, without the ledger's address."""
    return {"ledger": account.ledger.state().ledger, "analyst": account.analyst, "key": account.key}


def run_path(out: Path) -> Path:
    """Return the path of the run folder that belongs to an output path."""
    out = out.absolute()  # workers may stand elsewhere
    return out.with_name(f"{out.name}.run")


_BEGUN = {"confidential", "owner", "places", "spec.toml"}
"""Names in a run folder before its plan is written."""


@contextmanager
def new_run(path: Path, take_over: bool) -> Iterator[RunFolder]:
    """Create the folder of a run, and hold it during the block."""
    folder = RunFolder(path)
    if path.is_symlink():
        refuse_occupied(path)
    with writing(path):
        path.mkdir(mode=0o700, exist_ok=True)
        refuse_strange(path)
        if (path / PLAN).exists():
            refuse_owned(path)  # a run at work, which an orchestrator waits for, was not interrupted
        _refuse_begun(path)
        with owning(path, take_over=take_over):
            _refuse_begun(path)
            _empty(path)
            folder.confidential.mkdir(mode=0o700)
            (folder.confidential / "key").write_text(entropy.words(32).hex())
            yield folder


def _refuse_begun(path: Path) -> None:
    """Refuse a folder in which a run has begun, or that belongs to another user."""
    if (path / PLAN).exists():
        raise BundleError(
            f"a run was interrupted and left '{path}'",
            remedy=f"continue it with --resume '{path}', or remove the folder",
        )
    if {p.name for p in path.iterdir() if not p.name.startswith(".")} - _BEGUN:
        refuse_occupied(path)


def _empty(path: Path) -> None:
    """Remove the files of an abandoned run that had not written its plan."""
    for name in ("confidential", "places"):  # its places may be those of another cut
        shutil.rmtree(path / name, ignore_errors=True)
    path.chmod(0o700)


def finish_removed(out: Path) -> None:
    """Complete the interrupted removal of the run folder that belongs to an output path."""
    gone = run_path(out).with_name(run_path(out).name + REMOVED)
    if is_own(gone):
        with owning(gone):
            RunFolder(gone).finish_removing()
