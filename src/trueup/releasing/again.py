"""Second uses of a bundle: other counts from its measurements, its report; and an assessment's folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trueup import reporting
from trueup.errors import BundleError, TrueupError
from trueup.files.staging import staged
from trueup.files.target import refuse_occupied
from trueup.io.bundle.assessment import holds_assessment, read_assessment, write_assessment
from trueup.io.bundle.kept_posterior import is_posterior
from trueup.io.bundle.manifest import read_manifest, read_spec, refuse_altered
from trueup.io.bundle.read import StoredRelease, read_measurements, refuse_beyond
from trueup.io.bundle.write import begin_bundle, finish_bundle
from trueup.model.problem import Problem, spec_and_text
from trueup.model.records.assessment import Assessment, refuse_confidential
from trueup.model.records.release import Release
from trueup.model.spec import Spec
from trueup.reconciling import Prepared, build, choose
from trueup.releasing.log import Log, Watch, quiet, stages
from trueup.releasing.whole import settled

Tell = Callable[[str], None]


def reconcile_bundle(
    folder: str | Path,
    out: str | Path,
    *,
    method: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    memory: int | None = None,
    tell: Tell = lambda stage: None,
) -> Release:
    """Reconcile the measurements of a bundle into a new one; equal measurements, equal integers.

    Where the bytes of memory are given that this may use, a bundle that needs more is refused by name.
    """
    log, source, out = Log(stages(tell)), Path(folder), Path(out)
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
        draft = _copied(source, manifest, target, spec_text) | {"ledger": manifest["ledger"]}
        released, made = settled(target, prepared, measurements, draft, log)
        page = reporting.report(released, spec, ledger=manifest["ledger"])
        finish_bundle(target, made, page, log.plain())
    return released


def _copied(source: Path, manifest: Mapping[str, Any], target: Path, spec_text: str) -> dict[str, Any]:
    """Copy the files of measurements with their seal."""
    public = begin_bundle(target, spec_text)
    for name in ("places.parquet", *(n for n in manifest["files"] if n.startswith("measurements/"))):
        shutil.copyfile(source / "public" / name, public / name)
    made_after = {"checks", "counts", "files", "method", "misses", "not listed", "run", "stats"}
    return {name: held for name, held in manifest.items() if name not in made_after}


def render_bundle(folder: str | Path, *, publish: bool = False, **options: Any) -> reporting.Report:
    """Make the report of a bundle, or of an assessment, anew from its files.

    Parameters
    ----------
    folder
        The bundle, or the assessment.
    publish
        Whether the page is for others to read.
    options
        Of `trueup.report`: `level`, `shapes`.

    Raises
    ------
    PrivacyError
        If it is to be published and is an assessment on confidential counts.
    """
    source = Path(folder)
    page = (source / "report.html").is_file()
    if source.name == "public" and (source / "measurements").is_dir():
        raise BundleError(
            f"'{folder}' is the public folder of a bundle", remedy="give the folder that holds it as 'public'"
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
    """Return the page of a record from files, which may lack a figure that the page looks up by table, method or budget."""
    try:
        return reporting.report(*given, **options)
    except (LookupError, TypeError, ValueError) as error:
        if isinstance(error, TrueupError):
            raise
        raise BundleError(f"'{source}' lacks figures that its report shows", remedy="restore it") from None


def assess_table(
    spec: Spec | Problem | str | Path,
    truth: Any,
    out: str | Path,
    *,
    geography: Any = None,
    watch: Watch = quiet,
    **options: Any,
) -> Assessment:
    """Assess a spec and write the assessment as a folder: figures, report and Parquet tables.

    Parameters
    ----------
    spec, truth, geography
        As for `trueup.assess`.
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

    def progress(done: int, replicates: int) -> None:
        watch("simulating releases", done, replicates)

    watch("reading the spec and the counts", 0, 1)
    record = assess(
        spec if isinstance(spec, Problem) else stated, truth, geography, progress=progress, **options
    )
    watch("writing the assessment", 0, 1)
    write_assessment(out, stated.text() if text is None else text, record, reporting.report(record, stated))
    return record
