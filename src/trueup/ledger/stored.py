"""The entries of a ledger in its store: reading, adding up, and appending under a lock."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any

from trueup.errors import BudgetError
from trueup.files.target import remove_unheld
from trueup.ledger.entries import Entry, Transaction, broken, is_signed, link, this_time
from trueup.ledger.keeper import Keeper
from trueup.ledger.state import State
from trueup.ledger.store import Store


@dataclass
class LockedLedger:
    """A ledger while its write lock is held, so that entries can be appended.

    Attributes
    ----------
    state
        The sum of all entries.
    transaction
        The transaction in which further entries are appended.
    key
        That of signatures, where entries are signed.
    appended
        True if an entry was appended.
    """

    state: State
    transaction: Transaction
    key: bytes | None = None
    appended: bool = False

    def append(self, action: str, fields: dict[str, Any]) -> Entry:
        """Append an entry, which is durable when the lock is released."""
        if self.state.signed and self.key is None:
            raise BudgetError(
                "the entries of the ledger are signed, but the key that verifies them is missing",
                needed="the keeper's folder, which holds the key; no budget was granted",
                remedy="give its path in the variable TRUEUP_KEEPER, or ask the keeper to run the command",
            )
        whole = {"action": action, "time": this_time(), **fields}
        entry = link(self.state.number + 1, self.state.head, whole, self.key)
        self.appended = True
        self.transaction.append(entry)
        self.state.read([entry])
        return entry


class StoredLedger:
    """The entries of a ledger and their sum, checked against the last entry that the keeper knows."""

    def __init__(self, store: Store, keeper: Keeper | None = None) -> None:
        self._store, self.keeper = store, keeper
        self._state = State()
        self._lock = threading.RLock()  # the state is shared by the threads of a process

    def state(self) -> State:
        """Return the sum of all entries, after checks of the chain and the caps.

        Raises
        ------
        BudgetError
            If an entry was altered, or the ledger cannot be read.
        """
        with self._lock, self._store.transaction(writing=False) as transaction:
            self._read(transaction)
        return self._state

    def _read(self, transaction: Transaction) -> None:
        """Read new entries into the state; start again from the first entry if the last known one has disappeared."""
        known = self._state.number
        entries = transaction.after(max(known - 1, 0))
        if known and (not entries or entries.pop(0).hash != self._state.head):
            self._state, entries = State(), transaction.after(0)
        self._state.read(entries)
        try:
            refuse_unsigned(entries, self.keeper)
        except BudgetError:
            self._state = State()  # all is read, and refused, again
            raise
        refuse_cut(self._state, self.keeper)

    def entries(self) -> list[Entry]:
        """Return all entries, without checks."""
        with self._store.transaction(writing=False) as transaction:
            return transaction.after(0)

    @contextmanager
    def writing(self) -> Iterator[LockedLedger]:
        """Hold the write lock, and yield the ledger with its state up to date."""
        locked = None
        try:
            with self._lock:
                with self._store.transaction(writing=True) as transaction:
                    self._read(transaction)
                    signing = self.keeper and self.keeper.signing
                    locked = LockedLedger(self._state, transaction, signing[0] if signing else None)
                    yield locked
                if self.keeper and locked.appended:  # only what is committed is held to stand
                    self.keeper.keep_anchor(self._state.number, self._state.head)
        except BaseException:
            if locked and locked.appended:
                self._state = State()  # it holds entries that were rolled back
            raise

    def sweep(self, final: Path) -> None:
        """Remove bundles that killed runs left beside a target without committing them."""
        state = self.state()
        for folder in final.absolute().parent.glob(f".{escape(final.name)}.ready-*"):
            name = folder.name.rpartition("-")[2]
            if name in state.reserved and name not in state.commits:
                remove_unheld(folder)


def refuse_unsigned(entries: Iterable[Entry], keeper: Keeper | None) -> None:
    """Refuse entries without the keeper's signature if entries are signed.

    Raises
    ------
    BudgetError
        Naming the first.
    """
    signing = keeper and keeper.signing
    if signing is None:
        return
    key, first = signing
    for entry in entries:
        if entry.number >= first and not is_signed(entry, key):
            raise broken(entry.number, "is not signed with its keeper's key")


def refuse_cut(state: State, keeper: Keeper | None) -> None:
    """Refuse a ledger without the last entry that its keeper has recorded."""
    anchor = keeper and keeper.anchor
    if anchor and state.hashes.get(anchor[0]) != anchor[1]:
        what = "is missing" if state.number < anchor[0] else "is another one"
        raise BudgetError(
            f"entry {anchor[0]} of the ledger {what}, although its keeper has recorded it: the ledger was cut off, or "
            "an older copy was restored",
            needed="the complete ledger; no budget was granted",
            remedy="restore the newest copy, and compare it with `trueup budget verify --against`",
        )
