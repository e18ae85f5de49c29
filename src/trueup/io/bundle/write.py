"""Records written as the files of a bundle."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from trueup.errors import PrivacyError
from trueup.files.columns import write_parquet
from trueup.files.source import connect
from trueup.io.bundle.manifest import FORMAT, guarantee_out, header_out, margin_out, slug
from trueup.io.bundle.places import write_places
from trueup.model.cells import Cells, Margin
from trueup.model.header import Measured
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.tables import margin_columns
from trueup.version import __version__


def write_measurements(folder: Path, spec_text: str, measurements: Measurements) -> dict[str, Any]:
    """Write the public part of measurements; return the manifest without its file digests.

    Raises
    ------
    PrivacyError
        If the measurements are simulated: their noise came from a seed and protects nobody.
    """
    if measurements.simulation:
        raise PrivacyError(
            "simulated measurements are never published", needed="measurements by `trueup.measure`"
        )
    public = folder / "public"
    (public / "measurements").mkdir(parents=True)
    (folder / "internal").mkdir(mode=0o700)  # others may read `public/`, nobody else this
    (public / "spec.toml").write_text(spec_text, encoding="utf-8")
    with connect(folders=[public]) as connection:
        write_places(public / "places.parquet", measurements.cells, connection)
        headers = [
            _write_header(public, i, h, v, measurements.cells, connection)
            for i, (h, v) in enumerate(zip(measurements.headers, measurements.values))
        ]
    return {
        "format": FORMAT,
        "trueup": __version__,
        "kind": "measurements",
        "spec": hashlib.sha256(spec_text.encode()).hexdigest(),
        "measurements": measurements.digest,
        "guarantee": guarantee_out(measurements.guarantee),
        "headers": headers,
        "ledger": None,
    }


def write_release(folder: Path, release: Release) -> dict[str, Any]:
    """Write the released tables; return what the manifest says of them."""
    tables = folder / "public" / "counts"
    tables.mkdir()
    cells = release.cells
    with connect(folders=[tables]) as connection:
        for margin in release.published:
            columns = margin_columns(cells, margin) | {"count": release.sums(margin)}
            if (errors := release.errors.get(margin)) is not None:
                columns["standard_error"] = errors
            write_parquet(tables / f"{slug(margin)}.parquet", columns, connection)
    return {
        "kind": "release",
        "method": dict(release.method),
        "checks": dict(release.checks),
        "stats": dict(release.stats),
        "expected errors": release.expected.written() if release.expected else None,
        "counts": [{"file": f"counts/{slug(m)}.parquet", **margin_out(m)} for m in release.published],
    }


def _write_header(
    public: Path, number: int, header: Measured, values: NDArray, cells: Cells, connection: Any
) -> dict[str, Any]:
    file = f"measurements/{number:03d}-{slug(Margin(header.query))}-{slug(header.margin)}.parquet"
    columns = margin_columns(cells, header.margin)
    if header.groups is not None:
        columns = {name: column[header.groups] for name, column in columns.items()}
        columns["group"] = header.groups
    write_parquet(public / file, columns | {"exact" if header.exact else "noisy": values}, connection)
    return {"file": file, **header_out(header), "some_groups": header.groups is not None}
