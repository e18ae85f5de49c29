"""Writing of posteriors by parts: the tables that workers write, and the collection of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.files.memory import BYTES_PER_CELL, PROCESS_BYTES
from trueup.files.writing import write_parquet
from trueup.inferring.histogram_parts import NO_END_MINUTES
from trueup.inferring.method import Progress
from trueup.inferring.questions import labels_of_areas, refuse_overlapping
from trueup.inferring.solved_tree import (
    AreaParts,
    Found,
    NodeTable,
    PartGiven,
    PartTables,
    SolvedTree,
    tables_of_part,
)
from trueup.inferring.tree_exact import TreeExact, refuse_endless
from trueup.inferring.tree_state import DEPTHS, FINE, TreeState
from trueup.inferring.tree_work import AllowedWork, pass_cost
from trueup.io.bundle.manifest import slug
from trueup.io.bundle.posterior import MOST_ROWS
from trueup.kernel.messages.downward import Exact
from trueup.kernel.messages.partition import Partition, spread_messages, subtrees
from trueup.model.cells import Cells, Margin
from trueup.model.nested import NestedTree
from trueup.model.records.drawn import Drawn, Marginals
from trueup.model.records.measurements import Measurements
from trueup.model.records.places_asked import AreaTable
from trueup.model.records.quantity import describe_draws
from trueup.model.tables import place_keys, readable_names
from trueup.run import Deadline, InTurn, Item, runs_of
from trueup.run.parts import KeptExecutor

Integers = NDArray[np.int64]
START_SECONDS, PRODUCT_SECONDS, NODE_SECONDS, DRAW_SECONDS = 5.0, 2.5e-10, 4e-5, 2e-7
"""Seconds of a processor to estimate the prior, and for each product of one pass up, each node, and each draw of a cell."""
NODE_BYTES, TABLE_BYTES, ROW_BYTES = 80, 200, 2.0
"""Bytes of the driver for each node of a tree beside keys, at last and with tables; of the disk for a draw."""
DRAWN_BYTES = 100_000_000
"""Bytes of a worker that draws parts of a tree and writes them."""
NO_AREAS = AreaParts(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True, eq=False)
class WantedAreas:
    """Areas that cut across the hierarchy, and the table that is summed over each of them."""

    cells: Cells
    table: AreaTable
    margin: Margin

    @classmethod
    def of(cls, cells: Cells, table: AreaTable) -> WantedAreas:
        """Return areas with the requested attributes. Refuse sums over an attribute whose values overlap."""
        margin = cells.margin(Margin(cells.tree.levels[-1], table.by))
        refuse_overlapping(cells, margin)
        return cls(cells, table, margin)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of areas, followed by the number of values of each requested attribute."""
        return (len(self.table.names), *self.cells.margin_shape(self.margin)[1:])

    @cached_property
    def by_place(self) -> tuple[Integers, Integers]:
        """Return the place of every pair of area and place, sorted, and the order that sorts the pairs."""
        order = np.argsort(self.table.leaf, kind="stable")
        return self.table.leaf[order], order

    def of_cells(self, cells: Integers) -> AreaParts:
        """Return pairs of a finest cell and an area that contains it."""
        places, *values = np.unravel_index(cells, self.cells.shape)
        leaf, order = self.by_place
        first, last = (np.searchsorted(leaf, places, side) for side in ("left", "right"))
        inside = np.repeat(np.arange(len(cells)), last - first)
        areas = self.table.area[order[spread_messages(first, last - first)]]
        views = zip(self.cells.recodes(self.margin.attributes), values)
        kept = [np.array(view.groups)[value[inside]] for view, value in views if view.name]
        return AreaParts(np.ravel_multi_index((areas, *kept), self.shape), inside)


@dataclass(frozen=True, eq=False)
class WantedTables:
    """The tables to write about a posterior that is computed by parts.

    Attributes
    ----------
    measured
        Measurements from which the posterior was computed.
    draws, level
        Number of draws, and the probability of intervals.
    areas
        Areas off the hierarchy, if there are any.
    keep_draws
        True if draws are written.
    """

    measured: Measurements
    draws: int
    level: float
    areas: WantedAreas | None
    keep_draws: bool

    def solved(self, rng: np.random.Generator, progress: Progress, executor: KeptExecutor) -> Self:
        """Return the tables, after all that must be known before the first of them is written."""
        return self

    def collected(
        self,
        folder: Path,
        executor: KeptExecutor,
        task: Callable[[Item], PartTables[Found]],
        runs: Sequence[Item],
        progress: Progress,
        *,
        independent: bool,
    ) -> Iterator[tuple[int, Found]]:
        """Write files and areas of all runs of parts, and yield each run's number and what else its task found."""
        sums = np.zeros((int(np.prod(self.areas.shape)) if self.areas else 0, self.draws), np.int64)
        for done, (k, part) in enumerate(executor.map(task, runs), start=1):
            for file, held in part.files.items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_bytes(held)
            sums[part.rows] += part.sums
            yield k, part.found
            progress(self.draws * done // len(runs), self.draws)
        if self.areas is not None:
            figures = describe_draws(sums.T[None], self.level, independent=independent, least=0.0)
            labels = labels_of_areas(self.areas.cells, self.areas.margin, self.areas.table)
            write_parquet(folder / "areas.parquet", labels | figures)

    def drawn(self, means: Mapping[Margin, NDArray], *, independent: bool, **record: Any) -> Drawn:
        """Return the record of draws that are in files, with posterior means of margins."""
        draws = np.broadcast_to(np.int64(0), (1, self.draws, self.measured.cells.n))  # they take no memory
        exact: Any = {margin: Means(mean) for margin, mean in means.items()}
        return Drawn(draws, independent, marginals=exact, tables=tuple(means), **record)


class Prediction(NamedTuple):
    """The predicted cost of a posterior by parts: processor seconds, and bytes of memory and disk."""

    core_seconds: float
    memory: float
    disk: float


class Means(NamedTuple):
    """Posterior means of a margin's counts, in the form that `conflicts` reads."""

    mean: NDArray


@dataclass(frozen=True, eq=False)
class WrittenTree(WantedTables):
    """The tables to write about a tree's posterior that is computed by parts.

    Attributes
    ----------
    values
        Measured values, as the tree's method takes them.
    tree, state
        The tree's method, and the problem that it prepared.
    found
        The tree with the nodes above its parts solved, once it is.
    """

    values: NDArray
    tree: TreeExact
    state: TreeState
    found: SolvedTree | None = None

    @property
    def nested(self) -> NestedTree:
        """Return the tree of nested margins."""
        return self.state.problem.nested

    def expected(self, workers: int) -> Prediction:
        """Return the predicted cost, from the windows of the tree's tables."""
        state, nodes, cells = self.state, len(self.state.child_ptr) - 1, len(self.nested.nodes[-1])
        windows = state.windows(self.values, np.full(nodes, DEPTHS[FINE]))
        seconds = START_SECONDS + PRODUCT_SECONDS * pass_cost(state.child_ptr, *windows)
        seconds += NODE_SECONDS * nodes + DRAW_SECONDS * self.draws * cells
        keys = sum(column.nbytes for held in self.nested.cells.tree.keys for column in held.values())
        drawn = workers * (DRAWN_BYTES + (PROCESS_BYTES if workers > 1 else 0)) + NODE_BYTES * nodes
        memory = PROCESS_BYTES + keys + max(drawn, TABLE_BYTES * nodes)
        return Prediction(seconds, memory, ROW_BYTES * self.draws * cells + BYTES_PER_CELL * nodes)

    def solved(self, rng: np.random.Generator, progress: Progress, executor: KeptExecutor) -> Self:
        """Estimate the prior, and solve the nodes above the parts."""
        work = AllowedWork(deadline=Deadline.of(NO_END_MINUTES))
        given = self.state, self.values, self.draws, rng, progress, executor, work
        found = self.tree.solved(*given)  # pyright: ignore[reportArgumentType]
        if found.top is None:
            raise too_small(self.state)
        return replace(self, found=found)

    @cached_property
    def groups(self) -> list[Integers | None]:
        """Return, for each margin, the group of every node, or None if both are in the same order."""
        starts = zip(self.nested.orders, self.nested.level_ptr)
        return [
            None if order is None else np.argsort(order - start, kind="stable") for order, start in starts
        ]

    def write(
        self, folder: Path, executor: KeptExecutor, rng: np.random.Generator, progress: Progress
    ) -> Drawn:
        """Write draws, summaries and areas, and return the record of the draws."""
        assert self.found is not None
        top = self.found.top
        assert top is not None
        items, exact, _, moved = top.tree.items(top, self.found.tops, rng)
        cut, rounding = top.tree.cut, 0.0
        spans = runs_of(cut.leaves[:-1] - cut.leaves[0], max(1, MOST_ROWS // self.draws))
        means = np.empty(self.nested.level_ptr[-1])

        def given(k: int) -> PartGiven:
            blocks = range(*spans[k])
            return PartGiven([items[b] for b in blocks], *self._labels(cut, blocks, k), self.level)

        runs = InTurn(given, len(spans))
        for k, (own, lost) in self.collected(
            folder, executor, tables_of_part, runs, progress, independent=True
        ):
            means[nodes_of(top.tree.child_ptr, cut, range(*spans[k]))] = own
            rounding = max(rounding, lost)
        means[: cut.edges[0]] = self._write_top(folder, exact, int(cut.edges[0]))
        refuse_endless(means)
        known = {margin: means[nodes] for margin, nodes in zip(self.nested.margins, self.nested.nodes)}
        stats = self.found.stats(moved + rounding, self.draws)
        return self.drawn(known, independent=True, stats=stats)

    def _labels(
        self, cut: Partition, blocks: range, number: int
    ) -> tuple[list[NodeTable], NodeTable | None, AreaParts]:
        """Return the tables to write about some parts, and the areas in which the parts' leaves lie."""
        nodes, starts, tables = nodes_of(self.nested.child_ptr, cut, blocks), self.nested.level_ptr, []
        name, order, groups = f"part-{number:05d}.parquet", nodes, nodes
        for at, margin in enumerate(self.nested.margins):
            own = np.flatnonzero((nodes >= starts[at]) & (nodes < starts[at + 1]))
            groups = self._groups(at, nodes[own])
            order = np.argsort(groups, kind="stable")
            if len(own):
                columns = self._columns(margin, groups[order])
                tables.append(NodeTable(f"summary/{slug(margin)}/{name}", own[order], columns))
        finest = self.nested.margins[-1]
        drawn = NodeTable(f"draws/{name}", order, self._columns(finest, groups[order], named=True))
        areas = NO_AREAS if self.areas is None else self.areas.of_cells(groups)
        return tables, drawn if self.keep_draws else None, areas

    def _groups(self, at: int, nodes: Integers) -> Integers:
        """Return the groups of a margin to which given nodes belong."""
        places, groups = nodes - self.nested.level_ptr[at], self.groups[at]
        return places if groups is None else groups[places]

    def _columns(self, margin: Margin, groups: Integers, *, named: bool = False) -> dict[str, NDArray]:
        """Return key and attribute columns of some groups of a margin, with names if requested."""
        cells, tree = self.measured.cells, self.measured.cells.tree
        at, (places, *values) = tree.level(margin.level), np.unravel_index(groups, cells.margin_shape(margin))
        keys = place_keys(tree, at, places) | (readable_names(tree, at, places) if named else {})
        return keys | {
            recode.name: np.array(recode.values)[own] for recode, own in zip(cells.kept(margin), values)
        }

    def _write_top(self, folder: Path, exact: Exact, count: int) -> NDArray:
        """Write the summaries of the margins above the parts, and return their posterior means."""
        found = Marginals.of_some(exact, np.arange(count))
        figures, starts = found.describe(self.level), self.nested.level_ptr
        (folder / "summary").mkdir(exist_ok=True)
        for at in range(int(np.searchsorted(starts, count))):
            margin, own = self.nested.margins[at], slice(*starts[at : at + 2])
            columns = self._columns(margin, self._groups(at, np.arange(own.start, own.stop)))
            table = columns | {name: held[own] for name, held in figures.items()}
            write_parquet(folder / "summary" / f"{slug(margin)}.parquet", table)
        return found.mean


def nodes_of(child_ptr: Integers, cut: Partition, blocks: range) -> Integers:
    """Return the nodes of the given parts, part by part."""
    return np.concatenate([subtrees(child_ptr, *cut.edges[b : b + 2])[0] for b in blocks])


def too_small(state: TreeState) -> SpecError:
    """Return the error for a tree that is not cut into parts."""
    nodes = len(state.child_ptr) - 1
    return SpecError(
        f"a tree of {nodes:,} counts is too small to be cut into parts", remedy="leave out --engine"
    )
