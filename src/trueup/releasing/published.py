"""Whole counts fitted to tables that somebody else published, as a bundle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup import reporting
from trueup.errors import InfeasibleError, SpecError
from trueup.files.database import connect
from trueup.files.staging import staged
from trueup.files.target import refuse_occupied
from trueup.io.bundle.places import write_places
from trueup.io.bundle.published import write_published
from trueup.io.bundle.write import begin_bundle, describe_measured, finish_bundle, write_release
from trueup.io.published.perturbed import read_perturbed
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.model.perturbed import load_perturbed
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.noise.law import NO_LIMIT
from trueup.noise.perturbed import CountInterval
from trueup.reconciling import reconcile
from trueup.reconciling.general_projection import GeneralProjection
from trueup.releasing.log import Log, stages


def reconcile_published(
    spec: str | Path,
    tables: Sequence[Any],
    out: str | Path,
    *,
    geography: Any = None,
    method: str | None = None,
    tell: Callable[[str], None] = lambda stage: None,
) -> Release:
    """Reconcile published tables into whole counts, and write them as a bundle with a report.

    Parameters
    ----------
    spec, tables, geography
        As `trueup.read_perturbed` takes them.
    out
        A new folder.
    method
        The name of a method; by default the first that fits.
    tell
        Called with what is being done.

    Raises
    ------
    TrueupError
        As `read_perturbed` and `reconcile` raise.
    """
    log, out = Log(stages(tell)), Path(out)
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
    """Reconcile, or name the published values that contradict each other."""
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
    """Return the finest counts of which nothing is published alone."""
    cells, known = measurements.cells, np.zeros(measurements.cells.n, bool)
    for header in measurements.headers:
        if canonical(cells, header.margin) == cells.finest:
            known[slice(None) if header.groups is None else header.groups] = True
    return np.flatnonzero(~known)


def _with_bounds_of_sums(measurements: Measurements, lost: NDArray[np.int64]) -> Measurements:
    """Return the published values with a range for each count of which nothing is published, as sums that hold it bound it.

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
            f"nothing is published of '{cells.label(int(free[0]))}' alone"
            + (f", nor of {free.size - 1:,} more" if free.size > 1 else "")
            + ", and no published sum bounds it",
            needed="a value, or a range such as '1-4', of every finest count, or of a sum that holds it",
            remedy="write in `codes` of its table what stands for it, a range in the place of 'unknown'",
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
    """Write spec, places and published values; return their manifest entries."""
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
