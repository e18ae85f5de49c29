"""Checks of a bundle from its files alone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.checking import Check, promised
from trueup.errors import BundleError, TrueupError
from trueup.files.database import connect
from trueup.files.memory import PROCESS_BYTES, memory_text
from trueup.io.bundle.manifest import (
    altered,
    digest,
    measured_file,
    read_manifest,
    read_spec,
    seal_of,
    unlisted,
)
from trueup.io.bundle.read import read_released_tables, refuse_beyond, unverified_measurements
from trueup.io.bundle.strict import damaged_bundle
from trueup.model.build import build_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints, slack, violations
from trueup.model.family import FamilyCells
from trueup.model.records.measurements import Measurements
from trueup.model.spec import Spec
from trueup.model.verb import entry_of
from trueup.reconciling import build
from trueup.reconciling.method import Method

Tables = dict[Margin, NDArray]
MEMORY_BYTES = 2_000_000_000
"""Bytes that DuckDB may hold in memory; the rest goes to a temporary folder."""


def check(folder: str | Path, *, memory: int | None = None) -> list[Check]:
    """Check every rule that the public files of a bundle must satisfy, trusting nothing that the bundle
    states.

    Parameters
    ----------
    folder
        The bundle.
    memory
        Bytes that this may use; what needs more is refused by name.

    Returns
    -------
    list of Check
        All that holds and all that does not: digests, no unlisted file, the seal on the measurements, laws and losses
        that follow from the spec, and for a release: whole numbers, sums of every table, nonnegativity, structural
        zeros, bounds, linear rules, invariants.
        Where the release declares a method of continuous counts, or one that lets them fall below zero,
        that is said in place of the rule, and what is left holds to within the method's accuracy.

    Raises
    ------
    BundleError
        If the folder is no bundle, or the memory is too little.

    Examples
    --------
    >>> import tempfile
    >>> from trueup.demo import run_demo
    >>> folder = Path(tempfile.mkdtemp()) / "demo"
    >>> _ = run_demo(folder)
    >>> checks = check(folder / "children")
    >>> all(check.holds for check in checks), checks[2].rule
    (True, 'the measurements are those that were sealed when they were drawn')
    """
    return list(_findings(Path(folder), memory))


def _findings(folder: Path, memory: int | None) -> Iterator[Check]:
    manifest = read_manifest(folder)
    faults = tuple(f"public/{name} {fault}" for name, fault in altered(folder, manifest))
    yield Check("every public file is the one that was written", not faults, faults)
    strangers = unlisted(folder)
    yield Check("public/ holds no other file", not strangers, tuple(strangers))
    if "parts" in manifest:
        rule = "the measurements are those that were sealed when they were drawn"
        yield Check(rule, _is_sealed(folder, manifest))
    rules = _in_parts if len(manifest.get("parts", "1")) > 1 else _whole_bundle
    try:
        yield from rules(folder, read_spec(folder)[1], manifest, memory)
    except TrueupError as error:
        if not faults:
            raise
        yield Check("the rest can be read in spite of that", False, (str(error),))


def _is_sealed(folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Return True if the files of measurements match the seal, and the bundle has no further such files."""
    parts = manifest["parts"]
    files = {name for name in manifest["files"] if name.startswith("measurements/")}
    same = files == {measured_file(name) for name in parts}
    paths = {folder / "public" / measured_file(name): stated for name, stated in parts.items()}
    held = same and all(path.is_file() and digest(path) == stated for path, stated in paths.items())
    return held and manifest.get("seal", manifest["measurements"]) == seal_of(parts)


def _in_parts(folder: Path, spec: Spec, manifest: Mapping[str, Any], memory: int | None) -> Iterator[Check]:
    """Yield checks of the tables of a bundle that was measured in parts, computed in bounded memory."""
    import duckdb

    from trueup.checking.streamed import Files

    refuse_beyond(folder, memory, each=0)
    limit = MEMORY_BYTES if memory is None else max(memory - PROCESS_BYTES, PROCESS_BYTES // 10)
    with (
        tempfile.TemporaryDirectory() as spill,
        connect(folders=[folder / "public"], memory_limit=f"{limit}B", temp_directory=spill) as connection,
    ):
        try:
            yield from Files(folder / "public", spec, manifest, connection).findings()
        except duckdb.OutOfMemoryException:
            raise BundleError(
                f"'{folder}' cannot be checked with {memory_text(limit + PROCESS_BYTES)} of memory and the free space for "
                "temporary files",
                remedy="raise --memory, or free space in the folder of temporary files (TMPDIR)",
            ) from None
        except duckdb.Error as error:
            raise damaged_bundle(
                f"the tables of '{folder}' cannot be read ({type(error).__name__})"
            ) from None


def _whole_bundle(
    folder: Path, spec: Spec, manifest: Mapping[str, Any], memory: int | None
) -> Iterator[Check]:
    """Check all tables of a bundle in memory, for every structure and method."""
    refuse_beyond(folder, memory)
    measurements = unverified_measurements(folder, manifest)
    cells = measurements.cells
    yield promised(spec, cells, manifest)
    stated = manifest["measurements"]
    yield Check("the measurements have the digest that the manifest states", measurements.digest == stated)
    if manifest["kind"] == "measurements":
        return
    method = _declared(manifest["method"])
    tables = read_released_tables(folder, cells)
    if lost := [str(margin) for margin in cells.finest_tables if margin not in tables]:
        yield Check("every table of the spec is there", False, tuple(lost))
        return
    finest = np.concatenate([tables[margin] for margin in cells.finest_tables])
    yield _check_whole_numbers(method, tables)
    for margin, counts in tables.items():
        yield from _check_sums(cells, margin, finest, counts)
    constraints = build_constraints(spec, cells).within(*measurements.value_bounds)
    yield _constraints(method, constraints, finest)
    yield from _invariants(measurements, finest)


def _declared(entry: Mapping[str, Any]) -> Method:
    """Return the reconciling method that a release declares; it determines the rules to check."""
    name, parameters = entry_of(entry)
    return build(name or "", parameters)


def _check_whole_numbers(method: Method, tables: Tables) -> Check:
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


def _invariants(measurements: Measurements, finest: NDArray) -> Iterator[Check]:
    cells = measurements.cells
    for h, values in zip(measurements.headers, measurements.values):
        if h.exact:
            rule = f"the invariant '{h.margin}' is as enumerated"
            yield _equal(rule, cells, h.margin, h.sums(cells, finest), values, h.groups)


def _check_sums(cells: Cells, margin: Margin, finest: NDArray, counts: NDArray) -> Iterator[Check]:
    """Check a table against the sums of the finest cells or, in a family, of every finer table."""
    if not isinstance(cells, FamilyCells):
        yield _equal(f"'{margin}' is the sum of its cells", cells, margin, cells.sum(finest, margin), counts)
        return
    for table, sums in cells.tables_holding(finest, margin):
        if table != margin:
            yield _equal(f"'{margin}' is the sum of '{table}'", cells, margin, sums, counts)


def _equal(
    rule: str, cells: Cells, margin: Margin, left: NDArray, right: NDArray, groups: NDArray | None = None
) -> Check:
    """Return a check that two sets of counts for one margin, or for some of its groups, are equal."""
    differs = np.flatnonzero(np.abs(left - right) > slack(left))
    differs = differs if groups is None else groups[differs]
    return Check(rule, not differs.size, tuple(cells.margin_label(margin, int(g)) for g in differs[:3]))
