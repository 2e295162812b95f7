"""The check of the schema, before a service uses a database.

Revisions are numbers in order, four digits each, so that a database can be told to be too old or too new without
knowing the revisions of other releases. A newer one names the oldest release that works with it too: where it only
added to the tables, the processes of an older release go on and are replaced one after the other. `migration` brings a
database up to what this release needs.
"""

from __future__ import annotations

from typing import Any

from psycopg import errors

from frameledger.errors import ConfigurationError
from frameledger_services.database_types import Connection

REVISION = "0030"
"""The revision that this release works with: the newest one in `migrations`."""

# The second column came with 0006.
FOUND = "SELECT version_num, to_jsonb(found) ->> 'compatible_from' FROM frameledger_schema AS found"


_MIGRATE = "Run `frameledger migrate`."


class SchemaError(ConfigurationError):
    """The database is not in the shape that this release works with. `found` is None for one without our tables.

    Remedy: `TooOldError`: migrate the database. `TooNewError`: upgrade this installation.
    """

    def __init__(self, found: str | None, problem: str, remedy: str = "") -> None:
        super().__init__(" ".join(filter(None, [problem, remedy])))
        self.found = found
        self.problem = problem
        self.remedy = remedy


class TooOldError(SchemaError):
    """The database has no tables of ours yet, or those of an older release.

    Remedy: Run `frameledger migrate`.
    """


class TooNewError(SchemaError):
    """The database has the tables of a newer release, which this one does not work with.

    Remedy: Upgrade this installation.
    """


async def check(connection: Connection) -> str:
    """Returns the revision of the database; raises `TooOldError` or `TooNewError` unless this release works with it.

    One statement, in a transaction of its own or a savepoint of the caller's, which a missing table leaves usable.
    """
    row: tuple[Any, ...] | None = None
    try:
        async with connection.transaction():
            row = await (await connection.execute(FOUND)).fetchone()
    except errors.UndefinedTable:
        pass
    return compare(*(row or (None, None)))


def compare(found: str | None, compatible_from: str | None) -> str:
    """Returns the revision found if it is ours or a newer one that works with ours; else raises one of the two errors.

    `compatible_from` is the oldest revision whose release works with the tables that were found; None: only theirs.
    """
    if found is None:
        raise TooOldError(found, "The database has no tables of Frameledger yet.", _MIGRATE)
    if int(found) < int(REVISION):
        raise TooOldError(
            found,
            f"The database has revision {found} and this release needs {REVISION}.",
            _MIGRATE,
        )
    if int(found) > int(REVISION) and int(compatible_from or found) > int(REVISION):
        raise TooNewError(
            found,
            f"The database has revision {found}, made by a newer release; this one knows {REVISION}.",
            "Upgrade this installation.",
        )
    return found
