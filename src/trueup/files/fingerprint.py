"""Keyed fingerprints of tables, with which nobody without the key can confirm a guess of the content."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trueup.errors import DataError
from trueup.files.csv_files import Encoded
from trueup.files.frames import frame_library
from trueup.files.paths import named_folder
from trueup.files.source import files_read, open_table
from trueup.files.table import JoinedTables

BLOCK_BYTES = 1 << 20


def keyed_fingerprint(source: Any, key: bytes) -> str | None:
    """Return the HMAC-SHA256 of all that decides what is read of a table: its bytes, name and encoding.

    Parameters
    ----------
    source
        A path, a dataframe, or two of them.
    key
        A secret.

    Returns
    -------
    64 hexadecimal digits; None for what cannot be known again: an address, a relation of another database.

    Examples
    --------
    >>> import pandas
    >>> one, two = (pandas.DataFrame({"n": [n]}) for n in (1, 2))
    >>> keyed_fingerprint(one, b"key") == keyed_fingerprint(one.copy(), b"key")
    True
    >>> keyed_fingerprint(one, b"key") == keyed_fingerprint(two, b"key")
    False
    """
    keyed = hmac.new(key, digestmod="sha256")
    tables = [source.persons, source.households] if isinstance(source, JoinedTables) else [source]
    for table in tables:
        if not (isinstance(table, str | Path) and files_read(table)) and frame_library(table) is None:
            return None
        keyed.update(b"table")
        try:
            for piece in _file_pieces(table) if isinstance(table, str | Path) else _frame_pieces(table):
                keyed.update(len(piece).to_bytes(8, "little"))
                keyed.update(piece)
        except OSError as error:
            raise DataError(
                f"the data cannot be read: {error.strerror or 'the disk refuses'}", remedy="check permissions"
            ) from None
    return keyed.hexdigest()


def _file_pieces(source: str | Path) -> Iterator[bytes]:
    """Yield names of files below their folder, their endings (which decide how they are read), and their content."""
    folder = named_folder(Path(source))
    yield (source.encoding if isinstance(source, Encoded) else "").encode()
    for path in files_read(source):
        below = path.relative_to(folder).parent if path.parent != folder else Path()
        yield f"{below}|{''.join(path.suffixes[-2:]).lower()}".encode()
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                yield block


def _frame_pieces(frame: Any) -> Iterator[bytes]:
    """Yield the columns of a dataframe, each with its type."""
    table = open_table(frame)
    for name in table.columns():
        column = table.select([name])[name]
        yield f"{name}|{column.dtype.str}|{len(column)}".encode()
        if column.dtype == object:
            yield from (f"{type(value).__name__}:{value}".encode(errors="surrogatepass") for value in column)
        else:
            yield column.tobytes()
