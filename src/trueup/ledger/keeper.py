"""What the keeper of a ledger keeps outside it: the key of fingerprints, the private log of refusals, the anchor.

key               names data in the ledger by a keyed fingerprint; never in a ledger or a bundle
refusals.jsonl    what an analyst is not told of a refusal: row numbers, counts of bad rows, facts of files
anchor            number and hash of the last entry that is known to stand
signing           where entries are signed: the key, and the number of the first signed entry

The folder is its owner's alone. By default it stands beside an SQLite ledger; whoever may draw may then read it, as they may
write the ledger. On a server it stands where the keeper's service runs and analysts do not.
"""

from __future__ import annotations

import json
import os
import secrets
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from trueup.errors import LedgerError
from trueup.files.fingerprint import keyed_fingerprint
from trueup.files.staging import to_disk


@dataclass(frozen=True)
class Keeper:
    """The keeper's folder.

    Attributes
    ----------
    folder
        Where it is; readable by its owner alone.
    """

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Keeper:
        """Make the folder with a fresh key, unless it is there.

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
        """The keeper of a folder; None where there is none."""
        return cls(folder) if folder is not None and folder.is_dir() else None

    @property
    def _key(self) -> Path:
        return self.folder / "key"

    @cached_property
    def key(self) -> bytes:
        """The key of fingerprints.

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
        """Have every entry from a number on signed; LedgerError if the disk refuses."""
        part = self.folder / f".signing-{uuid.uuid4().hex}"
        try:
            part.touch(mode=0o600)
            part.write_text(f"{secrets.token_hex(32)} {first}\n", encoding="ascii")
            to_disk(part)
            os.link(part, self.folder / "signing")  # one that is there stays
        except FileExistsError:
            return
        except OSError as error:
            raise _unusable(self.folder / "signing", error) from None
        finally:
            part.unlink(missing_ok=True)

    @property
    def signing(self) -> tuple[bytes, int] | None:
        """The key of signatures and the number of the first signed entry; None where none is signed.

        Raises
        ------
        LedgerError
            If it cannot be read.
        """
        try:
            key, first = (self.folder / "signing").read_text(encoding="ascii").split()
            return bytes.fromhex(key), int(first)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise _unusable(self.folder / "signing", error) from None

    def fingerprint(self, data: Any) -> str | None:
        """By what data are known in the ledger; None where they cannot be known again."""
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
        """Number and hash of the last entry that is known to stand; None before the first.

        Raises
        ------
        LedgerError
            If it cannot be read.
        """
        try:
            number, head = (self.folder / "anchor").read_text(encoding="ascii").split()
            return int(number), head
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise _unusable(self.folder / "anchor", error) from None

    def keep_anchor(self, number: int, head: str) -> None:
        """Write down the last entry, unless a later one is known; LedgerError if the disk refuses."""
        known, part = (
            self.anchor,
            self.folder / f".anchor-{uuid.uuid4().hex}",
        )  # several processes write at once
        if known is not None and known[0] >= number:
            return
        try:
            part.touch(mode=0o600)
            part.write_text(f"{number} {head}\n", encoding="ascii")
            to_disk(part)
            part.replace(self.folder / "anchor")
        except OSError as error:
            raise _unusable(self.folder / "anchor", error) from None
        finally:
            part.unlink(missing_ok=True)


def _unusable(path: Path, error: Exception) -> LedgerError:
    return LedgerError(
        f"the keeper's '{path}' cannot be used: {getattr(error, 'strerror', None) or 'it is damaged'}",
        needed="the folder that was made with the ledger, readable and writable; no budget was granted",
        remedy="restore it, or name it by --keeper",
    )
