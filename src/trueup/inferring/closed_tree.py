"""Exact inference, part by part in bounded memory, on trees whose published values limit every count.

Each part of a cut tree (`trueup.kernel.messages.partition`) sends one message for each root to the top, which is solved then.
After that each part is solved once more, given the top's message to its roots. Only the result of a part is kept between.

One file: the way up, the top and the way down of one computation.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.method import Progress, in_blocks
from trueup.kernel.messages.closed import (
    ClosedMessages,
    closed_draws,
    closed_marginals,
    closed_up,
    closed_work,
    root_draws,
)
from trueup.kernel.messages.partition import (
    Partition,
    partition_tree,
    spread_messages,
    subtrees,
    top_of,
    with_messages,
)
from trueup.kernel.messages.pmf import Factors, reach_all
from trueup.kernel.messages.tilting import bounds
from trueup.layouts.factors import FactorTable, FittedMasses
from trueup.layouts.tree import TreeProblem
from trueup.model.cells import Margin
from trueup.model.prior import Bounded, Flat, Hierarchical, Masses, Prior
from trueup.model.records.drawn import Marginals

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

MOST_WORK, MOST_SUMS = 4e10, 1 << 25
"""Multiplications, and sums held at once, up to which closed windows are summed in full."""
COUNTS_DRAWN_AT_ONCE = 1 << 26
"""Counts of all nodes that are drawn at a time."""
DRAWS_AT_ONCE = 1000
PRIOR_DEPTH_NATS = 30.0
"""Log mass below its peak at which the table of a prior ends that goes on for ever: such a window is open anyway."""
MAX_PART_NODES = 1 << 18
"""Most nodes of a part of a tree that is solved in parts."""
MAX_SAMPLED_CELLS = 1 << 20
"""Finest cells whose marginals a prior is estimated from."""


class Summed(NamedTuple):
    """Marginals of every margin of a tree, and draws `(draws, n)` of the finest cells."""

    marginals: dict[Margin, Marginals]
    counts: Integers
    whole: bool


class _Part(NamedTuple):
    """A part of a tree: its nodes in level order from the roots, with their upward messages."""

    child_ptr: Integers
    messages: ClosedMessages

    @property
    def window(self) -> tuple[Integers, Integers]:
        """Return the first count and the length of every node's window."""
        return self.messages.low, np.diff(self.messages.start)

    def marginals(self, roots: Reals) -> Reals:
        return closed_marginals(self.child_ptr, *self.messages[:3], roots)


class _Level:
    """Marginals of the nodes of one level, in an array that is filled run by run to save memory."""

    def __init__(self, nodes: int, masses: int) -> None:
        self.low, self.size = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
        self.masses = np.empty(masses)
        self.nodes = self.used = 0

    def add(self, low: Integers, size: Integers, masses: Reals) -> None:
        here = slice(self.nodes, self.nodes + len(low))
        self.low[here], self.size[here] = low, size
        self.masses[self.used : self.used + len(masses)] = masses
        self.nodes, self.used = self.nodes + len(low), self.used + len(masses)

    @property
    def filled(self) -> tuple[Integers, Integers, Reals]:
        return self.low, self.size, self.masses[: self.used]


class _Runs(NamedTuple):
    """Runs of consecutive nodes, one run on each of several levels."""

    first: Integers
    last: Integers


@dataclass(eq=False)
class ClosedTree:
    """A tree problem in which published values limit every count to a finite window.

    Attributes
    ----------
    problem, values
        The tree, and the measured values of each header.
    lower, upper
        Hard bounds `(nodes,)`.
    prior
        Prior of the finest cells.
    tables
        Likelihood tables of the values met so far.
    """

    problem: TreeProblem
    values: Sequence[NDArray]
    lower: Integers
    upper: Integers
    prior: Prior | FittedMasses
    tables: dict[Hashable, tuple[Reals, int]] = field(default_factory=dict)
    _whole: _Part | None = None
    _room: Integers = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of(cls, problem: TreeProblem, values: NDArray, prior: Prior | FittedMasses) -> ClosedTree | None:
        """Return the tree for measured values `(q,)`, or None if noisy values leave some count unlimited."""
        laws = [header.law for header in problem.headers if not header.exact]
        if isinstance(prior, Hierarchical) or not laws or any(law.additive for law in laws):
            return None
        return cls(problem, problem.parts(values), *problem.whole_bounds(values), prior)

    def summed(self, draws: int, rng: np.random.Generator, progress: Progress) -> Summed | None:
        """Return marginals and draws of the whole tree, or None if it cannot be solved exactly."""
        roots = self._roots()
        if roots is None or (top := self._top(*roots)) is None:
            return None
        known = top.marginals(top.messages.masses[: top.messages.start[1]])
        if self.cut is None:
            return self._in_one(known, draws, rng, progress)
        return self._by_parts(top, known, draws, rng, progress)

    def histogram(self, kinds: int, counts: int) -> Reals | None:
        """Return the expected number `(kinds, counts)` of finest cells by kind and count, from parts spread over the tree.

        Each part is given its own values alone. None where a part cannot be summed.
        """
        prior = self.prior
        assert isinstance(prior, FittedMasses)
        found = np.zeros(kinds * counts)
        every = len(self._edges) - 1
        step = max(1, -(-self.problem.nested.cells.n // MAX_SAMPLED_CELLS))
        for at in range(0, every, min(step, every)):
            if (part := self._part(at)) is None:
                return None
            runs, messages = self._runs(at), part.messages
            k = runs.last[0] - runs.first[0]
            masses = part.marginals(messages.masses[: messages.start[k]])
            leaves = int(runs.last[-1] - runs.first[-1])
            low, size = (each[-leaves:] for each in part.window)
            kind = prior.kind[self._cells(runs)]
            where = spread_messages(kind * counts + low, size)
            found += np.bincount(where, masses[messages.start[-leaves - 1] :], minlength=len(found))
        return found.reshape(kinds, counts)

    @cached_property
    def cut(self) -> Partition | None:
        """Return the cut of a large tree into parts, or None if it cannot or need not be cut."""
        nested = self.problem.nested
        alike = isinstance(self.prior, Flat | Bounded | Masses | FittedMasses)
        large = nested.level_ptr[-1] > MAX_PART_NODES and alike
        return partition_tree(nested.child_ptr, nested.level_ptr, MAX_PART_NODES) if large else None

    @property
    def _edges(self) -> Integers:
        return np.array([0, 1]) if self.cut is None else self.cut.edges

    @cached_property
    def _sorted(self) -> list[tuple[Integers, Integers | None]]:
        """Return, for each header, the measured nodes in ascending order, and the order that sorts them."""
        found = []
        for nodes in self.problem.nodes:
            order = None if (np.diff(nodes) > 0).all() else np.argsort(nodes, kind="stable")
            found.append((nodes if order is None else nodes[order], order))
        return found

    @cached_property
    def _cell_of(self) -> Integers | None:
        """Return the finest cell of each leaf, or None if the leaves are in the order of the cells."""
        nested = self.problem.nested
        return None if nested.orders[-1] is None else np.argsort(nested.orders[-1])

    def _cells(self, runs: _Runs) -> Integers | slice:
        """Return the finest cells that belong to the last of some runs of nodes, which consists of leaves."""
        first = self.problem.nested.level_ptr[-2]
        at = slice(int(runs.last[-1] - first - (runs.last[-1] - runs.first[-1])), int(runs.last[-1] - first))
        return at if self._cell_of is None else self._cell_of[at]

    def _runs(self, at: int) -> _Runs:
        """Return the nodes of part number `at`, as one run of consecutive nodes for each level."""
        ends = self._edges[at : at + 2]
        found = []
        while ends[0] < ends[1]:
            found.append(ends)
            ends = self.problem.child_ptr[ends]
        return _Runs(*np.array(found).T)

    def _part(self, at: int, window: tuple[Integers, Integers] | None = None) -> _Part | None:
        """Return the upward messages of part number `at`, or None if the part cannot be solved."""
        nodes, child_ptr = subtrees(self.problem.child_ptr, *self._edges[at : at + 2])
        runs = self._runs(at)
        factors = self._factors(runs, nodes)
        if window is not None:
            factors.lower[: len(window[0])], factors.upper[: len(window[0])] = window
        return _solved(child_ptr, factors)

    def _factors(self, runs: _Runs, nodes: Integers, *, leaves: bool = True) -> Factors:
        """Return the factor tables of all nodes in given runs of nodes."""
        table = FactorTable(self.lower[nodes], self.upper[nodes], self.tables)
        shift = runs.first - np.concatenate([[0], np.cumsum(runs.last - runs.first)[:-1]])
        for header, (every, order), values in zip(self.problem.headers, self._sorted, self.values):
            if header.exact:
                continue
            for first, last, less in zip(runs.first, runs.last, shift):
                here = slice(*np.searchsorted(every, [first, last]))
                part = values[here] if order is None else values[order[here]]
                table.add_law(header.law, every[here] - less, part, PRIOR_DEPTH_NATS)
        if self.cut is None:
            table.add_prior(self.prior, self.problem.nested.nodes[-1], PRIOR_DEPTH_NATS)
        elif leaves:
            prior = self.prior
            if isinstance(prior, FittedMasses):
                prior = prior._replace(kind=prior.kind[self._cells(runs)])
            table.add_prior(
                prior, len(nodes) - np.arange(runs.last[-1] - runs.first[-1], 0, -1), PRIOR_DEPTH_NATS
            )
        return table.build()

    def _roots(self) -> tuple[Integers, Integers, Reals] | None:
        """Return the messages from the roots of all parts: first counts, numbers of counts, and masses."""
        found = []
        self._room = np.zeros(len(self.problem.nested.margins), np.int64)
        for at, (first, last) in enumerate(pairwise(self._edges)):
            if (part := self._part(at)) is None:
                return None
            if self.cut is None:
                self._whole = part
            low, size = part.window
            k = last - first
            found.append((low[:k], size[:k], part.messages.masses[: part.messages.start[k]]))
            runs = self._runs(at)
            levels = np.concatenate([[0], np.cumsum(runs.last - runs.first)[:-1]])
            self._room[-len(levels) :] += np.add.reduceat(size, levels)
        low, size, masses = (np.concatenate(each) for each in zip(*found))
        return low, size, masses

    def _top(self, low: Integers, size: Integers, masses: Reals) -> _Part | None:
        """Return the upward messages of the nodes above the parts; the roots of the parts are leaves here."""
        if self.cut is None:
            return _Part(np.array([1, 1]), ClosedMessages(low, np.array([0, size[0]]), masses, -1))
        level_ptr, first = self.problem.nested.level_ptr, self.cut.edges[0]
        levels = level_ptr[level_ptr <= first]
        above = self._factors(_Runs(levels[:-1], levels[1:]), np.arange(first), leaves=False)
        return _solved(top_of(self.problem.child_ptr, self.cut), with_messages(above, low, size, masses))

    def _in_one(self, known: Reals, draws: int, rng: np.random.Generator, progress: Progress) -> Summed:
        """Return marginals and draws of a tree that consists of one part."""
        part, nested = self._whole, self.problem.nested
        assert part is not None
        leaves = nested.nodes[-1]

        def some(k: int) -> Integers:
            roots = root_draws(rng, part.messages.low[0], known, k)
            return np.ascontiguousarray(
                closed_draws(rng, part.child_ptr, *part.messages[:3], roots)[:, leaves]
            )

        counts, whole = in_blocks(some, draws, self._at_once(len(part.child_ptr)), progress)
        masses, (low, size) = part.marginals(known), part.window
        start, found = part.messages.start, {}
        for level, ends in enumerate(pairwise(nested.level_ptr)):
            at = slice(*ends)
            found[nested.margins[level]] = self._grouped(
                level, low[at], size[at], masses[start[ends[0]] : start[ends[1]]]
            )
        return Summed(found, counts, whole)

    def _by_parts(
        self, top: _Part, known: Reals, draws: int, rng: np.random.Generator, progress: Progress
    ) -> Summed:
        """Return marginals and draws of a tree that is cut, computed part after part."""
        nested, cut = self.problem.nested, self.cut
        assert cut is not None
        drawn = root_draws(rng, top.messages.low[0], known[: top.messages.start[1]], draws)
        drawn = closed_draws(rng, top.child_ptr, *top.messages[:3], drawn)
        low, size = top.window
        level_ptr, start = nested.level_ptr, top.messages.start
        found = [_Level(*each) for each in zip(np.diff(level_ptr).tolist(), self._room.tolist())]
        for level, (first, last) in enumerate(pairwise(level_ptr[level_ptr <= cut.edges[0]])):
            found[level] = _Level(int(last - first), int(start[last] - start[first]))
            found[level].add(low[first:last], size[first:last], known[start[first] : start[last]])
        counts = np.empty((draws, nested.cells.n), np.int64)
        for at, (first, last) in enumerate(pairwise(cut.edges)):
            runs, here = self._runs(at), slice(first, last)
            part = self._part(at, (low[here], low[here] + size[here] - 1))
            assert part is not None  # the same part was summed on the way up
            masses = part.marginals(known[start[first] : start[last]])
            level = int(np.searchsorted(level_ptr, first, side="right")) - 1
            edges = np.concatenate([[0], np.cumsum(runs.last - runs.first)])
            lows, sizes = part.window
            for below, (begin, end) in enumerate(pairwise(edges)):
                own = masses[part.messages.start[begin] : part.messages.start[end]]
                found[level + below].add(lows[begin:end], sizes[begin:end], own)
            self._draw(part, np.ascontiguousarray(drawn[:, here]), counts, self._cells(runs), rng)
            progress(draws * (at + 1) // (len(cut.edges) - 1), draws)
        whole = (self._grouped(level, *each.filled) for level, each in enumerate(found))
        return Summed(dict(zip(nested.margins, whole)), counts, True)

    def _draw(
        self,
        part: _Part,
        roots: Integers,
        counts: Integers,
        cells: Integers | slice,
        rng: np.random.Generator,
    ) -> None:
        """Draw the finest cells of a part, and write them to `counts`."""
        step = self._at_once(len(part.child_ptr))
        leaves = counts[:1, cells].shape[1]
        for first in range(0, len(roots), step):
            some = slice(first, first + step)
            counts[some, cells] = closed_draws(rng, part.child_ptr, *part.messages[:3], roots[some])[
                :, -leaves:
            ]

    def _at_once(self, nodes: int) -> int:
        return max(1, min(DRAWS_AT_ONCE, COUNTS_DRAWN_AT_ONCE // nodes))

    def _grouped(self, level: int, low: Integers, size: Integers, masses: Reals) -> Marginals:
        """Return the marginals of one level, reordered from the tree's nodes to the groups of its margin."""
        start = np.concatenate([[0], np.cumsum(size)])
        order = self.problem.nested.orders[level]
        if order is None:
            return Marginals(start, low, masses)
        at = order - self.problem.nested.level_ptr[level]
        begin = np.concatenate([[0], np.cumsum(size[at])])
        return Marginals(begin, low[at], masses[spread_messages(start[at], size[at])])


def _solved(child_ptr: Integers, factors: Factors) -> _Part | None:
    """Return the solution of a tree or forest, or None if it cannot be solved exactly."""
    if factors.open_ended.any():
        return None
    low, high = bounds(child_ptr, *reach_all(factors))
    if (low > high).any():
        return None
    work, held = closed_work(child_ptr, low, high)
    if work > MOST_WORK or held > MOST_SUMS:
        return None
    messages = closed_up(child_ptr, factors, low, high)
    return _Part(child_ptr, messages) if messages.failed < 0 else None
