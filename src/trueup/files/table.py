"""A table that is read by column and counted by group, whatever holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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
        """Names of the columns."""
        ...

    def select(self, columns: Sequence[str]) -> Columns:
        """Return columns as arrays; a missing value is None or NaN."""
        ...

    def tabulate(self, columns: Sequence[str]) -> Columns:
        """Return the distinct combinations of columns and how many rows hold each, as `COUNT`; of no column all rows."""
        ...

    def row(self, number: int) -> str:
        """Say where the row of this number (from 1) stands: what it holds may be confidential."""
        ...

    def row_with(self, held: Mapping[str, Any]) -> str:
        """Say where the first row stands that holds these values."""
        ...


def select(source: Source, columns: Sequence[str]) -> Columns:
    """Read columns, or say which one is missing.

    Raises
    ------
    DataError
        If a column is missing.
    """
    require(source, columns)
    return source.select(list(dict.fromkeys(columns)))


def require(source: Source, columns: Sequence[str]) -> None:
    """Refuse a table that lacks a column. Its own header is not shown: it may be a row of data."""
    held = source.columns()
    for column in columns:
        if column not in held:
            raise DataError(
                f"{source.name} has no column '{column}'",
                needed="a header row with that name, in the same upper and lower case",
                about=f"column {column.casefold()}",
            )
