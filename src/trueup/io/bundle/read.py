"""Records read back from the files of a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import BundleError
from trueup.files.source import open_table
from trueup.io.bundle.manifest import (
    BLOCKS,
    guarantee_in,
    header_in,
    read_manifest,
    read_spec,
    refuse_altered,
)
from trueup.io.bundle.places import read_places
from trueup.model.build import build_cells
from trueup.model.cells import Cells, Margin
from trueup.model.header import Measured
from trueup.model.mechanism_on_lattice import with_lattices
from trueup.model.records.expected_errors import ExpectedErrors
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.records.release_by_parts import Miss, ReleaseByBlocks
from trueup.model.tables import margin_columns


def read_published(out: Path) -> ReleaseByBlocks:
    """Read what a bundle by blocks says of itself.

    Raises
    ------
    BundleError
        If the folder is no bundle, or one of another layout.
    """
    manifest = read_manifest(out)
    if manifest.get("layout") != BLOCKS:
        raise BundleError(f"'{out}' was not released by blocks", remedy="read it with `trueup.read_release`")
    return release_in(manifest, str(out))


def release_in(manifest: Mapping[str, Any], folder: str) -> ReleaseByBlocks:
    """Read what the manifest of a release by blocks says."""
    return ReleaseByBlocks(
        folder,
        manifest["measurements"],
        tuple(header_in(entry) for entry in manifest["headers"]),
        guarantee_in(manifest["guarantee"]),
        {entry["level"]: entry["places"] for entry in manifest["levels"]},
        manifest["cells"],
        tuple(Margin(t["level"], tuple(t["attributes"])) for t in manifest["counts"]),
        manifest["method"],
        manifest["checks"],
        manifest["stats"],
        tuple(Miss(**miss) for miss in manifest["misses"]),
    )


def read_measurements(folder: str | Path) -> Measurements:
    """Read the measurements of a bundle.

    Raises
    ------
    BundleError
        If a file is missing or is not the one that the manifest names.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    refuse_altered(folder, manifest)
    if manifest.get("layout") == BLOCKS:
        from trueup.io.bundle import read_parts as block_bundle

        return block_bundle.read_part_measurements(folder, manifest)
    _, spec = read_spec(folder)
    cells = build_cells(spec, read_places(folder / "public" / "places.parquet", spec))
    pairs = [_read_header(folder / "public", entry) for entry in manifest["headers"]]
    record = Measurements(
        cells,
        with_lattices(spec, cells, [h for h, _ in pairs]),
        tuple(v for _, v in pairs),
        guarantee_in(manifest["guarantee"]),
        spec=spec,
    )
    if record.digest != manifest["measurements"]:
        raise BundleError(f"the measurements of '{folder}' do not have the digest that its manifest states")
    return record


def read_released(folder: Path, cells: Cells) -> dict[Margin, NDArray[np.int64]]:
    """Read every released table of a bundle, in the order of its margin's groups."""
    manifest = read_manifest(folder)
    if "counts" not in manifest:
        raise BundleError(
            f"'{folder}' holds measurements but no released counts", remedy="run `trueup reconcile`"
        )
    if manifest.get("layout") == BLOCKS:
        from trueup.io.bundle import read_parts as block_bundle

        return block_bundle.read_part_counts(folder, manifest, cells)
    tables = {}
    for entry in manifest["counts"]:
        margin = Margin(entry["level"], tuple(entry["attributes"]))
        columns = open_table(folder / "public" / entry["file"])
        expected = margin_columns(cells, margin)
        read = columns.select([*expected, "count"])
        if any(not np.array_equal(read[name], column) for name, column in expected.items()):
            raise BundleError(f"table '{entry['file']}' does not list the groups of '{margin}'")
        tables[margin] = read["count"]
    return tables


def read_errors(folder: Path, cells: Cells) -> dict[Margin, NDArray[np.float64]]:
    """Read the standard errors (counts) of the tables that state them."""
    found, manifest = {}, read_manifest(folder)
    if manifest.get("layout") == BLOCKS:
        return found
    for entry in manifest["counts"]:
        table = open_table(folder / "public" / entry["file"])
        if "standard_error" in table.columns():
            margin = Margin(entry["level"], tuple(entry["attributes"]))
            found[margin] = table.select(["standard_error"])["standard_error"]
    return found


def _read_header(public: Path, entry: Mapping[str, Any]) -> tuple[Measured, NDArray[np.int64]]:
    table = open_table(public / entry["file"])
    header = header_in(entry, table.select(["group"])["group"] if entry["some_groups"] else None)
    value = "exact" if header.exact else "noisy"
    return header, table.select([value])[value].astype(np.int64)


def read_release(folder: str | Path) -> Release:
    """Read a release back from its bundle.

    Raises
    ------
    BundleError
        If the folder holds no release, or an altered one.
    """
    source = Path(folder)
    manifest = read_manifest(source)
    measurements = read_measurements(source)
    tables = read_released(source, measurements.cells)
    return Release(
        measurements,
        tables[measurements.cells.finest],
        manifest["method"],
        manifest["checks"],
        manifest["stats"],
        published=tuple(tables),
        errors=read_errors(source, measurements.cells),
        expects=ExpectedErrors.read(written) if (written := manifest.get("expected errors")) else None,
    )
