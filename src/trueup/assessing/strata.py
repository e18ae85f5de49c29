"""Classes of a table's counts: by size of the true count, number of siblings, or attribute values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.model.cells import Cells, Margin

SIBLINGS = (1, 2, 5, 10, 20, 50, 100, 200)
"""Lower ends of the classes of the number of places under one parent."""
LEVEL, SIZE, SIBLING = "level", "size", "siblings"


@dataclass(frozen=True, eq=False)
class Classing:
    """One way to sort the groups of a margin.

    Attributes
    ----------
    by
        `level` (all together), `size`, `siblings` or the name of an attribute or recode.
    labels
        Names of the classes that hold anything.
    at
        `(groups,)` the class of every group.
    lowest
        Lower end of every class of counts; empty for classes of another kind.
    """

    by: str
    labels: tuple[str, ...]
    at: NDArray[np.int64]
    lowest: tuple[int, ...] = ()

    @property
    def units(self) -> NDArray[np.int64]:
        """Return how many groups each class holds."""
        return np.bincount(self.at, minlength=len(self.labels))


def by_range(by: str, numbers: NDArray, lower_ends: Sequence[int]) -> Classing:
    """Sort whole numbers into ranges; empty classes are left out.

    Examples
    --------
    >>> by_range("size", np.array([0, 3, 9, 1200]), (1, 10, 1000)).labels
    ('0', '1-9', '1,000 and more')
    """
    ends = [0, *lower_ends]
    found, at = np.unique(np.searchsorted(ends, numbers, side="right") - 1, return_inverse=True)
    labels = [_range_label(ends, int(k)) for k in found]
    return Classing(by, tuple(labels), at, tuple(ends[k] for k in found))


def _range_label(ends: Sequence[int], k: int) -> str:
    if k == len(ends) - 1:
        return f"{ends[k]:,} and more"
    low, high = ends[k], ends[k + 1] - 1
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


@dataclass(frozen=True, eq=False)
class Strata:
    """Every classing of one margin, their classes end to end.

    Attributes
    ----------
    margin
        The margin.
    truth
        `(groups,)` true counts.
    classings
        All together first, then by size.
    """

    margin: Margin
    truth: NDArray[np.int64]
    classings: tuple[Classing, ...]

    @cached_property
    def means(self):
        """Return the sparse `(classes, groups)` matrix that gives each class's mean of group values."""
        return scipy.sparse.vstack([_means(c) for c in self.classings], format="csr")

    def average(self, values: NDArray) -> NDArray:
        """Return averages `(b, classes)` of values `(b, groups)` over the groups of each class that have one (not NaN)."""
        there = ~np.isnan(values[0])
        if there.all():
            return (self.means @ values.T.astype(np.float64)).T
        share = self.means @ there.astype(np.float64)
        found = (self.means @ np.where(there, values, 0.0).T).T
        return np.divide(found, share, out=np.full_like(found, np.nan), where=share > 0)

    @property
    def size(self) -> Classing:
        """Return the classing by the true count."""
        return self.classings[1]


def _means(classing: Classing):
    """Return the sparse `(classes, groups)` matrix of weights."""
    groups = np.arange(len(classing.at))
    weights = 1 / classing.units[classing.at]
    return scipy.sparse.csr_array((weights, (classing.at, groups)), shape=(len(classing.labels), len(groups)))


def stratify(cells: Cells, counts: NDArray[np.int64], margin: Margin, sizes: Sequence[int]) -> Strata:
    """Sort the groups of a margin of `n` true cell counts."""
    truth = cells.sum(counts, margin)
    every = Classing(LEVEL, ("all",), np.zeros(truth.size, np.int64))
    return Strata(margin, truth, (every, by_range(SIZE, truth, sizes), *_fairness_classings(cells, margin)))


def _fairness_classings(cells: Cells, margin: Margin) -> Iterator[Classing]:
    """Yield classings between whose classes an allocation may be unfair."""
    places, *values = np.unravel_index(np.arange(cells.size(margin)), cells.margin_shape(margin))
    level = cells.tree.level(margin.level)
    if level:
        children = np.diff(cells.tree.child_ptr)
        nodes = cells.tree.level_ptr[level] + np.arange(cells.tree.sizes[level])
        yield by_range(SIBLING, children[cells.tree.parents[nodes]][places], SIBLINGS)
    for recode, value in zip(cells.kept(margin), values):
        yield Classing(recode.name, recode.values, value)
