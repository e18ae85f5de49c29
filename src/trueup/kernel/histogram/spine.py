"""Sums over children and copies to children, level by level, on a level-ordered tree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Spine:
    """A level-ordered tree cut into its levels.

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
        """Return per level the nodes that have children, counted within the level."""
        return tuple(np.flatnonzero(np.diff(self.child_ptr[lv.start : lv.stop + 1])) for lv in self.levels)

    @cached_property
    def firsts(self) -> tuple[np.ndarray, ...]:
        """Return per level where each inner node's children start in the next level."""
        pairs = zip(self.levels, self.inner, strict=True)
        return tuple(self.child_ptr[lv.start + inner] - lv.stop for lv, inner in pairs)

    @property
    def depth(self) -> int:
        """Return the number of levels."""
        return len(self.levels)

    def size(self, level: int) -> int:
        """Return the number of nodes on a level."""
        return self.levels[level].stop - self.levels[level].start

    def tiled(self, copies: int) -> Spine:
        """Return several copies side by side: on every level the nodes of the first copy, of the second, ..."""
        counts = [np.tile(np.diff(self.child_ptr[lv.start : lv.stop + 1]), copies) for lv in self.levels]
        roots = self.roots * copies
        return Spine(roots + np.append(0, np.cumsum(np.concatenate(counts))), roots)

    def children(self, level: int) -> np.ndarray:
        """Return the number of children of every inner node of a level."""
        return np.diff(np.append(self.firsts[level], self.size(level + 1)))

    def sum_children(self, level: int, x: np.ndarray) -> np.ndarray:
        """Sum (nodes of the next level, ...) over every inner node of `level`."""
        if x.shape[0] == 1 and self.size(level + 1) > 1:
            return self.children(level).reshape(-1, *(1,) * (x.ndim - 1)) * x
        return np.add.reduceat(x, self.firsts[level], axis=0)

    def to_children(self, level: int, x: np.ndarray) -> np.ndarray:
        """Repeat (inner nodes of `level`, ...) for every child."""
        return np.repeat(x, self.children(level), axis=0)
