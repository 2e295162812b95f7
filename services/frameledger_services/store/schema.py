"""The shape of the database: brought up to what this release needs, and checked before a service works with it.

Revisions are numbers in order, four digits each, so that a database can be told to be too old or too new without
knowing the revisions of other releases. Only `migrate` needs Alembic.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
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

from frameledger_services import carried

REVISION = "0003"
"""The revision that this release works with: the newest one in `migrations`."""

_FOUND = "SELECT version_num FROM frameledger_schema"
# Of two `migrate` at once the second waits, and then finds nothing to do. The number is ours and says nothing.
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(7160236490)"


class SchemaError(Exception):
    """The database is not in the shape that this release works with. `found` is None for one without our tables."""

    def __init__(self, found: str | None, sentence: str) -> None:
        super().__init__(sentence)
        self.found = found


class TooOldError(SchemaError):
    """`frameledger migrate` is the remedy."""


class TooNewError(SchemaError):
    """A newer release was here: upgrading this one is the remedy."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """What `migrate` did: the revision that it found, None for no tables of ours, and the one that is there now."""

    before: str | None
    after: str = REVISION


async def check(connection: psycopg.AsyncConnection[Any]) -> None:
    """Raise `TooOldError` or `TooNewError` unless the database has exactly the shape that this release works with.

    One statement, in a transaction of its own or a savepoint of the caller's, which a missing table leaves usable.
    """
    found: str | None = None
    try:
        async with connection.transaction():
            row = await (await connection.execute(_FOUND)).fetchone()
    except errors.UndefinedTable:
        pass
    else:
        found = None if row is None else str(row[0])
    _compare(found)


def migrate(address: str) -> Migrated:
    """Bring the database at a libpq address to `REVISION`, in one transaction; nothing to do is no error.

    Blocks, also while another `migrate` works on the same database. Raises `TooNewError`, and psycopg's errors: for a
    database that is not reached, and for what its user may not do.
    """
    with _opened(address) as connection:
        connection.exec_driver_sql(_ONE_AT_A_TIME)
        before = _found(connection)
        if before is None or int(before) < int(REVISION):
            command.upgrade(_alembic(connection=connection), REVISION)
        else:
            _compare(before)
        return Migrated(before)


def script() -> str:
    """The SQL that makes an empty database what `migrate` would make it, for somebody else to run."""
    written = io.StringIO()
    command.upgrade(_alembic(output=written), REVISION, sql=True)
    return written.getvalue()


def _compare(found: str | None) -> None:
    if found is None:
        raise TooOldError(found, "The database has no tables of Frameledger yet; run `frameledger migrate`.")
    if int(found) < int(REVISION):
        raise TooOldError(
            found,
            f"The database has revision {found} and this release needs {REVISION}; run `frameledger migrate`.",
        )
    if int(found) > int(REVISION):
        raise TooNewError(
            found,
            f"The database has revision {found}, made by a newer release; this one knows {REVISION}. Upgrade it.",
        )


def _found(connection: Connection) -> str | None:
    if connection.exec_driver_sql("SELECT to_regclass('frameledger_schema')").scalar() is None:
        return None
    found = connection.exec_driver_sql(_FOUND).scalar()
    return None if found is None else str(found)


@contextmanager
def _opened(address: str) -> Iterator[Connection]:
    """A connection whose transaction is committed at the end of the block. Errors of psycopg come as they are."""
    # In a database of another encoding than UTF-8, psycopg would give bytes, and we could not say what is wrong.
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(address, client_encoding="utf8"),
        poolclass=NullPool,
    )
    try:
        with engine.begin() as connection:
            yield connection
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            raise error.orig from error
        raise


def _alembic(**attributes: Any) -> Config:
    config = Config()
    # A percent sign in a path would begin a substitution.
    config.set_main_option("script_location", str(carried.folder("migrations")).replace("%", "%%"))
    config.attributes.update(attributes)
    return config
