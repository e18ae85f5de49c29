"""The confidential table enters a run: tabulated by bundle, and found in order before anything is charged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from trueup.errors import DataError, InfeasibleError, SpecError
from trueup.files.source import COUNT
from trueup.files.staging import replace_whole
from trueup.io.microdata.by_parts import tabulate_blocks
from trueup.io.microdata.tabulate import row_columns
from trueup.io.microdata.truncate import Limit
from trueup.measuring.fingerprint import Fingerprint, fingerprinting
from trueup.model.build import build_cells
from trueup.releasing.log import Log
from trueup.releasing.run_folder import RunFolder
from trueup.releasing.tasks import PartTotal
from trueup.run.executor import Executor


def check_data(folder: RunFolder, data: Any, executor: Executor, log: Log) -> None:
    """Tabulate the confidential table and find whatever is at fault with it, as far as that was not done before.

    No fault of the data is left to be found after this: data at fault give the loss back and leave no run, so corrected ones
    begin another that is charged once.

    Raises
    ------
    DataError, InfeasibleError, SpecError
        If the data are at fault; if they are not given, or not those that the run began with, the run stays.
    """
    if not folder.tabulated and data is None:
        raise DataError(
            "the run has not read all its data yet", needed="the confidential table", remedy="give --data"
        )
    if not folder.tabulated:
        with _known(folder, data), _leaving_no_run(folder):
            _tabulate(folder, data, executor, log)
        folder.keep_counts()
    with _leaving_no_run(folder):
        for parts in reversed(folder.cut.bundles):
            log.map(f"checking {folder.top_of(parts)}", PartTotal(folder.path), folder, parts, executor)


@contextmanager
def _leaving_no_run(folder: RunFolder) -> Iterator[None]:
    """Remove the run where the data are at fault and nothing was drawn of them."""
    try:
        yield
    except (DataError, InfeasibleError, SpecError):
        if not folder.draws.begun:
            folder.remove()
        raise


def contribution_note(folder: RunFolder) -> dict[str, Any]:
    """How many records a unit kept, which was decided how, and how many were dropped: for the agency's own log."""
    path = folder.confidential / "contribution"
    return {"contribution": json.loads(path.read_text())} if path.exists() else {}


def refuse_other_data(folder: RunFolder, data: Any) -> None:
    """Refuse data that are not those that the run began with.

    Raises
    ------
    DataError
        Saying what to give.
    """
    with fingerprinting(data, folder.key) as taking:
        pass
    found, path = _digest(taking), folder.confidential / "fingerprint"
    if found is not None and (not path.exists() or path.read_text() != found):
        raise DataError(
            "the data are not those that the run began with", remedy="give the same file, or start a new run"
        )


@contextmanager
def _known(folder: RunFolder, data: Any) -> Iterator[None]:
    """Keep a keyed fingerprint of the data with the run, taken beside what reads them; refuse other data than before."""
    if folder.draws.begun or (folder.confidential / "fingerprint").exists():
        refuse_other_data(folder, data)
        yield
        return
    with fingerprinting(data, folder.key) as taking:
        yield
    if found := _digest(taking):
        replace_whole(folder.confidential / "fingerprint", found, private=True)


def _digest(taking: Fingerprint) -> str | None:
    found = taking.get()
    return found["hmac-sha256"] if found else None


def _tabulate(folder: RunFolder, data: Any, executor: Executor, log: Log) -> None:
    limit = Limit.of(folder.spec, lambda: folder.key)
    shutil.rmtree(folder.counts.folder, ignore_errors=True)  # of an attempt that was killed
    with log.stage("tabulating"), _grouped(folder, data, executor) as (source, rows):
        tabulate_blocks(
            folder.spec,
            build_cells(folder.spec, folder.tree()),
            source,
            folder.counts.folder,
            folder.cut.bundle_of_leaf(),
            memory=f"{folder.plan['memory'] // 2_000_000}MB",
            threads=folder.plan["workers"],
            rows=rows,
            limit=limit,
        )
    if limit:
        replace_whole(folder.confidential / "contribution", json.dumps(asdict(limit)), private=True)


@contextmanager
def _grouped(folder: RunFolder, data: Any, executor: Executor) -> Iterator[tuple[Any, str | None]]:
    """Records whose equal rows the engine has counted where they live, if it can; else the data themselves."""
    target = folder.confidential / "grouped"
    shutil.rmtree(target, ignore_errors=True)  # of an attempt that was killed
    columns = [*row_columns(folder.spec), *filter(None, [folder.spec.privacy.id])]
    try:
        if folder.spec.table.kind == "records" and executor.grouped(data, columns, COUNT, target):
            yield target, COUNT
        else:
            yield data, None
    finally:
        shutil.rmtree(target, ignore_errors=True)
