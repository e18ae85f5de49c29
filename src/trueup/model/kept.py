"""Sums that all compared databases share, the counts that these sums determine, and the loss of changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.tree import Tree
from trueup.noise.law import Cost, Sensitivity
from trueup.privacy import Loss, compose
from trueup.privacy.contribution import Relation

Matrix = NDArray[np.int64]

MAX_KINDS = 5000
"""Kinds of combinations up to which counts that follow from several invariants together are looked for."""
MAX_CELLS_WRITTEN_OUT = 2000
"""Finest cells up to which invariants on named places are written out."""


@dataclass(frozen=True, eq=False)
class Kept:
    """The sums over attribute combinations that all compared databases share, level by level.

    An invariant whose conditions name places is of no such form. Then the finest cells themselves stand for the
    combinations, in one place: `flat`.

    Attributes
    ----------
    cells
        The finest cells.
    tree
        The places.
    free
        Mask `(combinations,)` of the combinations that are no structural zeros.
    sums
        For each invariant its level and its sums over the free combinations, `(m, free)`.
    flat
        True if the finest cells stand for the combinations.
    complete
        True if all invariants are among the sums; if they are too many cells to write out, fewer counts are taken as fixed.
    """

    cells: Cells
    tree: Tree
    free: NDArray[np.bool_]
    sums: tuple[tuple[int, Matrix], ...]
    flat: bool = False
    complete: bool = True

    @classmethod
    def of(cls, constraints: Constraints, *, total: bool) -> Kept:
        """Return the sums that constraints fix, with the total of each place among them if `total`."""
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
        complete = free.sum() <= MAX_CELLS_WRITTEN_OUT
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
        """Return the shared sums of a level and of all levels below it, as rows `(m, free)`."""
        rows = [rows for at, rows in self.sums if at >= level]
        return np.vstack(rows) if rows else np.zeros((0, int(self.free.sum())), np.int64)

    @cached_property
    def classes(self) -> NDArray[np.int64]:
        """Return class numbers of the free combinations; two in one class are in the same sums on every level."""
        return np.unique(self.below(0), axis=1, return_inverse=True)[1].ravel()

    @cached_property
    def depth(self) -> NDArray[np.int64]:
        """Return, for each free combination, the lowest level with a shared sum that contains it; -1 if there is none."""
        deepest = np.full(int(self.free.sum()), -1)
        for level, rows in self.sums:
            deepest = np.maximum(deepest, np.where(rows.any(axis=0), level, -1))
        return deepest

    def groups(self, margin: Margin) -> NDArray[np.int64]:
        """Return the group of a margin that contains each free combination."""
        every = self.cells.groups(self.cells.finest, margin) if self.flat else _groups(self.cells, margin)
        return every[self.free]

    def fixed(self, margin: Margin) -> Fixed:
        """Return which counts of a margin all compared databases share."""
        tops, group = self.tree.alone[self.level(margin)], self.groups(margin)
        size = self.cells.size(margin) if self.flat else prod(r.size for r in self.cells.kept(margin))
        by_top = {int(top): self._remembered(int(top), group, size) for top in np.unique(tops)}
        return Fixed(self.cells, margin, tops, by_top, np.unique(group))

    def _remembered(self, top: int, group: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
        """Return the mask that `_fixed` computes, from a cache."""
        below = tuple(i for i, (at, _) in enumerate(self.sums) if at >= top)
        key = (below, size, group.tobytes())
        if key not in self._answers:
            self._answers[key] = self._fixed(top, group, size)
        return self._answers[key]

    @cached_property
    def _answers(self) -> dict[tuple, NDArray[np.bool_]]:
        return {}

    def _fixed(self, top: int, group: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
        """Return a mask of a margin's groups whose counts the shared sums of level `top` and below determine.

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
        elif len(asked) and columns.shape[1] > 1:  # one class alone follows from any sum that holds it
            from trueup.kernel.lattice.algebra import determined

            fixed[asked] = determined(columns, (asked[:, None] == group[first]).astype(np.int64))
        return fixed


@dataclass(frozen=True, eq=False)
class Fixed:
    """The counts of one margin that are equal in all compared databases.

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
        """Return the number of counts that are not fixed."""
        return sum(int((self.tops == top).sum()) * int((~mask).sum()) for top, mask in self.by_top.items())

    @property
    def count(self) -> int:
        """Return the number of counts that are fixed, apart from structural zeros."""
        return len(self.tops) * len(self.possible) - self.free

    def labels(self) -> Iterator[str]:
        """Yield the labels of fixed counts, apart from structural zeros."""
        held = {top: self.possible[mask[self.possible]].tolist() for top, mask in self.by_top.items()}
        places = np.flatnonzero(np.isin(self.tops, [top for top, groups in held.items() if groups]))
        for place in places.tolist():
            top = int(self.tops[place])
            for group in held[top]:
                yield self.cells.margin_label(self.margin, place * len(self.by_top[top]) + group)


def sums_of(cells: Cells, margin: Margin) -> Matrix:
    """Return the sums of a margin over attribute combinations, `(groups, combinations)`."""
    group, one = _groups(cells, margin), Cells(Tree.from_columns(["all"], [{}]), cells.attributes)
    return (np.arange(group.max() + 1)[:, None] == group) * one.times(replace(margin, level="all"))


def _groups(cells: Cells, margin: Margin) -> NDArray[np.int64]:
    index = np.zeros(1, np.int64)
    for recode in cells.recodes(margin.attributes):
        index = np.add.outer(index * recode.size, np.array(recode.groups)).ravel()
    return index


class Found(NamedTuple):
    """The smallest changes of some cells, all with one L1 norm: the number of moved units, and the largest loss.

    `attained` says whether one of them has that loss, else it is a bound; `smallest` whether the norm is the least,
    else that is one.
    """

    norm: int
    moved: int
    loss: Loss
    attained: bool = True
    smallest: bool = True


class PricedQuery(NamedTuple):
    """One measured margin: its level, the group of each free combination, the number of free counts, and its law."""

    level: int
    group: NDArray[np.int64]
    free: int
    law: Any

    def cost(self, l1: int, l2_squared: int) -> Cost:
        """Return the loss of a change, given the change's norms in the margin."""
        return self.law.cost(Sensitivity(Fraction(l1), Fraction(l2_squared)))


@dataclass(frozen=True, eq=False)
class PricedChanges:
    """The changes between databases that share the sums `kept`, counted in steps of a neighbour relation."""

    kept: Kept
    relation: Relation
    measured: tuple[tuple[Margin, Any], ...]

    @cached_property
    def queries(self) -> tuple[PricedQuery, ...]:
        """Return the measured margins, each with its law and its free counts, for the search."""
        kept = self.kept
        free = {margin: kept.fixed(margin).free for margin, _ in self.measured}
        return tuple(PricedQuery(kept.level(m), kept.groups(m), free[m], law) for m, law in self.measured)

    @cached_property
    def currencies(self) -> set[str]:
        """Return the units (epsilon, rho) in which the laws state their losses."""
        return {q.cost(1, 1).currency for q in self.queries}

    def size(self, loss: Loss) -> Fraction:
        """Return a loss as one number: its rho if any law states rho, else its epsilon."""
        return loss.zcdp if "rho" in self.currencies else loss.epsilon

    def steps(self, norm: int) -> int:
        """Return the number of steps of the neighbour relation that a change with the given L1 norm takes."""
        return norm if self.relation == "add-remove" else norm // 2

    def bound(self, norm: int) -> Loss:
        """Return an upper bound on the loss of a change with the given norm, composed from its steps."""
        k, reach = self.steps(norm), 1 if self.relation == "add-remove" else 2
        touched = ((q, min(reach, q.free)) for q in self.queries)
        return compose(q.cost(k * moved, k * k * moved) for q, moved in touched)
