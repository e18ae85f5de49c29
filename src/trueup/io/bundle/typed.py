"""Untrusted Parquet tables, read with columns of known types and no more rows than announced.

What a file says of itself (names, kinds, number of rows) stands at its end, and is held against what is expected before any of
its rows is unpacked: a few kilobytes may unpack to many gigabytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import BundleError
from trueup.files.database import connect, parquet, quiet_duckdb, quoted, unmasked

_INTEGER_TYPES = {f"{sign}{size}INT" for sign in ("", "U") for size in ("TINY", "SMALL", "", "BIG")} - {
    "INT",
    "UINT",
}
_INTEGER_TYPES |= {"INTEGER", "UINTEGER"}
KINDS = {
    "text": {"VARCHAR"},
    "truth": {"BOOLEAN"},
    "whole": _INTEGER_TYPES,
    "number": _INTEGER_TYPES | {"FLOAT", "DOUBLE"},
    "wholes": {f"{kind}[]" for kind in _INTEGER_TYPES},
}
"""Kinds of columns, and DuckDB's types that each may have."""
LARGEST = 1e100
"""No count, error or loss is larger, and products of a few such numbers are still finite."""


def read_typed(
    path: Path, kinds: Mapping[str, str], most: int, *, may_lack: Sequence[str] = ()
) -> dict[str, NDArray]:
    """Read columns of one file.

    Parameters
    ----------
    path
        The file.
    kinds
        The columns and their kinds, those of `KINDS`.
    most
        Rows that it may hold.
    may_lack
        Columns that may hold rows without a value.

    Raises
    ------
    BundleError
        If it holds other columns, or more rows, or rows without a value.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from trueup.files.columns import write_parquet
    >>> path = Path(tempfile.mkdtemp()) / "places.parquet"
    >>> write_parquet(path, {"block": np.array(["a", "b"])})
    >>> read_typed(path, {"block": "text"}, 2)["block"].tolist()
    ['a', 'b']
    >>> read_typed(path, {"block": "whole"}, 2)
    Traceback (most recent call last):
    trueup.errors.BundleError: 'places.parquet' has no column 'block' of the kind 'whole'. To do: restore the bundle.
    """
    with connect(files=[path], threads=1) as connection:
        refuse_untyped(connection, [path], kinds, most, may_lack=may_lack)
        named = ", ".join(map(quoted, kinds)) or "1"
        with _as_damaged([path]):
            rows = connection.execute(f"SELECT {named} FROM {parquet([path])}").fetchnumpy()
    for name, kind in kinds.items():
        held = np.abs(np.ma.filled(rows[name], 0)) if kind == "number" else np.zeros(1)
        if ((held > LARGEST) & (held < np.inf)).any():
            raise _damaged([path], f"holds a number beyond {LARGEST:g} in '{name}'")
    return {name: unmasked(rows[name]) for name in kinds}


def columns_of(connection: Any, files: Sequence[Path]) -> dict[str, str]:
    """Return the columns of files of one table with DuckDB's types.

    Raises
    ------
    BundleError
        If they cannot be read.
    """
    with _as_damaged(files):
        rows = connection.execute(f"DESCRIBE SELECT * FROM {parquet(files)}").fetchall()
    return {row[0]: row[1] for row in rows}


def refuse_untyped(
    connection: Any,
    files: Sequence[Path],
    kinds: Mapping[str, str],
    most: int,
    *,
    may_lack: Sequence[str] = (),
) -> None:
    """Refuse files of one table that lack columns, or hold more rows than `most`, or rows without a value.

    Raises
    ------
    BundleError
        Naming the column.
    """
    held = columns_of(connection, files)
    for name, kind in kinds.items():
        if held.get(name) not in KINDS[kind]:
            raise _damaged(files, f"has no column '{name}' of the kind '{kind}'")
    source = parquet(files)
    with _as_damaged(files):
        # Without a look at any column this is the number in the files' own footers.
        if connection.execute(f"SELECT count(*) FROM {source}").fetchall()[0][0] > most:
            raise _damaged(files, f"holds more than the {most:,} rows that are announced")
        whole = [f"{quoted(name)} IS NULL" for name in kinds if name not in may_lack]
        if (
            whole
            and connection.execute(f"SELECT 1 FROM {source} WHERE {' OR '.join(whole)} LIMIT 1").fetchall()
        ):
            raise _damaged(files, "holds a row without a value")


def _as_damaged(files: Sequence[Path]) -> Any:
    return quiet_duckdb(_name(files))


def _damaged(files: Sequence[Path], fault: str) -> BundleError:
    return BundleError(f"{_name(files)} {fault}", remedy="restore the bundle")


def _name(files: Sequence[Path]) -> str:
    return f"'{files[0].name}'" if files else "a table without files"
