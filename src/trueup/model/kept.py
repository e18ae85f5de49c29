"""Sums that compared databases share, and the counts that follow from them.

A change of the counts is an integer vector over places of the last level times attribute combinations. Databases that
share the invariants differ by a change that leaves, at every place of an invariant's level, the sums `B` of that
invariant over the combinations; a structural zero never changes. `B` does not depend on the place: that is what the
proof uses.

**A place among others.** Let `u` be a place of level l, and t the highest level at which the place above u holds no
other place of level l. What a change can do to the counts `d` of u, as far as those counts alone are seen, is: every
integer d that leaves all `B` of levels t and below.
*No more:* the place above u at a level k >= t (or u itself, or places inside u, for k >= l) holds u alone, so its
sums are sums of d. *No less:* put d on one place of the last level inside u and -d on one inside another place of level l
under the place above u at level t - 1. Every place of a level above t holds both or neither, and each of the two alone
is left by d at levels t and below. (For t = 0 there is no other place, and d itself leaves every sum.)

So a count of u is fixed if and only if it is a rational combination of the sums of levels t and below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.tree import Tree
from trueup.privacy import Loss

Matrix = NDArray[np.int64]

MAX_KINDS = 5000
"""Kinds of combinations up to which counts that follow from several invariants together are looked for."""
FLAT = 2000
"""Finest cells up to which invariants on named places are written out."""


@dataclass(frozen=True, eq=False)
class Kept:
    """The sums over attribute combinations that compared databases share, level by level.

    An invariant whose conditions name places is of no such form. Then the finest cells themselves stand for the
    combinations, in one place: `flat`.

    Attributes
    ----------
    cells
        The finest cells.
    tree
        The places.
    free
        Which combinations are no structural zero, `(combinations,)`.
    sums
        For each invariant its level and its sums over the free combinations, `(m, free)`.
    flat
        Whether the finest cells stand for the combinations.
    complete
        Whether all invariants are among the sums; if they are too many cells to write out, fewer counts are taken as fixed.
    """

    cells: Cells
    tree: Tree
    free: NDArray[np.bool_]
    sums: tuple[tuple[int, Matrix], ...]
    flat: bool = False
    complete: bool = True

    @classmethod
    def of(cls, constraints: Constraints, *, total: bool) -> Kept:
        """Collect the sums that constraints keep; `total` if compared databases also share their number of units."""
        cells = constraints.cells
        if any(
            name in cells.tree.levels for m in constraints.invariants for each in m.where for name, _ in each
        ):
            return cls._flat(constraints, total)
        free = ~constraints.zero_combinations
        held = [(cells.tree.level(m.level), sums_of(cells, m)[:, free]) for m in constraints.invariants]
        if total:
            held.append((0, np.ones((1, free.sum()), np.int64)))
        return cls(cells, cells.tree, free, tuple((level, rows[rows.any(axis=1)]) for level, rows in held))

    @classmethod
    def _flat(cls, constraints: Constraints, total: bool) -> Kept:
        from trueup.model.mechanism_on_lattice import invariant_matrix

        cells, free = constraints.cells, ~constraints.zero_cells
        one, rows = Tree.from_columns(["all"], [{}]), np.ones((int(total), int(free.sum())), np.int64)
        complete = free.sum() <= FLAT
        if complete:
            rows = np.vstack([invariant_matrix(constraints).toarray()[:, free], rows])
        return cls(cells, one, free, ((0, rows[rows.any(axis=1)]),), True, bool(complete))

    @property
    def levels(self) -> int:
        """Return the number of levels of places."""
        return len(self.tree.levels)

    def level(self, margin: Margin) -> int:
        """Return the level of a margin's places."""
        return 0 if self.flat else self.tree.level(margin.level)

    def below(self, level: int) -> Matrix:
        """Stack the sums of a level and of those below it, `(m, free)`."""
        rows = [rows for at, rows in self.sums if at >= level]
        return np.vstack(rows) if rows else np.zeros((0, int(self.free.sum())), np.int64)

    @cached_property
    def classes(self) -> NDArray[np.int64]:
        """Return a label of each free combination; equal labels are in the same sums at every level."""
        return np.unique(self.below(0), axis=1, return_inverse=True)[1].ravel()

    @cached_property
    def depth(self) -> NDArray[np.int64]:
        """Return the lowest level at which each free combination is in a sum; -1 if in none."""
        deepest = np.full(int(self.free.sum()), -1)
        for level, rows in self.sums:
            deepest = np.maximum(deepest, np.where(rows.any(axis=0), level, -1))
        return deepest

    def groups(self, margin: Margin) -> NDArray[np.int64]:
        """Return for every free combination its group in a margin: among combinations, or among all groups if flat."""
        every = self.cells.groups(self.cells.finest, margin) if self.flat else _groups(self.cells, margin)
        return every[self.free]

    def fixed(self, margin: Margin) -> Fixed:
        """Return which counts of a margin compared databases share."""
        tops, group = self.tree.alone[self.level(margin)], self.groups(margin)
        size = self.cells.size(margin) if self.flat else prod(r.size for r in self.cells.kept(margin))
        by_top = {int(top): self._remembered(int(top), group, size) for top in np.unique(tops)}
        return Fixed(self.cells, margin, tops, by_top, np.unique(group))

    def _remembered(self, top: int, group: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
        """Return `_fixed`, remembered: the same groups are asked for at several levels without sums between."""
        below = tuple(i for i, (at, _) in enumerate(self.sums) if at >= top)
        key = (below, size, group.tobytes())
        if key not in self._answers:
            self._answers[key] = self._fixed(top, group, size)
        return self._answers[key]

    @cached_property
    def _answers(self) -> dict[tuple, NDArray[np.bool_]]:
        return {}

    def _fixed(self, top: int, group: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
        """Return a mask of groups of combinations that follow from the sums of level `top` and below.

        A group that shares a column with another is not fixed: one unit may leave the one for the other. Others are unions
        of classes of equal columns, and one column of each class is enough.
        """
        rows = self.below(top)
        columns, first, label = np.unique(rows, axis=1, return_index=True, return_inverse=True)
        label = label.ravel()
        mixed = np.zeros(columns.shape[1], bool)
        mixed[label[group != group[first][label]]] = True
        mixed |= ~columns.any(axis=0)  # a unit may enter a cell that is in no sum
        fixed = np.ones(size, bool)
        fixed[group[mixed[label]]] = False
        asked = np.intersect1d(
            np.flatnonzero(fixed), group
        )  # the others have no free combination: always zero
        if columns.shape[1] > MAX_KINDS:
            fixed[asked] = False
        elif len(asked):
            from trueup.kernel.lattice.algebra import determined

            fixed[asked] = determined(columns, (asked[:, None] == group[first]).astype(np.int64))
        return fixed


@dataclass(frozen=True, eq=False)
class Fixed:
    """The counts of one margin that compared databases share.

    Attributes
    ----------
    tops
        For every place of the margin's level, the highest level at which it is alone.
    by_top
        For each of those levels, which groups of combinations are fixed.
    possible
        The groups of combinations that are no structural zeros altogether.
    """

    cells: Cells
    margin: Margin
    tops: NDArray[np.int8]
    by_top: dict[int, NDArray[np.bool_]]
    possible: NDArray[np.int64]

    @property
    def free(self) -> int:
        """Return how many counts are not fixed."""
        return sum(int((self.tops == top).sum()) * int((~mask).sum()) for top, mask in self.by_top.items())

    @property
    def count(self) -> int:
        """Return how many counts are fixed beside structural zeros."""
        return len(self.tops) * len(self.possible) - self.free

    def labels(self) -> Iterator[str]:
        """Name the fixed counts beside structural zeros, in order."""
        held = {top: self.possible[mask[self.possible]].tolist() for top, mask in self.by_top.items()}
        places = np.flatnonzero(np.isin(self.tops, [top for top, groups in held.items() if groups]))
        for place in places.tolist():
            top = int(self.tops[place])
            for group in held[top]:
                yield self.cells.margin_label(self.margin, place * len(self.by_top[top]) + group)


def sums_of(cells: Cells, margin: Margin) -> Matrix:
    """Return the sums of a margin over attribute combinations, `(groups, combinations)`."""
    group = _groups(cells, margin)
    return (np.arange(group.max() + 1)[:, None] == group) * _times(cells, margin)


def _groups(cells: Cells, margin: Margin) -> NDArray[np.int64]:
    index = np.zeros(1, np.int64)
    for recode in cells.recodes(margin.attributes):
        index = np.add.outer(index * recode.size, np.array(recode.groups)).ravel()
    return index


def _times(cells: Cells, margin: Margin) -> NDArray[np.int64]:
    """Return how often a margin counts each attribute combination; its conditions name no place."""
    one = Cells(Tree.from_columns(["all"], [{}]), cells.attributes)
    return one.times(replace(margin, level="all"))


class Found(NamedTuple):
    """The smallest changes of some cells with one L1 norm: how many units move, and the largest loss.

    `attained` says whether one of them has that loss, else it is a bound; `smallest` whether the norm is the least,
    else that is one.
    """

    norm: int
    moved: int
    loss: Loss
    attained: bool = True
    smallest: bool = True
