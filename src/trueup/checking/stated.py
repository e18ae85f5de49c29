"""One finding of a check, and what a manifest states of noise and losses against what the spec asks for."""

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
    """One rule and whether the published files keep it; `where` names the first places that do not."""

    rule: str
    holds: bool
    where: tuple[str, ...] = ()


def promised(spec: Spec, cells: Cells, manifest: Mapping[str, Any]) -> Check:
    """The manifest's noise distributions and losses must be those of the spec."""
    if manifest["guarantee"].get("kind") == "none":
        same = guarantee_in(manifest["guarantee"]) == NO_GUARANTEE
        return Check("no guarantee is claimed, and none is stated", same)
    headers, guarantee = plan_measurements(spec, cells)
    asked = [header_out(header) for header in headers]
    stated = [header_out(header_in(entry)) for entry in manifest["headers"]]
    same = guarantee.agrees(guarantee_in(manifest["guarantee"])) and asked == stated
    return Check("the noise and the guarantee are those of the spec", same)
