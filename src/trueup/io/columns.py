"""Write columns to Parquet or CSV."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from trueup.errors import BundleError


def write_parquet(path: Path, columns: Mapping[str, NDArray]) -> None:
    """Write equally long columns to one Parquet file.

    Raises
    ------
    BundleError
        If the disk refuses.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from trueup.io.table import open_table
    >>> path = Path(tempfile.mkdtemp()) / "counts.parquet"
    >>> write_parquet(path, {"area": np.array(["01", "02"]), "count": np.array([3, 4])})
    >>> open_table(path).select(["area"])["area"].tolist()
    ['01', '02']
    """
    _write(path, columns, "write_parquet", compression="zstd")


def write_csv(path: Path, columns: Mapping[str, NDArray]) -> None:
    """Write equally long columns to one CSV file with a header row."""
    _write(path, columns, "write_csv", header=True)


def _write(path: Path, columns: Mapping[str, NDArray], writer: str, **options: Any) -> None:
    import duckdb

    with duckdb.connect(":memory:") as connection:
        connection.register("columns_to_write", dict(columns))
        try:
            getattr(connection.table("columns_to_write"), writer)(str(path), **options)
        except duckdb.IOException:
            raise BundleError(f"cannot write '{path.name}'", remedy="check space and permissions") from None
