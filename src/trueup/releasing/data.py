"""The confidential table enters a run: tabulated by bundle, and found in order before anything is charged."""

from __future__ import annotations

import json
import shutil
import time
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
from trueup.measuring.fingerprint import fingerprint
from trueup.model.build import build_cells
from trueup.releasing.log import Log
from trueup.releasing.run_folder import RunFolder
from trueup.releasing.tasks import PartTotal
from trueup.run.executor import Executor


def check_data(folder: RunFolder, data: Any, executor: Executor, log: Log) -> None:
    """Tabulate the confidential table and find whatever is at fault with it, unless that was done before.

    No fault of the data is left to be found after this: data at fault give the loss back and leave no run, so corrected ones
    begin another that is charged once.

    Raises
    ------
    DataError, InfeasibleError, SpecError
        If the data are at fault; if they are not given, or not those that the run began with, the run stays.
    """
    if folder.checked:
        return
    if not folder.tabulated:
        refuse_other_data(folder, data)
    try:
        if not folder.tabulated:
            _tabulate(folder, data, executor, log)
        for bundles in reversed(folder.cut.bundles):
            log.map(f"checking {folder.top_of(bundles)}", PartTotal(folder.path), bundles, executor)
    except (DataError, InfeasibleError, SpecError):
        shutil.rmtree(folder.path, ignore_errors=True)
        raise


def contribution_note(folder: RunFolder) -> dict[str, Any]:
    """How many records a unit kept, which was decided how, and how many were dropped: for the agency's own log."""
    path = folder.confidential / "contribution"
    return {"contribution": json.loads(path.read_text())} if path.exists() else {}


def refuse_other_data(folder: RunFolder, data: Any) -> None:
    """Keep a keyed fingerprint of the data with the run; refuse data with another one, or none.

    Raises
    ------
    DataError
        Saying what to give.
    """
    if data is None:
        raise DataError(
            "the run has not read all its data yet", needed="the confidential table", remedy="give --data"
        )
    path = folder.confidential / "fingerprint"
    key = bytes.fromhex((folder.confidential / "key").read_text())
    try:
        found = fingerprint(data, key)
    except OSError as error:
        raise DataError(
            f"the data cannot be read: {error.strerror or 'the disk refuses'}", remedy="check permissions"
        ) from None
    if found is None:
        return
    if not path.exists():
        replace_whole(path, found["hmac-sha256"])
    elif path.read_text() != found["hmac-sha256"]:
        raise DataError(
            "the data are not those that the run began with", remedy="give the same file, or start a new run"
        )


def _tabulate(folder: RunFolder, data: Any, executor: Executor, log: Log) -> None:
    start = time.perf_counter()
    log.watch("tabulating", 0, 1)
    limit = Limit.of(folder.spec, lambda: bytes.fromhex((folder.confidential / "key").read_text()))
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
            limit=limit,
        )
    if limit:
        replace_whole(folder.confidential / "contribution", json.dumps(asdict(limit)))
    log.watch("tabulating", 1, 1)
    log.note("tabulating", time.perf_counter() - start)


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
