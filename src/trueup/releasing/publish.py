"""Write the bundle of a release by blocks from the parts of its run, and read back what it says of itself."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trueup import reporting
from trueup.errors import BundleError
from trueup.io.bundle.manifest import (
    BLOCKS,
    FORMAT,
    MANIFEST,
    margin_out,
    read_manifest,
    slug,
    write_manifest,
)
from trueup.io.bundle.read import release_in
from trueup.model.cells import Margin
from trueup.model.records.release_by_parts import Miss, ReleaseByBlocks
from trueup.releasing.rules import CHECKS
from trueup.releasing.run_folder import RunFolder
from trueup.run.parts import Parts
from trueup.version import __version__

NOTE = "a cell of the domain that a table does not list is zero"


def write_bundle(
    folder: RunFolder, target: Path, digest: str, stamp: Mapping[str, Any] | None, log: Mapping[str, Any]
) -> None:
    """Fill a staging folder: parts are linked, not copied, so that it takes no room."""
    public, internal = target / "public", target / "internal"
    internal.mkdir(mode=0o700, parents=True)
    public.mkdir()
    (public / "spec.toml").write_text(folder.spec_text, encoding="utf-8")
    _link(folder.places, "all", public / "places.parquet")
    manifest = _manifest(folder, digest, stamp)
    for stage in folder.cut.bundles:
        for b in stage:
            _link(folder.measured, str(b), public / "measurements" / f"part-{b}.parquet")
    for level, table in enumerate(manifest["counts"]):
        for name in _parts_of(folder, level):
            _link(folder.tables, name, public / table["files"].replace("*", name[3:]))
    page = reporting.report(
        release_in(manifest, str(folder.plan["out"])), folder.spec, ledger=manifest["ledger"]
    )
    (public / "report.html").write_text(page, encoding="utf-8")
    write_manifest(target, manifest)
    (internal / "run.json").write_text(json.dumps({**log, "bytes": _sizes(folder)}, indent=2) + "\n")


def published_by(folder: RunFolder) -> ReleaseByBlocks | None:
    """What a run has published already; None if it has not."""
    out = Path(folder.plan["out"])
    if not (out / MANIFEST).is_file():
        return None
    manifest = read_manifest(out)
    return release_in(manifest, str(out)) if manifest.get("run") == folder.plan["run"] else None


def _manifest(folder: RunFolder, digest: str, stamp: Mapping[str, Any] | None) -> dict[str, Any]:
    plan, attributes = folder.plan, tuple(a.name for a in folder.spec.attributes)
    reports = [
        json.loads(folder.settled.path(f"report-{b}").read_text())
        for stage in folder.cut.bundles
        for b in stage
    ]
    names = [level.name for level in folder.spec.levels]
    return {
        "format": FORMAT,
        "layout": BLOCKS,
        "trueup": __version__,
        "kind": "release",
        "run": plan["run"],
        "spec": plan["spec"],
        "measurements": digest,
        "parts": {str(b): folder.measured.part(str(b)).digest for stage in folder.cut.bundles for b in stage},
        "guarantee": plan["guarantee"],
        "headers": plan["headers"],
        "ledger": None if stamp is None else dict(stamp),
        "levels": [{"level": name, "places": size} for name, size in zip(names, plan["sizes"])],
        "cells": folder.cells(folder.branch(folder.cut.bundles[0][0])).n
        // plan["sizes"][folder.cut.stages[0].bottom],
        "method": plan["method"],
        "checks": dict.fromkeys(CHECKS, True),  # a bundle that breaks one ends the run
        "stats": _worst(r["stats"] for r in reports),
        "misses": [asdict(miss) for miss in _misses(m for r in reports for m in r["misses"])],
        "counts": [
            {
                "files": f"counts/{slug(Margin(name))}/part-*.parquet",
                **margin_out(Margin(name, attributes)),
            }
            for name in names
        ],
        "not listed": NOTE,
    }


def _parts_of(folder: RunFolder, level: int) -> list[str]:
    """Names of the parts of a level's table, in the order of its places."""
    stage = next(s for s in range(len(folder.cut.stages)) if level in folder.cut.settled(s))
    return [f"{level:02d}-{b}" for b in folder.cut.bundles[stage]]


def _link(parts: Parts, name: str, target: Path) -> None:
    source = parts.path(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
        target.chmod(0o644)
    except OSError as error:
        raise BundleError(
            f"cannot link '{target.name}': {error.strerror}", remedy="check space and permissions"
        ) from None


def _worst(stats: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The largest of every bundle's figures."""
    found: dict[str, float] = {}
    for part in stats:
        found = {key: max(value, found.get(key, value)) for key, value in part.items()}
    return found


def _misses(parts: Iterable[Mapping[str, Any]]) -> list[Miss]:
    """Join the bundles' sums of squares by query and level."""
    sums: dict[tuple[str, str], tuple[int, float]] = {}
    for part in parts:
        counts, squares = sums.get((part["query"], part["level"]), (0, 0.0))
        sums[part["query"], part["level"]] = counts + part["counts"], squares + part["squares"]
    return [Miss(query, level, n, (squares / n) ** 0.5) for (query, level), (n, squares) in sums.items()]


def _sizes(folder: RunFolder) -> dict[str, int]:
    """Bytes of every kind of part."""
    kinds = ("confidential", "places", "measured", "estimates", "settled", "tables")
    return {k: sum(p.stat().st_size for p in (folder.path / k).rglob("*") if p.is_file()) for k in kinds}
