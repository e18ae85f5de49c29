"""Moving a committed bundle into place, also after a crash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trueup.errors import BundleError
from trueup.io.staging import publish, refuse_occupied

MANIFEST = Path("public", "manifest.json")


def read_stamp(manifest: Path) -> Mapping[str, Any] | None:
    """Return what a manifest says of the ledger; None if no ledger was kept.

    Raises
    ------
    BundleError
        If the manifest cannot be read.
    """
    try:
        return json.loads(manifest.read_bytes()).get("ledger")
    except (OSError, ValueError, AttributeError):
        raise BundleError(
            f"'{manifest.parents[1]}' has no readable {MANIFEST}", remedy="check the path"
        ) from None


def check_staged(staged: Path, stamp: Mapping[str, Any]) -> str:
    """Check that a staged bundle carries its reservation's stamp; return its manifest's SHA-256.

    Raises
    ------
    BundleError
        If there is no manifest, or it carries another stamp.
    """
    if read_stamp(staged / MANIFEST) != dict(stamp):
        raise BundleError(
            "the staged manifest does not carry its reservation", needed="the stamp under 'ledger'"
        )
    return hashlib.sha256((staged / MANIFEST).read_bytes()).hexdigest()


def refuse_taken(final: Path, staged: Iterable[str]) -> None:
    """Refuse a target that is occupied, or that a committed release is about to take.

    Raises
    ------
    BundleError
        Naming the target.
    """
    # A rename may happen between the two looks: then the staged folder was seen, or the target is.
    if any(Path(other).exists() for other in staged):
        raise BundleError(f"'{final}' is about to hold another release", remedy="choose another --out")
    refuse_occupied(final)


def finish(staged: str, final: str) -> bool:
    """Rename a committed bundle into place; False if that was done before.

    Raises
    ------
    BundleError
        If something else stands in the way.
    """
    if not Path(staged).is_dir():
        return False
    try:
        publish(Path(staged), Path(final))
    except (BundleError, FileNotFoundError):
        if Path(staged).is_dir():
            raise
        return False  # another process was faster
    return True
