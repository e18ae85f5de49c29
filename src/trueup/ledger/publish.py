"""Moving a committed bundle into place, also after a crash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trueup.errors import BundleError
from trueup.files.staging import publish
from trueup.files.target import refuse_occupied

MANIFEST = Path("public", "manifest.json")


def published_manifest(manifest: Path) -> tuple[str, dict[str, Any]]:
    """Return the SHA-256 of a manifest and what it says.

    Raises
    ------
    BundleError
        If it cannot be read.
    """
    try:
        text = manifest.read_bytes()
        return hashlib.sha256(text).hexdigest(), dict(json.loads(text))
    except (OSError, ValueError, TypeError):
        raise BundleError(
            f"'{manifest.parents[1]}' has no readable {MANIFEST}", remedy="check the path"
        ) from None


def describe_staged(staged: Path, stamp: Mapping[str, Any], seal: str | None = None) -> dict[str, Any]:
    """Check that a staged bundle carries its reservation's stamp and seal; return what the ledger keeps of it.

    Raises
    ------
    BundleError
        If there is no manifest, or it carries another stamp or other measurements than those that were sealed.
    """
    digest, manifest = published_manifest(staged / MANIFEST)
    if manifest.get("ledger") != dict(stamp):
        raise BundleError(
            "the staged manifest does not carry its reservation", needed="the stamp under 'ledger'"
        )
    if seal is not None and manifest.get("seal") != seal:
        raise BundleError(
            "the staged manifest states other measurements than those that the ledger has sealed",
            needed="the measurements that were drawn first",
        )
    return {"manifest": digest, "measurements": manifest.get("measurements")}


def refuse_taken(final: Path, waiting: Iterable[str]) -> None:
    """Refuse a target that is occupied, or that a committed release is about to take.

    Raises
    ------
    BundleError
        Naming the target.
    """
    # A rename may happen between the two looks: then the waiting folder was seen, or the target is.
    if any(Path(other).exists() for other in waiting):
        raise BundleError(f"'{final}' is about to hold another release", remedy="choose another --out")
    refuse_occupied(final)


def finish(ready: Path, final: Path) -> bool:
    """Rename a committed bundle into place; False if that was done before.

    Raises
    ------
    BundleError
        If something else stands in the way.
    """
    if not ready.is_dir():
        return False
    try:
        publish(ready, final)
    except (BundleError, FileNotFoundError):
        if ready.is_dir():
            raise
        return False  # another process was faster
    return True
