"""Writer of the files that every bundle has, and of the manifest entries that describe them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trueup.errors import PrivacyError
from trueup.files.database import connect
from trueup.files.writing import write_parquet
from trueup.io.bundle.manifest import (
    FORMAT,
    digest,
    guarantee_out,
    header_out,
    margin_out,
    measured_file,
    seal_of,
    slug,
    write_manifest,
)
from trueup.io.bundle.places import write_places
from trueup.io.bundle.tables import write_measured
from trueup.model.guarantee import Guarantee
from trueup.model.header import Measured
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.tables import margin_columns
from trueup.version import __version__

WHOLE_PART = "0-00000"
"""Name of the only part of a run that is not cut into parts."""
NOTE = "a cell of the domain that a table does not list is zero"


def begin_bundle(folder: Path, spec_text: str) -> Path:
    """Create the folders of a bundle and write its spec; return the folder `public/`."""
    public = folder / "public"
    (public / "measurements").mkdir(parents=True)
    (public / "counts").mkdir()
    (folder / "internal").mkdir(mode=0o700)  # others may read `public/`, nobody else this
    (public / "spec.toml").write_text(spec_text, encoding="utf-8")
    return public


def write_measurements(folder: Path, spec_text: str, measurements: Measurements) -> dict[str, Any]:
    """Create a bundle, write measurements from memory into it, and return their manifest entries."""
    if measurements.simulation:
        raise PrivacyError(
            "the measurements are simulated, and only measurements of real data are published",
            needed="measurements by `trueup.measure`",
        )
    public, cells = begin_bundle(folder, spec_text), measurements.cells
    file = public / measured_file(WHOLE_PART)
    with connect(folders=[public]) as connection:
        write_places(public / "places.parquet", cells, connection)
        alone = measurements.left_out.value if measurements.left_out else None
        write_measured(file, cells, measurements.headers, measurements.values, connection, left_out=alone)
    sizes = dict(zip(cells.tree.levels, cells.tree.sizes))
    described = describe_measured(
        spec_text, sizes, cells.n // cells.shape[0], measurements.headers, measurements.guarantee
    )
    return described | {"measurements": measurements.digest} | sealed({WHOLE_PART: digest(file)})


def describe_measured(
    spec_text: str, sizes: Mapping[str, int], cells: int, headers: Sequence[Measured], guarantee: Guarantee
) -> dict[str, Any]:
    """Return the manifest entries for measurements, which may not have been drawn yet.

    Parameters
    ----------
    sizes
        Number of places of every level, from the root.
    cells
        Number of cells of each place of the last level.
    """
    return {
        "format": FORMAT,
        "trueup": __version__,
        "kind": "measurements",
        "spec": hashlib.sha256(spec_text.encode()).hexdigest(),
        "levels": [{"level": name, "places": places} for name, places in sizes.items()],
        "cells": cells,
        "guarantee": guarantee_out(guarantee),
        "headers": [header_out(h) for h in headers],
        "ledger": None,
    }


def sealed(parts: Mapping[str, str]) -> dict[str, Any]:
    """Return the manifest entries `parts` and `seal`: the digests of the measured files, and their seal."""
    return {"parts": dict(parts), "seal": seal_of(parts)}


def write_release(folder: Path, release: Release) -> dict[str, Any]:
    """Write the released tables of a release in memory, and return their manifest entries."""
    tables = folder / "public" / "counts"
    cells = release.cells
    with connect(folders=[tables]) as connection:
        for margin in release.published:
            columns = margin_columns(cells, margin) | {"count": release.sums(margin)}
            if (errors := release.errors.get(margin)) is not None:
                columns["standard_error"] = errors
            write_parquet(tables / f"{slug(margin)}.parquet", columns, connection)
    counts = [{"files": f"counts/{slug(m)}.parquet", **margin_out(m)} for m in release.published]
    return describe_release(release, counts)


def describe_release(release: Release, counts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the manifest entries for a release, given the entry for each released table."""
    return {
        "kind": "release",
        "method": dict(release.method),
        "checks": dict(release.checks),
        "stats": dict(release.stats),
        "expected errors": release.expected.written() if release.expected else None,
        "misses": [asdict(miss) for miss in release.misses],
        "counts": list(counts),
        "not listed": NOTE,
    }


def finish_bundle(folder: Path, manifest: Mapping[str, Any], page: str, log: Mapping[str, Any]) -> None:
    """Complete a bundle: write the report, the manifest and the agency's log."""
    (folder / "public" / "report.html").write_text(page, encoding="utf-8")
    write_manifest(folder, manifest)
    (folder / "internal" / "run.json").write_text(json.dumps(log, indent=2) + "\n", encoding="utf-8")
