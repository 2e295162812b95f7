"""`frameledger migrate`: the shape of the database."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import psycopg
import typer

from frameledger_services import database
from frameledger_services.cli.terminal import output
from frameledger_services.settings import Settings, SettingsError
from frameledger_services.store import migration, schema

commands = typer.Typer()


@commands.command()
def migrate(
    as_sql: Annotated[
        bool,
        typer.Option("--sql", help="Print the SQL for an empty database instead, for somebody else to run."),
    ] = False,
) -> None:
    """Bring the database to the shape that this release needs; again changes nothing.

    The first time its user has to be allowed to create roles, or somebody else creates them: the message says which.
    While it runs, services wait; where it only adds to the tables they go on then, of the release before as well. A
    table that somebody else holds, a report for one, is waited for 5 seconds at a time, so that nobody waits long
    behind it.

    Example: `FRAMELEDGER_DATABASE_URL=postgresql://me@host/mine frameledger migrate`
    """
    if as_sql:
        typer.echo(migration.script())
        return
    try:
        address = database.address(Settings.from_env(), "frameledger migrate")
        done = migration.migrate(address, partial(typer.echo, err=True))
    except SettingsError as error:
        output.fail("\n".join(error.problems), "`frameledger config` shows what is set.")
    except schema.TooNewError as error:
        output.fail(str(error), "Nothing was changed.")
    except psycopg.Error as error:
        output.fail(_said(error), "Nothing was changed.")
    if done.before == done.after:
        typer.echo(f"The database has revision {done.after} already.")
    else:
        typer.echo(f"The database has revision {done.after} now; before it had {done.before or 'none'}.")


def _said(error: psycopg.Error) -> str:
    """What the database said, with details such as the views that stand in the way, and its hint; not the statement
    that it said it to."""
    said = (error.diag.message_primary, error.diag.message_detail, error.diag.message_hint)
    return "\n".join(filter(None, said)) or str(error).strip()
