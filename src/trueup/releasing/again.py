"""New results from an existing bundle: other released counts, a new report, and counts fitted to tables of others."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup import reporting
from trueup.errors import BundleError, InfeasibleError, SpecError, TrueupError
from trueup.files.database import connect
from trueup.files.target import refuse_occupied
from trueup.files.writing import staged
from trueup.io.bundle.assessment import holds_assessment, read_assessment, write_assessment
from trueup.io.bundle.kept_posterior import is_posterior
from trueup.io.bundle.manifest import read_manifest, read_spec, refuse_altered
from trueup.io.bundle.places import write_places
from trueup.io.bundle.read import StoredRelease, read_measurements, refuse_beyond
from trueup.io.bundle.tables import write_published
from trueup.io.bundle.write import begin_bundle, describe_measured, finish_bundle, write_release
from trueup.io.published.perturbed import read_perturbed
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.model.perturbed import load_perturbed
from trueup.model.problem import Problem, spec_and_text
from trueup.model.records.assessment import Assessment, refuse_confidential
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.spec import Spec
from trueup.noise.law import NO_LIMIT
from trueup.noise.perturbed import CountInterval
from trueup.reconciling import Prepared, build, choose, reconcile
from trueup.reconciling.general_projection import GeneralProjection
from trueup.releasing import Log, Watch, quiet
from trueup.releasing.engine import settled


def reconcile_bundle(
    folder: str | Path,
    out: str | Path,
    *,
    method: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    memory: int | None = None,
    watch: Watch = quiet,
) -> Release:
    """Reconcile the measurements of a bundle into a new bundle.

    Where the bytes of memory are given that this may use, a bundle that needs more is refused by name.
    """
    log, source, out = Log(watch), Path(folder), Path(out)
    refuse_occupied(out)
    refuse_beyond(source, memory)
    manifest = read_manifest(source)
    if manifest["guarantee"].get("kind") == "none":
        raise BundleError(
            f"'{folder}' holds tables that somebody else published",
            needed="a bundle of your own measurements",
            remedy="reconcile the tables themselves: trueup reconcile --perturbed SPEC --table FILE --out NEW",
        )
    with log.stage("reading the measurements"):
        measurements = read_measurements(source)
        spec_text, spec = read_spec(source)
    with log.stage("choosing the method"):
        constraints = measurements.by(spec).constraints.within(*measurements.bounds)
        chosen = build(method, parameters or {}) if method else choose(spec.reconcile, constraints)
        prepared = Prepared.of(constraints, measurements.headers, chosen)
    with staged(out) as target:
        draft = _copy_measurement_files(source, manifest, target, spec_text) | {"ledger": manifest["ledger"]}
        released, made = settled(target, prepared, measurements, draft, log)
        page = reporting.report(released, spec, ledger=manifest["ledger"])
        finish_bundle(target, made, page, log.plain())
    return released


def _copy_measurement_files(
    source: Path, manifest: Mapping[str, Any], target: Path, spec_text: str
) -> dict[str, Any]:
    """Copy the measurements of a bundle into a new bundle; return the manifest entries that remain valid."""
    public = begin_bundle(target, spec_text)
    for name in ("places.parquet", *(n for n in manifest["files"] if n.startswith("measurements/"))):
        shutil.copyfile(source / "public" / name, public / name)
    made_after = {"checks", "counts", "files", "method", "misses", "not listed", "run", "stats"}
    return {name: held for name, held in manifest.items() if name not in made_after}


def render_bundle(folder: str | Path, *, publish: bool = False, **options: Any) -> reporting.Report:
    """Write the report of a bundle or of an assessment anew from its files.

    Parameters
    ----------
    folder
        The bundle, or the assessment.
    publish
        True if the page is for others to read.
    options
        Options of `trueup.report`: `level`, `shapes`.

    Raises
    ------
    PrivacyError
        If it is to be published and is an assessment on confidential counts.
    """
    source = Path(folder)
    page = (source / "report.html").is_file()
    if source.name == "public" and (source / "measurements").is_dir():
        raise BundleError(
            f"'{folder}' is the public folder of a bundle", remedy="give the folder that contains it"
        )
    if is_posterior(source) and (page or (source / "summary").is_dir()):  # else a public folder alone
        raise BundleError(
            f"'{folder}' is a posterior, which does not hold the spec that a report is made with",
            remedy=f"open '{source / 'report.html'}'"
            if page
            else f"read the tables in '{source / 'summary'}', or ask: trueup ask {folder} QUESTION",
        )
    if not holds_assessment(source):
        manifest = read_manifest(source)
        refuse_altered(source, manifest)
        whole = manifest["kind"] == "measurements"
        record = read_measurements(source) if whole else StoredRelease(source, manifest)
        return _laid_out(source, record, read_spec(source)[1], ledger=manifest["ledger"], **options)
    record, spec = read_assessment(source)
    if publish:
        refuse_confidential(record.public)
    return _laid_out(source, record, spec, **options)


def _laid_out(source: Path, *given: Any, **options: Any) -> reporting.Report:
    """Return the report of a record that was read from files; raise BundleError if a figure is missing."""
    try:
        return reporting.report(*given, **options)
    except (LookupError, TypeError, ValueError) as error:
        if isinstance(error, TrueupError):
            raise
        raise BundleError(
            f"'{source}' lacks figures that its report shows", remedy="restore it from a backup copy"
        ) from None


def assess_table(
    spec: Spec | Problem | str | Path,
    truth: Any,
    out: str | Path,
    *,
    geography: Any = None,
    watch: Watch = quiet,
    **options: Any,
) -> Assessment:
    """Assess a spec, and write the assessment as a folder with figures, report and Parquet tables.

    Parameters
    ----------
    spec, truth, geography
        The parameters of `trueup.assess`.
    out
        A new folder: `internal/` holds a confidential assessment, `public/` one whose truth is public.
    watch
        Called with what is being done, how many parts of it are done, and how many there are.
    options
        Further arguments of `trueup.assess`.
    """
    from trueup.assessing import assess

    refuse_occupied(Path(out))
    stated, text = spec_and_text(spec)
    watch("reading the spec and the counts", 0, 1)
    given, progress = spec if isinstance(spec, Problem) else stated, partial(watch, "simulating releases")
    record = assess(given, truth, geography, progress=progress, **options)
    watch("writing the assessment", 0, 1)
    write_assessment(out, stated.text() if text is None else text, record, reporting.report(record, stated))
    return record


def reconcile_published(
    spec: str | Path,
    tables: Sequence[Any],
    out: str | Path,
    *,
    geography: Any = None,
    method: str | None = None,
    watch: Watch = quiet,
) -> Release:
    """Reconcile published tables into whole counts that add up, and write them as a bundle.

    Parameters
    ----------
    spec, tables, geography
        The parameters of `trueup.read_perturbed`.
    out
        A new folder.
    method
        The name of a method; by default the first that fits.
    watch
        Called with what is being done, how many parts of it are done, and how many there are.
    """
    log, out = Log(watch), Path(out)
    refuse_occupied(out)
    with log.stage("reading the published tables"):
        measurements = read_perturbed(load_perturbed(spec), tables, geography)
    with log.stage("reconciling"):
        released = replace(_reconciled(measurements, method), expects=None)
    assert measurements.spec is not None
    with staged(out) as target, log.stage("writing the tables"):
        manifest = {**_measured(target, measurements), **write_release(target, released)}
        page = reporting.report(released, measurements.spec)
        finish_bundle(target, manifest, page, log.plain())
    return released


def _reconciled(measurements: Measurements, method: str | None) -> Release:
    """Reconcile published values; if they contradict each other, raise an error that names the values."""
    try:
        return reconcile(measurements, method)
    except SpecError:
        if (lost := _unpublished(measurements)).size:
            bounded = _with_bounds_of_sums(measurements, lost)
            return replace(_reconciled(bounded, method), measurements=measurements)
        if method is None and any(header.groups is not None for header in measurements.headers):
            return _reconciled(measurements, GeneralProjection.name)  # takes codes beside values in any table
        raise
    except InfeasibleError as error:
        from trueup.inferring.contradictions import contradicting_values  # slow to import

        named = contradicting_values(measurements, measurements.by(None).constraints)
        raise named or error from None


def _unpublished(measurements: Measurements) -> NDArray[np.int64]:
    """Return the positions of the finest counts that are not published singly."""
    cells, known = measurements.cells, np.zeros(measurements.cells.n, bool)
    for header in measurements.headers:
        if canonical(cells, header.margin) == cells.finest:
            known[slice(None) if header.groups is None else header.groups] = True
    return np.flatnonzero(~known)


def _with_bounds_of_sums(measurements: Measurements, lost: NDArray[np.int64]) -> Measurements:
    """Return the published values, and ranges from published sums for the counts that are not published.

    Upper ends are rounded up to powers of two, so that few ranges stand for many counts.
    """
    cells, most = measurements.cells, np.full(measurements.cells.n, np.inf)
    for header, values in zip(measurements.headers, measurements.values):
        high = np.full(cells.size(header.margin), np.inf)
        ends = np.asarray(header.law.bounds(values)[1], float)
        high[slice(None) if header.groups is None else header.groups] = np.where(
            ends < NO_LIMIT, ends, np.inf
        )
        most = np.minimum(most, high[cells.groups(cells.finest, header.margin)])
    most = np.maximum(most[lost], 1)
    if (free := lost[np.isinf(most)]).size:
        raise SpecError(
            f"no table gives a number or an upper limit for '{cells.label(int(free[0]))}'"
            + (f", nor for {free.size - 1:,} more counts" if free.size > 1 else ""),
            needed="a number or a range such as '1-4' for each such count, or for a total that includes it",
            remedy="in `codes` of the table, replace 'unknown' by the range that the code stands for, such as '1-4'",
        )
    powers = np.ceil(np.log2(most)).astype(np.int64)
    headers, values = list(measurements.headers), list(measurements.values)
    for power in np.unique(powers).tolist():
        law, groups = CountInterval(0, 2**power), lost[powers == power]
        headers.append(Measured("bounds of sums", cells.finest, law, groups))
        values.append(np.full(len(groups), law.centre))
    spec: Any = measurements.spec
    spec.note(
        [
            f"Nothing is published of {len(lost):,} counts alone, '{cells.label(int(lost[0]))}' first: what stands there is one "
            "choice among those that published sums allow."
        ]
    )
    return replace(measurements, headers=tuple(headers), values=tuple(values))


def _measured(folder: Path, measurements: Measurements) -> dict[str, Any]:
    """Write spec, places and published values into a bundle; return the manifest entries."""
    spec: Any = measurements.spec
    text, cells = spec.text(), measurements.cells
    public = begin_bundle(folder, text)
    (public / "measurements").rmdir()
    with connect(folders=[public]) as connection:
        write_places(public / "places.parquet", cells, connection)
        write_published(public, cells, measurements.headers, measurements.values, connection)
    sizes = dict(zip(cells.tree.levels, cells.tree.sizes))
    each = cells.n // cells.shape[0]
    said = describe_measured(text, sizes, each, measurements.headers, measurements.guarantee)
    return said | {"measurements": measurements.digest, "noted": list(spec.noted)}
