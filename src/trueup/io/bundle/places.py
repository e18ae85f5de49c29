"""The file of a bundle's public places, with their keys, names and limits on every level."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.files.database import connect_to_files
from trueup.files.values import public_numbers, whole_limits
from trueup.files.writing import write_parquet
from trueup.io.bundle.strict import columns_of, read_typed
from trueup.model.cells import Cells
from trueup.model.spec import Spec
from trueup.model.tree import Tree

MAX_PLACES = 200_000_000
"""Largest number of places of a bundle."""


@dataclass(frozen=True, eq=False)
class _OfHolders:
    """A column of a higher level, expanded to the finest places only for requested rows, to save memory."""

    values: NDArray
    leaves: NDArray[np.int64]

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    def __len__(self) -> int:
        return int(self.leaves[-1])

    def __getitem__(self, rows: slice) -> NDArray:
        places = np.arange(*rows.indices(len(self)))
        return self.values[np.searchsorted(self.leaves, places, "right") - 1]


def write_places(path: Path, cells: Cells, connection: Any = None) -> None:
    """Write a file with one row for each finest place: its keys, names and limits on every level."""
    tree, columns = cells.tree, {}
    for level, name in enumerate(tree.levels):
        leaves, keys = tree.leaf_ptr(level), tree.keys[level] if tree.keys else {}
        columns |= {f"{name}.{key}": _OfHolders(column, leaves) for key, column in keys.items()}
        if tree.names and (readable := tree.names[level]) is not None:
            columns[f"{name}@name"] = _OfHolders(readable, leaves)
        for limit, column in (tree.limits[level] if tree.limits else {}).items():
            each = _OfHolders(column, leaves)[:]
            none = np.isnan(each) if each.dtype.kind == "f" else each < 0
            columns[limit_column(name, limit)] = np.ma.masked_where(none, each)
    write_parquet(path, columns or {"place": np.array(["all"])}, connection)


def read_places(path: Path, spec: Spec, most: int = MAX_PLACES) -> Tree:
    """Read the public places of a bundle, and refuse a file with more than `most` places.

    Raises
    ------
    BundleError
        If the file holds something else.
    """
    levels = [level.name for level in spec.levels]
    return read_place_levels(path, levels, spec.limit_columns, most, spec.fractional_columns)


def read_place_levels(
    path: Path,
    levels: Sequence[str],
    limited: Sequence[Collection[str]] = (),
    most: int = MAX_PLACES,
    fractional: Collection[str] = (),
) -> Tree:
    """Read public places from a file, given the levels and the columns of limits on each level.

    Raises
    ------
    BundleError
        If the file holds something else.
    """
    limited = limited or [()] * len(levels)
    kinds, may_lack = _column_kinds(path, levels, limited)
    columns = read_typed(path, kinds, most, may_lack=may_lack)
    keys = [
        {name.removeprefix(f"{level}."): c for name, c in columns.items() if name.startswith(f"{level}.")}
        for level in levels
    ]
    names = [columns.get(f"{level}@name") for level in levels]
    limits = [
        {
            name: (public_numbers if name in fractional else whole_limits)(
                columns[limit_column(level, name)], name
            )
            for name in held
        }
        for level, held in zip(levels, limited)
    ]
    return Tree.from_columns(levels, keys, whole_code=[True] * len(levels), names=names, limits=limits)


def _column_kinds(
    path: Path, levels: Sequence[str], limited: Sequence[Collection[str]]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the data type of every column in a file of places, and the columns that may lack values."""
    with connect_to_files([path], threads=1) as connection:
        held = columns_of(connection, [path])
    names = [f"{level}@name" for level in levels if f"{level}@name" in held]
    limits = [limit_column(level, limit) for level, own in zip(levels, limited) for limit in own]
    keys = [name for name in held if any(name.startswith(f"{level}.") for level in levels)]
    return dict.fromkeys([*keys, *names], "text") | dict.fromkeys(limits, "number"), (*names, *limits)


def limit_column(level: str, name: str) -> str:
    """Return the name of the column of limits for one level in the file of places."""
    return f"{level}@limit {name}"
