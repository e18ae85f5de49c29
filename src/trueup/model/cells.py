"""The finest cells: every place of the last level crossed with every attribute value."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.tree import Tree


@dataclass(frozen=True)
class Attribute:
    """A public list of values that classify the counted units.

    Attributes
    ----------
    name, values
        Its name and its domain, in the order in which cells are laid out.
    partition
        Whether each unit falls under exactly one value. If not (persons and families side by
        side), the values are never summed.
    """

    name: str
    values: tuple[str, ...]
    partition: bool = True

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.values)


@dataclass(frozen=True)
class Margin:
    """A marginal table: the places of one level by some of the attributes.

    Examples
    --------
    >>> str(Margin("county", ("sex",)))
    'county x sex'
    """

    level: str
    attributes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " x ".join((self.level, *self.attributes))


@dataclass(frozen=True, eq=False)
class Cells:
    """The `n` finest cells, in C order: places of the last level first, then attributes.

    Examples
    --------
    >>> tree = Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}])
    >>> cells = Cells(tree, (Attribute("sex", ("f", "m")),))
    >>> cells.n, cells.label(3)
    (4, 'b, sex=m')
    >>> cells.sum(np.array([1, 2, 3, 4]), Margin("all", ("sex",)))
    array([4, 6])
    """

    tree: Tree
    attributes: tuple[Attribute, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Places of the last level, then the size of every attribute."""
        return (self.tree.sizes[-1], *(a.size for a in self.attributes))

    @property
    def n(self) -> int:
        """Number of finest cells."""
        return prod(self.shape)

    @property
    def finest(self) -> Margin:
        """The margin whose groups are the cells themselves."""
        return Margin(self.tree.levels[-1], tuple(a.name for a in self.attributes))

    @property
    def coarsest(self) -> Margin:
        """The margin that sums as far as sums make sense: one place, partitions summed out."""
        kept = tuple(a.name for a in self.attributes if not a.partition)
        return Margin(self.tree.levels[0], kept)

    def attribute(self, name: str) -> Attribute:
        """Return an attribute by name; SpecError if there is none."""
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        declared = ", ".join(a.name for a in self.attributes) or "none"
        raise SpecError(f"attribute '{name}' is not declared", needed=f"one of: {declared}")

    def margin_shape(self, margin: Margin) -> tuple[int, ...]:
        """Places of the margin's level, then the sizes of its attributes, in cell order."""
        kept = (a.size for a in self.attributes if a.name in margin.attributes)
        return (self.tree.sizes[self.tree.level(margin.level)], *kept)

    def size(self, margin: Margin) -> int:
        """Number of groups of a margin."""
        return prod(self.margin_shape(margin))

    def sum(self, values: NDArray, margin: Margin) -> NDArray:
        """Sum cell values `(..., n)` into the groups of a margin `(..., groups)`.

        Examples
        --------
        >>> tree = Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}])
        >>> Cells(tree).sum(np.array([[1, 2], [3, 4]]), Margin("all"))
        array([[3],
               [7]])
        """
        lead = values.shape[:-1]
        table = values.reshape(*lead, *self.shape)
        summed_out = tuple(
            i - len(self.attributes) for i, a in enumerate(self.attributes) if a.name not in margin.attributes
        )
        table = table.sum(axis=summed_out) if summed_out else table
        level = self.tree.level(margin.level)
        if level < len(self.tree.levels) - 1:
            table = np.add.reduceat(table, self.tree.leaf_ptr(level)[:-1], axis=len(lead))
        return table.reshape(*lead, -1)

    def groups(self, fine: Margin, coarse: Margin) -> NDArray[np.int64]:
        """For every group of `fine`, the group of `coarse` that holds it.

        Raises
        ------
        SpecError
            If `coarse` does not contain `fine` (is not a sum of its groups).
        """
        if not self.contains(coarse, fine):
            raise SpecError(f"'{coarse}' is not a sum of '{fine}'")
        tree = self.tree
        place = tree.ancestors(tree.level(fine.level), tree.level(coarse.level))
        index = np.ravel(place)
        for attribute in self.attributes:
            if attribute.name not in fine.attributes:
                continue
            value = np.arange(attribute.size)
            step = (
                np.add.outer(index * attribute.size, value) if attribute.name in coarse.attributes else None
            )
            index = (np.repeat(index, attribute.size) if step is None else step).ravel()
        return index

    def contains(self, coarse: Margin, fine: Margin) -> bool:
        """Whether every group of `coarse` is a sum of groups of `fine`."""
        level = self.tree.level
        return level(coarse.level) <= level(fine.level) and set(coarse.attributes) <= set(fine.attributes)

    def margin_label(self, margin: Margin, group: int) -> str:
        """Name one group of a margin: its place and its attribute values."""
        shape = self.margin_shape(margin)
        place, *values = (int(i) for i in np.unravel_index(group, shape))
        kept = (a for a in self.attributes if a.name in margin.attributes)
        parts = (f"{a.name}={a.values[v]}" for a, v in zip(kept, values))
        return ", ".join((self.tree.label(margin.level, place), *parts))

    def label(self, cell: int) -> str:
        """Name one finest cell."""
        return self.margin_label(self.finest, cell)
