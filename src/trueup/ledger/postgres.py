"""Entries in a PostgreSQL table, for ledgers shared by several machines and untrusted analysts.

The role that owns the table is the keeper's: it alone declares accounts, caps and data. A role that was granted to draw
appends entries of its own releases, in its own name; the server refuses it all else, an entry that does not continue the
chain included.
"""

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
            import psycopg.sql
        except ImportError:
            raise BudgetError(
                "a PostgreSQL ledger needs psycopg", remedy="pip install 'trueup[postgres]'"
            ) from None
        self._psycopg, self._url = psycopg, url

    keeper = None
    """Several machines share the ledger: the keeper says which folder of which is his."""

    def exists(self) -> bool:
        """Return True if the table is there."""
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
        """Let a role read the ledger and append entries of its own releases."""
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


def _said(error: Exception) -> str:
    """Return the message of server or client without its quotations, which may contain a password."""
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
