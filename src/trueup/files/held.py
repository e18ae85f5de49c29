"""A table whose columns are held in memory, read whole from a workbook or from a file in another encoding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trueup.files.table import COUNT, Columns


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
