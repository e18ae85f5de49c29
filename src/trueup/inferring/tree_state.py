"""A tree problem with its prior: tables of likelihood and prior, and errors for impossible values.

Attainable sums of a tree whose leaves take some counts only: a prior with holes, and an invariant.
A set of counts is a whole number whose bit k says that k is in it. The sums of one count of each of two sets are the
larger set shifted by every count of the smaller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, InfeasibleError
from trueup.kernel.messages.kinds import with_divisors
from trueup.kernel.messages.partition import Partition, cut_at, spread_messages
from trueup.kernel.messages.pmf import OPEN, Factors, reach_all
from trueup.kernel.messages.tilting import bounds
from trueup.layouts import improper
from trueup.layouts.factors import FactorTable, FittedMasses, Split
from trueup.layouts.prior_inputs import total_of_tree
from trueup.layouts.tree import TreeProblem
from trueup.model.cells import Margin
from trueup.model.nested import NestedTree
from trueup.model.prior import Prior
from trueup.model.records.drawn import Marginals
from trueup.noise.law import Law

DEPTHS = np.array([30.0, 50.0, 100.0, 240.0, 960.0, 3840.0, 15360.0, 61440.0, 245760.0])
"""Log mass, below its peak, at which a law's table ends; nodes where that is too soon go on to the next."""
ROUGHLY, FINE, WIDE = 1, 2, 4
"""Positions of the least depth, of that where next to nothing may be dropped, and of that of sums that are split: their parts'
messages lie at counts far from what was measured."""
MOST_ENTRIES = 1 << 28


@dataclass(frozen=True, eq=False)
class TreeState:
    """A tree problem with its prior, and the cut into parts if the tree is large.

    Attributes
    ----------
    total
        The least total and log masses from it on, by which the total is flat given bounds of places; None where it is so without.
    """

    problem: TreeProblem
    prior: Prior | FittedMasses
    cut: Partition | None
    total: tuple[int, NDArray[np.float64]] | None

    @property
    def child_ptr(self) -> NDArray[np.int64]:
        """Return child pointers: the children of node `v` are `child_ptr[v]:child_ptr[v + 1]`."""
        return self.problem.child_ptr

    def flat_given_bounds(self, values: NDArray) -> TreeState:
        """Return the problem with a prior that keeps the total flat despite bounds of places."""
        return replace(self, total=total_of_tree(self.problem, self.prior, values))

    def noisy_total(self, values: NDArray) -> float:
        """Return the published total, or the sum of the values of the first published level."""
        return float(self.problem.filled(self.problem.values(np.asarray(values, float)))[0])

    def add_prior(self, table: FactorTable, depth: float) -> None:
        """Add the prior of the finest cells, or of their total, to the tables of the nodes."""
        table.add_prior(self.prior, self.problem.nested.nodes[-1], depth)
        if self.total is not None:
            table.add_masses("total given bounds", self.total[1], np.zeros(1, np.int64), self.total[0])

    def refuse_impossible(self, values: NDArray) -> None:
        """Refuse bounds that contradict each other, with an error that names the place."""
        self._refuse_empty(*self.problem.whole_bounds(values), "the invariants and bounds")

    def refuse_contradiction(self, values: NDArray, factors: Factors) -> None:
        """Refuse bounds, priors and rules that allow no counts, with an error that names the place."""
        ends = factors.start[1:] - factors.start[:-1]
        closed = factors.open_ended[factors.table] == 0
        node = np.repeat(np.arange(len(factors.lower)), np.diff(factors.ptr))[closed]
        low, high = factors.lower.copy(), factors.upper.copy()
        np.maximum.at(low, node, factors.base[closed])
        np.minimum.at(high, node, (factors.base + ends[factors.table] - 1)[closed])
        self._refuse_empty(low, high, "the invariants and bounds, and what the prior and the noise allow,")
        self._refuse_holes(factors, node, np.flatnonzero(closed), low, high)

    def _refuse_holes(
        self, factors: Factors, node: NDArray, row: NDArray, lower: NDArray, upper: NDArray
    ) -> None:
        """Refuse exact sums that cannot be reached by counts which the prior allows."""
        allowed: dict[int, NDArray] = {}
        for v, i in zip(node.tolist(), row.tolist(), strict=True):
            log = factors.log[factors.start[factors.table[i]] : factors.start[factors.table[i] + 1]]
            counts = factors.base[i] + np.flatnonzero(np.isfinite(log))
            allowed[v] = np.intersect1d(allowed.get(v, counts), counts[counts >= 0])
        child_ptr = self.problem.child_ptr
        low, high = bounds(child_ptr, lower, upper)
        leaves = np.flatnonzero(child_ptr[1:] == child_ptr[:-1])
        if not all(int(v) in allowed for v in leaves):
            return
        if (at := nothing_attained(child_ptr, low, high, allowed)) is not None:
            raise InfeasibleError(
                f"the prior {self.prior.name!r} allows no counts that add up to the fixed count of "
                f"'{self.problem.nested.label(at)}'",
                remedy="choose a prior that allows such counts, or correct the fixed count",
            )

    def _refuse_empty(self, lower: NDArray, upper: NDArray, what: str) -> None:
        low, high = bounds(self.problem.child_ptr, lower, upper)
        if (empty := np.flatnonzero(low > high)).size:
            label = self.problem.nested.label(int(empty[0]))
            raise InfeasibleError(
                f"{what} at '{label}' and its parts contradict each other",
                remedy=f"correct one of them, so that the parts can sum to '{label}'",
            )

    @property
    def deepest_top(self) -> int:
        """Return the last level that the tree above the parts may include."""
        nested = self.problem.nested
        if self.cut is None:
            return len(nested.margins) - 1
        return int(np.searchsorted(nested.level_ptr, self.cut.edges[0]) - 1)

    def cut_below(self, level: int, size: int) -> Partition | None:
        """Return the cut of a tree below a level into parts of `size` nodes, or None at the last level."""
        nested = self.problem.nested
        last = len(nested.margins) - 1
        return cut_at(nested.child_ptr, nested.level_ptr, level, size) if 0 < level < last else None

    def factors(self, values: NDArray, depth: NDArray, splits: Split | None = None) -> Factors | None:
        """Return tables of likelihood and prior of all nodes, or None if they do not fit in memory."""
        found = self.tables(values, depth, splits)
        return (
            None
            if found is None
            else with_divisors(found, *bounds(self.problem.child_ptr, *reach_all(found)))
        )

    def tables(self, values: NDArray, depth: NDArray, splits: Split | None = None) -> Factors | None:
        """Return tables of likelihood and prior of all nodes, as a prior with one kind of parts needs."""
        problem = self.problem
        table = FactorTable(*problem.whole_bounds(values))
        try:
            for header, nodes, part in zip(problem.headers, problem.nodes, problem.parts(values)):
                if not header.exact:
                    table.add_law(header.law, nodes, part, depth[nodes])
        except (
            DataError
        ):  # that a law is too wide is to be said of it at the least depth, not after deepening
            if depth.max() <= DEPTHS[WIDE]:
                raise
            return None
        self.add_prior(table, float(depth.max()))
        if splits is not None:
            table.add_splits(splits)
        factors = table.build()
        low, high = bounds(problem.child_ptr, *reach_all(factors))
        self._refuse_improper(low, high)
        return factors if self._entries(low, high) <= MOST_ENTRIES else None

    def windows(self, values: NDArray, depth: NDArray) -> tuple[NDArray, NDArray]:
        """Return the first and last count `(nodes,)` that the tables of each node will hold."""
        problem = self.problem
        low, high = problem.whole_bounds(values)
        for header, nodes, part in zip(problem.headers, problem.nodes, problem.parts(values)):
            if not header.exact:
                least, most = reach_of(header.law, part, depth[nodes])
                np.maximum.at(low, nodes, least)
                np.minimum.at(high, nodes, most)
        return bounds(problem.child_ptr, low, high)

    def _entries(self, low: NDArray, high: NDArray) -> int:
        """Return the largest number of leaves' table entries that are in memory together."""
        edges = self.cut.leaves if self.cut else self.problem.nested.level_ptr[-2:]
        before = np.concatenate([[0], np.cumsum((high - low + 1).clip(0))])
        return int(np.diff(before[edges]).max())

    def _refuse_improper(self, low: NDArray, high: NDArray) -> None:
        if (open_ended := np.flatnonzero((low <= -OPEN) | (high >= OPEN))).size:
            leaves = self.problem.nested.nodes[-1]
            # A bound may be an open one less what its siblings hold at least.
            widest = leaves[np.argmax(high[leaves])]
            label = self.problem.nested.label(int(np.append(np.intersect1d(open_ended, leaves), widest)[0]))
            raise improper(label, float(low.max()))


def reach_of(law: Law, published: NDArray, depth: float | NDArray) -> tuple[NDArray, NDArray]:
    """Return the least and largest true count with at least `exp(-depth)` of the largest likelihood."""
    least, most = (np.asarray(side, np.int64) for side in law.bounds(published))
    if law.additive and (form := law.form) is not None:
        slope, curve = form.slope, form.curvature
        wide = depth / slope if curve == 0 else (np.sqrt(slope**2 + 4 * curve * depth) - slope) / (2 * curve)
        least, most = _cut_ends(published, np.minimum(wide, float(OPEN)), least, most)
    elif law.additive:
        least, most = _cut_ends(published, _reach(law, float(np.max(depth))), least, most)
    return least, most


def _reach(law: Law, depth: float) -> float:
    """Return noise whose mass is at most `exp(-depth)` of that at zero, found by doubling."""
    wide, top = 1.0, float(law.logpmf(np.zeros(1))[0])
    while wide < OPEN and top - float(law.logpmf(np.full(1, wide))[0]) < depth:
        wide *= 2
    return min(wide, float(OPEN))


def _cut_ends(
    published: NDArray, wide: float | NDArray, least: NDArray, most: NDArray
) -> tuple[NDArray, NDArray]:
    """Return bounds on counts, narrowed to a given distance from the published values."""
    return (
        np.maximum(least, np.floor(published - wide).astype(np.int64)),
        np.minimum(most, np.ceil(published + wide).astype(np.int64)),
    )


MAX_SHIFTED_BITS = 2_000_000_000
"""Bits that may be shifted before the question is left open."""


def nothing_attained(
    child_ptr: NDArray, low: NDArray, high: NDArray, allowed: Mapping[int, NDArray]
) -> int | None:
    """Return the first node whose range contains no possible sum of its leaves, or None.

    Parameters
    ----------
    child_ptr
        (n + 1,) children of each node, in level order.
    low, high
        (n,) whole-number range of every node.
    allowed
        For every leaf its counts, each 0 or more.

    Examples
    --------
    >>> import numpy as np
    >>> tree, twos = np.array([1, 3, 3, 3]), np.array([0, 2])
    >>> nothing_attained(tree, np.array([3, 0, 0]), np.array([3, 9, 9]), {1: twos, 2: twos})
    0
    >>> nothing_attained(tree, np.array([3, 0, 0]), np.array([4, 9, 9]), {1: twos, 2: twos}) is None
    True
    """
    sums: dict[int, int] = {}
    work = 0
    for v in range(len(child_ptr) - 2, -1, -1):
        children = range(child_ptr[v], child_ptr[v + 1])
        if children:
            total = 1
            for child in children:
                one, two = sorted((total, sums.pop(child)), key=int.bit_count)
                work += one.bit_count() * (one.bit_length() + two.bit_length())
                if work > MAX_SHIFTED_BITS:
                    return None
                total = _sum_sets(one, two)
        else:
            total = sum(1 << int(count) for count in allowed[v])
        sums[v] = _sums_between(total, int(low[v]), int(high[v]))
        if not sums[v]:
            return v
    return None


def _sum_sets(few: int, many: int) -> int:
    found, shift = 0, 0
    while few:
        step = (few & -few).bit_length() - 1
        few, shift = few >> step + 1, shift + step
        found |= many << shift
        shift += 1
    return found


def _sums_between(counts: int, low: int, high: int) -> int:
    counts = counts >> low << low if low > 0 else counts
    return counts & ((1 << high + 1) - 1) if 0 <= high < counts.bit_length() else counts * (high >= 0)


def holds_all_levels(nested: NestedTree) -> bool:
    """Return True if the margins include the totals of every level."""
    return {Margin(level) for level in nested.cells.tree.levels} <= set(nested.margins)


def by_margin(nested: NestedTree, start: NDArray, offset: NDArray, masses: NDArray) -> dict:
    """Return a dict of marginals by margin, each in the order of its margin's groups."""
    result = {}
    for margin, nodes in zip(nested.margins, nested.nodes):
        sizes = np.diff(start)[nodes]
        begin = np.concatenate([[0], np.cumsum(sizes)])
        if (np.diff(nodes) == 1).all():  # side by side: no copy of a nation's masses
            own = masses[start[nodes[0]] : start[nodes[-1] + 1]]
        else:
            own = masses[spread_messages(start[nodes], sizes)]
        result[margin] = Marginals(begin, offset[nodes], own)
    return result
