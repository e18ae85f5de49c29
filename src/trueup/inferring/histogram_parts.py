"""Inference of a large histogram by parts: chains on the upper levels, then chains below each place.

Given the table of a place, the counts below it depend on nothing outside. So draws of the tables of one level's places come from
chains on a tree that ends one level below, with all measurements down to there. The counts below each place come from a chain of
its own. The root of that chain follows these draws one after the other, tied by a normal law with standard deviation `1 / 16`.
Measurements further down say little about a place that was measured itself: a measurement of each of b parts has the
weight `1 / b` in their sum. That share is computed (`unused`), stated, and refused above `MOST_UNUSED`.

Each chain draws concentrations of totals and of cells from its own counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.inferring.histogram_walk import HistogramWalk
from trueup.inferring.method import silent
from trueup.inferring.recast import parts_within
from trueup.kernel.table_walks.columns import TreeMessages, column_sweep
from trueup.layouts.columns import ColumnProblem, MeasuredRow
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.nested import canonical, reported_margins
from trueup.run import Deadline, runs_of

Integers = NDArray[np.int64]
MOST_CELLS, TOGETHER = 1 << 18, 1 << 14
"""Cells of a part, at most: parts are the places of the highest level that has several, of which none holds more. And cells of
small parts that are drawn in one task.
"""
WARM_UP, THIN = 60, 2
"""Sweeps of a part before its first draw, and to a draw."""
CHAINS_ABOVE, WARM_UP_ABOVE, THIN_ABOVE = 4, 300, 15
"""Chains on the tree above the parts, sweeps before their first draw, and sweeps to a draw."""
MAX_DIAGNOSED_COUNTS = 4000
"""Counts of each table above the parts whose chains are compared, at most: of more, so many at random."""
NO_END_MINUTES = 1e8
"""Minutes that no run takes: one by parts ends by itself, or is ended and gone on with."""
ROOT_PRECISION = 256.0
"""Precision (1 / counts squared) of a root around its draw: of a count next to it single precision holds no mass."""
TRIES, STEPS = 40, 16
"""Passes in which a root is brought to its draw, at most, and about how many steps such a way has."""
MOST_UNUSED = 0.1
"""Share of what is known of a part's table that may lie in measurements that the tree above does not hold."""


class Chained(NamedTuple):
    """Draws of tables by Markov chains, with their diagnostics.

    Attributes
    ----------
    draws
        `(draws, places, n)` tables, in 32 bits.
    record
        Figures for the record.
    """

    draws: NDArray
    record: dict[str, Any]


@dataclass(frozen=True, eq=False)
class PartOfHistogram(MeasuredRow):
    """A part of a histogram: a tree of places whose tables are drawn by Markov chains.

    Attributes
    ----------
    given
        Concentrations of the prior; empty if they are learnt.
    seed
        Seed of the part's random generator.
    """

    given: tuple[float, ...]
    seed: np.random.SeedSequence

    def walk(self, chains: int, message: tuple[NDArray, NDArray] | None = None) -> HistogramWalk:
        """Return Markov chains in their starting states, given a normal law of the root's table."""
        a = self.given[0] if self.given else 0.0
        problem = ColumnProblem(self.constraints, self.headers, self.values, message, a)
        rngs = np.random.default_rng(self.seed).spawn(chains)
        return HistogramWalk.of(problem, rngs, self.given, Deadline.of(NO_END_MINUTES))


@dataclass(frozen=True)
class DrawAbove:
    """The task of drawing the tables of one level's places, by Markov chains on the tree above the parts."""

    level: int
    draws: int

    def __call__(self, part: PartOfHistogram) -> Chained:
        """Return draws of the tables of the level's places, with convergence diagnostics."""
        walk = part.walk(CHAINS_ABOVE)
        walk.run(1, WARM_UP_ABOVE, silent)
        run = walk.run(-(-self.draws // CHAINS_ABOVE), THIN_ABOVE, silent)
        found = walk.diagnosed(run, MAX_DIAGNOSED_COUNTS, np.random.default_rng(part.seed.spawn(1)[0]))
        tables = run.reshape(-1, len(walk.states[0].x), walk.problem.columns)[: self.draws].astype(np.int64)
        starts = walk.problem.cells.tree.leaf_ptr(self.level)
        return Chained(np.add.reduceat(tables, starts[:-1], axis=1).astype(np.int32), found)


def follow_roots(part: PartOfHistogram, roots: NDArray, found: NDArray) -> None:
    """Fill in draws `(draws, cells)` of the lowest places, given draws `(draws, n)` of the root's table."""
    pull = ROOT_PRECISION * roots[0].astype(float)
    walk = part.walk(1, (ROOT_PRECISION * np.eye(roots.shape[1]), pull))
    walk.run(1, WARM_UP, silent)
    work = walk.problem.work()
    for draw, root in enumerate(roots):
        _follow(walk, root, work)
        found[draw] = walk.run(1, THIN, silent)[0, 0]


def _follow(walk: HistogramWalk, root: NDArray, work: TreeMessages) -> None:
    """Move a Markov chain until its root has the given table, changing one or two columns at a time."""
    problem, state = walk.problem, walk.states[0]
    problem.tables.pull[:] = ROOT_PRECISION * root
    for attempt in range(TRIES):
        off = state.top - root
        above, below, wrong = (np.flatnonzero(one) for one in (off > 0, off < 0, off))
        if not wrong.size:
            return
        columns = (
            np.stack(np.meshgrid(above, below), axis=-1).reshape(-1, 2) if attempt % 2 else wrong[:, None]
        )
        longest = np.maximum(np.abs(off[columns]).min(axis=1) / STEPS, 1.0)
        many = len(columns)
        moves = walk.moves._replace(singles=np.zeros((0, 1), np.int64), turns=np.array([many, 0]))
        if attempt % 2:
            moves = moves._replace(pairs=columns, longest_pair=longest)
        else:
            moves = moves._replace(singles=columns, longest_single=longest)
        column_sweep(walk.rngs[0], problem.places, problem.tables, moves, state, work, 0, many)


@dataclass(frozen=True, eq=False)
class CutHistogram(MeasuredRow):
    """A histogram that is cut into parts below one level of its places."""

    given: tuple[float, ...] = ()

    @cached_property
    def level(self) -> int:
        """Return the highest level at which parts are small and leave few measurements unused.

        Raises
        ------
        SpecError
            If there is none, or if too large a share of the measurements would be left unused.
        """
        tree, shares = self.cells.tree, []
        for level in range(1, len(tree.levels) - 1):
            most = np.diff(tree.leaf_ptr(level)).max() * self.columns
            if tree.sizes[level] > 1 and most <= MOST_CELLS:
                if (share := self.unused(level)) <= MOST_UNUSED:
                    return level
                shares.append(share)
        why, needed = (
            (
                f"from every level that could be cut, {100 * min(shares):.0f} % or more of what is known about a place was "
                "measured further below, and would be left unused",
                f"a level for which that is at most {100 * MOST_UNUSED:.0f} %",
            )
            if shares
            else (
                f"no level below '{tree.levels[0]}' has several places of at most {MOST_CELLS:,} cells each, with others below",
                "one such level",
            )
        )
        raise SpecError(
            f"these tables cannot be inferred in parts: {why}",
            needed=needed,
            remedy="leave out --engine, or infer one place with --within",
        )

    @property
    def largest(self) -> int:
        """Return the number of cells of the largest part."""
        return int(np.diff(self.cells.tree.leaf_ptr(self.level)).max()) * self.columns

    def lowest_above(self, level: int) -> int:
        """Return the lowest level of places that the tree above the parts includes."""
        return min(level + 1, len(self.cells.tree.levels) - 2)

    def unused(self, level: int) -> float:
        """Return the largest share of a place's precision, over all tables, that comes from below the cut."""
        cells, lowest = self.cells, self.lowest_above(level)
        tables = {canonical(cells, replace(h.margin, level=cells.tree.levels[-1])) for h in self.headers}
        shares = [0.0]
        for table in tables:
            every, above = (
                self._precision(table, level, end) for end in (len(cells.tree.levels) - 1, lowest)
            )
            shares.append(0.0 if np.isinf(above) else 1.0 - above / every if every else 0.0)
        return max(shares)

    def _precision(self, table: Margin, level: int, lowest: int) -> float:
        """Return the precision of an average place's counts, from measurements at and below this place."""
        tree, known = self.cells.tree, 0.0
        for at in range(lowest, level - 1, -1):
            name = tree.levels[at]
            known = known * tree.sizes[at] / tree.sizes[at + 1] if at < lowest else 0.0
            for h in self.headers:
                if h.margin.level == name and self.cells.contains(replace(table, level=name), h.margin):
                    fewer = self.cells.size(replace(table, level=name)) / self.cells.size(h.margin)
                    known += np.inf if h.exact else fewer / h.law.variance
        return known

    def above(self, seed: np.random.SeedSequence) -> PartOfHistogram:
        """Return the tree above the parts, which extends one level below the parts' roots."""
        lowest = self.lowest_above(self.level)
        kept = self.cells.tree.levels[: lowest + 1]
        some = _down_to(self.constraints, lowest)
        own = [(h, v) for h, v in zip(self.headers, self.values) if h.margin.level in kept]
        headers, values = zip(*own)
        return PartOfHistogram(some, headers, values, self.given, seed)

    def part(self, place: int, seed: np.random.SeedSequence) -> PartOfHistogram:
        """Return the part whose root is one place of the cut level, with all places below this place."""
        some, headers, values, _ = parts_within(
            self.constraints, self.headers, self.values, self.level, place
        )
        return PartOfHistogram(some, headers, values, self.given, seed)

    @cached_property
    def margins(self) -> tuple[Margin, ...]:
        """Return the margins whose posterior tables are reported."""
        return reported_margins(self.cells, [h.margin for h in self.headers])

    @cached_property
    def runs(self) -> list[tuple[int, int]]:
        """Return every task's first root place and the place after its last; small places share a task."""
        return runs_of(self.cells.tree.leaf_ptr(self.level)[:-1] * self.columns, TOGETHER)


def _down_to(constraints: Constraints, level: int) -> Constraints:
    """Return the constraints on the levels from the root down to the given one."""
    cells = constraints.cells
    kept = cells.tree.levels[: level + 1]
    return replace(
        constraints,
        cells=Cells(cells.tree.branch(0, 0, 1, level), cells.attributes),
        margins=tuple(m for m in constraints.margins if m.level in kept),
        invariants=tuple(m for m in constraints.invariants if m.level in kept),
        bounds=tuple(b for b in constraints.bounds if b.margin.level in kept),
    )
