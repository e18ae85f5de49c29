"""Addresses of tables, by which a run reads them again from any folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trueup.errors import DataError
from trueup.files.csv_files import Encoded
from trueup.files.paths import files_of, is_address
from trueup.files.table import JoinedTables


def address_of(source: Any) -> Any:
    """Return where a table is, in plain values; None for one in memory.

    Raises
    ------
    DataError
        For a file that there is not.

    Examples
    --------
    >>> address_of("s3a://census/people"), address_of({"area": ["a"]})
    ('s3a://census/people', None)
    """
    if isinstance(source, JoinedTables):
        held = {"persons": address_of(source.persons), "households": address_of(source.households)}
        return None if None in held.values() else held
    if is_address(source) or not isinstance(source, str | Path):
        return source if is_address(source) else None
    files_of(Path(source))
    path = str(Path(source).absolute())
    return {"path": path, "encoding": source.encoding} if isinstance(source, Encoded) else path


def source_at(address: Any) -> Any:
    """Return the source of an address.

    Examples
    --------
    >>> source_at({"path": "/people.csv", "encoding": "latin-1"}).encoding
    'latin-1'
    """
    if not isinstance(address, dict):
        return address
    if "encoding" in address:
        return Encoded(**address)
    return JoinedTables(**{name: source_at(part) for name, part in address.items()})


def refuse_addresses(source: Any) -> None:
    """Refuse two tables if one is given by an address, because they are linked on the driver's machine."""
    if isinstance(source, JoinedTables):
        for name, table in (("--data", source.persons), ("--households", source.households)):
            if is_address(table):
                raise DataError(
                    f"{name} is an address ({table.partition(':')[0]}:...), and two tables are linked by the driver",
                    needed="two files that the driver's machine reads; on a cluster too, whose workers share the rest",
                    remedy="copy the table to a Parquet file of that machine",
                )
