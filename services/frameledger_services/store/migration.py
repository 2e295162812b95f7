"""Migrates the schema to what this release needs. The only module that imports Alembic."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from alembic import command
from alembic.config import Config
from psycopg import errors
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from frameledger_services import database, package_data
from frameledger_services.missing_permission import does_not_own
from frameledger_services.store import schema
from frameledger_services.store.server import THIS_DATABASE

# Of two concurrent `migrate` commands the second waits, and then has nothing to do. The number is arbitrary.
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(7160236490)"

_UNLIMITED = """
    SELECT set_config(name, '0', true) FROM unnest(%s::text[]) AS name WHERE current_setting(name, true) IS NOT NULL
"""

_BACKSLASHES = "SET LOCAL standard_conforming_strings = on"

LOCK_SECONDS = 5
"""How long a statement waits for a table. All other statements for that table wait behind it, so it gives up after this
time."""

IDLE_SECONDS = 60.0
"""After this time without a statement the server rolls the migration back: its process is frozen, or its machine is
gone, and all services wait for its tables."""

TRIES = 24
PAUSE_SECONDS = 5.0
"""The pause between two tries, in which the sessions that waited for us continue."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """The result of `migrate`: the previous revision, None if our tables did not exist, and the current one."""

    before: str | None
    after: str


def migrate(address: str, say: Callable[[str], None] = lambda _: None) -> Migrated:
    """Bring the database at a libpq address to `schema.REVISION`, in one transaction. Does nothing if it is there
    already.

    Blocks, also while another `migrate` works on the same database. If another session holds a table, it waits for
    `LOCK_SECONDS`, then rolls back everything and tries again, `TRIES` times. Calls `say` with the session that holds
    the table, and with a warning if there are tables of ours that this session does not see. Raises `TooNewError`,
    `MissingPermissionError`, and psycopg's errors: for an unreachable database, and `LockNotAvailable` after the last
    try.
    """
    for tries_left in reversed(range(TRIES)):
        try:
            return _migrate(address, say)
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            if not tries_left:
                raise
            say(
                f"{_name_holders(address)} Nothing was changed; the migration is tried again in {PAUSE_SECONDS:g} s."
            )
            time.sleep(PAUSE_SECONDS)
    raise AssertionError("the last try returns or raises")


def _migrate(address: str, say: Callable[[str], None]) -> Migrated:
    with _opened(address) as connection:
        # A limit of the role or the database would abort a change of a large table at every try.
        connection.exec_driver_sql(_UNLIMITED, (list(database.UNLIMITED),))
        connection.exec_driver_sql(
            f"SET LOCAL idle_in_transaction_session_timeout = {int(IDLE_SECONDS * 1000)}"
        )
        connection.exec_driver_sql(_BACKSLASHES)
        connection.exec_driver_sql(_ONE_AT_A_TIME)
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
        before, compatible_from = _found(connection)
        if (
            before is None
            and (elsewhere := connection.exec_driver_sql(schema.ELSEWHERE).one())[0] is not None
        ):
            say(f"{schema.hidden(*elsewhere)} These are left as they are, and others are created.")
        if before is None or int(before) < int(schema.REVISION):
            command.upgrade(_alembic(connection=connection), schema.REVISION)
            return Migrated(before, schema.REVISION)
        return Migrated(before, schema.compare(before, compatible_from))


def _name_holders(address: str) -> str:
    """Returns a sentence that names the sessions that hold our tables."""
    with psycopg.connect(address, client_encoding="utf8") as connection:
        holders = connection.execute(_HOLDERS).fetchall()
    if not holders:
        return f"Another session locked a table for more than {LOCK_SECONDS} s."
    listed = "; ".join(
        f"{name or 'a session without a name'} of {user} (pid {pid}, its transaction is {seconds} s old: {query})"
        for pid, name, user, seconds, query in holders
    )
    return f"Tables that have to be changed are locked by {listed}."


def script() -> str:
    """Returns the SQL by which an administrator can do in an empty database what `migrate` does."""
    written = io.StringIO()
    command.upgrade(_alembic(output=written), schema.REVISION, sql=True)
    return written.getvalue().replace("BEGIN;\n", f"BEGIN;\n\n{_BACKSLASHES};\n", 1)


def _found(connection: Connection) -> tuple[str | None, str | None]:
    """Returns the revision of the tables, and the oldest revision whose release works with them; None for a missing
    one."""
    if connection.exec_driver_sql("SELECT to_regclass('frameledger_schema')").scalar() is None:
        return None, None
    row = connection.exec_driver_sql(schema.FOUND).one_or_none()
    return (None, None) if row is None else (row[0], row[1])


@contextmanager
def _opened(address: str) -> Iterator[Connection]:
    """Yields a connection whose transaction is committed at the end of the block. Raises psycopg's errors unchanged."""
    # With an encoding other than UTF-8, psycopg would return bytes, and the error could not be reported.
    user = ""

    def connected() -> psycopg.Connection[Any]:
        nonlocal user
        connection = psycopg.connect(address, client_encoding="utf8")
        user = connection.info.user
        return connection

    engine = create_engine(
        "postgresql+psycopg://",
        creator=connected,
        poolclass=NullPool,
        # A process that waited for another `migrate` has to see its result.
        isolation_level="READ COMMITTED",
    )
    try:
        with engine.begin() as connection:
            yield connection
    except DBAPIError as error:
        if isinstance(error.orig, errors.InsufficientPrivilege):
            raise does_not_own(error.orig, user) from error
        if isinstance(error.orig, psycopg.Error):
            raise error.orig from error
        raise


def _alembic(**attributes: Any) -> Config:
    config = Config()
    # A percent sign in a path would start a substitution.
    config.set_main_option("script_location", str(package_data.folder("migrations")).replace("%", "%%"))
    config.attributes.update(attributes)
    return config


_HOLDERS = f"""
    SELECT
        pid, application_name, usename, extract(epoch FROM clock_timestamp() - xact_start)::integer,
        left(regexp_replace(query, '[[:space:]]+', ' ', 'g'), 60)
    FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND xact_start IS NOT NULL AND pid IN (
        SELECT locks.pid
        FROM pg_locks AS locks JOIN pg_class AS relation ON relation.oid = locks.relation
        WHERE locks.granted AND relation.relnamespace = current_schema()::regnamespace
            AND locks.database = {THIS_DATABASE}
    )
    ORDER BY xact_start
    LIMIT 3
"""
