"""A keyed fingerprint of the confidential input, for the agency's own records."""

from __future__ import annotations

import hmac
from typing import Any

from trueup.files.source import files_read
from trueup.measuring import entropy


def fingerprint(source: Any, key: bytes | None = None) -> dict[str, str] | None:
    """Return a key and the HMAC-SHA256 of files under it, a fresh key unless one is given; None for what is no file.

    Without a key anyone could confirm a guess of the input, so the result belongs in `internal/`.
    """
    if not (files := files_read(source)):
        return None
    key = key or entropy.words(32)
    keyed = hmac.new(key, digestmod="sha256")
    for path in files:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                keyed.update(block)
    return {"key": key.hex(), "hmac-sha256": keyed.hexdigest()}
