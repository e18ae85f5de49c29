"""Search, on few places, for the smallest changes of cells that share their sums with no other cell.

**Few places are enough for the norm.** Let a cell sit in place p of the last level, with the places u_0, ..., u_L = p above
it. Sum a change over all places under u_j that are not under u_{j+1}, for every j at which u_j has a further child, and put the
sum on one place s_j there. A place of an invariant's level on the path holds all of the places summed into s_j, or
none; those off the path that hold s_j get the sum of places that were each left unchanged. So the folded change leaves
every sum of the folded tree, moves the cell by as much, and its norm is no larger. Conversely each s_j may be one real
place, so that a change of the folded tree is one of the real tree. So the least norm is the same, and it depends on nothing
but the levels at which the path branches: a handful of patterns in a nation.

**For the loss** real changes may spread over several places that folding puts in one. Where every place of the last
level keeps its total, a change touches it by 2 at least or not at all; so below norm 6 it touches p and one
other place, as in the folded tree. Otherwise what is found there is compared with the bound by steps, and unless it
attains it the bound is what is stated.

**Few combinations.** Values of an attribute whose exchange maps structural zeros, sums and queries onto themselves need one
search for all of them. In a small tree, places with the same tree below and above them do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.lattice import algebra
from trueup.kernel.lattice.algebra import determined
from trueup.kernel.lattice.smallest import Exhausted, Search, Vector
from trueup.model.kept import Found, Kept, PricedChanges
from trueup.privacy import Loss, compose

MAX_WHOLE_TREE_CELLS = 600
"""Cells up to which changes are searched on the whole tree, where losses are exact; beyond, on folded trees."""
MAX_BASIS_CELLS = 150
"""Cells up to which a search that ends early is replaced by a bound from a reduced basis."""
MAX_CHANGE_NORM = 128
"""Largest L1 norm that is looked for."""
MOST_ENTRIES = 20_000_000
"""Entries of the matrix of a folded tree beyond which nothing is searched."""


def searched(changes: PricedChanges, lone: NDArray, steps: int) -> list[Found]:
    """Return the smallest changes through some cells, one entry for each norm and each tree that is searched.

    Raises
    ------
    Exhausted
        If a least norm is not found within the steps.
    """
    lone = np.intersect1d(lone, representatives(changes))
    found: list[Found] = []
    for layout in layouts(changes.kept):
        found += Sought(changes, layout, lone, steps).found()
    return found


@dataclass(frozen=True, eq=False)
class Layout:
    """A small tree of places on which changes are searched.

    Attributes
    ----------
    ancestors
        `(levels, places)`: for each place of the last level, the place above it at each level.
    targets
        For each place whose cells are looked at, the highest level at which it is alone.
    whole
        True if it is the real tree.
    """

    ancestors: NDArray[np.int64]
    targets: dict[int, int]
    whole: bool


def layouts(kept: Kept) -> Iterator[Layout]:
    """Yield the trees to search: the real one if it is small, else one folded tree for each pattern of branches."""
    tree, last = kept.tree, kept.levels - 1
    tops = tree.alone[last]
    ancestors = (tree.ancestors(last, level) for level in range(last + 1))
    if tree.sizes[last] * int(kept.free.sum()) <= MAX_WHOLE_TREE_CELLS:
        above = np.array(list(ancestors))
        yield Layout(above, {p: int(tops[p]) for p in _different(above)}, True)
        return
    patterns = np.zeros(tree.sizes[last], np.int64)
    for level, above in zip(range(last), ancestors):
        children = np.bincount(tree.ancestors(level + 1, level), minlength=tree.sizes[level])
        patterns |= (children[above] > 1).astype(np.int64) << level
    for pattern in np.unique(patterns).tolist():
        yield folded([level for level in range(last) if pattern >> level & 1], last)


def folded(branches: list[int], last: int) -> Layout:
    """Return the tree of one path from the root, with one further place for each branch of the path.

    Examples
    --------
    >>> folded([0, 2], 3).ancestors.tolist()
    [[0, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 2]]
    """
    ancestors = np.zeros((last + 1, 1 + len(branches)), np.int64)
    for place, level in enumerate(branches, 1):
        ancestors[level + 1 :, place] = place
    return Layout(ancestors, {0: max(branches, default=-1) + 1}, False)


def _different(ancestors: NDArray[np.int64]) -> list[int]:
    """Return one place of the last level for each sequence of subtree shapes on the path from the root."""
    shapes = [np.zeros(ancestors.shape[1], np.int64)]
    known: dict[tuple, int] = {}
    for above, here in zip(ancestors[-2::-1], ancestors[:0:-1]):
        of_place = dict(zip(here.tolist(), shapes[-1].tolist()))
        under = [
            tuple(sorted(of_place[child] for child in set(here[above == a].tolist()))) for a in above.tolist()
        ]
        shapes.append(np.array([known.setdefault((len(shapes), u), len(known)) for u in under]))
    return np.unique(np.array(shapes), axis=1, return_index=True)[1].tolist()


@dataclass(eq=False)
class Sought:
    """The search on one small tree, in which cells are numbered by place, then by free combination."""

    changes: PricedChanges
    layout: Layout
    lone: NDArray[np.int64]
    steps: int

    @cached_property
    def width(self) -> int:
        """Return the number of free combinations at one place."""
        return int(self.changes.kept.free.sum())

    @cached_property
    def search(self) -> Search:
        """Return the lattice search over all places of the tree, with the steps that are left."""
        blocks = []
        for level, rows in self.changes.kept.sums:
            for place in np.unique(self.layout.ancestors[level]):
                blocks.append(np.kron(self.layout.ancestors[level] == place, rows))
                if sum(block.size for block in blocks) > MOST_ENTRIES:
                    raise Exhausted
        return Search(np.vstack(blocks), self.steps)

    def cells(self) -> list[int]:
        """Return the cells through which changes are searched: not fixed, and not equivalent to a cell of another place."""
        kept, found = self.changes.kept, []
        for place, top in self.layout.targets.items():
            here = self.lone[kept.depth[self.lone] >= top]
            if len(here):
                units = (here[:, None] == np.arange(self.width)).astype(np.int64)
                here = here[~determined(kept.below(top), units)]
            found += (place * self.width + here).tolist()
        return found

    def found(self) -> list[Found]:
        """Return the smallest changes by norm; leave out those that lose no more than changes with other norms."""
        try:
            norms = sorted(self.norms(), reverse=True)
        except Exhausted:
            return self._bounded()
        found: list[Found] = []
        most = None
        for length, cells in groupby(norms, key=lambda pair: pair[0]):
            bound = self.changes.bound(length)
            if most is not None and self.changes.size(bound) <= most:
                break
            moved, loss, attained = self._worst(length, [cell for _, cell in cells], bound)
            found.append(Found(length, moved, loss, attained))
            most = max(most or 0, self.changes.size(loss))
        return found

    def _bounded(self) -> list[Found]:
        """Return changes with bounds on the norms, from a reduced basis of the lattice."""
        matrix = self.search.matrix
        if matrix.shape[1] > MAX_BASIS_CELLS:
            raise Exhausted
        basis = algebra.basis(matrix)
        norms = np.abs(basis).sum(axis=1)
        nearest = [int(norms[basis[:, cell] != 0].min()) for cell in self.cells()]
        vector = basis[int(np.flatnonzero(norms == max(nearest))[0])]
        moved = min(int(vector.clip(0).sum()), int((-vector).clip(0).sum()))
        return [Found(max(nearest), moved, self.changes.bound(max(nearest)), attained=False, smallest=False)]

    def norms(self) -> list[tuple[int, int]]:
        """Return pairs of norm and cell: the smallest L1 norm of a change through each cell."""
        left, norms = set(self.cells()), []
        for length in range(1, MAX_CHANGE_NORM + 1):
            for cell in sorted(left):
                if cell in left and (vectors := self.search.within(cell, length, every=False)):
                    settled = left & {moved for moved, _ in vectors[0]}
                    norms += [(length, moved) for moved in settled]
                    left -= settled
            if not left:
                return norms
        raise Exhausted

    def _worst(self, length: int, cells: list[int], bound: Loss) -> tuple[int, Loss, bool]:
        """Bound the privacy loss of the smallest changes of counts that alter one of the given cells.

        Return the units that a change moves, the largest loss (or `bound`), and True if the loss is exact.
        """
        size, best, moved = self.changes.size, Loss(), 0
        try:
            for cell in cells:
                for vector in self.search.within(cell, length):
                    moved = moved or _moved(vector)
                    best = max(best, self.loss(vector), key=size)
                if size(best) == size(bound):
                    return moved, best, True
        except Exhausted:
            return moved, bound, False
        return (moved, best, True) if self._complete(length) else (moved, bound, False)

    def _complete(self, length: int) -> bool:
        """Return True if the changes found on this tree have the losses of real changes."""
        kept = self.changes.kept
        if self.layout.whole:
            return True
        total = np.ones((1, self.width), np.int64)
        return length < 6 and bool(determined(kept.below(kept.levels - 1), total)[0])

    def loss(self, vector: Vector) -> Loss:
        """Return the loss of one change of cells."""
        costs = []
        for query in self.changes.queries:
            moved: dict[tuple[int, int], int] = {}
            for cell, value in vector:
                place, combination = divmod(cell, self.width)
                group = int(self.layout.ancestors[query.level, place]), int(query.group[combination])
                moved[group] = moved.get(group, 0) + value
            costs.append(query.cost(sum(map(abs, moved.values())), sum(v * v for v in moved.values())))
        return compose(costs)


def _moved(vector: Vector) -> int:
    return min(sum(v for _, v in vector if v > 0), -sum(v for _, v in vector if v < 0))


def representatives(changes: PricedChanges) -> NDArray[np.int64]:
    """Return one free combination for each set of combinations whose values can be exchanged."""
    kept = changes.kept
    if kept.flat:
        return np.arange(int(kept.free.sum()))
    shape = kept.cells.shape[1:]
    everywhere = np.arange(kept.free.size).reshape(shape)
    kinds = []
    for axis, size in enumerate(shape):
        kind = list(range(size))
        for value in range(1, size):
            for first in sorted(set(kind[:value])):
                exchanged = np.arange(size)
                exchanged[[value, first]] = first, value
                if _unchanged(changes, everywhere.take(exchanged, axis).ravel()):
                    kind[value] = first
                    break
        kinds.append(np.array(kind)[np.indices(shape)[axis].ravel()[kept.free]])
    if not kinds:
        return np.arange(int(kept.free.sum()))
    return np.unique(np.array(kinds), axis=1, return_index=True)[1]


def _unchanged(changes: PricedChanges, exchange: NDArray[np.int64]) -> bool:
    """Return True if an exchange of combinations leaves structural zeros, sums and queries unchanged."""
    kept = changes.kept
    if not np.array_equal(kept.free[exchange], kept.free):
        return False
    number = np.cumsum(kept.free) - 1
    order = number[exchange[kept.free]]
    same = (_rows(rows) == _rows(rows[:, order]) for _, rows in kept.sums)
    return all(same) and all(
        np.array_equal(_first_seen(q.group), _first_seen(q.group[order])) for q in changes.queries
    )


def _rows(rows: NDArray[np.int64]) -> set[bytes]:
    return {row.tobytes() for row in rows}


def _first_seen(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return labels numbered by first appearance, so that equal partitions give equal arrays."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]
