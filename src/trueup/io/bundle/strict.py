"""Readers of untrusted files that limit names, sizes, depth and numbers, and refuse links.

A bundle is public, and may come back from somebody who made it to be read here. So nothing in it is used as a path, as a
number or as a structure before it was found to be one of ours.

Untrusted Parquet tables, read with columns of known types and no more rows than announced.
What a file says of itself (names, kinds, number of rows) stands at its end, and is held against what is expected before any of
its rows is unpacked: a few kilobytes may unpack to many gigabytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import BundleError
from trueup.files.database import connect_to_files, parquet, quiet_duckdb, quoted, text_columns, unmasked

LARGEST_TEXT = 64_000_000
"""Largest size (bytes) of a manifest or a spec; those of a nation with all its tables have less than one million."""
_DEEPEST, _DIGITS = 50, 1000
_PART = re.compile(r"[\w-][\w. -]{0,250}")
_PATTERN = re.compile(r"[\w-][\w. *-]{0,250}")
_AMOUNT = re.compile(r"\d{1,1000}(\.\d{1,1000})?([eE][+-]?\d{1,4})?(/\d{1,1000})?", re.ASCII)


def damaged_bundle(given: str, needed: str = "") -> BundleError:
    """Return the error for a bundle that is damaged and can only be restored."""
    return BundleError(given, needed=needed, remedy="restore the bundle from a copy")


def read_text(path: Path) -> str:
    """Read a text of limited size from a file that is not a link.

    Raises
    ------
    OSError, ValueError
        If it is missing, a link, too large, or not text in UTF-8.
    """
    if path.is_symlink() or path.stat().st_size > LARGEST_TEXT:
        raise ValueError
    return path.read_text(encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read a JSON file of limited size, depth and numbers; otherwise raise OSError or ValueError."""
    try:
        held = json.loads(read_text(path), parse_int=_read_integer)
        _refuse_deep(held)
    except RecursionError:
        raise ValueError from None
    return held


def _read_integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError
    return int(text)


def _refuse_deep(held: Any, depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise ValueError
    parts = held.values() if isinstance(held, dict) else held if isinstance(held, list) else ()
    for part in parts:
        _refuse_deep(part, depth + 1)


def amount(text: Any) -> Fraction:
    """Return the fraction that a nonnegative number states, or raise ValueError for any other text.

    Examples
    --------
    >>> amount("1/2"), amount(0)
    (Fraction(1, 2), Fraction(0, 1))
    >>> amount("1e999999999")
    Traceback (most recent call last):
    ValueError: an amount is not a number such as 1, 0.5 or 1/3
    """
    if isinstance(text, int) and not isinstance(text, bool) and 0 <= text < 10**_DIGITS:
        return Fraction(text)
    if not isinstance(text, str) or not _AMOUNT.fullmatch(text):
        raise ValueError("an amount is not a number such as 1, 0.5 or 1/3")
    above, _, below = text.partition("/")
    if below and not int(below):
        raise ValueError("an amount is not a number such as 1, 0.5 or 1/3")
    return Fraction(above) / int(below or 1)


def refuse_names(names: Iterable[Any], *, pattern: bool = False) -> None:
    """Raise ValueError unless every name is a relative path of one to three parts in allowed characters.

    Examples
    --------
    >>> refuse_names(["measurements/part-0.parquet", "spec.toml"])
    >>> refuse_names(["measurements/../../profile"])
    Traceback (most recent call last):
    ValueError: a file of a bundle has a name that is not allowed
    """
    grammar = _PATTERN if pattern else _PART
    for name in names:
        parts = name.split("/") if isinstance(name, str) and len(name) < 1000 else []
        if not 1 <= len(parts) <= 3 or not all(grammar.fullmatch(part) for part in parts):
            raise ValueError("a file of a bundle has a name that is not allowed")


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Refuse links among the named files of a folder and among the folders that contain them."""
    held = {folder / name for name in names}
    held |= {folder / parent for name in names for parent in PurePosixPath(name).parents}
    for path in sorted(held):
        if path.is_symlink():
            raise damaged_bundle(f"'{path}' is a link", needed="the file itself")


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
    """Read typed columns from a Parquet file; refuse other types, missing values, and more rows than allowed.

    Parameters
    ----------
    path
        The file.
    kinds
        The columns and their kinds, those of `KINDS`.
    most
        Largest number of rows that it may hold.
    may_lack
        Columns that may hold rows without a value.

    Raises
    ------
    BundleError
        If it holds other columns, or more rows, or rows without a value.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from trueup.files.writing import write_parquet
    >>> path = Path(tempfile.mkdtemp()) / "places.parquet"
    >>> write_parquet(path, {"block": np.array(["a", "b"])})
    >>> read_typed(path, {"block": "text"}, 2)["block"].tolist()
    ['a', 'b']
    >>> read_typed(path, {"block": "whole"}, 2)
    Traceback (most recent call last):
    trueup.errors.BundleError: 'places.parquet' has no column 'block' of the kind 'whole'. To do: restore the bundle from a copy.
    """
    with connect_to_files([path], threads=1) as connection:
        refuse_untyped(connection, [path], kinds, most, may_lack=may_lack)
        texts = [name for name, kind in kinds.items() if kind == "text"]
        others = ", ".join(quoted(name) for name in kinds if name not in texts) or "1"
        with _as_damaged([path]):
            rows = connection.execute(f"SELECT {others} FROM {parquet([path])}").fetchnumpy()
            rows |= text_columns(connection, texts, parquet([path]), may_lack) if texts else {}
    for name, kind in kinds.items():
        held = np.abs(np.ma.filled(rows[name], 0)) if kind == "number" else np.zeros(1)
        if ((held > LARGEST) & (held < np.inf)).any():
            raise _damaged([path], f"holds a number beyond {LARGEST:g} in '{name}'")
    return {name: unmasked(rows[name]) for name in kinds}


def columns_of(connection: Any, files: Sequence[Path]) -> dict[str, str]:
    """Return DuckDB's type for every column of a table in one or more Parquet files.

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
    """Refuse a table that lacks a column, has a missing value, or has more than `most` rows.

    Raises
    ------
    BundleError
        If so; the message names the column or the fault.
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
    return damaged_bundle(f"{_name(files)} {fault}")


def _name(files: Sequence[Path]) -> str:
    return f"'{files[0].name}'" if files else "a table without files"
