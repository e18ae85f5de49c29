"""Renaming of committed bundles into place, also after a crash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trueup.errors import BundleError
from trueup.files.staging import publish
from trueup.files.target import is_own, refuse_occupied
from trueup.io.bundle.strict import read_json

MANIFEST = Path("public", "manifest.json")


def published_manifest(manifest: Path) -> tuple[str, dict[str, Any]]:
    """Return the SHA-256 of a manifest and its content."""
    try:
        held = dict(read_json(manifest))
        return hashlib.sha256(manifest.read_bytes()).hexdigest(), held
    except (OSError, ValueError, TypeError):
        raise BundleError(
            f"'{manifest.parents[1]}' has no readable {MANIFEST}", remedy="check the path"
        ) from None


def describe_staged(staged: Path, stamp: Mapping[str, Any], seal: str | None = None) -> dict[str, Any]:
    """Check that a staged bundle carries its reservation's stamp and seal; return what the ledger keeps of it."""
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
    """Refuse a target that is occupied, or that a committed release is about to take."""
    # A rename may happen between the two looks: then the waiting folder was seen, or the target is.
    if any(Path(other).exists() for other in waiting):
        raise BundleError(f"'{final}' is about to hold another release", remedy="choose another --out")
    refuse_occupied(final)


def finish(ready: Path, final: Path, reservation: str, manifest: str) -> bool:
    """Rename a committed bundle into place; return False if that was done before, or the bundle is another user's.

    The ledger's word is not enough: whoever may draw may write an entry that names any folder. So the folder must bear the
    name that `ready_name` gives, stand beside its target, belong to this user, and hold the manifest of the digest that was
    committed.

    Raises
    ------
    BundleError
        If something else stands in the way.
    """
    if not _is_of_our_making(ready, final, reservation, manifest):
        return False
    try:
        publish(ready, final)
    except (BundleError, FileNotFoundError):
        if ready.is_dir():
            raise
        return False  # another process was faster
    return True


def ready_name(final: Path, reservation: str) -> str:
    """Return the name of a committed bundle until it is in place."""
    return f".{final.name}.ready-{reservation}"


def _is_of_our_making(ready: Path, final: Path, reservation: str, manifest: str) -> bool:
    named = final.is_absolute() and ".." not in final.parts
    if not named or ready != final.with_name(ready_name(final, reservation)) or not is_own(ready):
        return False
    if not is_own(ready / MANIFEST.parent) or (ready / MANIFEST).is_symlink():
        return False
    try:
        return published_manifest(ready / MANIFEST)[0] == manifest
    except BundleError:
        return False
