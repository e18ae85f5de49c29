"""What exact messages on a tree cost: counted before it is paid, in multiplications, so that no clock decides what is drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

DIRECT = 1500.0
"""Counts of a window up to which each of another's entries is multiplied by all of them; wider ones take a Fourier transform."""
TRANSFORM = 40.0
"""Multiplications for each entry of a wider one, and each doubling of a family."""
WIDE = 300.0
"""Counts of a leaf's window from which on grids are as exact and many times as fast."""
LEAST, EACH = 5e8, 3e7
"""Multiplications that a tree may take, and that each of its nodes adds: about a second of a processor, more for large trees."""


class TooCostly(Exception):
    """Exact messages would take more than they may."""


@dataclass(eq=False)
class AllowedWork:
    """Multiplications that may be spent, and those that were."""

    allowed: float = np.inf
    spent: float = 0.0

    @classmethod
    def of(cls, nodes: int) -> AllowedWork:
        """What a tree of so many nodes may take."""
        return cls(LEAST + EACH * nodes)

    def refuse_wide(self, low: NDArray, high: NDArray) -> None:
        """Leave trees to grids whose leaves are so uncertain that tables of every count are no use.

        Raises
        ------
        TooCostly
            If half of the windows `low..high` of leaves are wider than `WIDE`.
        """
        if np.isfinite(self.allowed) and np.median(np.asarray(high, float) - low) > WIDE:
            raise TooCostly

    def spend(self, child_ptr: Integers, low: NDArray, high: NDArray) -> None:
        """Count one pass up a tree with windows `low..high`.

        Raises
        ------
        TooCostly
            If it would take more than is left.
        """
        self.spent += pass_cost(child_ptr, low, high)
        if self.spent > self.allowed:
            raise TooCostly


def pass_cost(child_ptr: Integers, low: NDArray, high: NDArray) -> float:
    """Return about the multiplications of one pass up a tree with windows `low..high`.

    Examples
    --------
    >>> pass_cost(np.array([1, 3, 3, 3]), np.zeros(3), np.array([18.0, 9.0, 9.0])) > 200
    True
    """
    width = np.maximum(np.asarray(high, float) - np.asarray(low, float) + 1.0, 0.0)
    inner = np.flatnonzero(np.diff(child_ptr))
    if not len(inner):
        return float(width.sum())
    sums = np.add.reduceat(width[child_ptr[0] :], child_ptr[inner] - child_ptr[0])
    doublings = np.log2(np.diff(child_ptr)[inner] + 1.0)
    return float((sums * np.minimum(sums, DIRECT) + TRANSFORM * sums * doublings).sum())
