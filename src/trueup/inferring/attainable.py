"""Attainable sums of a tree whose leaves take some counts only: a prior with holes, and an invariant.

A set of counts is a whole number whose bit k says that k is in it. The sums of one count of each of two sets are the
larger set shifted by every count of the smaller.
"""

from __future__ import annotations

from collections.abc import Mapping

from numpy.typing import NDArray

WORK = 2_000_000_000
"""Bits that may be shifted before the question is left open."""


def nothing_attained(
    child_ptr: NDArray, low: NDArray, high: NDArray, allowed: Mapping[int, NDArray]
) -> int | None:
    """Return the first node from below whose range holds no sum of its leaves' counts; None if none is found.

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
                if work > WORK:
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
