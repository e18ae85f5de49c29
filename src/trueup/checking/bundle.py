"""Check a bundle from its files alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.io.bundle.manifest import BLOCKS, read_manifest, read_spec, unlisted
from trueup.io.bundle.read import read_measurements, read_released
from trueup.model.build import build_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints, slack, violations
from trueup.model.header import Measured
from trueup.model.mechanism import plan_measurements
from trueup.model.records.measurements import Measurements
from trueup.model.registry import entry_of
from trueup.model.spec import Spec
from trueup.reconciling import build
from trueup.reconciling.method import Method

Tables = dict[Margin, NDArray]


@dataclass(frozen=True)
class Check:
    """One rule and whether the published files keep it; `where` names the first places that do not."""

    rule: str
    holds: bool
    where: tuple[str, ...] = ()


def check_bundle(folder: str | Path) -> list[Check]:
    """Check every rule that the public files of a bundle must keep, trusting none of its claims.

    Returns
    -------
    list of Check
        Digests, no unlisted file, laws and losses that follow from the spec, and for a release: whole
        numbers, sums of every table, nonnegativity, structural zeros, bounds, linear rules, invariants.
        Where the release declares a method of continuous counts, or one that lets them fall below zero,
        that is said in place of the rule, and what is left holds to within the method's accuracy.

    Raises
    ------
    BundleError
        If the folder is no bundle, or a file is missing or altered.

    Examples
    --------
    >>> import tempfile
    >>> from trueup.demo import run_demo
    >>> folder = Path(tempfile.mkdtemp()) / "demo"
    >>> _ = run_demo(folder)
    >>> checks = check_bundle(folder / "children")
    >>> all(check.holds for check in checks), checks[2].rule
    (True, 'the noise and the guarantee are those of the spec')
    """
    source = Path(folder)
    manifest = read_manifest(source)
    if manifest.get("layout") == BLOCKS:
        from trueup.checking.by_parts import check_blocks

        return [Check(*finding) for finding in check_blocks(source)]
    measurements = read_measurements(source)
    strangers = unlisted(source)
    checks = [
        Check("every public file is the one that was written", True),
        Check("public/ holds no other file", not strangers, tuple(strangers)),
    ]
    _, spec = read_spec(source)
    checks.append(_promised(spec, measurements))
    if manifest["kind"] == "measurements":
        return checks
    method = _declared(manifest["method"])
    constraints = build_constraints(spec, measurements.cells)
    tables = read_released(source, measurements.cells)
    finest = tables[measurements.cells.finest]
    checks += [_whole(method, tables), *_sums(measurements.cells, tables, finest)]
    return [*checks, _constraints(method, constraints, finest), *_invariants(measurements, finest)]


def _promised(spec: Spec, measurements: Measurements) -> Check:
    """The manifest's laws and losses must be those that the spec asks for."""
    headers, guarantee = plan_measurements(spec, measurements.cells)
    same = guarantee.agrees(measurements.guarantee) and _laws(headers) == _laws(measurements.headers)
    return Check("the noise and the guarantee are those of the spec", same)


def _laws(headers: Sequence[Measured]) -> list[tuple]:
    return [(h.query, h.margin, h.law.name, h.law.parameters(), _groups(h)) for h in headers]


def _groups(header: Measured) -> list[int] | None:
    return None if header.groups is None else header.groups.tolist()


def _declared(entry: Mapping[str, Any]) -> Method:
    """The method that a release declares: what it does not promise is not held against the counts."""
    name, parameters = entry_of(entry)
    return build(name or "", parameters)


def _whole(method: Method, tables: Tables) -> Check:
    if not method.integer:
        return Check(f"the counts are those of '{method.name}': they need not be whole", True)
    broken = [str(margin) for margin, counts in tables.items() if counts.dtype.kind not in "iu"]
    return Check("all counts are whole numbers", not broken, tuple(broken))


def _constraints(method: Method, constraints: Constraints, finest: NDArray) -> Check:
    rule = "no negative count, and every constraint holds"
    if constraints.nonnegative and not method.nonnegative:
        rule = f"every constraint holds, but that '{method.name}' lets counts fall below zero"
        constraints = replace(constraints, nonnegative=False)
    broken = violations(constraints, finest)
    return Check(rule, not broken, tuple(broken))


def _sums(cells: Cells, tables: Tables, finest: NDArray) -> list[Check]:
    return [
        _equal(f"'{margin}' is the sum of its cells", cells, margin, cells.sum(finest, margin), counts)
        for margin, counts in tables.items()
    ]


def _invariants(measurements: Measurements, finest: NDArray) -> list[Check]:
    cells = measurements.cells
    return [
        _equal(
            f"the invariant '{h.margin}' is as enumerated",
            cells,
            h.margin,
            h.sums(cells, finest),
            values,
            h.groups,
        )
        for h, values in zip(measurements.headers, measurements.values)
        if h.exact
    ]


def _equal(
    rule: str, cells: Cells, margin: Margin, left: NDArray, right: NDArray, groups: NDArray | None = None
) -> Check:
    """Compare two tables of a margin, or of some of its groups."""
    differs = np.flatnonzero(np.abs(left - right) > slack(left))
    differs = differs if groups is None else groups[differs]
    return Check(rule, not differs.size, tuple(cells.margin_label(margin, int(g)) for g in differs[:3]))
