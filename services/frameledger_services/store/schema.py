"""The shape of the database, checked before a service works with it.

Revisions are numbers in order, four digits each, so that a database can be told to be too old or too new without
knowing the revisions of other releases. `migration` brings a database up to what this release needs.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import errors

from frameledger.errors import ConfigurationError

REVISION = "0005"
"""The revision that this release works with: the newest one in `migrations`."""

FOUND = "SELECT version_num FROM frameledger_schema"


class SchemaError(ConfigurationError):
    """The database is not in the shape that this release works with. `found` is None for one without our tables.

    Remedy: `TooOldError`: migrate the database. `TooNewError`: upgrade this installation.
    """

    def __init__(self, found: str | None, sentence: str) -> None:
        super().__init__(sentence)
        self.found = found


class TooOldError(SchemaError):
    """The database has no tables of ours yet, or those of an older release.

    Remedy: Run `frameledger migrate`.
    """


class TooNewError(SchemaError):
    """The database has the tables of a newer release.

    Remedy: Upgrade this installation.
    """


async def check(connection: psycopg.AsyncConnection[Any]) -> None:
    """Raise `TooOldError` or `TooNewError` unless the database has exactly the shape that this release works with.

    One statement, in a transaction of its own or a savepoint of the caller's, which a missing table leaves usable.
    """
    found: str | None = None
    try:
        async with connection.transaction():
            row = await (await connection.execute(FOUND)).fetchone()
    except errors.UndefinedTable:
        pass
    else:
        found = None if row is None else str(row[0])
    compare(found)


def compare(found: str | None) -> None:
    """Raise `TooOldError` or `TooNewError` unless the revision found is ours."""
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
