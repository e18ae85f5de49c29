"""Entries in a PostgreSQL table, for ledgers that several machines share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from trueup.errors import BudgetError
from trueup.ledger.transaction import WAIT_SECONDS, Transaction, unusable


class PostgresStore:
    """Entries in the table `trueup_ledger` of the database that a URL names.

    Raises
    ------
    BudgetError
        If psycopg is not installed.
    """

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise BudgetError(
                "a PostgreSQL ledger needs psycopg", remedy="pip install 'trueup[postgres]'"
            ) from None
        self._psycopg, self._url = psycopg, url

    keeper = None
    """Several machines share the ledger: the keeper says which folder of which is his."""

    def exists(self) -> bool:
        """Whether the table is there."""
        with self._connected() as connection:
            row = connection.execute("SELECT to_regclass('trueup_ledger')").fetchone()
            return row is not None and row[0] is not None

    def create(self) -> None:
        """Make the table if there is none."""
        with self._connected() as connection:
            # CREATE ... IF NOT EXISTS alone fails when two sessions come at the same time.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('trueup_ledger'))")
            for statement in _TABLE:
                connection.execute(statement)

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[Transaction]:
        """Open a transaction; a writing one takes the table's lock, which readers do not wait for."""
        with self._connected() as connection:
            connection.execute("SET LOCAL synchronous_commit = on")
            connection.execute(f"SET LOCAL lock_timeout = '{WAIT_SECONDS}s'")
            if writing:
                connection.execute("LOCK TABLE trueup_ledger IN EXCLUSIVE MODE")
            yield Transaction(connection, "%s")

    @contextmanager
    def _connected(self):
        """One connection, one transaction: committed at the end, rolled back if anything is raised."""
        try:
            with self._psycopg.connect(self._url, connect_timeout=10) as connection:
                yield connection
        except self._psycopg.Error as error:
            raise unusable("the database at the given URL", _said(error)) from None


def _said(error: Exception) -> str:
    """What the server or its client said, without what it quotes: a password with `/` in it is taken for a port or a name."""
    return re.sub(r'"[^"]*"|\'[^\']*\'', "(not shown)", str(error))


_TABLE = (
    "CREATE TABLE IF NOT EXISTS trueup_ledger"
    " (number BIGINT PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL UNIQUE)",
    "CREATE OR REPLACE FUNCTION trueup_ledger_append_only() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$",
    "DROP TRIGGER IF EXISTS trueup_ledger_append_only ON trueup_ledger",
    "CREATE TRIGGER trueup_ledger_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON trueup_ledger"
    " FOR EACH STATEMENT EXECUTE FUNCTION trueup_ledger_append_only()",
)
