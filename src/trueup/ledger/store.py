"""Stores of ledger entries: SQLite in one file, or PostgreSQL by URL.

A store knows nothing of budgets. It hands out a transaction that reads entries and appends to
them, and promises two things: writers come one after the other, and what was committed survives
a crash. Tables refuse updates and deletions; the hash chain finds who circumvents that.
Every transaction has its own connection, so a ledger may be used across fork and threads.

Entries in a PostgreSQL table, for ledgers shared by several machines and untrusted analysts.

The role that owns the table is the keeper's: it alone declares accounts, caps and data. A role that was granted to draw
appends entries of its own releases, in its own name; the server refuses it all else, an entry that does not continue the
chain included.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trueup.errors import BudgetError
from trueup.ledger.entries import WAIT_SECONDS, Transaction, unusable


def store_at(url: str) -> Store:
    """Choose the store for a path or URL: `ledger.db`, `sqlite:///path`, `postgresql://host/name`."""
    scheme = url.partition("://")[0] if "://" in url else "sqlite"
    if scheme in ("postgresql", "postgres"):
        return PostgresStore(url)
    if scheme == "sqlite" and url and not url.startswith(("postgresql:", "postgres:")):
        return SqliteStore(Path(url.removeprefix("sqlite://").removeprefix("sqlite:")))
    known = scheme if scheme.isalnum() else "another place"
    raise BudgetError(
        f"the ledger's address '{known}' is not recognised",
        needed="a file path, sqlite:///PATH or postgresql://...",
    )


class SqliteStore:
    """Entries in one SQLite file, with a rollback journal that is synced at every commit.

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
        """Return True if the file exists."""
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
        """Refuse to grant rights, because a file cannot distinguish its users."""
        raise BudgetError(
            f"the ledger is a file, in which '{analyst}' cannot be told from its owner",
            needed="a database server that knows its users; whoever can write a file can also declare caps in it",
            remedy="keep the ledger in PostgreSQL if analysts must not declare caps",
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
    """Switch off the write-ahead log of an existing ledger; all other connections must be closed."""
    end = time.monotonic() + WAIT_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "delete":
        try:
            connection.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def refuse_second_name(path: Path) -> None:
    """Refuse a file with several names, because its journal would be missed under another name."""
    real = path.resolve()
    if (links := real.stat().st_nlink) != 1:
        raise BudgetError(
            f"the ledger '{path}' has {links} names (hard links)",
            needed="a file with one name; no budget was granted",
            remedy="remove the other links; `ls -i` shows the file's number, and `find -samefile` its names",
        )
    if _mount_of(real) != _mount_of(real.parent):
        raise BudgetError(
            f"the ledger '{path}' is mounted as a single file, which has another name on the host",
            needed="a file with one name; no budget was granted",
            remedy="mount its folder instead of the file",
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
            import psycopg.sql
        except ImportError:
            raise BudgetError(
                "a PostgreSQL ledger needs psycopg", remedy="pip install 'trueup[postgres]'"
            ) from None
        self._psycopg, self._url = psycopg, url

    keeper = None
    """Several machines share the ledger: the keeper says which folder of which is his."""

    def exists(self) -> bool:
        """Return True if the table exists."""
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

    def grant(self, analyst: str) -> None:
        """Allow a role to read the ledger and to append entries of its own releases."""
        role = self._psycopg.sql.Identifier(analyst)
        with self._connected() as connection:
            (schema,) = connection.execute("SELECT current_schema()").fetchone()
            place = self._psycopg.sql.Identifier(schema)
            for statement in (
                "GRANT USAGE ON SCHEMA {0} TO {1}",
                "GRANT SELECT, INSERT ON trueup_ledger TO {1}",
            ):
                connection.execute(self._psycopg.sql.SQL(statement).format(place, role))

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[Transaction]:
        """Open a transaction; a writing one takes a lock, for which readers do not wait."""
        with self._connected() as connection:
            connection.execute("SET LOCAL synchronous_commit = on")
            connection.execute(f"SET LOCAL lock_timeout = '{WAIT_SECONDS}s'")
            if writing:  # an analyst's role may not lock the table itself
                connection.execute("SELECT pg_advisory_xact_lock('trueup_ledger'::regclass::oid::bigint)")
            yield Transaction(connection, "%s")

    @contextmanager
    def _connected(self):
        """Open one connection and transaction: committed at the end, rolled back if anything is raised."""
        try:
            with self._psycopg.connect(self._url, connect_timeout=10) as connection:
                yield connection
        except self._psycopg.Error as error:
            raise unusable("the database at the given URL", _said(error)) from None


Store = SqliteStore | PostgresStore
"""A database that stores the entries of ledgers, in transactions that are whole or not at all."""


def _said(error: Exception) -> str:
    """Return the message of server or client without quotations, which may contain a password."""
    return re.sub(r'"[^"]*"|\'[^\']*\'', "(not shown)", str(error))


_TABLE = (
    "CREATE TABLE IF NOT EXISTS trueup_ledger"
    " (number BIGINT PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL UNIQUE)",
    "CREATE OR REPLACE FUNCTION trueup_ledger_append_only() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$",
    "DROP TRIGGER IF EXISTS trueup_ledger_append_only ON trueup_ledger",
    "CREATE TRIGGER trueup_ledger_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON trueup_ledger"
    " FOR EACH STATEMENT EXECUTE FUNCTION trueup_ledger_append_only()",
    """
CREATE OR REPLACE FUNCTION trueup_ledger_entry() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    entry json := NEW.body::json;
    action text := NEW.body::json->>'action';
    last record;
    own boolean;
BEGIN
    EXECUTE format('SELECT max(number) AS number FROM %I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME) INTO last;
    IF NEW.number <> coalesce(last.number, 0) + 1 THEN RAISE EXCEPTION 'the entry does not continue the ledger'; END IF;
    EXECUTE format('SELECT hash FROM %I.%I WHERE number = $1', TG_TABLE_SCHEMA, TG_TABLE_NAME) INTO last USING NEW.number - 1;
    IF entry->>'previous' IS DISTINCT FROM coalesce(last.hash, repeat('0', 64))
        OR NEW.hash <> encode(sha256(convert_to(NEW.body, 'UTF8')), 'hex')
        THEN RAISE EXCEPTION 'the entry does not continue the ledger'; END IF;
    IF pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'MEMBER') THEN RETURN NEW; END IF;
    IF coalesce(abs(extract(epoch FROM clock_timestamp() - (entry->>'time')::timestamptz)), 3601) > 3600 THEN
        RAISE EXCEPTION 'the entry is not dated by the clock of the server'; END IF;
    IF action = 'reserve' THEN
        IF entry->>'analyst' IS DISTINCT FROM session_user::text THEN
            RAISE EXCEPTION 'a role draws in its own name alone: give it as --analyst'; END IF;
        RETURN NEW;
    END IF;
    IF coalesce(action, '') NOT IN ('return', 'refuse', 'invariants', 'draw', 'seal', 'commit') THEN
        RAISE EXCEPTION 'this role may draw and not declare'; END IF;
    EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I.%I WHERE body::json->>''action'' = ''reserve'' '
        'AND body::json->>''reservation'' = $1 AND body::json->>''analyst'' = $2)', TG_TABLE_SCHEMA, TG_TABLE_NAME)
        INTO own USING entry->>'reservation', session_user::text;
    IF NOT own THEN RAISE EXCEPTION 'the reservation is that of another analyst'; END IF;
    RETURN NEW;
END $$
""",
    "DROP TRIGGER IF EXISTS trueup_ledger_entry ON trueup_ledger",
    "CREATE TRIGGER trueup_ledger_entry BEFORE INSERT ON trueup_ledger"
    " FOR EACH ROW EXECUTE FUNCTION trueup_ledger_entry()",
)
