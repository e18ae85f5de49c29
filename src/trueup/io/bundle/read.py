"""Readers of measurements and releases from the files of a bundle.

One file: both are read with the same checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import BundleError
from trueup.files.database import connect, parquet, quiet_duckdb
from trueup.files.memory import BYTES_PER_CELL, PROCESS_BYTES, refuse_needed
from trueup.io.bundle.manifest import (
    guarantee_in,
    header_in,
    listed,
    margin_in,
    measured_file,
    read_manifest,
    read_spec,
    refuse_altered,
    seal_of,
)
from trueup.io.bundle.places import read_places
from trueup.io.bundle.strict import damaged_bundle, refuse_untyped
from trueup.io.bundle.tables import read_counted, read_left_out, read_values
from trueup.model.build import problem_cells
from trueup.model.cells import Cells, Margin
from trueup.model.guarantee import Guarantee
from trueup.model.header import Measured
from trueup.model.records.expected_errors import ExpectedErrors
from trueup.model.records.measurements import LeftOut, Measurements
from trueup.model.records.release import Miss, Release
from trueup.model.spec import Spec

MAX_CELLS_READ = 200_000_000
"""Largest number of cells that is read at once."""


def read_measurements(folder: str | Path) -> Measurements:
    """Read the measurements of a bundle, after checking every public file against its digest.

    Raises
    ------
    BundleError
        If a file is missing or is not the one that the manifest names, or they are too many to be held at once.

    Examples
    --------
    >>> import pandas, tempfile, trueup
    >>> from trueup.demo import AREAS
    >>> out = Path(tempfile.mkdtemp()) / "areas"
    >>> released = trueup.release(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]}), out)
    >>> read_measurements(out).digest == released.measurements.digest
    True
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    refuse_altered(folder, manifest)
    return _measurements(folder, manifest)


def read_release(folder: str | Path) -> Release:
    """Read a release from its bundle, after checking every public file against its digest.

    Raises
    ------
    BundleError
        If the folder holds no release, an altered one, or one that is too large to be held at once.

    Examples
    --------
    >>> import pandas, tempfile, trueup
    >>> from trueup.demo import AREAS
    >>> out = Path(tempfile.mkdtemp()) / "areas"
    >>> released = trueup.release(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]}), out)
    >>> bool((read_release(out).counts == released.counts).all())
    True
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    refuse_unreleased(folder, manifest)
    refuse_altered(folder, manifest)
    release = StoredRelease(folder, manifest)
    assert release.counts is not None  # read now: the folder may be gone later
    assert release.spec
    return release


class StoredRelease(Release):
    """A release whose counts are read from their bundle at first use.

    What its manifest says is at hand: method, checks, noise distributions, guarantee, digests. A nation's counts may be too
    many to be read at once.
    """

    folder: Path
    manifest: Mapping[str, Any]

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self.__dict__.update(
            folder=folder,
            manifest=manifest,
            method=manifest["method"],
            checks=manifest["checks"],
            stats=manifest["stats"],
            published=tuple(margin_in(entry) for entry in manifest["counts"]),
            expects=ExpectedErrors.read(written) if (written := manifest.get("expected errors")) else None,
        )

    @cached_property
    def spec(self) -> Spec:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the spec in the bundle."""
        return read_spec(self.folder, self.manifest)[1]

    @cached_property
    def measurements(self) -> Measurements:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the measurements of the release, read from the bundle."""
        return _measurements(self.folder, self.manifest)

    @cached_property
    def _tables(self) -> dict[Margin, tuple[NDArray, NDArray | None]]:
        return _released_tables(self.folder, self.manifest, self.measurements.cells)

    @cached_property
    def counts(self) -> NDArray:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the finest counts of the release, read from the bundle."""
        tables = self.measurements.cells.finest_tables
        if lost := [margin for margin in tables if margin not in self._tables]:
            raise damaged_bundle(f"'{self.folder}' holds no counts of '{lost[0]}'")
        return np.concatenate([self._tables[margin][0] for margin in tables])

    @cached_property
    def errors(self) -> dict[Margin, NDArray]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the standard errors (counts) of every table that states them, by margin."""
        return {margin: errors for margin, (_, errors) in self._tables.items() if errors is not None}

    @cached_property
    def headers(self) -> tuple[Measured, ...]:
        """Return the description of every measured margin: query, margin and noise law."""
        return tuple(header_in(entry) for entry in self.manifest["headers"])

    @cached_property
    def guarantee(self) -> Guarantee:
        """Return the privacy guarantee: what is protected, and at what cost."""
        return guarantee_in(self.manifest["guarantee"])

    @property
    def digest(self) -> str:
        """Return the digest of the measurements, as the manifest states it."""
        return self.manifest["measurements"]

    @property
    def parts(self) -> int:
        """Return the number of parts in which the release was measured."""
        return len(self.manifest.get("parts", "1"))

    @cached_property
    def left_out(self) -> LeftOut | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the noisy number of records that the limit on each unit excluded; None if not measured."""
        if self.spec.left_out is None:
            return None
        with connect(folders=[self.folder / "public"], threads=1) as connection:
            return _left_out(connection, self.spec, _measured_files(self.folder, self.manifest))

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Return the number of places at every level, from the root down."""
        return {entry["level"]: entry["places"] for entry in self.manifest["levels"]}

    @cached_property
    def misses(self) -> tuple[Miss, ...]:
        """Return the root mean square difference of released and noisy counts, for each query and level."""
        return tuple(Miss(**miss) for miss in self.manifest["misses"])


def read_released_tables(folder: Path, cells: Cells) -> dict[Margin, NDArray]:
    """Return the counts `(groups,)` of every released table in a bundle, by margin."""
    manifest = read_manifest(folder)
    refuse_unreleased(folder, manifest)
    return {margin: counts for margin, (counts, _) in _released_tables(folder, manifest, cells).items()}


def refuse_unreleased(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a bundle of measurements without released counts."""
    if "counts" not in manifest:
        raise BundleError(
            f"'{folder}' holds measurements but no released counts", remedy="run `trueup reconcile`"
        )


def _measurements(folder: Path, manifest: Mapping[str, Any]) -> Measurements:
    record = unverified_measurements(folder, manifest)
    if record.digest != manifest["measurements"]:
        raise damaged_bundle(
            f"the measurements in '{folder}' were changed: their digest differs from the one in the manifest"
        )
    return record


def unverified_measurements(folder: Path, manifest: Mapping[str, Any]) -> Measurements:
    """Read a bundle's measurements without checking the digests of their files."""
    _, spec = read_spec(folder, manifest)
    cells = problem_cells(
        spec, read_places(folder / "public" / "places.parquet", spec, manifest["levels"][-1]["places"])
    )
    refuse_large(folder, cells)
    alone = None
    if manifest["guarantee"].get("kind") == "none":
        from trueup.io.bundle.tables import read_published

        headers, values = read_published(folder / "public", cells, manifest)
    else:
        headers = [header_in(entry).at(cells) for entry in manifest["headers"]]
        named = _measured_files(folder, manifest)
        files = parquet(named)
        # One thread keeps the rows in order.
        with connect(folders=[folder / "public"], threads=1) as connection, quiet_duckdb(f"'{folder}'"):
            kinds = {"level": "text", "place": "text", "query": "text", "exact": "truth", "value": "wholes"}
            rows = 1 + sum(cells.margin_shape(header.margin)[0] for header in headers)
            refuse_untyped(connection, named, kinds, rows)
            values = read_values(connection, files, cells, headers)
            alone = _left_out(connection, spec, named)
    if not all(header.law.factors for header in headers):
        from trueup.model.mechanism_on_lattice import with_lattices  # it loads the algebra of lattices

        headers = with_lattices(spec, cells, headers)
    return Measurements(
        cells,
        tuple(headers),
        tuple(values),
        guarantee_in(manifest["guarantee"]),
        spec=spec,
        left_out=alone,
        sealed=seal if (seal := seal_of(manifest.get("parts", {}))) == manifest["measurements"] else None,
    )


def _measured_files(folder: Path, manifest: Mapping[str, Any]) -> list[Path]:
    return [folder / "public" / measured_file(name) for name in manifest["parts"]]


def _left_out(connection: Any, spec: Spec, files: Sequence[Path]) -> LeftOut | None:
    if spec.left_out is None:
        return None
    from trueup.model.mechanism import left_out_law

    law = left_out_law(spec)
    assert law is not None
    return LeftOut(law, read_left_out(connection, parquet(files)), spec.left_out.most)


def _released_tables(
    folder: Path, manifest: Mapping[str, Any], cells: Cells
) -> dict[Margin, tuple[NDArray, NDArray | None]]:
    """Return, by margin, the counts of every released table and their standard errors if stated."""
    public, found = folder / "public", {}
    with connect(folders=[public]) as connection:
        for entry in manifest["counts"]:
            files = [public / name for name in listed(manifest, entry["files"])]
            found[margin_in(entry)] = read_counted(connection, files, cells, margin_in(entry))
    return found


def refuse_beyond(folder: Path, memory: int | None, *, each: int = BYTES_PER_CELL) -> None:
    """Refuse a bundle whose counts need more memory than the given limit.

    Parameters
    ----------
    memory
        Bytes; None if no limit is given.
    each
        Bytes needed for each finest cell, derived arrays included.

    Raises
    ------
    TrueupError
        If it needs more; the message says about how much.
    """
    if memory is None:
        return
    (_, spec), places = read_spec(folder), read_manifest(folder)["levels"][-1]["places"]
    needed = PROCESS_BYTES + each * places * prod(len(a.values) for a in spec.attributes)
    refuse_needed(f"'{folder}'", needed, memory)


def refuse_large(folder: Path, cells: Cells) -> None:
    """Refuse a bundle whose number of finest cells is above the limit for reading them at once."""
    if cells.n > MAX_CELLS_READ:
        raise BundleError(
            f"'{folder}' holds {cells.n:,} finest counts, too many to be read at once",
            needed=f"at most {MAX_CELLS_READ:,}",
            remedy="read the places you need from public/counts/LEVEL/*.parquet, with DuckDB or any reader of Parquet; "
            "counts that are not listed are zero",
        )
