"""Meaning of a path: one file, a folder of Parquet files, a pattern, or an address of a cluster."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from trueup.errors import DataError

CSV = tuple(kind + packed for kind in (".csv", ".tsv", ".txt") for packed in ("", ".gz", ".zst"))
WORKBOOK = (".xlsx", ".xlsm")
PARQUET = (".parquet", ".pq")
_ADDRESS = re.compile(r"[a-z][a-z0-9+]+:")  # a drive has one letter


def is_address(source: Any) -> bool:
    """Return True if a source is an address or a catalogue's table, which an engine reads in place.

    Examples
    --------
    >>> is_address("s3a://census/people"), is_address("table:census.people"), is_address("people.parquet")
    (True, True, False)
    """
    return isinstance(source, str) and _ADDRESS.match(source) is not None


def is_parquet(path: Path) -> bool:
    """Return True if a file's name is that of a Parquet file."""
    return path.name.lower().endswith(PARQUET)


def is_workbook(path: Path) -> bool:
    """Return True if a file's name is that of a workbook."""
    return path.name.lower().endswith(WORKBOOK)


def is_csv(path: Path) -> bool:
    """Return True if a file's name is that of a CSV file."""
    return path.name.lower().endswith(CSV)


def files_of(path: Path) -> list[Path]:
    """Return the files that a path names: itself, or the Parquet files of a folder or a pattern."""
    try:
        files = _found(path)
    except (OSError, ValueError, NotImplementedError):  # a name too long, or a pattern that is none
        files = []
    if not files and _ADDRESS.match(str(path)):
        raise DataError(
            f"'{path}' is an address",
            needed="a file; records alone are read where they live, by --engine spark",
        )
    if not files:
        what = f"no Parquet file in the folder '{path}'" if _is_folder(path) else f"no file '{path}'"
        raise DataError(f"there is {what}", remedy="check the path")
    return files


def _found(path: Path) -> list[Path]:
    """Return the files of a path: an existing path literally, otherwise as a pattern."""
    if path.is_file():
        return [path]
    if path.is_dir():
        found = filter(is_parquet, path.rglob("*"))
        return sorted(p for p in found if not p.name.startswith((".", "_")))
    return sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))


def _is_folder(path: Path) -> bool:
    with suppress(OSError, ValueError):
        return path.is_dir()
    return False


def named_folder(path: Path) -> Path:
    """Return the folder that a path names in full: itself, or the one containing the file or first wildcard."""
    if path.is_dir() or path.is_file():
        return path if path.is_dir() else path.parent
    return Path(*takewhile(lambda part: not set(part) & set("*?["), path.parts))


def is_zst(path: Path) -> bool:
    return path.name.lower().endswith(".zst")
