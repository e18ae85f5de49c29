"""Releases from a spec to a folder, by the same order of stages in one part or in many.

    reserve    the ledger grants the loss and counts all that the run finds out exactly
    read       the confidential counts are read and checked; what is at fault with them gives the loss back
    begin      the ledger records that drawing begins
    measure    noise is drawn, once, and sealed: the digest of all measurements goes into the ledger
    settle     counts that satisfy every constraint, a function of the measurements alone
    publish    the report, the manifest, the ledger's commit, one rename

In memory a run has one part and leaves nothing behind when it is killed. With an executor it has many, and a folder
beside the target from which `resume` goes on.

One file: the stages in their order, whichever verb they are begun by.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings

from trueup import reporting
from trueup.errors import BundleError
from trueup.files import refuse_addresses, source_at
from trueup.files.target import claimed, is_own, refuse_strange
from trueup.files.writing import staged
from trueup.io.bundle.manifest import read_manifest
from trueup.io.bundle.write import finish_bundle
from trueup.measuring import rehearse
from trueup.model.problem import Problem, spec_and_text
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.spec import Spec
from trueup.model.verb import takes_records
from trueup.reconciling import Prepared, choose, refuse_misfit
from trueup.reconciling.method import Method
from trueup.reconciling.populations import warm
from trueup.releasing import Log, Watch, quiet, read_under
from trueup.releasing.engine import Whole

if TYPE_CHECKING:
    from trueup.io.bundle.read import StoredRelease
    from trueup.ledger.account import Account
    from trueup.ledger.reservation import Reservation
    from trueup.releasing.parts import ByParts
    from trueup.releasing.run_folder import RunFolder
    from trueup.run import Executor


@takes_records
def release(
    spec: Spec | Problem | str | Path,
    data: Any,
    out: str | Path,
    *,
    geography: Any = None,
    account: Account | None = None,
    executor: Executor | None = None,
    places: int | None = None,
    expect_rows: int | None = None,
    take_over: bool = False,
    watch: Watch = quiet,
) -> Release:
    """Measure, reconcile and report; the output folder appears whole or not at all.

    Parameters
    ----------
    spec
        A spec, the path of one, or a Problem.
    data
        The confidential table: a path, a dataframe or a DuckDB relation.
    out
        A new folder: `public/` may be published as it is, `internal/` stays.
    geography
        The public list of places, unless the spec declares the table's keys public: a path, a dataframe, a DuckDB
        relation or a `Tree`.
    account
        Account whose budget is charged before the noise is drawn; None keeps no ledger, and the report says so.
        A release that was committed under the account's key is returned as it is.
    executor
        Carries out a run of many parts, such as `trueup.run.local.LocalPool(2)`; all its workers see the folder beside
        `out`, and share the memory that it says, by default 4 GB. None for a run of one part in the memory of this process.
    places
        Places of a part at most; by default what the memory allows.
    expect_rows
        Number of rows that the table must have, 0 included; by default at least one. A ledger counts it as the check of a rule.
    take_over
        Says that a process of another machine which began a run to the same target, and gives no sign of life, is dead.
    watch
        Called with what is being done, how many parts of it are done, and how many there are.

    Returns
    -------
    Release
        The released counts; after a run by parts they are read from the folder when they are asked for.

    Raises
    ------
    TrueupError
        Before any noise is drawn where spec, places, method, data or budget are at fault. After that, whatever
        stops a run by parts, `resume` goes on with it.

    Examples
    --------
    >>> import pandas, tempfile
    >>> from trueup.demo import AREAS
    >>> out = Path(tempfile.mkdtemp()) / "out"
    >>> released = release(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]}), out)
    >>> all(released.checks.values()), sorted(p.name for p in out.iterdir())
    (True, ['internal', 'public'])
    """
    log = Log(watch)
    problem = _settled(spec, geography, data, log, expect_rows, account)
    if executor is None:
        return _carried_out(_in_memory(problem, data, Path(out), account, log), account)  # pyright: ignore[reportReturnType]
    from trueup.releasing.engine import plan_of
    from trueup.releasing.parts import ByParts
    from trueup.releasing.start import Settings, begin

    settings = Settings.of(executor, places, problem.cells.tree)
    method, plan = plan_of(problem)
    _make_ready(problem, method, log)
    folder = begin(problem, method, plan, data, Path(out), geography, account, settings, take_over=take_over)
    if folder is None:
        from trueup.io.bundle.read import StoredRelease

        return StoredRelease(Path(out), read_manifest(Path(out)))
    return _carried_out(ByParts(folder, data, executor, log, take_over), account)  # pyright: ignore[reportReturnType]


def measure_only(
    spec: Spec | Problem | str | Path,
    data: Any,
    out: str | Path,
    *,
    geography: Any = None,
    account: Account | None = None,
    expect_rows: int | None = None,
    watch: Watch = quiet,
) -> Measurements:
    """Measure, and write a bundle of noisy counts, which may be reconciled later or by others."""
    log = Log(watch)
    problem = _settled(spec, geography, data, log, expect_rows, account)
    run = _in_memory(problem, data, Path(out), account, log, reconciled=False)
    return _carried_out(run, account)  # pyright: ignore[reportReturnType]


def resume(
    folder: str | Path,
    *,
    executor: Executor,
    spec: Spec | str | Path | None = None,
    data: Any = None,
    geography: Any = None,
    out: str | Path | None = None,
    expect_rows: int | None = None,
    account: Account | None = None,
    take_over: bool = False,
    watch: Watch = quiet,
) -> StoredRelease:
    """Resume an interrupted run by parts.

    Parameters
    ----------
    folder
        The run folder, `OUT.run`.
    executor
        Carries out what is left, as in `release`. Without memory of its own it uses what the run began with. As long as nothing
        is drawn, the places are cut anew for its memory and its workers.
    spec, data, geography, out, expect_rows
        Need not be given again; where they are, they must be those that the run began with. The data are read only if
        not all of them were, the places only if the run's copy of them was lost.
    account
        The ledger that the run was charged to.
    take_over
        Says that a process of another machine which works on the run, and gives no sign of life, is dead.

    Raises
    ------
    TrueupError
        If something differs from what the run began with, or another process works on it.
    """
    from trueup.releasing.data import refuse_changes, refuse_other_data, same_account
    from trueup.releasing.parts import ByParts
    from trueup.releasing.run_folder import REMOVED, RunFolder

    run = RunFolder(Path(folder).absolute())  # workers may stand elsewhere
    whole = run.path.with_name(run.path.name.removesuffix(REMOVED))
    gone = whole.with_name(whole.name + REMOVED)
    if is_own(gone) and not whole.exists():
        return _removed(RunFolder(gone))
    if run.path.exists():
        refuse_strange(run.path)
    refuse_changes(run, spec, geography, out, expect_rows)
    if account := same_account(run, account):
        account.ledger.recover()
    if data is not None and run.tabulated:
        refuse_other_data(run, data)
    run.rebuild_places(geography)
    given = data if data is not None else source_at(run.plan["data"])
    return _carried_out(ByParts(run, given, executor, Log(watch), take_over), account)  # pyright: ignore[reportReturnType]


def _removed(gone: RunFolder) -> StoredRelease:
    """Complete the removal of a finished run's folder, and return the release that the run made."""
    from trueup.files.owner import owning

    out = Path(gone.plan["out"])
    with owning(gone.path), claimed(out):
        gone.finish_removing()
    if not out.exists():
        raise BundleError(f"the run that writes to '{out}' was given up", remedy="begin a new run")
    from trueup.io.bundle.read import StoredRelease

    return StoredRelease(out, read_manifest(out))


def _settled(
    spec: Any, geography: Any, data: Any, log: Log, rows: int | None, account: Account | None
) -> Problem:
    refuse_addresses(data)
    with log.stage("reading the spec and the places"):
        stated, text = spec_and_text(spec)
        if account:
            account.refuse_hidden_keys(stated, geography, data)
        given = spec if isinstance(spec, Problem) else stated
        problem = Problem.of(given, geography, data=data, rows=rows)
        problem = problem if problem.text == text else replace(problem, text=text)
        if problem.spec.infer:
            from trueup.inferring import refuse_asked  # slow to import

            refuse_asked(problem)
        return problem


def _in_memory(
    problem: Problem, data: Any, out: Path, account: Account | None, log: Log, *, reconciled: bool = True
) -> Whole:
    """Make all checks that need no confidential count; return a run that is kept in memory as one part."""
    method = choose(problem.spec.reconcile, problem.constraints)
    refuse_misfit(method, problem.constraints, problem.headers)
    _make_ready(problem, method if reconciled else None, log)
    with log.stage("preparing the method"):
        prepared = Prepared.of(problem.constraints, problem.headers, method)
    request = account.request(problem, out, data) if account else None
    return Whole(problem, data, out, prepared if reconciled else None, request, log)


def _make_ready(problem: Problem, method: Method | None, log: Log) -> None:
    """Draw once from every noise law, and run the method on a few places, so that everything is compiled."""
    with log.stage("making the noise ready"):
        rehearse(problem.headers, problem.left_out)
    if method:
        with log.stage("making the method ready"):
            warm(problem.spec, problem.headers, method)


def _carried_out(run: Whole | ByParts, account: Account | None) -> Release | Measurements:
    with run.held(), claimed(run.out):
        if (done := run.published(account)) is None:
            with staged(run.out) as target:
                done = _all_stages(run, account, target)
        return run.finish() or done


def _all_stages(run: Whole | ByParts, account: Account | None, target: Path) -> Release | Measurements:
    reservation = run.reserve(account)
    # A reader's warning quotes what it reads, as openpyxl's do, and tells of the rows whatever it says.
    with reservation.returning() if reservation else nullcontext(), catch_warnings(action="ignore"):
        if account and reservation:
            read_under(account, reservation, run.log, run.read)
        else:
            run.read()
        run.begin(reservation)
    with _note_spent_loss(run.spent if reservation else ""):
        return _draw_and_complete(run, reservation, target)


def _draw_and_complete(
    run: Whole | ByParts, reservation: Reservation | None, target: Path
) -> Release | Measurements:
    """Draw the noise, and complete the release or the bundle of measurements."""
    seal = run.measure(target)
    if reservation:
        reservation.seal(seal)
    record, manifest = run.settle(target)
    stamp = dict(reservation.stamp) if reservation else None
    with run.log.stage("writing the report"):
        page = reporting.report(record, run.spec, ledger=stamp)
    finish_bundle(target, {**manifest, "ledger": stamp}, page, run.log.plain())
    if reservation:
        reservation.commit(target, run.out)
    return record


@contextmanager
def _note_spent_loss(note: str) -> Iterator[None]:
    """Add a note on the privacy loss to every error that is raised after drawing has begun."""
    try:
        yield
    except BaseException as error:
        if note:
            error.add_note(note)
        raise
