"""A tree solved exactly, and the tables of draws, summaries and areas that are made from it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trueup.files.memory import return_freed
from trueup.files.writing import write_parquet
from trueup.inferring.subtree_part import FromAbove, SubtreePart, draw_part
from trueup.inferring.tree_parts import Top, Weighted
from trueup.inferring.tree_search import SolutionSearch
from trueup.io.bundle.posterior import write_drawn
from trueup.kernel.messages.downward import joined_marginals
from trueup.model.records.drawn import Columns, Marginals


@dataclass(frozen=True, eq=False)
class SolvedTree:
    """Solutions of a tree (or of its upper levels), with weights, from which counts can be drawn.

    Attributes
    ----------
    search
        The search that found them.
    tops
        The solutions, with the weight of each and the number of draws that come from it.
    top
        The top of a tree that is cut; None of a whole tree.
    record
        Entries on the prior for the posterior's record.
    varying
        Numbers `first` and `parents` of the nodes in which solutions of a whole tree differ; see `mixed_marginals`.
    best
        A most probable vector of counts, if it was requested and has been found.
    """

    search: SolutionSearch
    tops: Sequence[Weighted]
    top: Top | None
    record: dict
    varying: tuple[int, int] = (0, 0)
    best: NDArray | None = None

    def stats(self, rounding: float, draws: int, *, whole: bool = True) -> dict:
        """Return the draws' statistics for the posterior's record, with a bound on the probability that rounding moved."""
        dropped = min(float(sum(w * top.dropped for w, top, _ in self.tops)) + rounding, 1.0)
        return {**stats_of(dropped, self.search.deepest, draws, interrupted=not whole), **self.record}


def stats_of(dropped: float, depth: float, draws: int, *, interrupted: bool) -> dict:
    """Return statistics of a tree's draws as a dict for the posterior's record."""
    return {"dropped_mass": dropped, "table_depth": depth, "draws": draws, "interrupted": interrupted}


Found = TypeVar("Found")
Reals = NDArray[np.float64]
Integers = NDArray[np.int64]


class NodeTable(NamedTuple):
    """A table to write about nodes of a part: its file, the nodes, and their key and attribute columns."""

    file: str
    nodes: Integers
    columns: Columns


class AreaParts(NamedTuple):
    """Pairs of an area's row and a leaf inside the area, as positions."""

    rows: Integers
    leaves: Integers

    def sums(self, counts: NDArray[np.integer]) -> tuple[Integers, Integers]:
        """Return the rows of areas that hold some of the leaves, and their sums of draws `(draws, leaves)`."""
        rows, at = np.unique(self.rows, return_inverse=True)
        sums = np.zeros((len(rows), len(counts)), np.int64)
        np.add.at(sums, at, counts[:, self.leaves].T)
        return rows, sums


@dataclass(frozen=True, eq=False)
class PartGiven:
    """The task of writing tables about some parts of a tree.

    Attributes
    ----------
    parts
        Subtrees, each with the message from above its roots.
    summaries
        A table for each margin.
    drawn
        File, leaves and columns of the draws; None if they are not kept.
    areas
        Where its leaves lie.
    level
        Probability of the intervals.
    """

    parts: Sequence[tuple[SubtreePart, FromAbove]]
    summaries: Sequence[NodeTable]
    drawn: NodeTable | None
    areas: AreaParts
    level: float


class PartTables(NamedTuple, Generic[Found]):
    """The files written about some parts, sums of the parts' counts over areas, and what else was found.

    Attributes
    ----------
    files
        Parquet files by name.
    rows, sums
        Rows of the table of areas, and draws `(rows, draws)` of the parts' contributions to them.
    found
        Of a tree the posterior means of all nodes, which are not finite where numbers do not hold a marginal, and a bound of the
        mass that rounding moved.
    """

    files: dict[str, bytes]
    rows: Integers
    sums: Integers
    found: Found


def tables_of_part(given: PartGiven) -> PartTables[tuple[Reals, float]]:
    """Draw the counts of parts given the counts above them, and return the tables of the parts."""
    found = [draw_part(item) for item in given.parts]
    every = Marginals(*joined_marginals([below.marginals for below in found]))
    figures = every.describe(given.level)
    return_freed(None)
    counts = np.concatenate([below.counts for below in found], axis=1)
    with tempfile.TemporaryDirectory() as folder:
        files = {
            table.file: table_bytes(
                Path(folder), table.columns | {k: v[table.nodes] for k, v in figures.items()}
            )
            for table in given.summaries
        }
        if given.drawn is not None:
            path = Path(folder) / Path(given.drawn.file).name
            own = np.ascontiguousarray(counts[:, given.drawn.nodes])
            write_drawn([path], own, given.drawn.columns, len(own))
            files[given.drawn.file] = path.read_bytes()
            del own
    return_freed(None)
    return PartTables(files, *given.areas.sums(counts), (every.mean, max(below.rounding for below in found)))


def table_bytes(folder: Path, columns: Columns) -> bytes:
    """Return a table as the content of a Parquet file, which is written to a folder for that."""
    path = folder / "table.parquet"
    write_parquet(path, columns)
    return path.read_bytes()
