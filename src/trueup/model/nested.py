"""Trees of nested margins: each group of one margin is a sum of groups of the next.

Places of a level are nested in places of the level above, a table by sex and age is nested in the
table by sex, and a table by age in the table by a recode of age. Whenever the margins in play form
such a chain, every method for trees applies, whether a step splits places, attributes or groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Cells, Margin


@dataclass(frozen=True, eq=False)
class NestedTree:
    """A chain of nested margins as one tree, with nodes in level order.

    Attributes
    ----------
    margins
        The chain, coarsest (one group, the root) first, finest cells last.
    child_ptr
        `(nodes + 1,)`: node `v` has the children `child_ptr[v]:child_ptr[v + 1]`.
    level_ptr
        `(margins + 1,)`: margin `l` holds the nodes `level_ptr[l]:level_ptr[l + 1]`.
    orders
        For each margin, the node of each of its groups; None where the groups stand in the nodes' order.

    Examples
    --------
    >>> from trueup.model.tree import Tree
    >>> tree = Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b", "c"]}])
    >>> nest(Cells(tree), chain(Cells(tree), [])).child_ptr
    array([1, 4, 4, 4, 4])
    """

    cells: Cells
    margins: tuple[Margin, ...]
    child_ptr: NDArray[np.int64]
    level_ptr: NDArray[np.int64]
    orders: tuple[NDArray[np.int64] | None, ...]

    @cached_property
    def nodes(self) -> tuple[NDArray[np.int64], ...]:
        """Return, for each margin, the node of each group."""
        ranges = (np.arange(first, last) for first, last in pairwise(self.level_ptr))
        return tuple(nodes if order is None else order for nodes, order in zip(ranges, self.orders))

    def of(self, margin: Margin) -> NDArray[np.int64]:
        """Return the node of every group of a margin in the chain."""
        return self.nodes[self.margins.index(margin)]

    def at(self, margin: Margin) -> slice | NDArray[np.int64]:
        """Return the nodes of a margin: a slice if groups and nodes have the same order, else an array."""
        level = self.margins.index(margin)
        order = self.orders[level]
        return slice(*self.level_ptr[level : level + 2].tolist()) if order is None else order

    def label(self, node: int) -> str:
        """Return the label of a node: that of its margin's group."""
        level = int(np.searchsorted(self.level_ptr, node, side="right")) - 1
        group = int(np.flatnonzero(self.nodes[level] == node)[0])
        return self.cells.margin_label(self.margins[level], group)


def chain(cells: Cells, margins: Iterable[Margin]) -> tuple[Margin, ...] | None:
    """Order margins, with the root and the finest cells, from coarse to fine; return None if they are not nested.

    Examples
    --------
    >>> from trueup.model.cells import Attribute
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all"], [{}]), (Attribute("sex", ("f", "m")), Attribute("age", ("y", "o"))))
    >>> [str(m) for m in chain(cells, [Margin("all", ("sex",))])]
    ['all', 'all x sex', 'all x sex x age']
    >>> chain(cells, [Margin("all", ("sex",)), Margin("all", ("age",))]) is None
    True
    """
    every = {canonical(cells, m) for m in margins} | {cells.coarsest, cells.finest}
    ordered = sorted(every, key=lambda m: (cells.tree.level(m.level), cells.size(m), len(m.attributes)))
    nested = all(cells.contains(coarse, fine) for coarse, fine in pairwise(ordered))
    return tuple(ordered) if nested and cells.size(ordered[0]) == 1 else None


def canonical(cells: Cells, margin: Margin) -> Margin:
    """Return the margin with its attributes in cell order."""
    return replace(margin, attributes=tuple(r.name for r in cells.kept(margin)))


def reported_margins(cells: Cells, measured: Iterable[Margin]) -> tuple[Margin, ...]:
    """Return the margins to report, from coarse to fine: totals of every level, measured tables, and finest cells.

    A unit may stand in several values of the coarsest margin's attributes: sums over these count nothing and are left out.

    Examples
    --------
    >>> from trueup.model.cells import Attribute
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all"], [{}]), (Attribute("sex", ("f", "m")), Attribute("age", ("y", "o", "x"))))
    >>> [str(m) for m in reported_margins(cells, [Margin("all", ("age",))])]
    ['all', 'all x age', 'all x sex x age']
    """
    kept = {*cells.coarsest.attributes}
    every = (*map(Margin, cells.tree.levels), *measured, *cells.finest_tables)
    whole = (m for m in every if not m.where and kept <= {*m.attributes} and cells.holds(m))
    found = dict.fromkeys(canonical(cells, m) for m in whole)
    return tuple(sorted(found, key=lambda m: (cells.tree.level(m.level), cells.size(m))))


def nesting(cells: Cells, margins: Iterable[Margin]) -> tuple[Margin, ...]:
    """Return nested margins: from the finest cells up, always the largest margin that is a sum of the last.

    Examples
    --------
    >>> from trueup.model.cells import Attribute
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all"], [{}]), (Attribute("sex", ("f", "m")), Attribute("age", ("y", "o", "x"))))
    >>> [str(m) for m in nesting(cells, [Margin("all", ("sex",)), Margin("all", ("age",)), Margin("all")])]
    ['all x sex x age', 'all x age', 'all']
    """
    found = [cells.finest]
    for margin in sorted({canonical(cells, m) for m in margins}, key=lambda m: (-cells.size(m), str(m))):
        if margin != found[-1] and cells.contains(margin, found[-1]):
            found.append(margin)
    return tuple(found)


def nest(cells: Cells, margins: tuple[Margin, ...]) -> NestedTree:
    """Return the tree of a chain of nested margins, in which siblings are consecutive."""
    if margins == tuple(map(Margin, cells.tree.levels)):
        child_ptr = np.ascontiguousarray(cells.tree.child_ptr, dtype=np.int64)
        return NestedTree(cells, margins, child_ptr, cells.tree.level_ptr, (None,) * len(margins))
    sizes = [cells.size(m) for m in margins]
    level_ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    orders: list[NDArray[np.int64] | None] = [None]
    nodes, pointers = np.zeros(1, dtype=np.int64), []
    for level, (coarse, fine) in enumerate(pairwise(margins)):
        parent = nodes[cells.groups(fine, coarse)]
        nodes, in_order = _number_groups(parent, level_ptr[level + 1])
        orders.append(None if in_order else nodes)
        counts = np.bincount(parent - level_ptr[level], minlength=sizes[level])
        pointers.append(level_ptr[level + 1] + np.concatenate([[0], np.cumsum(counts)[:-1]]))
    pointers.append(np.full(sizes[-1] + 1, level_ptr[-1]))
    return NestedTree(cells, margins, np.concatenate(pointers).astype(np.int64), level_ptr, tuple(orders))


def _number_groups(parent: NDArray[np.int64], start: np.int64) -> tuple[NDArray[np.int64], bool]:
    """Return the node number of each group of a margin, and True if groups and nodes have the same order."""
    nodes = np.arange(start, start + len(parent))
    if (parent[1:] >= parent[:-1]).all():
        return nodes, True
    placed = np.empty_like(nodes)
    placed[np.argsort(parent, kind="stable")] = nodes
    return placed, False
