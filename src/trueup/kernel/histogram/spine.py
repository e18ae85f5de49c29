"""Sums over children and copies to children, level by level, on a level-ordered tree.

The distinct shapes of a tree, on which the errors of least squares depend.
The error at a node depends on the shape of the tree around it and not on its counts. The estimate from a node's own
subtree has a covariance that depends on the *shape* of the subtree alone; given everything, on the shapes along the
path from the root as well, its *context*. So one number per shape and one per context suffice: 25,000 blocks of a state
in 800 block groups have one shape and 800 contexts, and the 800 block groups have as many shapes as there are different
numbers of blocks in them.

Lower bounds on marginals of the histograms on a tree, closed under sums.

Where marginals are nested, tables at least as large as given bounds exist below every table that is at least as large
as what these add up to: over the children of a place and over the cells of a coarser marginal. So bounds are added up
once, from the leaves and from fine to coarse; then each stage of settling looks for `x - l >= 0` with the bounds taken
off all sums, which is the problem without bounds. Upper bounds are lower bounds on minus the counts, infinite where there
is none: what tables may hold at most is added up alike. Along one marginal that is enough, and along several it seldom is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.kernel.histogram import Marginal, marginalise, refines, relative


@dataclass(frozen=True)
class Spine:
    """A level-ordered tree, divided into its levels.

    Parameters
    ----------
    child_ptr : (nodes + 1,) int64 array
        Children of node v are `child_ptr[v]:child_ptr[v + 1]`.
    roots : number of roots, nodes 0, 1, ...; more than one make a forest

    Examples
    --------
    >>> spine = Spine(np.array([1, 3, 3, 3]))
    >>> [(level.start, level.stop) for level in spine.levels]
    [(0, 1), (1, 3)]
    >>> spine.sum_children(0, np.array([[2.0], [5.0]]))
    array([[7.]])
    """

    child_ptr: np.ndarray
    roots: int = 1

    @cached_property
    def levels(self) -> tuple[slice, ...]:
        """Return the nodes of every level."""
        levels, start, stop = [], 0, self.roots
        while start < stop:
            levels.append(slice(start, stop))
            start, stop = stop, int(self.child_ptr[stop])
        return tuple(levels)

    @cached_property
    def inner(self) -> tuple[np.ndarray, ...]:
        """Return, by level, the positions within the level of the nodes that have children."""
        return tuple(np.flatnonzero(np.diff(self.child_ptr[lv.start : lv.stop + 1])) for lv in self.levels)

    @cached_property
    def firsts(self) -> tuple[np.ndarray, ...]:
        """Return per level the position of each inner node's first child in the next level."""
        pairs = zip(self.levels, self.inner, strict=True)
        return tuple(self.child_ptr[lv.start + inner] - lv.stop for lv, inner in pairs)

    @property
    def depth(self) -> int:
        """Return the number of levels."""
        return len(self.levels)

    def size(self, level: int) -> int:
        """Return the number of nodes on a level."""
        return self.levels[level].stop - self.levels[level].start

    def upper(self, depth: int) -> Spine:
        """Return the tree of the first levels.

        Examples
        --------
        >>> Spine(np.array([1, 3, 5, 6, 6, 6, 6])).upper(2).child_ptr
        array([1, 3, 3, 3])
        """
        end = self.levels[depth - 1].stop
        return Spine(np.minimum(self.child_ptr[: end + 1], end), self.roots)

    def tiled(self, copies: int) -> Spine:
        """Return a tree of several copies, in which each level holds the nodes of all copies in turn."""
        counts = [np.tile(np.diff(self.child_ptr[lv.start : lv.stop + 1]), copies) for lv in self.levels]
        roots = self.roots * copies
        return Spine(roots + np.append(0, np.cumsum(np.concatenate(counts))), roots)

    def children(self, level: int) -> np.ndarray:
        """Return the number of children of each inner node of a level."""
        return np.diff(np.append(self.firsts[level], self.size(level + 1)))

    def above(self, leaves: np.ndarray) -> list[np.ndarray]:
        """Return, by level, masks of the inner nodes that have a masked leaf below them.

        Examples
        --------
        >>> Spine(np.array([1, 3, 5, 6, 6, 6, 6])).above(np.array([False, False, True]))
        [array([ True]), array([False,  True])]
        """
        found, mask = [], leaves
        for level in range(self.depth - 2, -1, -1):
            found.insert(0, np.logical_or.reduceat(mask, self.firsts[level]))
            mask = np.zeros(self.size(level), bool)
            mask[self.inner[level]] = found[0]
        return found

    def sum_children(self, level: int, x: np.ndarray) -> np.ndarray:
        """Sum an array (nodes of the next level, ...) over the children of every inner node of `level`."""
        if x.shape[0] == 1 and self.size(level + 1) > 1:
            return self.children(level).reshape(-1, *(1,) * (x.ndim - 1)) * x
        return np.add.reduceat(x, self.firsts[level], axis=0)

    def to_children(self, level: int, x: np.ndarray) -> np.ndarray:
        """Repeat an array (inner nodes of `level`, ...) for every child of these nodes."""
        return np.repeat(x, self.children(level), axis=0)


Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Shapes:
    """Shapes and contexts of a tree whose leaves all lie on the last level.

    Attributes
    ----------
    counts
        For every level but the last, (shapes, shapes of the next level): how many children of each shape.
    shape, parent
        For every level, the shape of each context and the context of its parent (0 at the root).
    occurrences
        For every level, how many nodes of the tree each context stands for.
    context
        For every level, the context of each of its nodes.

    Examples
    --------
    >>> shapes = Shapes.of(np.array([1, 3, 5, 8, 8, 8, 8, 8, 8]))  # two children, of two and of three leaves
    >>> shapes.counts[0].toarray(), [len(s) for s in shapes.shape]
    (array([[1., 1.]]), [1, 2, 2])
    >>> shapes.occurrences[2]
    array([2, 3])
    """

    counts: tuple[scipy.sparse.csr_array, ...]
    shape: tuple[Indices, ...]
    parent: tuple[Indices, ...]
    occurrences: tuple[Indices, ...]
    context: tuple[Indices, ...]

    @classmethod
    def of(cls, child_ptr: Indices) -> Shapes:
        """Return the shapes and contexts of a tree in level order."""
        levels = [np.arange(level.start, level.stop) for level in Spine(child_ptr).levels]
        numbers, counts = [np.zeros(len(levels[-1]), np.int64)], []
        for nodes in reversed(levels[:-1]):
            number, count = _shapes(child_ptr, nodes, numbers[0])
            numbers.insert(0, number)
            counts.insert(0, count)
        return cls(tuple(counts), *_contexts(child_ptr, levels, numbers))

    @property
    def depth(self) -> int:
        """Return the number of levels."""
        return len(self.shape)

    @cached_property
    def numbers(self) -> tuple[NDArray[np.float64], ...]:
        """Return, by level, the number of nodes of each shape."""
        found = [np.ones(1)]
        for counts in self.counts:
            found.append(counts.T @ found[-1])
        return tuple(found)

    def first(self, level: int, context: int) -> int:
        """Return the first node of a level that has a context."""
        return int(np.argmax(self.context[level] == context))


def _shapes(child_ptr: Indices, nodes: Indices, below: Indices) -> tuple[Indices, scipy.sparse.csr_array]:
    """Number the shapes of a level's nodes, and count their children of every shape."""
    starts = child_ptr[nodes] - child_ptr[nodes[0]]
    stops = child_ptr[nodes + 1] - child_ptr[nodes[0]]
    known: dict[bytes, int] = {}
    if not below.any():  # children of one shape: their number says it all
        sizes, number = np.unique(stops - starts, return_inverse=True)
        return number.reshape(-1), scipy.sparse.csr_array(sizes.astype(float)[:, None])
    sorts = [np.sort(below[a:b]) for a, b in zip(starts, stops)]
    number = np.array([known.setdefault(one.tobytes(), len(known)) for one in sorts])
    kinds = [np.unique(np.frombuffer(key, np.int64), return_counts=True) for key in known]
    rows = np.repeat(np.arange(len(kinds)), [len(k) for k, _ in kinds])
    columns, times = (np.concatenate(part) for part in zip(*kinds))
    return number, scipy.sparse.csr_array(
        (times.astype(float), (rows, columns)), shape=(len(kinds), below.max() + 1)
    )


def _contexts(child_ptr: Indices, levels: list[Indices], numbers: list[Indices]):
    """Number the contexts of nodes level by level: pairs of the parent's context and the node's shape."""
    context = [np.zeros(1, np.int64)]
    shape, parent, occurrences = [numbers[0]], [np.zeros(1, np.int64)], [np.ones(1, np.int64)]
    for level, number in enumerate(numbers[1:]):
        nodes = levels[level]
        above = np.repeat(context[-1], child_ptr[nodes + 1] - child_ptr[nodes])
        pairs, index, times = np.unique(
            above * (number.max() + 1) + number, return_inverse=True, return_counts=True
        )
        context.append(index.reshape(-1))
        parent.append(pairs // (number.max() + 1))
        shape.append(pairs % (number.max() + 1))
        occurrences.append(times)
    return tuple(shape), tuple(parent), tuple(occurrences), tuple(context)


@dataclass(frozen=True)
class Lower:
    """Consistent lower bounds at the nodes of a level: nested marginals with tables (nodes, cells)."""

    marginals: tuple[Marginal, ...]
    tables: tuple[np.ndarray, ...]

    def of(self, marginal: Marginal) -> np.ndarray | None:
        """Return bounds (nodes, cells) on a marginal's table, or None if no bounded marginal refines it."""
        within = [
            marginalise(table, relative(fine, marginal))
            for fine, table in zip(self.marginals, self.tables, strict=True)
            if refines(fine, marginal)
        ]
        return np.max(within, axis=0) if within else None

    def at(self, rows: np.ndarray) -> Lower:
        """Return the bounds of some nodes."""
        return Lower(self.marginals, tuple(t[rows] for t in self.tables))


def close_bounds(
    spine: Spine,
    marginals: Sequence[Marginal],
    own: Sequence[Sequence[np.ndarray]],
    below: Sequence[np.ndarray] = (),
) -> tuple[Lower, ...]:
    """Make lower bounds consistent, by adding them up from the leaves and from fine marginals to coarse ones.

    Parameters
    ----------
    spine : the tree, or a forest
    marginals : nested, coarse to fine
    own : per level and marginal (nodes or 1, cells) whole numbers, or minus infinity
    below : if the last level is a cut, the closed bounds of its nodes by marginal

    Examples
    --------
    >>> total, cells = (np.array([0, 0]),), (np.array([0, 1]),)
    >>> spine = Spine(np.array([1, 3, 3, 3]))
    >>> own = [[np.array([[1]]), np.zeros((1, 2), int)], [np.zeros((1, 1), int), np.array([[2, 0]])]]
    >>> close_bounds(spine, [total, cells], own)[0].tables
    (array([[4]]), array([[4, 0]]))
    """
    levels: list[Lower] = []
    for level in range(spine.depth - 1, -1, -1):
        shapes = [(spine.size(level), t.shape[1]) for t in own[level]]
        tables = [np.array(np.broadcast_to(t, s)) for t, s in zip(own[level], shapes, strict=True)]
        if below and not levels:
            tables = [np.maximum(t, b) for t, b in zip(tables, below, strict=True)]
        for i in range(len(marginals)):
            if levels:
                inner = spine.inner[level]
                sums = spine.sum_children(level, levels[-1].tables[i])
                tables[i][inner] = np.maximum(tables[i][inner], sums)
        for i in range(len(marginals) - 2, -1, -1):
            within = marginalise(tables[i + 1], relative(marginals[i + 1], marginals[i]))
            tables[i] = np.maximum(tables[i], within)
        levels.append(Lower(tuple(marginals), tuple(tables)))
    return tuple(reversed(levels))
