"""Planning: expected errors of tables, and the division of a privacy budget between tables.

A plan is asked for by targets: the largest margin of error that a table may have, also a table of areas off the hierarchy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, SpecError
from trueup.files import require
from trueup.files.source import open_table
from trueup.files.values import as_text, without_blanks
from trueup.kernel.histogram.area_variances import Areas
from trueup.kernel.histogram.spine import Shapes
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.nested import canonical
from trueup.model.place_keys import Keys, lost_zeros


@dataclass(frozen=True, eq=False)
class AreaTable:
    """Areas for which margins of error are planned, each with a list of places of the last level.

    Attributes
    ----------
    column
        Name of the areas in targets.
    names
        Their names, in order.
    area, leaf
        Pairs of an area and a place of the last level in it; areas may overlap.
    by
        Attributes or recodes that are kept of them, where the areas alone do not say it.
    """

    column: str
    names: tuple[str, ...]
    area: NDArray[np.int64]
    leaf: NDArray[np.int64]
    by: tuple[str, ...] = ()

    @classmethod
    def read(cls, mapping: Any, column: str, cells: Cells, by: Sequence[str] = ()) -> AreaTable:
        """Read areas from a table that has one row for each place in each area.

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
        return cls(column, tuple(names.tolist()), area.reshape(-1), found, tuple(by))

    def laid_out(self, cells: Cells, shapes: Shapes) -> Areas:
        """Return the areas, together with the ancestors of their places in the hierarchy."""
        ancestors = [cells.tree.ancestors(level, level - 1) for level in range(1, len(cells.tree.levels))]
        return Areas.of(shapes, ancestors, self.area, self.leaf)


def _telling_columns(keys: Keys, given: Collection[str]) -> Keys:
    """Return the key columns in a table of areas if they identify all places, else all key columns."""
    held = {name: key for name, key in keys.items() if name in given}
    apart = len(set(zip(*(key.tolist() for key in held.values())))) if held else 0
    return held if apart and apart == len(next(iter(keys.values()))) else keys


def _refuse_name(column: str, cells: Cells) -> None:
    taken = {*cells.tree.levels, *(r.name for a in cells.attributes for r in a.views)}
    if column in taken:
        raise SpecError(
            f"the column of areas is named '{column}', which is also the name of a level or an attribute",
            remedy="give the column of areas another name",
        )


NEEDED = "TABLE=COUNTS or TABLE=COUNTS@PERCENT%, such as 'county x sex=10@95%'"


@dataclass(frozen=True)
class Target:
    """A required margin of error for a table.

    Attributes
    ----------
    margin
        The table.
    counts
        The margin of error that is wanted, in counts.
    confidence
        Probability, in per cent, with which the error must stay within it.
    mean
        True for the root mean square over the table; False for every count of the table.
    """

    margin: Margin
    counts: float
    confidence: float = 90.0
    mean: bool = False

    @property
    def table(self) -> str:
        """Return the name of the table for which the target is set, such as 'county x sex'."""
        return f"mean:{self.margin}" if self.mean else str(self.margin)

    def __str__(self) -> str:
        return f"{self.table}={self.counts:g}@{self.confidence:g}%"


def read_targets(
    given: Mapping[str, object] | Iterable[str], constraints: Constraints, areas: str | None = None
) -> tuple[Target, ...]:
    """Read targets from a mapping of tables to margins of error, or from texts."""
    texts = [f"{k}={v}" for k, v in given.items()] if isinstance(given, Mapping) else list(given)
    targets = tuple(_target(text, constraints, areas) for text in texts)
    names = [t.table for t in targets]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SpecError(f"two targets are given for '{twice}'", needed="one target for each table")
    return targets


def _target(text: str, constraints: Constraints, areas: str | None) -> Target:
    name, equals, value = text.rpartition("=")
    if not equals:
        raise SpecError(f"the target '{text}' has no '=', as in 'county x sex=10'", needed=NEEDED)
    counts, at, confidence = value.partition("@")
    mean, named = name.strip().startswith("mean:"), name.strip().removeprefix("mean:").strip()
    margin = read_table(named, constraints.cells, areas)
    target = Target(margin, _number(counts, text), _percent(confidence, text) if at else 90.0, mean=mean)
    for invariant in constraints.invariants if margin.level != areas else ():
        if constraints.cells.contains(margin, invariant):
            raise SpecError(
                f"the table '{margin}' is fixed by the invariant '{invariant}', so that its error is always zero",
                remedy="leave this target out",
            )
    if not (isfinite(target.counts) and target.counts > 0):
        raise SpecError(f"the target '{text}' is out of range", needed="a finite margin of error above 0")
    return target


def read_table(name: str, cells: Cells, areas: str | None = None) -> Margin:
    """Return the margin that a table's name, such as 'county x sex', denotes."""
    first, *attributes = (part.strip() for part in name.split(" x "))
    if first == areas:
        return Margin(first, tuple(r.name for r in cells.recodes(attributes) if r.name))
    if first not in cells.tree.levels:
        levels = ", ".join(cells.tree.levels if areas is None else (*cells.tree.levels, areas))
        raise SpecError(f"there is no level '{first}' to plan", needed=f"one of {levels}; {NEEDED}")
    return canonical(cells, Margin(first, tuple(attributes)))


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SpecError(
            f"the target '{whole}' lacks a number, as in 'county=10@95%'", needed=NEEDED
        ) from None


def _percent(text: str, whole: str) -> float:
    percent = _number(text.strip().removesuffix("%"), whole)
    if not (text.strip().endswith("%") and 0 < percent < 100):
        raise SpecError(
            f"the percentage of the target '{whole}' is out of range",
            needed="more than 0% and less than 100%",
        )
    return percent
