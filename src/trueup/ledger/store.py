"""Durable places for entries: SQLite in one file, PostgreSQL by URL.

A store knows nothing of budgets. It hands out a transaction that reads entries and appends to
them, and promises two things: writers come one after the other, and what was committed survives
a crash. Tables refuse updates and deletions; the hash chain finds who circumvents that.
Every transaction has its own connection, so a ledger may be used across fork and threads.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trueup.errors import BudgetError
from trueup.ledger.transaction import WAIT_SECONDS, Store, Transaction, unusable


def store_at(url: str) -> Store:
    """Choose the store for a path or URL: `ledger.db`, `sqlite:///path`, `postgresql://host/name`."""
    scheme = url.partition("://")[0] if "://" in url else "sqlite"
    if scheme in ("postgresql", "postgres"):
        from trueup.ledger.postgres import PostgresStore

        return PostgresStore(url)
    if scheme == "sqlite" and url and not url.startswith(("postgresql:", "postgres:")):
        return SqliteStore(Path(url.removeprefix("sqlite://").removeprefix("sqlite:")))
    known = scheme if scheme.isalnum() else "another place"
    raise BudgetError(
        f"the ledger's address '{known}' is not recognised",
        needed="a file path, sqlite:///PATH or postgresql://...",
    )


class SqliteStore:
    """Entries in one SQLite file that has one name: rollback journal, synced at every commit.

    SQLite keeps what is half written beside the file, under the file's name. Whoever opens the file by another name does
    not see it: with a write-ahead log two names of one file were granted a budget twice. So everything committed stands in
    the one file (a rollback journal holds only what a crash interrupted), its locks are those of the file and not of
    a name, and a file with a second name is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def keeper(self) -> Path:
        """Return the folder beside the file itself, whichever link names it."""
        real = self.path.resolve()
        return real.with_name(f"{real.name}.keeper")

    def exists(self) -> bool:
        """Return True if the file is there."""
        return self.path.is_file()

    def create(self) -> None:
        """Make the table in a new or existing file."""
        with _sqlite_errors(self.path), self._connected("rwc") as connection:
            _leave_log(connection)
            connection.execute("BEGIN IMMEDIATE")
            refuse_second_name(self.path)
            for statement in _SQLITE_TABLE:
                connection.execute(statement)
            connection.execute("COMMIT")

    def grant(self, analyst: str) -> None:
        """Refuse: whoever may draw may write the file under any name."""
        raise BudgetError(
            f"the ledger is a file, which cannot tell '{analyst}' from its owner",
            needed="a server that knows its users: whoever can draw from a file can also declare in it",
            remedy="keep the ledger in PostgreSQL where analysts are not to be trusted",
        )

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[Transaction]:
        """Open a transaction; a writing one starts with `BEGIN IMMEDIATE`."""
        with _sqlite_errors(self.path), self._connected("rw") as connection:
            if writing:
                _leave_log(connection)
            connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
            refuse_second_name(self.path)  # under the lock: a link made later is seen by whoever uses it
            yield Transaction(connection, "?")
            # Closing without this line rolls back, also when the caller raised.
            connection.execute("COMMIT")

    @contextmanager
    def _connected(self, mode: str) -> Iterator[sqlite3.Connection]:
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=WAIT_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            yield connection
        finally:
            connection.close()


_SQLITE_TABLE = (
    "CREATE TABLE IF NOT EXISTS trueup_ledger"
    " (number INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL UNIQUE) STRICT",
    "CREATE TRIGGER IF NOT EXISTS trueup_ledger_no_update BEFORE UPDATE ON trueup_ledger"
    " BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "CREATE TRIGGER IF NOT EXISTS trueup_ledger_no_delete BEFORE DELETE ON trueup_ledger"
    " BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
)


def _leave_log(connection: sqlite3.Connection) -> None:
    """Switch off the write-ahead log of an existing ledger; every other connection has to be closed for that."""
    end = time.monotonic() + WAIT_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "delete":
        try:
            connection.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def refuse_second_name(path: Path) -> None:
    """Refuse a file with another name, under which half-written entries would not be seen."""
    real = path.resolve()
    if (links := real.stat().st_nlink) != 1:
        raise BudgetError(
            f"the ledger '{path}' has {links} names (hard links)",
            needed="a file with one name; no budget was granted",
            remedy="remove the other links: ls -i shows the file's number, find -samefile its names",
        )
    if _mount_of(real) != _mount_of(real.parent):
        raise BudgetError(
            f"the ledger '{path}' is a mount of a single file, which has another name elsewhere",
            needed="one name; no budget was granted",
            remedy="mount its folder instead",
        )


def _mount_of(path: Path) -> str:
    """Return the number of the mount that holds a path; empty if the system does not tell."""
    if not hasattr(os, "O_PATH"):
        return ""
    # Closing any other handle of the file would give up SQLite's locks, which belong to the process.
    handle = os.open(path, os.O_PATH)
    try:
        told = Path(f"/proc/self/fdinfo/{handle}").read_text(encoding="ascii")
    finally:
        os.close(handle)
    return next((line for line in told.splitlines() if line.startswith("mnt_id")), "")


@contextmanager
def _sqlite_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise unusable(f"the file '{path}'", error) from None
