"""A tree in which nodes with equal errors are taken once.

The error of least squares at a node depends on the shape of the tree around it and not on its counts: on
the shapes of the subtrees below, and on the same at its parent. So leaves under one parent are alike, and so are
parents with equal subtrees under one grandparent. One of each suffices, with the number of times that it occurs
among its siblings: a state's 25,000 blocks become the 800 block groups that they are in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.histogram.spine import Spine


@dataclass(frozen=True)
class AlikeSpine(Spine):
    """A spine whose nodes stand for several alike ones each.

    Parameters
    ----------
    times
        How many siblings each node stands for, itself included, (nodes,).

    Examples
    --------
    >>> spine = alike(Spine(np.array([1, 3, 5, 8, 8, 8, 8, 8, 8])))  # two children, of two and of three leaves
    >>> spine.child_ptr, spine.times
    (array([1, 3, 4, 5, 5, 5]), array([1, 1, 1, 3, 2]))
    >>> spine.mean(2, np.array([2.0, 1.0]))
    1.6
    """

    times: NDArray[np.int64] = field(default_factory=lambda: np.ones(0, np.int64))

    def sum_children(self, level: int, x: np.ndarray) -> np.ndarray:
        """Sum (nodes of the next level, ...) over every inner node of `level`, each as often as it occurs."""
        times = self.times[self.levels[level + 1]].reshape(-1, *(1,) * (x.ndim - 1))
        return np.add.reduceat(times * x, self.firsts[level], axis=0)

    @cached_property
    def occurrences(self) -> tuple[NDArray[np.int64], ...]:
        """Per level, how many nodes of the whole tree each node stands for."""
        found = [self.times[self.levels[0]]]
        for level in range(self.depth - 1):
            above = self.to_children(level, found[-1][self.inner[level]])
            found.append(above * self.times[self.levels[level + 1]])
        return tuple(found)

    def mean(self, level: int, x: np.ndarray) -> float:
        """Mean over all nodes of a level of the whole tree, of (nodes, ...)."""
        each = x.reshape(len(x), -1).mean(axis=1)
        return float(np.average(np.broadcast_to(each, self.size(level)), weights=self.occurrences[level]))


def alike(spine: Spine) -> AlikeSpine:
    """Take alike nodes of a tree once."""
    shape = _shapes(spine)
    kept = [np.arange(spine.roots)]
    times, counts = [np.ones(spine.roots, np.int64)], []
    for level in range(spine.depth):
        children, occurring, number = _children(spine, shape, kept[level])
        kept.append(children)
        times.append(occurring)
        counts.append(number)
    child_ptr = spine.roots + np.append(0, np.cumsum(np.concatenate(counts)))
    return AlikeSpine(child_ptr, spine.roots, np.concatenate(times))


def _shapes(spine: Spine) -> NDArray[np.int64]:
    """Number the shapes of subtrees, (nodes,): equal numbers for equal shapes; leaves are 0."""
    shape = np.zeros(spine.child_ptr.size - 1, np.int64)
    known: dict[bytes, int] = {b"": 0}
    for v in range(shape.size - 1, -1, -1):
        below = np.sort(shape[spine.child_ptr[v] : spine.child_ptr[v + 1]])
        shape[v] = known.setdefault(below.tobytes(), len(known))
    return shape


def _children(
    spine: Spine, shape: NDArray[np.int64], kept: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """One child of each shape of every kept node, how often it occurs, and how many there are."""
    pairs = list(zip(spine.child_ptr[kept], spine.child_ptr[kept + 1]))
    found = [np.unique(shape[a:b], return_index=True, return_counts=True) for a, b in pairs]
    children = [a + at for (a, _), (_, at, _) in zip(pairs, found)]
    times = [occurring for _, _, occurring in found]
    return np.concatenate(children), np.concatenate(times), np.array([len(part) for part in times])
