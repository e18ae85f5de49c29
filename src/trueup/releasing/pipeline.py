"""The main job end to end: spec, measure, reconcile, report, as one folder or nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from trueup import reporting
from trueup.files.staging import claimed, refuse_occupied, staged
from trueup.io.bundle.assessment import holds_assessment, read_assessment, write_assessment
from trueup.io.bundle.manifest import BLOCKS, read_manifest, read_spec, write_manifest
from trueup.io.bundle.read import read_measurements, read_release, release_in
from trueup.io.bundle.write import write_measurements, write_release
from trueup.ledger.account import Account
from trueup.ledger.request import Request
from trueup.ledger.reservation import Reservation
from trueup.measuring import draw, limit_of, read_confidential
from trueup.measuring.fingerprint import fingerprint
from trueup.measuring.rehearsal import rehearse
from trueup.model.build import build_constraints
from trueup.model.problem import Problem
from trueup.model.records.assessment import Assessment, refuse_confidential
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.spec import Spec, parse_spec, read_spec_text
from trueup.reconciling import BEFORE_NOISE, Prepared, build, choose, refuse_inexact

Tell = Callable[[str], None]
"""Hears the name of each stage as it begins."""


@dataclass
class Run:
    """The log of one run: stages and seconds. It depends on the data, so it stays internal."""

    tell: Tell = lambda stage: None
    seconds: dict[str, float] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Announce a stage and time it."""
        self.tell(name)
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 4)


def release(
    spec_path: str | Path | Problem,
    data: Any,
    out: str | Path,
    *,
    geography: Any = None,
    account: Account | None = None,
    tell: Tell = lambda stage: None,
) -> Release:
    """Measure, reconcile and report; the folder `out` appears whole or not at all.

    Parameters
    ----------
    spec_path
        The path of the spec, or a Problem that was read from one.
    data
        The confidential table: a path, a dataframe or a DuckDB relation.
    out
        A new folder: `public/` may be published as it is, `internal/` stays.
    geography
        The public list of places, unless the spec declares the table's keys public.
    account
        Whose budget is charged before the noise is drawn; None keeps no ledger, and the report says so.
        A release that was committed under the account's key is returned as it is.
    tell
        Hears the name of each stage.

    Raises
    ------
    TrueupError
        Before any noise is drawn where spec, places, method, data or budget are at fault.

    Examples
    --------
    >>> import pandas, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "areas.toml").write_text('''
    ... format = 1
    ... title = "Two areas"
    ... table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
    ... privacy = { unit = "person", neighbours = "add-remove" }
    ... level = [{ name = "all" }, { name = "area", column = "area" }]
    ... query = [{ name = "total", epsilon = { all = "1/2", area = "1/2" } }]
    ... ''')
    >>> areas = pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]})
    >>> released = release(folder / "areas.toml", areas, folder / "out")
    >>> all(released.checks.values()), sorted(p.name for p in (folder / "out").iterdir())
    (True, ['internal', 'public'])
    """
    run, out = Run(tell), Path(out)
    plan = _ready(spec_path, data, geography, account, out, run)
    with claimed(out):
        if account and plan.request and account.holds(plan.request, out):
            return read_release(out)
        with staged(out) as folder:
            measurements, draft, reservation = _measured(folder, plan, data, account, run, reconciled=True)
            released = _released(folder, plan.prepared, measurements, draft, run)
            _commit(reservation, folder, out)
    return released


def measure_only(
    spec_path: str | Path | Problem,
    data: Any,
    out: str | Path,
    *,
    geography: Any = None,
    account: Account | None = None,
    tell: Tell = lambda stage: None,
) -> Measurements:
    """Measure and write a bundle of noisy counts, to be reconciled later or by others."""
    run, out = Run(tell), Path(out)
    plan = _ready(spec_path, data, geography, account, out, run)
    with claimed(out):
        if account and plan.request and account.holds(plan.request, out):
            return read_measurements(out)
        with staged(out) as folder:
            measurements, draft, reservation = _measured(folder, plan, data, account, run, reconciled=False)
            _finish(
                folder, draft, reporting.report(measurements, plan.problem.spec, ledger=draft["ledger"]), run
            )
            _commit(reservation, folder, out)
    return measurements


def reconcile_bundle(
    folder: str | Path,
    out: str | Path,
    *,
    method: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    tell: Tell = lambda stage: None,
) -> Release:
    """Reconcile the measurements of a bundle into a new one; equal measurements, equal integers."""
    run, source, out = Run(tell), Path(folder), Path(out)
    refuse_occupied(out)
    with run.stage("reading the measurements"):
        measurements = read_measurements(source)
        spec_text, spec = read_spec(source)
        manifest = read_manifest(source)
    with run.stage("choosing the method"):
        constraints = build_constraints(spec, measurements.cells, measurements.bounds)
        chosen = build(method, parameters or {}) if method else choose(spec.reconcile, constraints)
        prepared = Prepared.of(constraints, measurements.headers, chosen)
    with staged(out) as target:
        draft = write_measurements(target, spec_text, measurements) | {"ledger": manifest["ledger"]}
        return _released(target, prepared, measurements, draft, run)


def render_bundle(folder: str | Path, *, publish: bool = False) -> str:
    """Make the report of a bundle, or of an assessment, anew from its files.

    Raises
    ------
    PrivacyError
        If it is to be published and is an assessment on confidential counts.
    """
    source = Path(folder)
    if not holds_assessment(source):
        return _render_public(source)
    record, spec = read_assessment(source)
    if publish:
        refuse_confidential(record.public)
    return reporting.report(record, spec)


def _render_public(source: Path) -> str:
    manifest = read_manifest(source)
    _, spec = read_spec(source)
    if manifest.get("layout") == BLOCKS:
        return reporting.report(release_in(manifest, str(source)), spec, ledger=manifest["ledger"])
    read = read_measurements if manifest["kind"] == "measurements" else read_release
    return reporting.report(read(source), spec, ledger=manifest["ledger"])


def assess_table(
    spec_path: str | Path,
    truth: Any,
    out: str | Path,
    *,
    geography: Any = None,
    tell: Tell = lambda stage: None,
    **options: Any,
) -> Assessment:
    """Assess a spec and write the assessment as a folder: figures, report and Parquet tables.

    Parameters
    ----------
    spec_path
        The TOML spec.
    truth, geography
        As for `trueup.assess`.
    out
        A new folder: `internal/` holds a confidential assessment, `public/` one whose truth is public.
    tell
        Hears the name of each stage.
    options
        Further arguments of `trueup.assess`.
    """
    from trueup.assessing import assess

    refuse_occupied(Path(out))
    spec_text = read_spec_text(spec_path)
    spec = parse_spec(spec_text)

    def progress(done: int, replicates: int) -> None:
        tell(f"{done:,} of {replicates:,} replicates")

    tell("reading the spec and the counts")
    record = assess(spec, truth, geography, progress=progress, **options)
    tell("writing the assessment")
    write_assessment(out, spec_text, record, reporting.report(record, spec))
    return record


@dataclass(frozen=True)
class _Plan:
    """Everything of a run that is public, settled once before confidential counts are read."""

    problem: Problem
    prepared: Prepared
    request: Request | None


def _ready(
    spec: Spec | Problem | str | Path, data: Any, geography: Any, account: Account | None, out: Path, run: Run
) -> _Plan:
    """Find every fault that can be found before confidential counts are read or noise is drawn."""
    with run.stage("reading the spec and the places"):
        problem = Problem.of(spec, geography, data=data)
    with run.stage("choosing the method"):
        method = choose(problem.spec.reconcile, problem.constraints)
        prepared = Prepared.of(problem.constraints, problem.headers, method)
    request = account.request(problem, out) if account else None
    with run.stage("making the noise ready"):
        rehearse(problem.headers)
    return _Plan(problem, prepared, request)


def _commit(reservation: Reservation | None, folder: Path, out: Path) -> None:
    if reservation:
        reservation.commit(folder, out)


def _measured(
    folder: Path, plan: _Plan, data: Any, account: Account | None, run: Run, *, reconciled: bool
) -> tuple[Measurements, dict[str, Any], Reservation | None]:
    problem = plan.problem
    reservation = account.reserve(plan.request) if account and plan.request else None
    with reservation.returning() if reservation else nullcontext():
        with run.stage("reading the confidential counts"):
            limit = limit_of(problem.spec)
            counts = read_confidential(problem.spec, problem.cells, data, limit, problem.constraints)
            run.notes["input"] = fingerprint(data)
            run.notes |= {"contribution": asdict(limit)} if limit else {}
            if reconciled:
                refuse_inexact(problem.cells.sum(counts, problem.cells.coarsest), BEFORE_NOISE)
        if reservation:
            reservation.begin()
    with run.stage("drawing exact noise"):
        measurements = draw(problem.cells, counts, problem.headers, problem.guarantee)
        measurements = replace(measurements, spec=problem.spec)
    with run.stage("writing the measurements"):
        draft = write_measurements(folder, problem.written(), measurements)
    stamp = dict(reservation.stamp) if reservation else None
    return measurements, draft | {"ledger": stamp}, reservation


def _released(
    folder: Path,
    prepared: Prepared,
    measurements: Measurements,
    draft: Mapping[str, Any],
    run: Run,
) -> Release:
    with run.stage("reconciling"):
        released = prepared.reconcile(measurements)
    with run.stage("simulating the errors to expect"):
        _ = released.expected
    with run.stage("writing the tables"):
        manifest = {**draft, **write_release(folder, released)}
    with run.stage("writing the report"):
        page = reporting.report(released, measurements.by(None), ledger=manifest["ledger"])
    _finish(folder, manifest, page, run)
    return released


def _finish(folder: Path, manifest: Mapping[str, Any], page: str, run: Run) -> None:
    (folder / "public" / "report.html").write_text(page, encoding="utf-8")
    write_manifest(folder, manifest)
    log = json.dumps({"seconds": run.seconds, **run.notes}, indent=2)
    (folder / "internal" / "run.json").write_text(log + "\n", encoding="utf-8")
