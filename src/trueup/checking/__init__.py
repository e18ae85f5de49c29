"""Verification of a bundle from its files alone, without the code that made it.

Here: findings of a check, and the manifest's statements on noise and losses against the spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trueup.io.bundle.manifest import guarantee_in, header_in, header_out
from trueup.model.cells import Cells
from trueup.model.guarantee import NO_GUARANTEE
from trueup.model.mechanism import plan_measurements
from trueup.model.spec import Spec


@dataclass(frozen=True)
class Check:
    """The verdict on one rule, with the first places or groups that violate it."""

    rule: str
    holds: bool
    where: tuple[str, ...] = ()


def promised(spec: Spec, cells: Cells, manifest: Mapping[str, Any]) -> Check:
    """Return a check that the manifest states the noise laws and privacy losses that the spec implies."""
    if manifest["guarantee"].get("kind") == "none":
        same = guarantee_in(manifest["guarantee"]) == NO_GUARANTEE
        return Check("no guarantee is claimed, and none is stated", same)
    headers, guarantee = plan_measurements(spec, cells)
    asked = [header_out(header) for header in headers]
    stated = [header_out(header_in(entry)) for entry in manifest["headers"]]
    same = guarantee.agrees(guarantee_in(manifest["guarantee"])) and asked == stated
    return Check("the noise and the guarantee are those of the spec", same)
