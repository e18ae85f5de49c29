"""Check a bundle from its files alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trueup.io import bundle
from trueup.model.build import build_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import violations
from trueup.model.measurements import Measurements

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
        Digests, no unlisted file, and for a release: whole numbers, sums of every table, nonnegativity, structural
        zeros, bounds, linear rules, invariants.

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
    (True, 'all counts are whole numbers')
    """
    source = Path(folder)
    measurements = bundle.read_measurements(source)
    strangers = bundle.unlisted(source)
    checks = [
        Check("every public file is the one that was written", True),
        Check("public/ holds no other file", not strangers, tuple(strangers)),
    ]
    if bundle.read_manifest(source)["kind"] == "measurements":
        return checks
    _, spec = bundle.read_spec(source)
    constraints = build_constraints(spec, measurements.cells)
    tables = bundle.read_counts(source, measurements.cells)
    finest = tables[measurements.cells.finest]
    checks += [_whole(tables), *_sums(measurements.cells, tables, finest)]
    broken = violations(constraints, finest)
    checks.append(Check("no negative count, and every constraint holds", not broken, tuple(broken)))
    return [*checks, *_invariants(measurements, finest)]


def _whole(tables: Tables) -> Check:
    broken = [str(margin) for margin, counts in tables.items() if counts.dtype.kind not in "iu"]
    return Check("all counts are whole numbers", not broken, tuple(broken))


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
            cells.sum(finest, h.margin),
            values,
        )
        for h, values in zip(measurements.headers, measurements.values)
        if h.exact
    ]


def _equal(rule: str, cells: Cells, margin: Margin, left: NDArray, right: NDArray) -> Check:
    differs = np.flatnonzero(left != right)
    return Check(rule, not differs.size, tuple(cells.margin_label(margin, int(g)) for g in differs[:3]))
