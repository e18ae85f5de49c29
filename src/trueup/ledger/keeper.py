"""The keeper's folder: the secret key by which data are recognised, the log of refusals, and the last entry.

key               names data in the ledger by a keyed fingerprint; never in a ledger or a bundle
refusals.jsonl    what an analyst is not told of a refusal: row numbers, counts of bad rows, facts of files
anchor            number and hash of the last entry that is known to stand
signing           where entries are signed: the key, and the number of the first signed entry

The folder is its owner's alone. By default it stands beside an SQLite ledger; whoever may draw may then read it, as they may
write the ledger. On a server it stands where the keeper's service runs and analysts do not.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from trueup.errors import DataError, LedgerError
from trueup.files import Encoded, JoinedTables, named_folder
from trueup.files.source import files_read, frame_library, open_table
from trueup.files.writing import to_disk

Pair = TypeVar("Pair")


@dataclass(frozen=True)
class Keeper:
    """The keeper's folder: secret keys, the private log of refusals, and the ledger's last known entry.

    Attributes
    ----------
    folder
        The folder's path; only its owner can read it.
    """

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Keeper:
        """Make the folder with a new key, unless it exists.

        Raises
        ------
        LedgerError
            If the disk refuses.
        """
        keeper = cls(folder)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            with suppress(FileExistsError):
                handle = os.open(keeper._key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(handle, "w") as file:
                    file.write(uuid.uuid4().hex + uuid.uuid4().hex)
        except OSError as error:
            raise _unusable(folder, error) from None
        return keeper

    @classmethod
    def at(cls, folder: Path | None) -> Keeper | None:
        """Return the keeper whose files are in a folder; None if the folder does not exist."""
        return cls(folder) if folder is not None and folder.is_dir() else None

    @property
    def _key(self) -> Path:
        return self.folder / "key"

    @cached_property
    def key(self) -> bytes:
        """Return the key with which fingerprints of data are computed.

        Raises
        ------
        LedgerError
            If there is none, or it cannot be read.
        """
        try:
            return bytes.fromhex(self._key.read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            raise _unusable(self._key, error) from None

    def sign(self, first: int) -> None:
        """Sign every entry from the given number on; raise LedgerError if the key cannot be stored."""
        with self._written("signing", f"{secrets.token_hex(32)} {first}") as part, suppress(FileExistsError):
            os.link(part, self.folder / "signing")  # one that is there stays

    @property
    def signing(self) -> tuple[bytes, int] | None:
        """Return the key that signs entries, and the number of the first signed entry; None if none is signed.

        Raises
        ------
        LedgerError
            If it cannot be read.
        """
        return self._two("signing", lambda key, first: (bytes.fromhex(key), int(first)))

    def fingerprint(self, data: Any) -> str | None:
        """Return the keyed fingerprint of data; None if the data cannot be recognised again."""
        return keyed_fingerprint(data, self.key)

    def note(self, **fields: Any) -> None:
        """Add a line to the private log.

        Raises
        ------
        LedgerError
            If the disk refuses.
        """
        line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="seconds"), **fields}, default=str)
        path = self.folder / "refusals.jsonl"
        try:
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise _unusable(path, error) from None

    @property
    def anchor(self) -> tuple[int, str] | None:
        """Return the number and hash of the last entry that is known to exist; None before the first.

        Raises
        ------
        LedgerError
            If it cannot be read.
        """
        return self._two("anchor", lambda number, head: (int(number), head))

    def keep_anchor(self, number: int, head: str) -> None:
        """Record the last entry, unless a later one is recorded; raise LedgerError if that fails."""
        known = self.anchor
        if known is not None and known[0] >= number:
            return
        with self._written("anchor", f"{number} {head}") as part:  # several processes write at once
            part.replace(self.folder / "anchor")

    def _two(self, name: str, read: Callable[[str, str], Pair]) -> Pair | None:
        """Return the two words of a file in the folder, converted by `read`; None if there is no file."""
        try:
            first, second = (self.folder / name).read_text(encoding="ascii").split()
            return read(first, second)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise _unusable(self.folder / name, error) from None

    @contextmanager
    def _written(self, name: str, text: str) -> Iterator[Path]:
        """Yield the path of a new temporary file with one line of text; raise LedgerError if that fails."""
        part = self.folder / f".{name}-{uuid.uuid4().hex}"
        try:
            part.touch(mode=0o600)
            part.write_text(f"{text}\n", encoding="ascii")
            to_disk(part)
            yield part
        except OSError as error:
            raise _unusable(self.folder / name, error) from None
        finally:
            part.unlink(missing_ok=True)


def _unusable(path: Path, error: Exception) -> LedgerError:
    return LedgerError(
        f"the keeper's folder '{path}' cannot be used: {getattr(error, 'strerror', None) or 'it is damaged'}",
        needed="the folder that was created with the ledger, readable and writable; no budget was granted",
        remedy="restore the folder, or give its path in the variable TRUEUP_KEEPER",
    )


BLOCK_BYTES = 1 << 20


def keyed_fingerprint(source: Any, key: bytes) -> str | None:
    """Return the HMAC-SHA256 of all that decides what is read from a table: its bytes, name and encoding.

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
                f"a file of the data cannot be read: {error.strerror or 'the system gives no reason'}",
                needed="files that trueup may read",
                remedy="correct the path or the permissions, or give a copy that can be read",
            ) from None
    return keyed.hexdigest()


def _file_pieces(source: str | Path) -> Iterator[bytes]:
    """Yield the relative name, the extension and the content of each file."""
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
