"""The spec in a bundle of tables that somebody else published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trueup.model.perturbed import PerturbedSpec, parse_perturbed


def read_published_spec(text: str, manifest: Mapping[str, Any]) -> PerturbedSpec:
    """Return the spec of published tables with the margins that were found in them."""
    spec = parse_perturbed(text)
    shown: dict[str, dict[tuple[str, tuple[str, ...]], None]] = {part.name: {} for part in spec.published}
    for entry in manifest["headers"]:
        shown.get(entry["query"], {})[(entry["level"], tuple(entry["attributes"]))] = None
    known = spec.showing([tuple(shown[part.name]) for part in spec.published])
    known.note(manifest.get("noted", ()))
    return known
