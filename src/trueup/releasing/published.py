"""Whole counts fitted to tables that somebody else published, as a bundle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trueup import reporting
from trueup.errors import InfeasibleError, SpecError
from trueup.files.database import connect
from trueup.files.staging import staged
from trueup.files.target import refuse_occupied
from trueup.io.bundle.places import write_places
from trueup.io.bundle.published import write_published
from trueup.io.bundle.write import begin_bundle, describe_measured, finish_bundle, write_release
from trueup.io.published.perturbed import read_perturbed
from trueup.model.nested import canonical
from trueup.model.perturbed import load_perturbed
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.reconciling import reconcile
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
        _refuse_unknown(measurements)
        raise
    except InfeasibleError as error:
        from trueup.inferring.contradictions import contradicting_values  # slow to import

        named = contradicting_values(measurements, measurements.by(None).constraints)
        raise named or error from None


def _refuse_unknown(measurements: Measurements) -> None:
    """Refuse a problem with a finest count that nothing published determines alone, and name it."""
    cells, known = measurements.cells, np.zeros(measurements.cells.n, bool)
    for header in measurements.headers:
        if canonical(cells, header.margin) == cells.finest:
            known[slice(None) if header.groups is None else header.groups] = True
    if (lost := np.flatnonzero(~known)).size:
        raise SpecError(
            f"nothing is published of '{cells.label(int(lost[0]))}' alone"
            + (f", nor of {lost.size - 1:,} more" if lost.size > 1 else ""),
            needed="a value, or a range such as '1-4', of every finest count, or sums that leave one choice",
            remedy="write in `codes` of its table what stands for it, a range in the place of 'unknown'",
        )


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
