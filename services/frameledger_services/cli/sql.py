"""`frameledger sql`: psql on the database."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise

import typer
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from frameledger_services import access, settings_sources
from frameledger_services.cli.terminal import backend, output
from frameledger_services.settings_masking import SECRET_PARAMETERS

SHORT_WITH_VALUE = "cdfFhLopPRTUv"
"""Letters of psql's options that have a value; it is the next argument after the letter, as in `-tAc`."""

LONG_WITH_VALUE = {
    "--command",
    "--dbname",
    "--field-separator",
    "--file",
    "--host",
    "--log-file",
    "--output",
    "--port",
    "--pset",
    "--record-separator",
    "--set",
    "--table-attr",
    "--username",
    "--variable",
}

commands = typer.Typer()


@commands.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def sql(context: typer.Context) -> None:
    """Open psql on the database. Arguments are passed to psql; one of several words is a statement to run.

    The address is passed in environment variables, so the password does not appear in the process list. The embedded
    database is opened with the psql packaged with it, any other with the psql on PATH. The exit code is psql's. Views
    to start with: conversations, transcript, timeline, turns, interruptions, run_history, latency, token_usage,
    tool_call_history, waiting, ambiguous_calls, tools_on_offer, services, parked, lag.

    Example: `frameledger sql "SELECT * FROM transcript WHERE context_id = 'ctx-1'"`
    """
    with backend.exit_on_error():
        loaded = settings_sources.load()
        address = access.database_address(loaded.settings)
    program = _psql(is_embedded=loaded.sources["database_url"] == settings_sources.RUNNING)
    variables, rest = _environment(conninfo_to_dict(address))
    command = [program, *rest, *_arguments(context.args)]
    environment = {**os.environ, **variables}
    sys.stdout.flush()
    if os.name == "posix":
        os.execve(program, command, environment)
    raise typer.Exit(subprocess.run(command, env=environment, check=False).returncode)


def _arguments(from_user: Sequence[str]) -> list[str]:
    """Returns psql's arguments: a statement or psql command among them is run with `-c`, because psql would take it for
    a database name. A connection string, and what belongs to an option of psql, are passed unchanged."""
    arguments: list[str] = []
    for before, argument in pairwise(("", *from_user)):
        if not _takes_next(before) and _is_statement(argument):
            arguments.append("-c")
        arguments.append(argument)
    return arguments


def _takes_next(option: str) -> bool:
    """Returns whether the argument after this one is its value."""
    if option.startswith("--"):
        return option in LONG_WITH_VALUE
    return option.startswith("-") and option[-1] in SHORT_WITH_VALUE


def _is_statement(argument: str) -> bool:
    """Returns whether an argument has several words or is a psql command, and is no option or connection string."""
    words = argument.split()
    return argument.startswith("\\") or (
        len(words) > 1 and "=" not in words[0] and not argument.startswith("-")
    )


def _psql(*, is_embedded: bool) -> str:
    """Returns the packaged psql for the embedded database, because the versions match, and the user's psql for any
    other database, because the packaged one lacks TLS."""
    packaged, own = _packaged(), shutil.which("psql")
    path = (packaged or own) if is_embedded else (own or packaged)
    if path is None:
        output.fail(
            "There is no psql on PATH, and none is packaged for this platform.",
            "Install the PostgreSQL client, or use another client: `frameledger config` shows the address.",
        )
    return path


def _packaged() -> str | None:
    try:
        from frameledger_services.embedded import postgres
        from frameledger_services.embedded.program import EmbeddedError
    except ImportError:
        return None  # on Windows
    try:
        program = postgres.installation(max(postgres.INSTALLATIONS)) / "bin" / "psql"
    except EmbeddedError:
        return None
    return str(program) if program.is_file() else None


def _environment(address: Mapping[str, object]) -> tuple[dict[str, str], list[str]]:
    """Returns an address as libpq environment variables, and the parameters that have no variable as arguments, which
    contain no secret."""
    names = {option.keyword.decode(): option.envvar for option in Conninfo.get_defaults()}
    variables: dict[str, str] = {}
    rest: dict[str, str] = {}
    for name, value in address.items():
        variable = names.get(name)
        if variable:
            variables[variable.decode()] = str(value)
        elif name in SECRET_PARAMETERS:
            # Other users can read a command line.
            output.fail(
                f"The database address has {name}, for which psql has no environment variable.",
                "Put it into a service file (PGSERVICEFILE) and name the service in the address: service=NAME.",
            )
        else:
            rest[name] = str(value)
    return variables, [_quoted(rest)] if rest else []


def _quoted(parameters: Mapping[str, str]) -> str:
    """Returns parameters as one connection string, the argument that psql takes as the database name."""
    pairs = ((name, value.replace("\\", r"\\").replace("'", r"\'")) for name, value in parameters.items())
    return " ".join(f"{name}='{value}'" for name, value in pairs)
