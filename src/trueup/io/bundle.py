"""Bundles on disk: `public/` may be published as it is, `internal/` stays with the agency.

public/manifest.json      what was done, exactly, with the digest of every other public file
public/spec.toml          the spec as it was given
public/places.parquet     the public places of the last level with all their keys, names and limits
public/measurements/*     one table per noisy margin (and per invariant, labelled so)
public/counts/*           one table per published margin
public/report.html        the report
internal/run.json         run log, timings, keyed fingerprint of the input
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import BundleError, PrivacyError
from trueup.io.columns import write_parquet
from trueup.io.table import connect, open_table
from trueup.io.whole import whole_limits
from trueup.model.build import build_cells
from trueup.model.cells import Cells, Margin
from trueup.model.guarantee import Charge, Guarantee
from trueup.model.measurements import Measured, Measurements
from trueup.model.release import Release
from trueup.model.spec import Spec, parse_spec
from trueup.model.tree import Tree
from trueup.noise import law_named
from trueup.noise.exact import Exact
from trueup.version import __version__

FORMAT = 1
BLOCKS = "blocks"
"""The layout of a bundle that holds many places, part by part; see `docs/bundle.md`."""
MANIFEST = Path("public/manifest.json")
_MEASURED = {"files", "guarantee", "headers", "kind", "ledger", "measurements", "spec"}
_HEADER = {"attributes", "law", "level", "parameters", "query"}
_KEYS = {"measurements": _MEASURED, "release": _MEASURED | {"checks", "counts", "method", "stats"}}


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
            columns = margin_columns(cells, margin) | {"count": release.table(margin)}
            if (errors := release.errors.get(margin)) is not None:
                columns["standard_error"] = errors
            write_parquet(tables / f"{slug(margin)}.parquet", columns, connection)
    return {
        "kind": "release",
        "method": dict(release.method),
        "checks": dict(release.checks),
        "stats": dict(release.stats),
        "counts": [{"file": f"counts/{slug(m)}.parquet", **margin_out(m)} for m in release.published],
    }


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest with the digest of every other public file: the bundle is complete."""
    public = folder / "public"
    files = {str(p.relative_to(public)): digest(p) for p in sorted(public.rglob("*")) if p.is_file()}
    text = json.dumps({**manifest, "files": files}, indent=2, sort_keys=True)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a bundle's manifest.

    Raises
    ------
    BundleError
        If the folder is no bundle, or of a newer format.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        known = manifest["format"] == FORMAT
        if known:
            _refuse_incomplete(manifest)
    except OSError:
        raise BundleError(
            f"'{folder}' is not a bundle: it has no {MANIFEST}", remedy="check the path"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise BundleError(f"the manifest of '{folder}' is damaged", remedy="restore the bundle") from None
    if not known:
        raise BundleError(f"'{folder}' has format {manifest['format']}", needed=f"format {FORMAT}")
    return manifest


def _refuse_incomplete(manifest: Mapping[str, Any]) -> None:
    """Raise KeyError or TypeError where a part that others read is not there."""
    parts = [(manifest, _KEYS.get(manifest["kind"], _KEYS["release"]))]
    parts += [(header, _HEADER) for header in manifest["headers"]]
    parts += [(manifest["method"], {"method"})] if "method" in manifest else []
    if lost := [name for part, names in parts for name in names - set(part)]:
        raise KeyError(min(lost))


def read_spec(folder: Path) -> tuple[str, Spec]:
    """Read the spec of a bundle, as text and parsed."""
    text = _read(folder, "spec.toml")
    return text, parse_spec(text)


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
        from trueup.io import block_bundle

        return block_bundle.read_measurements(folder, manifest)
    _, spec = read_spec(folder)
    cells = build_cells(spec, read_places(folder / "public" / "places.parquet", spec))
    pairs = [_read_header(folder / "public", entry) for entry in manifest["headers"]]
    record = Measurements(
        cells, tuple(h for h, _ in pairs), tuple(v for _, v in pairs), guarantee_in(manifest["guarantee"])
    )
    if record.digest != manifest["measurements"]:
        raise BundleError(f"the measurements of '{folder}' do not have the digest that its manifest states")
    return record


def read_counts(folder: Path, cells: Cells) -> dict[Margin, NDArray[np.int64]]:
    """Read every released table of a bundle, in the order of its margin's groups."""
    manifest = read_manifest(folder)
    if "counts" not in manifest:
        raise BundleError(
            f"'{folder}' holds measurements but no released counts", remedy="run `trueup reconcile`"
        )
    if manifest.get("layout") == BLOCKS:
        from trueup.io import block_bundle

        return block_bundle.read_counts(folder, manifest, cells)
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


def read_release(folder: Path) -> Release:
    """Read the released counts of a bundle with its measurements.

    Raises
    ------
    BundleError
        If a file is missing or is not the one that the manifest names, or nothing was released.
    """
    measurements, manifest = read_measurements(folder), read_manifest(folder)
    tables = read_counts(folder, measurements.cells)
    counts = tables[measurements.cells.finest]
    return Release(
        measurements, counts, manifest["method"], manifest["checks"], manifest["stats"], tuple(tables)
    )


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


def refuse_altered(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a bundle in which a public file is missing or is not the one that was written."""
    for name, expected in manifest["files"].items():
        path = folder / "public" / name
        if not path.is_file():
            raise BundleError(f"'{folder}' lacks public/{name}", remedy="restore the bundle")
        if digest(path) != expected:
            raise BundleError(f"public/{name} of '{folder}' is not the file that was written")


def unlisted(folder: Path) -> list[str]:
    """Name the files in `public/` that the manifest does not list: nobody vouches for them."""
    public = folder / "public"
    listed = {MANIFEST.name, *read_manifest(folder)["files"]}
    held = (p.relative_to(public).as_posix() for p in public.rglob("*") if not p.is_dir())
    return sorted(set(held) - listed)


def digest(path: Path) -> str:
    """SHA-256 of a public file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def slug(margin: Margin) -> str:
    """File name of a margin's table."""
    return "-".join(
        "".join(c if c.isalnum() or c == "_" else "_" for c in part)
        for part in (margin.level, *margin.attributes)
    )


def margin_columns(cells: Cells, margin: Margin) -> dict[str, NDArray]:
    """Key and attribute columns of every group of a margin."""
    places, *sizes = cells.margin_shape(margin)
    per_place = int(np.prod(sizes, dtype=np.int64))
    level = cells.tree.level(margin.level)
    columns = {name: np.repeat(col, per_place) for name, col in place_keys(cells.tree, level).items()}
    grid = np.indices(sizes).reshape(len(sizes), -1) if sizes else []
    for recode, index in zip(cells.kept(margin), grid):
        columns[recode.name] = np.tile(np.array(recode.values)[index], places)
    return columns


def place_keys(tree: Tree, level: int) -> dict[str, NDArray]:
    """Key columns of the places of a level, as published tables name them."""
    if tree.keys and tree.keys[level]:
        return tree.keys[level]
    return {tree.levels[level]: np.arange(tree.sizes[level]).astype(str)}


def write_places(path: Path, cells: Cells, connection: Any = None) -> None:
    """Write the public places of the last level with their keys on every level."""
    tree, last = cells.tree, len(cells.tree.levels) - 1
    columns = {}
    for level, name in enumerate(tree.levels):
        at = tree.ancestors(last, level)
        keys = tree.keys[level] if tree.keys else {}
        columns |= {f"{name}.{key}": column[at] for key, column in keys.items()}
        if tree.names and (readable := tree.names[level]) is not None:
            columns[f"{name}@name"] = readable[at]
        for limit, column in (tree.limits[level] if tree.limits else {}).items():
            columns[limit_column(name, limit)] = np.ma.masked_less(column[at], 0)
    write_parquet(path, columns or {"place": np.array(["all"])}, connection)


def read_places(path: Path, spec: Spec) -> Tree:
    """Read the public places back."""
    table = open_table(path)
    columns = table.select(table.columns())
    levels = [level.name for level in spec.levels]
    keys = [_of_level(columns, f"{level}.") for level in levels]
    names = [columns.get(f"{level}@name") for level in levels]
    limits = [
        {name: whole_limits(columns[limit_column(level, name)], name) for name in held}
        for level, held in zip(levels, spec.limit_columns)
    ]
    return Tree.from_columns(levels, keys, whole_code=[True] * len(levels), names=names, limits=limits)


def limit_column(level: str, name: str) -> str:
    """Column of the places' file with the limits of a level that the spec calls by a name."""
    return f"{level}@limit {name}"


def _of_level(columns: Mapping[str, NDArray], prefix: str) -> dict[str, NDArray]:
    return {name.removeprefix(prefix): col for name, col in columns.items() if name.startswith(prefix)}


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


def header_out(header: Measured) -> dict[str, Any]:
    """What a manifest says of a measured margin."""
    return {
        "query": header.query,
        **margin_out(header.margin),
        "status": "published exactly as enumerated" if header.exact else "noisy",
        "law": header.law.name,
        "parameters": header.law.parameters(),
    }


def header_in(entry: Mapping[str, Any], groups: NDArray[np.int64] | None = None) -> Measured:
    """Read what a manifest says of a measured margin."""
    noisy = entry["law"] != Exact.name
    law = law_named(entry["law"]).from_parameters(entry["parameters"]) if noisy else Exact()
    return Measured(entry["query"], Margin(entry["level"], tuple(entry["attributes"])), law, groups)


def _read_header(public: Path, entry: Mapping[str, Any]) -> tuple[Measured, NDArray[np.int64]]:
    table = open_table(public / entry["file"])
    header = header_in(entry, table.select(["group"])["group"] if entry["some_groups"] else None)
    value = "exact" if header.exact else "noisy"
    return header, table.select([value])[value].astype(np.int64)


def margin_out(margin: Margin) -> dict[str, Any]:
    """What a manifest says of a margin."""
    return {"level": margin.level, "attributes": list(margin.attributes)}


def guarantee_out(guarantee: Guarantee) -> dict[str, Any]:
    """A guarantee as JSON, amounts as rational text."""
    return json.loads(json.dumps(asdict(guarantee), default=str))


def guarantee_in(entry: Mapping[str, Any]) -> Guarantee:
    """Read a guarantee from JSON."""
    charges = (
        Charge(**{**c, "amount": Fraction(c["amount"]), "delta": Fraction(c["delta"])})
        for c in entry["charges"]
    )
    exact = {name: Fraction(entry[name]) for name in ("amount", "delta")}
    return Guarantee(**{**entry, **exact, "charges": tuple(charges), "sentences": tuple(entry["sentences"])})


def _read(folder: Path, name: str) -> str:
    try:
        return (folder / "public" / name).read_text(encoding="utf-8")
    except OSError:
        raise BundleError(f"'{folder}' lacks public/{name}", remedy="restore the bundle") from None
