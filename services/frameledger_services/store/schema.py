"""The check of the schema, before a service uses a database.

Revisions are consecutive four-digit numbers, so that a database can be recognized as too old or too new without knowing
the revisions of other releases. A newer revision names the oldest release that also works with it: if it only added to
the tables, processes of an older release continue and are replaced one after the other. `migration` brings a database
up to what this release needs.
"""

from __future__ import annotations

from typing import Any

from psycopg import errors

from frameledger.errors import ConfigurationError
from frameledger_services.database_types import Connection

REVISION = "0032"
"""The revision that this release works with: the newest one in `migrations`."""

# The second column came with 0006.
FOUND = "SELECT version_num, to_jsonb(found) ->> 'compatible_from' FROM frameledger_schema AS found"


# Also those in a schema that is on the path, and that this user may not use.
ELSEWHERE = """
    SELECT string_agg(quote_ident(nspname), ', ' ORDER BY nspname), current_setting('search_path'), current_user
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE relname = 'frameledger_schema' AND relkind = 'r' AND NOT pg_table_is_visible(pg_class.oid)
"""

_MIGRATE = "Run `frameledger migrate`."


class SchemaError(ConfigurationError):
    """The database does not have the schema that this release works with. `found` is None for one without our tables.

    Remedy: `TooOldError`: migrate the database. `TooNewError`: upgrade this installation. `HiddenTablesError`: see
    there.
    """

    def __init__(self, found: str | None, problem: str, remedy: str = "") -> None:
        super().__init__(" ".join(filter(None, [problem, remedy])))
        self.found = found
        self.problem = problem
        self.remedy = remedy


class TooOldError(SchemaError):
    """The database has no tables of Frameledger yet, or those of an older release.

    Remedy: Run `frameledger migrate`.
    """


class TooNewError(SchemaError):
    """The database has the tables of a newer release, which this one does not work with.

    Remedy: Upgrade this installation.
    """


class HiddenTablesError(SchemaError):
    """The tables are in a schema that this session cannot see: it is not in its `search_path`, or the user may not use
    it. The message names both.

    Remedy: Set the `search_path` of the user, or in the address, or grant USAGE on the schema. `frameledger migrate`
    would create other tables, which are empty.
    """

    def __init__(self, schemas: str, path: str, user: str) -> None:
        super().__init__(
            None,
            hidden(schemas, path, user),
            f"For this user, set search_path to {schemas} (ALTER ROLE ... SET search_path, or "
            "options=-csearch_path=... in the address), or GRANT USAGE ON SCHEMA. Run `frameledger migrate` only for "
            "another installation.",
        )


def hidden(schemas: str, path: str, user: str) -> str:
    """Returns a sentence that says that there are tables of ours that the session cannot see."""
    return (
        f"The database has tables of Frameledger in the schema {schemas}, which the user {user} does not see: its "
        f"search_path is {path or 'empty'}, or it may not use that schema."
    )


async def check(connection: Connection) -> str:
    """Returns the revision of the database; raises `TooOldError`, `TooNewError` or `HiddenTablesError` unless this
    release works with it.

    Usually one statement, in a transaction of its own or a savepoint of the caller's, which remains usable if a table
    is missing.
    """
    row: tuple[Any, ...] | None = None
    try:
        async with connection.transaction():
            row = await (await connection.execute(FOUND)).fetchone()
    except errors.UndefinedTable:
        elsewhere = await (await connection.execute(ELSEWHERE)).fetchone()
        if elsewhere is not None and elsewhere[0] is not None:
            raise HiddenTablesError(*elsewhere) from None
    return compare(*(row or (None, None)))


def compare(found: str | None, compatible_from: str | None) -> str:
    """Returns the found revision if it is ours, or a newer one that works with ours; otherwise raises one of the two
    errors.

    `compatible_from` is the oldest revision whose release works with the found tables; None means only their own.
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
