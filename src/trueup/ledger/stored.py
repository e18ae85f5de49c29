"""The entries of a ledger in its store: read once, summed, and added to under its lock."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Any

from trueup.files.target import remove_unheld
from trueup.ledger.entries import Entry, link
from trueup.ledger.state import State
from trueup.ledger.transaction import Store, Transaction


@dataclass
class LockedLedger:
    """A ledger under its write lock.

    Attributes
    ----------
    state
        The sum of all entries.
    transaction
        Where further ones go.
    appended
        Whether one was added.
    """

    state: State
    transaction: Transaction
    appended: bool = False

    def append(self, action: str, fields: dict[str, Any]) -> Entry:
        """Add an entry; it is kept when the lock is given up."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = link(self.state.number + 1, self.state.head, {"action": action, "time": now, **fields})
        self.appended = True
        self.transaction.append(entry)
        self.state.read([entry])
        return entry


class StoredLedger:
    """The entries of a ledger, and their sum as far as they were read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._state = State()
        self._lock = threading.RLock()  # the state is shared by the threads of a process

    def state(self) -> State:
        """Read all entries, checking chain and caps, and return their sum.

        Raises
        ------
        BudgetError
            If an entry was altered, or the ledger cannot be read.
        """
        with self._lock, self._store.transaction(writing=False) as transaction:
            self._state.read(transaction.after(self._state.number))
        return self._state

    def entries(self) -> list[Entry]:
        """Read all entries as they stand, unchecked."""
        with self._store.transaction(writing=False) as transaction:
            return transaction.after(0)

    @contextmanager
    def writing(self) -> Iterator[LockedLedger]:
        """Hold the write lock, with the state brought up to date."""
        locked = None
        try:
            with self._lock, self._store.transaction(writing=True) as transaction:
                self._state.read(transaction.after(self._state.number))
                locked = LockedLedger(self._state, transaction)
                yield locked
        except BaseException:
            if locked and locked.appended:
                self._state = State()  # it holds entries that were rolled back
            raise

    def sweep(self, final: Path) -> None:
        """Remove what killed runs to a target left ready beside it without having committed it."""
        state = self.state()
        for folder in final.absolute().parent.glob(f".{escape(final.name)}.ready-*"):
            name = folder.name.rpartition("-")[2]
            if name in state.reserved and name not in state.commits:
                remove_unheld(folder)
