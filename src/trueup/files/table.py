"""The interface of tables read by column and counted by group, whatever their storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError

Columns = dict[str, NDArray]
"""Columns of a table by name, each of one value a row."""
COUNT = "trueup_count"
"""Name of the column that `tabulate` adds."""


@dataclass(frozen=True)
class JoinedTables:
    """Two tables of records, of persons and of the households that they live in.

    Attributes
    ----------
    persons, households
        A path, a dataframe or a DuckDB relation each.
    """

    persons: Any
    households: Any


class Source(Protocol):
    """A table that can be read by column and counted by group."""

    name: str

    def columns(self) -> list[str]:
        """Return the names of the columns."""
        ...

    def select(self, columns: Sequence[str]) -> Columns:
        """Return columns as arrays; a missing value is None or NaN."""
        ...

    def tabulate(self, columns: Sequence[str]) -> Columns:
        """Return the distinct combinations of columns with their row counts as `COUNT`; without columns, all rows."""
        ...

    def row(self, number: int) -> str:
        """Return in words where the row of this number (from 1) stands; its content may be confidential."""
        ...

    def row_with(self, held: Mapping[str, Any]) -> str:
        """Return in words where the first row with these values stands."""
        ...


def select(source: Source, columns: Sequence[str]) -> Columns:
    """Read columns; raise DataError for a missing one.

    Raises
    ------
    DataError
        If a column is missing.
    """
    require(source, columns)
    return source.select(list(dict.fromkeys(columns)))


def require(source: Source, columns: Sequence[str]) -> None:
    """Refuse a table that lacks a column, without showing its header, which may be a row of data."""
    held = source.columns()
    for column in columns:
        if column not in held:
            raise DataError(
                f"{source.name} has no column '{column}'",
                needed="a header row with that name, in the same upper and lower case",
                about=f"column {column.casefold()}",
            )


@dataclass
class Held:
    """A table in memory, with None for empty values; `lines` holds the line of its file in which each row ends."""

    name: str
    held: Columns
    lines: Sequence[int] = ()

    def columns(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.held)

    def select(self, columns: Sequence[str]) -> Columns:
        """Return columns as arrays."""
        return {name: self.held[name] for name in columns}

    def tabulate(self, columns: Sequence[str]) -> Columns:
        """Return the distinct combinations of columns and how many rows hold each."""
        if not columns:
            return {COUNT: np.array([max(map(len, self.held.values()), default=0)])}
        counted = Counter(zip(*(self.held[name].tolist() for name in columns)))
        found = (np.array(values, dtype=object) for values in zip(*counted))
        named = dict(zip(columns, found)) or {name: np.array([], dtype=object) for name in columns}
        return named | {COUNT: np.array(list(counted.values()), dtype=np.int64)}

    def row(self, number: int) -> str:
        """Return in words where the row of this number (from 1) stands."""
        return f"row {number} of {self.name}" + (f" (line {self.lines[number - 1]})" if self.lines else "")

    def row_with(self, held: Mapping[str, Any]) -> str:
        """Return in words where the first row with these values stands."""
        rows = zip(*(self.held[name].tolist() for name in held))
        wanted = tuple(held.values())
        number = next((at for at, row in enumerate(rows, 1) if row == wanted), None)
        return self.row(number) if number else f"a row of {self.name}"
