"""Areas off the hierarchy, such as school districts, as tables whose errors a plan may limit."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, SpecError
from trueup.files.source import open_table
from trueup.files.table import require
from trueup.files.text import as_text, without_blanks
from trueup.kernel.histogram.area_variances import Areas
from trueup.kernel.histogram.spine import Shapes
from trueup.model.cells import Cells
from trueup.model.place_keys import Keys, lost_zeros


@dataclass(frozen=True, eq=False)
class AreaTable:
    """Areas, each a list of places of the last level.

    Attributes
    ----------
    column
        What the areas are called in targets.
    names
        Their names, in order.
    area, leaf
        Which area holds which place of the last level; areas may overlap.
    """

    column: str
    names: tuple[str, ...]
    area: NDArray[np.int64]
    leaf: NDArray[np.int64]

    @classmethod
    def read(cls, mapping: Any, column: str, cells: Cells) -> AreaTable:
        """Read a table with a row for each place of each area: a column of areas, and the keys of the last level.

        Of several key columns those are enough that tell all places apart.

        Raises
        ------
        DataError, SpecError
            If a column is missing, a row names no place or lacks an area, or an area lists a place twice.

        Examples
        --------
        >>> import pandas
        >>> from trueup.model.tree import Tree
        >>> cells = Cells(Tree.from_columns(["all", "block"], [{}, {"block": ["a", "b", "c"]}]))
        >>> districts = pandas.DataFrame({"district": ["north", "north", "lake"], "block": ["a", "c", "c"]})
        >>> table = AreaTable.read(districts, "district", cells)
        >>> table.names, table.area.tolist(), table.leaf.tolist()
        (('lake', 'north'), [1, 1, 0], [0, 2, 2])
        """
        keys = cells.tree.keys[-1] if cells.tree.keys else {}
        _refuse_name(column, cells)
        table = open_table(mapping)
        keys = _telling_columns(keys, table.columns())
        require(table, [column, *keys])
        rows = table.select([column, *keys])
        given = [without_blanks(as_text(np.asarray(rows[name]))) for name in (column, *keys)]
        if not given[0].size:
            raise DataError(f"{table.name} is empty", needed="a row for each place of each area")
        if any(text is None or not str(text).strip() for column in given for text in column.tolist()):
            raise DataError(f"{table.name} has a row without an area or a place", needed="both in every row")
        place = {key: i for i, key in enumerate(zip(*(c.tolist() for c in keys.values())))}
        if len(keys) == 1:  # a place may also be written as tables print it
            place = {(label,): i for i, label in enumerate(cells.tree.labels(cells.tree.levels[-1]))} | place
        found = np.array([place.get(key, -1) for key in zip(*(c.tolist() for c in given[1:]))])
        if (found < 0).any():
            at = int(np.argmax(found < 0))
            shown = [str(c[at]) for c in given[1:]]
            raise DataError(
                f"area '{given[0][at]}' lists '{'/'.join(shown)}', which is no place of level "
                f"'{cells.tree.levels[-1]}'",
                remedy=next(
                    filter(None, map(lost_zeros, keys, shown, (key.tolist() for key in keys.values()))),
                    "correct the mapping",
                ),
            )
        names, area = np.unique(given[0], return_inverse=True)
        both, times = np.unique(np.stack([area.reshape(-1), found]), axis=1, return_counts=True)
        if (times > 1).any():
            which, leaf = both[:, int(np.argmax(times > 1))]
            raise DataError(
                f"area '{names[which]}' lists the place '{cells.tree.label(cells.tree.levels[-1], int(leaf))}' twice",
                needed="each place of an area in one row",
            )
        return cls(column, tuple(names.tolist()), area.reshape(-1), found)

    def laid_out(self, cells: Cells, shapes: Shapes) -> Areas:
        """Return the areas with the nodes above their places."""
        ancestors = [cells.tree.ancestors(level, level - 1) for level in range(1, len(cells.tree.levels))]
        return Areas.of(shapes, ancestors, self.area, self.leaf)


def _telling_columns(keys: Keys, given: Collection[str]) -> Keys:
    """Return the key columns in a mapping if they alone distinguish all places; otherwise all."""
    held = {name: key for name, key in keys.items() if name in given}
    apart = len(set(zip(*(key.tolist() for key in held.values())))) if held else 0
    return held if apart and apart == len(next(iter(keys.values()))) else keys


def _refuse_name(column: str, cells: Cells) -> None:
    taken = {*cells.tree.levels, *(r.name for a in cells.attributes for r in a.views)}
    if column in taken:
        raise SpecError(
            f"areas are called '{column}', as a level or an attribute is",
            remedy="call the mapping's column of areas otherwise",
        )
