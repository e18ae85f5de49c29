"""Keyed fingerprints of confidential input files, for the agency's own records."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from trueup.errors import DataError
from trueup.files.source import files_read
from trueup.measuring import entropy

BLOCK_BYTES = 1 << 20


class Fingerprint:
    """A secret key, and the HMAC-SHA256 of the input files under this key once they are read."""

    def __init__(self, key: bytes, found: Future[str] | None) -> None:
        self._key, self._found = key, found

    def get(self) -> dict[str, str] | None:
        """Return the key and the files' HMAC in hexadecimal, or None if the input has no files."""
        if self._found is None:
            return None
        try:
            return {"key": self._key.hex(), "hmac-sha256": self._found.result()}
        except OSError as error:
            named = f"'{error.filename}'" if error.filename else "a file of the data"
            raise DataError(
                f"{named} cannot be read: {error.strerror or 'the system gives no reason'}",
                needed="files that trueup may read",
                remedy="correct the path or the permissions, or give a copy that can be read",
            ) from None


@contextmanager
def fingerprinting(source: Any, key: bytes | None = None) -> Iterator[Fingerprint]:
    """Compute the fingerprint of input files while the block under `with` reads them.

    Without a key anyone could confirm a guess of the input, so the result belongs in `internal/`; a fresh one is made
    unless one is given.

    Examples
    --------
    >>> with fingerprinting("/etc/hostname", b"key") as one, fingerprinting("/etc/hostname", b"key") as two:
    ...     one.get() == two.get()
    True
    """
    if not (files := files_read(source)):
        yield Fingerprint(b"", None)
        return
    key = key or entropy.words(32)
    given_up = Event()
    with ThreadPoolExecutor(1, "fingerprint") as thread:
        try:
            yield Fingerprint(key, thread.submit(_keyed, files, key, given_up))
        except BaseException:
            given_up.set()
            raise


def _keyed(files: Sequence[Path], key: bytes, given_up: Event) -> str:
    keyed = hmac.new(key, digestmod="sha256")
    for path in files:
        with path.open("rb") as file:
            while (block := file.read(BLOCK_BYTES)) and not given_up.is_set():
                keyed.update(block)
    return keyed.hexdigest()
