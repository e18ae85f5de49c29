"""Counts of a posterior by their labels, and areas by their places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.cells import Cells, Margin


@dataclass(frozen=True)
class Labels:
    """The labels of counts: cells, places of all levels, groups of further margins.

    Attributes
    ----------
    found
        Margin and group of each.
    """

    found: Mapping[str, tuple[Margin, int]]

    @classmethod
    def of(cls, cells: Cells, margins: Iterable[Margin]) -> Labels:
        """Label the counts of some cells; a label that two share means the coarser margin's count."""
        levels = (Margin(level, cells.coarsest.attributes) for level in cells.tree.levels)
        every = (*cells.finest_tables, *margins, *(m for m in levels if cells.holds(m)))
        return cls({label: (m, g) for m in every for g, label in enumerate(cells.margin_labels(m))})

    def group(self, margin: Margin, label: str) -> int:
        """Return the group of a place of one level."""
        found = self.found.get(label)
        if found is None or found[0] != margin:
            raise SpecError(f"level '{margin.level}' has no place '{label}'", needed="a label of its summary")
        return found[1]


Area = Mapping[str, str | Sequence[str]]
"""Places by their level."""


def area_name(places: Area) -> str:
    """Name an area by its places."""
    return ", ".join(str(place) for _, place in listed_places(places))


def listed_places(places: Area) -> list[tuple[str, str]]:
    """List the places of an area, each with its level."""
    return [(level, p) for level, of in places.items() for p in ((of,) if isinstance(of, str) else of)]


def places_of_area(cells: Cells, places: Area) -> NDArray[np.bool_]:
    """Return the places of the last level that lie in an area."""
    if not isinstance(places, Mapping):
        raise SpecError(
            f"a {type(places).__name__} is given as an area",
            needed=f"places by their level, such as {{'{cells.tree.levels[-1]}': [...]}}",
        )
    if overlapping := [a.name for a in cells.attributes if not a.partition]:
        raise SpecError(
            f"the values of '{overlapping[0]}' overlap, so that places have no single count",
            needed="a sum of labelled counts: `posterior.quantity`",
        )
    if not (listed := listed_places(places)):
        raise SpecError("the area holds no place", needed="at least one")
    tree, last = cells.tree, len(cells.tree.levels) - 1
    times = np.zeros(tree.sizes[-1], np.int64)
    for name, place in listed:
        times += tree.ancestors(last, tree.level(name)) == _place(cells, name, place)
    if times.max() > 1:
        twice = tree.label(tree.levels[-1], int(times.argmax()))
        raise SpecError(f"the area holds '{twice}' more than once", needed="places that do not overlap")
    return times > 0


def _place(cells: Cells, level: str, label: str) -> int:
    tree, at = cells.tree, cells.tree.level(level)
    found = [place for place in range(tree.sizes[at]) if tree.label(level, place) == str(label)]
    if not found:
        raise SpecError(
            f"level '{level}' has no place '{label}'", needed=f"a key such as '{tree.label(level, 0)}'"
        )
    return found[0]
