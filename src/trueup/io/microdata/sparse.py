"""Confidential counts of the occupied cells, on disk by bundle of places."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files.source import open_table
from trueup.files.table import select


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
    """Counts in Parquet parts, one for every bundle of places, in a folder that is its owner's alone.

    Attributes
    ----------
    folder
        Holds `part-000000.parquet` and so on, with the columns of `Occupied`.
    bundles
        How many parts there are; a bundle without units has a part without rows.
    """

    folder: Path
    bundles: int

    def part(self, bundle: int) -> Path:
        """Path of the part of a bundle."""
        return self.folder / f"part-{bundle:06d}.parquet"

    def read(self, bundle: int, connection: Any = None) -> Occupied:
        """Read the occupied cells of a bundle, by a DuckDB connection if one is given.

        Raises
        ------
        DataError
            If the part is missing, truncated or damaged.
        """
        if not self.part(bundle).is_file():
            raise DataError(
                f"'{self.folder}' lacks the part of bundle {bundle}", remedy="tabulate the data again"
            )
        rows = select(open_table(self.part(bundle), connection), Occupied._fields)
        return Occupied(**{name: np.asarray(rows[name]) for name in Occupied._fields})
