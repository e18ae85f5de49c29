"""A keyed fingerprint of the confidential input, for the agency's own records."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Any

from trueup.measure import entropy


def fingerprint(source: Any) -> dict[str, str] | None:
    """Return a fresh key and the HMAC-SHA256 of a file under it; None for a table in memory.

    Without a key anyone could confirm a guess of the input, so the result belongs in `internal/`.
    """
    if not isinstance(source, str | Path):
        return None
    key = entropy.words(32)
    keyed = hmac.new(key, digestmod="sha256")
    with Path(source).open("rb") as file:
        while block := file.read(1 << 20):
            keyed.update(block)
    return {"key": key.hex(), "hmac-sha256": keyed.hexdigest()}
