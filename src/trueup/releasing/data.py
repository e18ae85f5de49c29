"""The confidential table of a run: it is counted by part, and checked before anything is charged."""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from trueup.errors import BudgetError, BundleError, DataError, InfeasibleError, SpecError
from trueup.files import COUNT
from trueup.files.writing import replace_whole
from trueup.io.microdata.by_parts import tabulate_by_parts
from trueup.io.microdata.join import linked_records
from trueup.io.microdata.tabulate import row_columns
from trueup.io.microdata.truncate import Limit
from trueup.ledger.account import Account
from trueup.measuring.fingerprint import Fingerprint, fingerprinting
from trueup.model.build import build_cells
from trueup.model.geography import read_tree
from trueup.model.reading import Reading
from trueup.model.spec import Spec, read_spec_text
from trueup.releasing import Log
from trueup.releasing.engine import MEMORY_BYTES
from trueup.releasing.run_folder import RunFolder
from trueup.releasing.start import account_out, run_path
from trueup.releasing.tasks import PartTotal
from trueup.run import Executor


def check_data(folder: RunFolder, data: Any, executor: Executor, log: Log) -> None:
    """Count and check the confidential table, unless an earlier attempt has done so.

    No fault of the data is left to be found after this: data at fault give the loss back and leave no run, so corrected ones
    begin another that is charged once.

    Raises
    ------
    DataError, InfeasibleError, SpecError
        If the data are at fault; if they are not given, or not those that the run began with, the run stays.
    """
    if not folder.tabulated and data is None:
        raise DataError(
            "the run has not read all its data yet",
            needed="the confidential table",
            remedy="give --data FILE, as when the run began",
        )
    if not folder.tabulated:
        with _known(folder, data), _leaving_no_run(folder):
            _tabulate(folder, data, executor, log)
        folder.keep_counts()
    with _leaving_no_run(folder):
        for parts in reversed(folder.cut.parts):
            log.map(f"checking {folder.top_of(parts)}", PartTotal(folder.path), folder, parts, executor)


@contextmanager
def _leaving_no_run(folder: RunFolder) -> Iterator[None]:
    """Remove the run folder if the block finds faulty data and no noise was drawn."""
    try:
        yield
    except (DataError, InfeasibleError, SpecError):
        if not folder.draws.begun:
            folder.remove()
        raise


def notes_on_data(folder: RunFolder) -> dict[str, Any]:
    """Return notes for the internal log: the fingerprint of the data, and numbers of records kept and left out."""
    found, path = folder.confidential / "fingerprint", folder.confidential / "contribution"
    read = {"input": {"key": folder.key.hex(), "hmac-sha256": found.read_text()}} if found.exists() else {}
    return read | ({"contribution": json.loads(path.read_text())} if path.exists() else {})


def refuse_other_data(folder: RunFolder, data: Any) -> None:
    """Refuse data that differ from the data with which the run began."""
    with fingerprinting(data, folder.key) as taking:
        pass
    found, path = _digest(taking), folder.confidential / "fingerprint"
    if found is not None and (not path.exists() or path.read_text() != found):
        raise _other_data()


@contextmanager
def _known(folder: RunFolder, data: Any) -> Iterator[None]:
    """Store a keyed fingerprint of the data with the run; refuse data with another fingerprint.

    That of files is taken beside what reads them. What is read elsewhere (an address, a table in memory) is known by the
    counts that came of it.
    """
    path = folder.confidential / "fingerprint"
    before = path.read_text() if path.exists() else None
    if before is not None or folder.draws.begun:
        refuse_other_data(folder, data)
    with fingerprinting(data, folder.key) as taking:
        yield
    found = _digest(taking) or _of_counts(folder)
    if before is None and not folder.draws.begun:
        replace_whole(path, found, private=True)
    elif found != before:
        raise _other_data()


def _of_counts(folder: RunFolder) -> str:
    """Return a keyed digest of all tabulated counts, which does not depend on the division into parts."""
    keyed = hmac.new(folder.key, digestmod="sha256")
    for number in range(folder.counts.parts):
        keyed.update(np.column_stack(folder.counts.read(number)).astype("<i8").tobytes())
    return keyed.hexdigest()


def _other_data() -> DataError:
    return DataError(
        "the data differ from those with which the run began",
        remedy="give the same --data, or start a new run",
    )


def _digest(taking: Fingerprint) -> str | None:
    found = taking.get()
    return found["hmac-sha256"] if found else None


def _tabulate(folder: RunFolder, data: Any, executor: Executor, log: Log) -> None:
    limit = Limit.of(folder.spec, lambda: folder.key)
    shutil.rmtree(folder.counts.folder, ignore_errors=True)  # of an attempt that was killed
    memory, threads = _memory(folder, executor) // 2_000_000, folder.plan["workers"]
    join = folder.spec.table.join
    with ExitStack() as stack:
        stack.enter_context(log.stage("tabulating"))
        source, rows = stack.enter_context(_grouped(folder, data, executor))
        if join is not None:  # of two tables a half each links and counts
            memory //= 2
            spill = stack.enter_context(_cleared(folder.confidential / "linking"))
            spill.mkdir(mode=0o700)  # for data that do not fit in memory
            linking = linked_records(
                folder.spec, data, limit, spill=spill, memory=f"{memory}MB", threads=threads
            )
            source = stack.enter_context(linking)
        tabulate_by_parts(
            folder.spec,
            build_cells(folder.spec, folder.tree()),
            source,
            folder.counts.folder,
            folder.cut.part_of_leaf(),
            memory=f"{memory}MB",
            threads=threads,
            rows=rows,
            limit=None if join else limit,
            expected=folder.plan["rows"],
        )
    if limit:
        replace_whole(folder.confidential / "contribution", json.dumps(asdict(limit)), private=True)


def _memory(folder: RunFolder, executor: Executor) -> int:
    """Return the memory (bytes) that the run may use on the driver's machine."""
    memory = folder.plan["memory"]
    return memory if executor.beside_driver else min(memory, MEMORY_BYTES)


@contextmanager
def _cleared(target: Path) -> Iterator[Path]:
    """Yield the path of a folder after removing it; remove it again afterwards."""
    shutil.rmtree(target, ignore_errors=True)  # of an attempt that was killed
    try:
        yield target
    finally:
        shutil.rmtree(target, ignore_errors=True)


@contextmanager
def _grouped(folder: RunFolder, data: Any, executor: Executor) -> Iterator[tuple[Any, str | None]]:
    """Yield a table of records with equal rows counted by the engine, if it can do so; otherwise the data."""
    columns = [*row_columns(Reading.of(folder.spec)), *filter(None, [folder.spec.privacy.id])]
    with _cleared(folder.confidential / "grouped") as target:
        table = folder.spec.table
        if table.kind == "records" and table.join is None and executor.grouped(data, columns, COUNT, target):
            yield target, COUNT
        else:
            yield data, None


def refuse_changes(
    folder: RunFolder,
    spec: Spec | str | Path | None,
    geography: Any,
    out: str | Path | None,
    expect_rows: int | None = None,
) -> None:
    """Refuse a run folder that was copied, moved or altered, or that was begun with other settings."""
    plan, home = folder.plan, run_path(Path(folder.plan["out"]))
    if not (home.exists() and home.samefile(folder.path)):
        raise BundleError(
            f"'{folder.path}' was copied or moved: its run began in '{home}'",
            needed="the folder in which the run began; a copy would draw the noise a second time",
            remedy="give the original folder, or move this one back if it is the only one",
        )
    if hashlib.sha256(folder.spec_text.encode()).hexdigest() != plan["spec"]:
        raise BundleError(
            f"the spec in '{folder.path}' was altered after the run began",
            remedy="restore the spec as it was, or start a new run",
        )
    if spec is not None and _text(spec) != folder.spec_text:
        raise SpecError(
            "the spec differs from the one with which the run began",
            remedy="give the same spec, or start a new run",
        )
    if geography is not None and read_tree(folder.spec, geography).digest != plan["places"]:
        raise DataError(
            "the places differ from those with which the run began",
            remedy="give the same file, or start a new run",
        )
    if expect_rows is not None and expect_rows != plan["rows"]:
        raise SpecError(
            "--expect-rows differs from the number with which the run began",
            remedy="give the same number, or leave it out",
        )
    if out is not None and str(Path(out).absolute()) != plan["out"]:
        raise BundleError(
            f"the run writes to '{plan['out']}', not to the folder that is given",
            remedy="give that folder as --out, or leave out --out",
        )


def _text(spec: Spec | str | Path) -> str:
    return spec.text() if isinstance(spec, Spec) else read_spec_text(spec)


def same_account(folder: RunFolder, account: Account | None) -> Account | None:
    """Return the account, with its key, with which a run began; refuse another account."""
    began = folder.plan["account"]
    if began is None and account is None:
        return None
    if began is None:
        raise BudgetError(
            "the run began without a ledger, but one is given",
            remedy="leave out --ledger, or start a new run",
        )
    if account is None:
        raise BudgetError(
            "the run is charged to a ledger, but none is given",
            remedy="give --ledger and --analyst as before",
        )
    account = replace(account, key=account.key or began["key"])
    _refuse_other_account(began, account_out(account))
    return account


def _refuse_other_account(began: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    if given["ledger"] != began["ledger"]:
        raise BudgetError(
            "the run was charged to another ledger than the one that is given",
            needed="the ledger with which the run began; otherwise both would be charged",
            remedy="give --ledger as before",
        )
    for what in ("analyst", "key"):
        if given[what] != began[what]:
            was, now = (f"the {what} '{x[what]}'" if x[what] else f"no {what}" for x in (began, given))
            raise BudgetError(
                f"the run began with {was}, and goes on with {now}",
                needed=f"the same {what} as at the start",
                remedy=f"give --{what} {began[what]}"
                if began[what]
                else f"leave out --{what}, or start a new run",
            )
