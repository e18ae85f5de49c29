"""Manifests of bundles, whose folder `public/` may be published while `internal/` stays with the agency.

public/manifest.json      what was done, exactly, with the digest of every other public file
public/spec.toml          the spec as it was given
public/places.parquet     the public places of the last level with all their keys, names and limits
public/measurements/*     noisy counts (and invariants, labelled so), one file for each part of the run
public/counts/*           released counts, one table for each published margin
public/report.html        the report
internal/run.json         run log, timings, keyed fingerprint of the input
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, cast

from trueup.errors import BundleError, SpecError
from trueup.io.bundle.strict import amount, damaged_bundle, read_json, read_text, refuse_links, refuse_names
from trueup.model.cells import Margin
from trueup.model.guarantee import Change, Charge, Guarantee
from trueup.model.header import Measured
from trueup.model.records.expected_errors import ExpectedErrors
from trueup.model.spec import Spec, parse_spec
from trueup.noise import law_named
from trueup.noise.law import Cost
from trueup.noise.laws.undrawn import Exact

if TYPE_CHECKING:
    from trueup.model.perturbed import PerturbedSpec

FORMAT = 2
MANIFEST = Path("public/manifest.json")


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Complete a bundle by its manifest, which lists the digest of every other public file."""
    names = public_files(folder)
    with ThreadPoolExecutor() as threads:
        files = dict(zip(names, threads.map(digest, (folder / "public" / name for name in names))))
    text = json.dumps({**manifest, "files": files}, indent=2, sort_keys=True)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def public_files(folder: Path) -> list[str]:
    """Return the paths of all files in `public/`, relative to it, in sorted order."""
    public = folder / "public"
    return [str(path.relative_to(public)) for path in sorted(public.rglob("*")) if path.is_file()]


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a bundle's manifest; refuse a damaged manifest, an unknown format, and links."""
    try:
        manifest = read_json(folder / MANIFEST)
        known = manifest["format"] == FORMAT
        if known:
            _refuse_strange(manifest)
    except OSError:
        inside = (folder / MANIFEST.name).is_file()
        raise BundleError(
            f"'{folder}' is not a bundle: it has no file {MANIFEST}",
            remedy=f"give the folder that holds it as '{MANIFEST.parent}'" if inside else "check the path",
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        raise damaged_bundle(f"the manifest of '{folder}' is damaged") from None
    if not known:
        shown = str(manifest["format"])[:20]
        raise BundleError(
            f"'{folder}' has format {shown}",
            needed=f"format {FORMAT}",
            remedy="read it with the version of trueup that wrote it, or write it again with this one",
        )
    refuse_links(folder / "public", [MANIFEST.name, *manifest["files"]])
    return manifest


def _refuse_strange(manifest: Mapping[str, Any]) -> None:
    """Raise ValueError, KeyError or TypeError if a manifest has an invalid name, amount or noise law."""
    from trueup.io.bundle.schema import Manifest

    Manifest.model_validate(manifest)
    files, parts, counts = manifest["files"], manifest.get("parts", {}), manifest.get("counts", [])
    refuse_names(files)
    refuse_names(measured_file(name) for name in parts)
    refuse_names((entry["files"] for entry in counts), pattern=True)
    if lost := {"spec.toml", *map(measured_file, parts)} - set(files):
        raise KeyError(min(lost))
    guarantee_in(manifest["guarantee"])
    if written := manifest.get("expected errors"):
        ExpectedErrors.read(written)
    for entry in manifest["headers"]:
        header_in(entry)
    margins, places = [margin_in(entry) for entry in counts], [entry["files"] for entry in counts]
    if len(set(margins)) < len(counts) or len(set(places)) < len(counts):  # each would be read again
        raise ValueError("a table is listed twice")


def seal_of(parts: Mapping[str, str]) -> str:
    """Return the seal of the drawn measurements, the SHA-256 of the digests of all their files in order.

    Examples
    --------
    >>> seal_of({"0-00000": "ab"})[:12]
    '7636c0c4819d'
    """
    return hashlib.sha256(
        "".join(f"{name} {digest}\n" for name, digest in parts.items()).encode()
    ).hexdigest()


def measured_file(part: str) -> str:
    """Return the path of the file with the measurements of one part, relative to `public/`."""
    return f"measurements/part-{part}.parquet"


def read_spec(folder: Path, manifest: Mapping[str, Any] | None = None) -> tuple[str, Spec]:
    """Return a bundle's spec as text and as an object; refuse a spec that was altered or cannot be read.

    The manifest is given where the folder does not hold it yet.
    """
    try:
        text = read_text(folder / "public" / "spec.toml")
    except (OSError, ValueError):
        raise damaged_bundle(f"'{folder}' lacks public/spec.toml") from None
    manifest = read_manifest(folder) if manifest is None else manifest
    if manifest["guarantee"].get("kind") == "none":
        return text, cast(Spec, read_published_spec(text, manifest))
    try:
        return text, parse_spec(text)
    except SpecError:
        refuse_altered(folder, manifest, ["spec.toml"])
        raise


def refuse_altered(folder: Path, manifest: Mapping[str, Any], only: Sequence[str] | None = None) -> None:
    """Refuse a bundle if a public file, of the named ones or of all, is missing, altered or not listed."""
    files = manifest["files"]
    names = list(files) if only is None else only
    if lost := [name for name in names if name not in files]:
        raise damaged_bundle(f"the manifest of '{folder}' does not list {lost[0]}")
    for name, fault in altered(folder, {"files": {name: files[name] for name in names}}):
        raise damaged_bundle(f"public/{name} of '{folder}' {fault}")


def altered(folder: Path, manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each public file of the manifest that is missing or altered, with words for its fault."""
    paths = {name: folder / "public" / name for name in manifest["files"]}
    held = {name: path for name, path in paths.items() if path.is_file()}
    yield from ((name, "is missing") for name in paths if name not in held)
    with ThreadPoolExecutor() as threads:
        for name, found in zip(held, threads.map(digest, held.values())):
            if found != manifest["files"][name]:
                yield name, "is not the file that was written"


def listed(manifest: Mapping[str, Any], pattern: str) -> list[str]:
    """Return the files listed in the manifest whose names match a pattern."""
    return sorted(name for name in manifest["files"] if PurePosixPath(name).match(pattern))


def unlisted(folder: Path) -> list[str]:
    """Return the paths of the files in `public/` that the manifest does not list."""
    public = folder / "public"
    listed = {MANIFEST.name, *read_manifest(folder)["files"]}
    held = (p.relative_to(public).as_posix() for p in public.rglob("*") if not p.is_dir())
    return sorted(set(held) - listed)


def digest(path: Path) -> str:
    """Return the SHA-256 digest of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


LONGEST_NAME = 100
"""Largest size (bytes) of a table's file name: a longer name may hold two of them, and file systems allow 255."""


def slug(margin: Margin) -> str:
    """Return the file name for a margin's table; a long name is shortened and ends in a digest.

    Examples
    --------
    >>> slug(Margin("county", ("age group",)))
    'county-age_group'
    >>> slug(Margin("county", ("age" * 40,)))[-24:]
    'ageageagea-e93a500f8455b'
    """
    name = "-".join(
        "".join(c if c.isalnum() or c == "_" else "_" for c in part)
        for part in (margin.level, *margin.attributes)
    )
    if len(name.encode()) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME // 5]}-{hashlib.sha256(name.encode()).hexdigest()[:13]}"


def header_out(header: Measured) -> dict[str, Any]:
    """Return the manifest entry for a measured margin."""
    return {
        "query": header.query,
        **margin_out(header.margin),
        "status": "published exactly as enumerated" if header.exact else "noisy",
        "law": header.law.name,
        "parameters": header.law.parameters(),
    }


def header_in(entry: Mapping[str, Any]) -> Measured:
    """Return the measured margin that a manifest entry describes."""
    noisy = entry["law"] != Exact.name
    law = law_named(entry["law"]).from_parameters(entry["parameters"]) if noisy else Exact()
    return Measured(entry["query"], margin_in(entry), law)


def margin_out(margin: Margin) -> dict[str, Any]:
    """Return the manifest entry for a margin."""
    where = {"where": [dict(each) for each in margin.where]} if margin.where else {}
    weights = {"weights": list(margin.weights)} if margin.weights else {}
    return {"level": margin.level, "attributes": list(margin.attributes), **where, **weights}


def margin_in(entry: Mapping[str, Any]) -> Margin:
    """Return the margin that a manifest entry describes."""
    margin = Margin(entry["level"], tuple(entry["attributes"]))
    return margin.among(entry.get("where", ()), entry.get("weights", ()))


def guarantee_out(guarantee: Guarantee) -> dict[str, Any]:
    """Return a privacy guarantee as JSON values, with exact amounts as text such as '1/2'."""
    return json.loads(json.dumps(asdict(guarantee), default=str))


def guarantee_in(entry: Mapping[str, Any]) -> Guarantee:
    """Return the privacy guarantee that a manifest entry describes."""
    exact = {name: amount(entry[name]) for name in ("amount", "delta")}
    change = entry.get("change")
    return Guarantee(
        **{
            **entry,
            **exact,
            "charges": tuple(_charge_in(charge) for charge in entry["charges"]),
            "sentences": tuple(entry["sentences"]),
            "change": change and Change(**_amounts(change)),
        }
    )


def _charge_in(entry: Mapping[str, Any]) -> Charge:
    prices = tuple((relation, Cost(**_amounts(cost))) for relation, cost in entry.get("prices", ()))
    return Charge(**{**_amounts(entry), "prices": prices})


def _amounts(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {**entry, **{name: amount(entry[name]) for name in ("amount", "delta")}}


def read_published_spec(text: str, manifest: Mapping[str, Any]) -> PerturbedSpec:
    """Return the spec of published tables, with the margins that the manifest lists for each table."""
    from trueup.model.perturbed import parse_perturbed

    spec = parse_perturbed(text)
    shown: dict[str, dict[tuple[str, tuple[str, ...]], None]] = {part.name: {} for part in spec.published}
    for entry in manifest["headers"]:
        shown.get(entry["query"], {})[(entry["level"], tuple(entry["attributes"]))] = None
    known = spec.showing([tuple(shown[part.name]) for part in spec.published])
    known.note(manifest.get("noted", ()))
    return known
