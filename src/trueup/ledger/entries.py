"""Entries of the ledger and the hash chain that binds them.

The body of an entry is one line of canonical JSON that holds the SHA-256 of the body before it.
An exported ledger is these lines, so that anybody can recompute the chain with `sha256sum`.

A store hands them out in transactions that are whole or not at all.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from trueup.errors import BudgetError, LedgerError

GENESIS = "0" * 64
"""Previous hash that the first entry names."""


@dataclass(frozen=True)
class Entry:
    """One entry of the ledger: its number, its content as text, and its hash.

    Attributes
    ----------
    number
        Its place, from 1.
    body
        Canonical JSON: what happened, with the hash of the entry before.
    hash
        SHA-256 of the body, in hexadecimal.
    """

    number: int
    body: str
    hash: str

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Return the body of the entry as a dictionary."""
        return json.loads(self.body)


def link(number: int, previous: str, fields: dict[str, Any], key: bytes | None = None) -> Entry:
    """Make the entry that follows the one whose hash is `previous`, signed if there is a key (HMAC, SHA-256).

    Examples
    --------
    >>> first = link(1, GENESIS, {"action": "open"})
    >>> link(2, first.hash, {"action": "caps"}).fields["previous"] == first.hash
    True
    """
    whole = {"entry": number, "previous": previous, **fields}
    if key is not None:
        whole["signed"] = _signature(whole, key)
    body = _canonical(whole)
    return Entry(number, body, entry_digest(body))


def is_signed(entry: Entry, key: bytes) -> bool:
    """Return True if an entry holds a key's signature over everything else in it.

    Examples
    --------
    >>> entry = link(1, GENESIS, {"action": "open"}, b"key")
    >>> is_signed(entry, b"key"), is_signed(entry, b"other"), is_signed(link(1, GENESIS, {"action": "open"}), b"key")
    (True, False, False)
    """
    rest = dict(entry.fields)
    return hmac.compare_digest(str(rest.pop("signed", "")), _signature(rest, key))


def _signature(fields: dict[str, Any], key: bytes) -> str:
    return hmac.new(key, _canonical(fields).encode(), "sha256").hexdigest()


def _canonical(fields: dict[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def this_time() -> str:
    """Return the present time in UTC to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def entry_digest(body: str) -> str:
    """Return the SHA-256 of an entry's body, in hexadecimal."""
    return hashlib.sha256(body.encode()).hexdigest()


def check_links(entries: Iterable[Entry], number: int, head: str) -> None:
    """Check that entries continue a hash chain of `number` entries that ends in the hash `head`.

    Raises
    ------
    BudgetError
        Naming the first entry that does not fit.
    """
    for entry in entries:
        number += 1
        if entry.number != number:
            raise broken(number, "is missing")
        if entry_digest(entry.body) != entry.hash:
            raise broken(number, "does not match its hash")
        if _stated(entry) != (number, head):
            raise broken(number, "does not continue the entry before it")
        head = entry.hash


def _stated(entry: Entry) -> tuple[Any, Any]:
    try:
        return entry.fields["entry"], entry.fields["previous"]
    except (ValueError, KeyError, TypeError):
        raise broken(entry.number, "cannot be read") from None


def broken(number: int, how: str) -> BudgetError:
    """Return the error for an entry that was altered, removed or inserted."""
    return BudgetError(
        f"entry {number} of the ledger {how}: the ledger was altered or damaged",
        needed="the entries as they were written",
        remedy="stop releasing, keep the file as it is, and compare it with a backup and with `budget verify --against`",
    )


WAIT_SECONDS = 60
"""Longest wait of a writer for its turn."""


class Transaction:
    """The entries of a ledger, read and appended within one database transaction."""

    def __init__(self, connection: Any, mark: str) -> None:
        self._connection, self._mark = connection, mark

    def after(self, number: int) -> list[Entry]:
        """Return the entries after a given number, in order."""
        query = f"SELECT number, body, hash FROM trueup_ledger WHERE number > {self._mark} ORDER BY number"
        return [Entry(*row) for row in self._connection.execute(query, (number,)).fetchall()]

    def append(self, entry: Entry) -> None:
        """Append an entry, which is durable when the transaction ends."""
        values = ", ".join([self._mark] * 3)
        command = f"INSERT INTO trueup_ledger (number, body, hash) VALUES ({values})"
        self._connection.execute(command, (entry.number, entry.body, entry.hash))


def unusable(where: str, said: object) -> LedgerError:
    """Return the error for a store that cannot be read or written."""
    return LedgerError(
        f"the ledger in {where} cannot be used: {str(said).strip()}",
        needed="a ledger that can be read and written; no budget was granted",
        remedy="correct the path, get permission to read and write there, or free space",
    )
