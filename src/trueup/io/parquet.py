"""Write columns to Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from numpy.typing import NDArray


def write_parquet(path: Path, columns: Mapping[str, NDArray]) -> None:
    """Write equally long columns to one Parquet file.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from trueup.io.table import open_table
    >>> path = Path(tempfile.mkdtemp()) / "counts.parquet"
    >>> write_parquet(path, {"area": np.array(["01", "02"]), "count": np.array([3, 4])})
    >>> open_table(path).select(["area"])["area"].tolist()
    ['01', '02']
    """
    import duckdb

    table = dict(columns)
    with duckdb.connect(":memory:") as connection:
        connection.register("columns_to_write", table)
        connection.table("columns_to_write").write_parquet(str(path), compression="zstd")
