"""`frameledger migrate`: the schema of the database."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import psycopg
import typer

from frameledger_services import database
from frameledger_services.cli.terminal import output
from frameledger_services.missing_permission import MissingPermissionError
from frameledger_services.settings import Settings, SettingsError
from frameledger_services.store import migration, schema
from frameledger_services.store.connections import failure, has_no_answer

commands = typer.Typer()


@commands.command()
def migrate(
    as_sql: Annotated[
        bool,
        typer.Option("--sql", help="Print the SQL for an empty database instead of running it."),
    ] = False,
) -> None:
    """Migrate the database schema to this release. Idempotent.

    The first migration creates roles. If its database user may not, the error names the roles for an administrator to
    create. Services wait while a migration runs. After one that only adds to the tables, services of the previous
    release continue too. A table that another session has locked, such as a long report, is waited for in steps of 5
    seconds, so that other sessions are not blocked for long.

    Example: `FRAMELEDGER_DATABASE_URL=postgresql://me@host/mine frameledger migrate`
    """
    if as_sql:
        typer.echo(migration.script())
        return
    try:
        address = database.address(Settings.from_env(), "frameledger migrate")
        revisions = migration.migrate(address, partial(typer.echo, err=True))
    except SettingsError as error:
        output.fail("\n".join(error.problems), "`frameledger config` shows the settings.")
    except schema.TooNewError as error:
        output.fail(str(error), "Nothing was changed.")
    except MissingPermissionError as error:
        output.fail(f"{error.problem}\n{error.remedy}", "Nothing was changed.")
    except psycopg.Error as error:
        output.fail(_problem_of(error), "Nothing was changed.")
    if revisions.before == revisions.after:
        typer.echo(f"The database already has revision {revisions.after}.")
    else:
        typer.echo(f"Migrated the database from revision {revisions.before or 'none'} to {revisions.after}.")


def _problem_of(error: psycopg.Error) -> str:
    """Returns the database's message with its details, such as the views that depend on a table, and its hint, without
    the statement."""
    if has_no_answer(error):
        return str(failure("The database did not answer", error))
    parts = (error.diag.message_primary, error.diag.message_detail, error.diag.message_hint)
    return "\n".join(filter(None, parts)) or str(error).strip()
