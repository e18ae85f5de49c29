"""Confidential counts of the occupied cells, on disk by part."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files import select
from trueup.files.source import open_table


class Occupied(NamedTuple):
    """The occupied cells of some places, sorted by place and cell.

    Attributes
    ----------
    place
        Position of the place within the last level.
    cell
        Position of the attribute values within the place, in cell order.
    count
        How many units, always above zero.
    """

    place: NDArray[np.int64]
    cell: NDArray[np.int32]
    count: NDArray[np.int64]


@dataclass(frozen=True)
class SparseCounts:
    """Counts in Parquet files, one for every part, in a folder that only its owner can read.

    Attributes
    ----------
    folder
        Holds `part-000000.parquet` and so on, with the columns of `Occupied`.
    parts
        How many parts there are; one without units has a file without rows.
    """

    folder: Path
    parts: int

    def part(self, number: int) -> Path:
        """Return the path of the file of a part."""
        return self.folder / f"part-{number:06d}.parquet"

    def read(self, part: int, connection: Any = None) -> Occupied:
        """Read the occupied cells of a part, by a DuckDB connection if one is given.

        Raises
        ------
        DataError
            If the part is missing, truncated or damaged.
        """
        if not self.part(part).is_file():
            raise DataError(
                f"'{self.folder}' lacks the file of part {part}", remedy="tabulate the data again"
            )
        rows = select(open_table(self.part(part), connection), Occupied._fields)
        return Occupied(**{name: np.asarray(rows[name]) for name in Occupied._fields})
