"""The interface of stores of entries: transactions that are whole or not at all."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from trueup.errors import LedgerError
from trueup.ledger.entries import Entry

WAIT_SECONDS = 60
"""How long a writer waits for its turn."""


class Transaction:
    """The entries as one transaction sees them."""

    def __init__(self, connection: Any, mark: str) -> None:
        self._connection, self._mark = connection, mark

    def after(self, number: int) -> list[Entry]:
        """Read the entries after a number, in order."""
        query = f"SELECT number, body, hash FROM trueup_ledger WHERE number > {self._mark} ORDER BY number"
        return [Entry(*row) for row in self._connection.execute(query, (number,)).fetchall()]

    def append(self, entry: Entry) -> None:
        """Append an entry, durable once the transaction ends."""
        values = ", ".join([self._mark] * 3)
        command = f"INSERT INTO trueup_ledger (number, body, hash) VALUES ({values})"
        self._connection.execute(command, (entry.number, entry.body, entry.hash))


class Store(Protocol):
    """A store of entries."""

    @property
    def keeper(self) -> Path | None:
        """Return the default keeper's folder; None if one has to be named."""
        ...

    def create(self) -> None:
        """Make an empty table if there is none."""
        ...

    def exists(self) -> bool:
        """Return True if there is a table."""
        ...

    def grant(self, analyst: str) -> None:
        """Let an analyst draw and not declare; raise BudgetError if the store cannot tell them apart."""
        ...

    def transaction(self, *, writing: bool) -> AbstractContextManager[Transaction]:
        """Open a transaction as a context manager; a writing one excludes other writers."""
        ...


def unusable(where: str, said: object) -> LedgerError:
    """Return the error for a store that cannot be read or written."""
    return LedgerError(
        f"the ledger in {where} cannot be used: {str(said).strip()}",
        needed="a ledger that can be read and written; no budget was granted",
        remedy="check path, permissions and free space",
    )
