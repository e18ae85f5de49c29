"""Made-up records that add up to every released table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.cells import Cells, Margin
from trueup.model.family import FamilyCells
from trueup.model.records.release import Release
from trueup.model.tables import named_columns

MOST_RECORDS = 50_000_000
"""Rows that are made in memory: some numbers and texts for each."""
ABOUT = (
    "Records",
    "Made up, with a seed from the published digest: they add up to every released table. Tables are independent given what "
    "they share, so nothing else can be learnt from the records. No row is about anybody.",
)


def record_columns(release: Release) -> dict[str, NDArray]:
    """Draw records `(records,)` whose tables are the released ones: keys of places and attribute values by their names."""
    cells, counts = release.cells, np.asarray(release.counts)
    if counts.dtype.kind not in "iu" or counts.min(initial=0) < 0:
        raise SpecError(
            "the released counts are not numbers of records",
            needed="whole counts of 0 and more",
            remedy="reconcile with a method of whole nonnegative counts",
        )
    refuse_overlapping_records(cells)
    total = int(release.sums(cells.coarsest).sum())
    if total > MOST_RECORDS:
        raise SpecError(
            f"the release counts {total:,} records", needed=f"at most {MOST_RECORDS:,} to be written"
        )
    rng = np.random.default_rng([int(release.digest, 16), 2])
    if not isinstance(cells, FamilyCells):
        at = np.repeat(np.arange(cells.n), counts)
        return {name: column[at] for name, column in named_columns(cells, cells.finest).items()}
    if cells.joint is not None:
        raise SpecError(
            "tables in a ring are released without the joint table that closes them, so that records cannot be drawn from them",
            needed="tables without a ring",
            remedy=f"measure '{cells.joint}' too, however noisily",
        )
    return _of_family(cells, cells.split(counts), rng)


def _of_family(cells: FamilyCells, tables: list[NDArray], rng: np.random.Generator) -> dict[str, NDArray]:
    tree = cells.junction()
    edges = [_edge(cells, i, tree.parent[i]) for i in tree.order[1:]]
    found = joined_records(tables, tree.order[0], edges, rng)
    deepest = max(range(len(tables)), key=lambda i: cells.tree.level(cells.tables[i].level))
    place = Margin(cells.tables[deepest].level)
    at = cells.parts[deepest].groups(cells.tables[deepest], place)[found[deepest]]
    columns = {name: column[at] for name, column in named_columns(cells, place).items()}
    for number in range(len(cells.attributes)):
        views = [cells.recodes(table.attributes)[number] for table in cells.tables]
        holder = max(range(len(views)), key=lambda i: views[i].size)
        if (view := views[holder]).name:
            values = named_columns(cells.parts[holder], cells.tables[holder])[view.name]
            columns[view.name] = values[found[holder]]
    return columns


def _edge(cells: FamilyCells, table: int, parent: int) -> Edge:
    shared = cells.separator(table, parent)
    own, parents = (cells.parts[i].groups(cells.tables[i], shared) for i in (table, parent))
    return Edge(table, parent, own, parents)


def refuse_overlapping_records(cells: Cells) -> None:
    """Refuse attributes whose values overlap: a count is then no number of records."""
    if overlapping := [a.name for a in cells.attributes if not a.partition]:
        raise SpecError(
            f"the values of '{overlapping[0]}' overlap, so that counts are not numbers of records",
            needed="attributes of which each record has one value",
        )


Integers = NDArray[np.int64]


class Edge(NamedTuple):
    """A table below its parent in a junction tree: of each cell of either, the shared cell `(cells,)` that holds it."""

    table: int
    parent: int
    own: Integers
    parents: Integers


def joined_records(
    tables: Sequence[Integers], root: int, edges: Sequence[Edge], rng: np.random.Generator
) -> list[Integers]:
    """Draw whole records with these tables: for every table the cell `(records,)` of each record.

    Given the cells of its parent, a table's cells fall to the records of each shared cell in random order, so tables are
    independent given what they share.

    Parameters
    ----------
    tables
        Whole counts `(cells,)` that agree on what they share.
    root, edges
        A junction tree, parents before their children.

    Examples
    --------
    >>> edge = Edge(1, 0, np.array([0, 0, 1]), np.array([0, 1]))
    >>> found = joined_records([np.array([2, 1]), np.array([1, 1, 1])], 0, [edge], np.random.default_rng(1))
    >>> found[0].tolist(), sorted(found[1].tolist())
    ([0, 0, 1], [0, 1, 2])
    """
    found = [np.zeros(0, np.int64)] * len(tables)
    found[root] = np.repeat(np.arange(len(tables[root])), tables[root])
    for edge in edges:
        shared = edge.parents[found[edge.parent]]
        records = np.lexsort((rng.random(shared.size), shared))
        cells = np.repeat(np.arange(len(tables[edge.table])), tables[edge.table])
        found[edge.table] = np.empty(shared.size, np.int64)
        found[edge.table][records] = cells[np.argsort(edge.own[cells], kind="stable")]
    return found
