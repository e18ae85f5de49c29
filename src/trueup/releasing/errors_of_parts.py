"""Expected errors of a run by parts, simulated in memory on some parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trueup.errors import TrueupError
from trueup.files.database import connect_to_files
from trueup.io.bundle.read import StoredRelease
from trueup.io.bundle.tables import read_counted, read_measured
from trueup.model.build import build_constraints, cells_of_sizes
from trueup.model.cells import Cells, Margin
from trueup.model.header import Measured, simulate_many, split
from trueup.model.problem import Problem
from trueup.model.records.expected_errors import ExpectedErrors
from trueup.model.tree import Tree
from trueup.planning.expected import Expected
from trueup.reconciling import Prepared, published
from trueup.reconciling.expected_errors import (
    MIN_REPLICATES,
    WORK,
    at_standard_errors,
    some_places,
    thinned_levels,
)
from trueup.reconciling.method import Method
from trueup.releasing.cut import PlacePart
from trueup.releasing.run_folder import RunFolder


def errors_of_parts(folder: RunFolder, method: Method, linked: StoredRelease) -> ExpectedErrors:
    """Return the expected errors of a run by parts with complete tables, simulated on some parts."""
    sized = cells_of_sizes(folder.spec, folder.plan["sizes"])
    if sized.is_family:
        return _errors_of_family(sized.n, method, linked)
    rng = np.random.default_rng([int(folder.seal, 16), 1])
    tree, work = folder.tree(), WORK // method.effort
    places, counts = _settled_counts(folder, work // MIN_REPLICATES, rng)
    last = len(tree.levels) - 1
    kept, _ = tree.only(last, places)
    attributes = folder.cells(folder.branch(folder.cut.parts[-1][0])).attributes
    cells, leaves = some_places(Cells(kept, attributes), work, rng)
    whole = Cells(tree, attributes)
    said = f"{cells.shape[0]:,} of {tree.sizes[-1]:,} places"
    try:
        local = Problem(folder.spec, cells)
        simulation = Prepared.of(local.constraints, local.headers, method).simulation
        population = np.asarray(counts[leaves].ravel(), np.int64)
        values = _measured(folder, tree, places[leaves], local, population, rng)
        found = simulation.simulate(population, values, local.headers, rng, said=said)
        thinned = thinned_levels(whole, work)
        tables = [m for m in published(local.constraints) if m.level in thinned]
        errors = standard_errors(whole, folder.headers, tables, folder.spec.constraints.zeros)
        return at_standard_errors(found, errors, whole, work)
    except (
        TrueupError
    ) as error:  # rules may name places that were not chosen; the release does not depend on it
        return ExpectedErrors((), f"Errors could not be simulated on {said}: {error}")


def _errors_of_family(n: int, method: Method, linked: StoredRelease) -> ExpectedErrors:
    """Return the expected errors of a family of tables, simulated in memory if it is small enough."""
    if n > WORK:
        return ExpectedErrors((), f"Errors of {n:,} cells in several tables are not simulated.")
    measured = linked.measurements
    constraints = build_constraints(linked.spec, measured.cells)
    return Prepared.of(constraints, measured.headers, method).simulation(linked)


def standard_errors(
    cells: Cells,
    headers: Sequence[Measured],
    tables: Sequence[Margin],
    zeros: Sequence[Mapping[str, str]] = (),
) -> dict[Margin, NDArray[np.float64]]:
    """Return the root mean squared error (1,) of least-squares estimates, for each table.

    Structural zeros that tie many combinations together are left out, which makes the errors somewhat too large.
    """
    exact = [h.margin for h in headers if h.exact]
    free = [table for table in tables if not any(cells.contains(table, margin) for margin in exact)]
    if not free:
        return {}
    precisions = np.array([np.inf if h.exact else 1 / float(h.law.variance) for h in headers])
    means, _ = Expected.of(cells, [h.margin for h in headers], free, zeros=zeros).errors(precisions, free)
    return {table: np.sqrt([max(mean, 0.0)]) for table, mean in zip(free, means, strict=True)}


def _measured(
    folder: RunFolder,
    tree: Tree,
    leaves: NDArray[np.int64],
    local: Problem,
    population: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Return measured values (q,) of sampled finest places, and of larger places that are sampled completely.

    Of places of which they are some, what was measured is not theirs: their released counts are measured once more.
    """
    again = simulate_many(local.cells, population, local.headers, rng, 1)[0]
    tables = split(again, local.headers, local.cells)
    for layer, parts in enumerate(folder.cut.parts):
        headers, found = folder.headers_of(layer), {}
        for header, table in zip(folder.headers, tables, strict=True):
            if header in headers and not header.margin.where:
                at = _whole_places(tree, leaves, tree.level(header.margin.level))
                found[header] = table.reshape(len(at), -1), at
        for number in _parts_with(folder, tree, layer, found):
            _take(folder, parts[number], headers, found)
    return np.concatenate(tables)


def _whole_places(tree: Tree, leaves: NDArray[np.int64], level: int) -> NDArray[np.int64]:
    """Return the places of a level above a sample of finest places; -1 for one that also contains other places."""
    above = tree.ancestors(len(tree.levels) - 1, level)
    places, held = np.unique(above[leaves], return_counts=True)
    return np.where(np.bincount(above, minlength=tree.sizes[level])[places] == held, places, -1)


Found = Mapping[Measured, tuple[NDArray, NDArray]]
"""By header its table (places, groups), to be written to, and the places."""


def _parts_with(folder: RunFolder, tree: Tree, layer: int, found: Found) -> NDArray[np.int64]:
    """Return the numbers of those parts of a layer that measured places of a sample."""
    top, edges = folder.cut.layers[layer].top, folder.cut.layers[layer].edges
    tops = [tree.ancestors(tree.level(h.margin.level), top)[at[at >= 0]] for h, (_, at) in found.items()]
    return np.unique(np.searchsorted(edges, np.concatenate([*tops, np.zeros(0, np.int64)]), "right") - 1)


def _take(folder: RunFolder, part: PlacePart, headers: Sequence[Measured], found: Found) -> None:
    """Read the measurements of a part, and enter the values of the sampled places in `found`."""
    branch = folder.branch(part)
    cells = folder.cells(branch)
    values = read_measured(
        folder.measured.path(str(part)), cells, [h.at(cells) for h in headers], folder.database
    )
    for header, value in zip(headers, values, strict=True):
        if header in found:
            table, at = found[header]
            level = branch.tree.level(header.margin.level)
            own = at - branch.starts[level]
            inside = (at >= 0) & (own >= 0) & (own < branch.tree.sizes[level])
            table[inside] = value.reshape(branch.tree.sizes[level], -1)[own[inside]]


def _settled_counts(
    folder: RunFolder, most: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return places of the last level and released counts (places, n) from parts in a random order."""
    parts, found, held = folder.cut.parts[-1], [], 0
    for number in rng.permutation(len(parts)):
        first, counts = _counts_of(folder, parts[number])
        found.append((first + np.arange(len(counts)), counts))
        if (held := held + counts.size) >= most:
            break
    found.sort(key=lambda part: int(part[0][0]))
    return np.concatenate([at for at, _ in found]), np.concatenate([counts for _, counts in found])


def _counts_of(folder: RunFolder, part: PlacePart) -> tuple[int, NDArray[np.int64]]:
    """Return the position of a part's first place within the last level, and the released counts (places, n)."""
    branch = folder.branch(part)
    cells = folder.cells(branch)
    file = folder.tables.path(f"{len(folder.spec.levels) - 1:02d}-{part}")
    with connect_to_files([file], threads=1) as connection:
        counts, _ = read_counted(connection, [file], cells, cells.finest)
    return int(branch.starts[-1]), np.asarray(counts).reshape(cells.shape[0], -1)
