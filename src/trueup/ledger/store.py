"""Durable places for entries: SQLite in one file, PostgreSQL by URL.

A store knows nothing of budgets. It hands out a transaction that reads entries and appends to
them, and promises two things: writers come one after the other, and what was committed survives
a crash. Tables refuse updates and deletions; the hash chain finds who circumvents that.
Every transaction has its own connection, so a ledger may be used across fork and threads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from trueup.errors import BudgetError
from trueup.ledger.transaction import WAIT_SECONDS, Store, Transaction, unusable


def store_at(url: str) -> Store:
    """Choose the store for a path or URL: `ledger.db`, `sqlite:///path`, `postgresql://host/name`.

    Raises
    ------
    BudgetError
        If the URL is of another kind.
    """
    scheme = urlsplit(url).scheme if "://" in url else "sqlite"
    if scheme in ("postgresql", "postgres"):
        from trueup.ledger.postgres import PostgresStore

        return PostgresStore(url)
    if scheme == "sqlite" and url:
        return SqliteStore(Path(url.removeprefix("sqlite://").removeprefix("sqlite:")))
    raise BudgetError(f"a ledger at '{scheme}'", needed="a file path, sqlite:///PATH or postgresql://...")


class SqliteStore:
    """Entries in one SQLite file: write-ahead log, synced at every commit."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def exists(self) -> bool:
        """Whether the file is there."""
        return self.path.is_file()

    def create(self) -> None:
        """Make the table in a new or existing file."""
        with _sqlite_errors(self.path), self._connected("rwc") as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SQLITE_TABLE:
                connection.execute(statement)
            connection.execute("COMMIT")

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[Transaction]:
        """Open a transaction; a writing one starts with `BEGIN IMMEDIATE`."""
        with _sqlite_errors(self.path), self._connected("rw") as connection:
            connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
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


@contextmanager
def _sqlite_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise unusable(f"the file '{path}'", error) from None
