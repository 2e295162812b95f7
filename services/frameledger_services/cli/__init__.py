"""The command line `frameledger`: one module per group of commands, put together here.

A group is a module of this package with a Typer app named `commands`, which `application` adds with
`app.add_typer`: with a name its commands stand under that name (`frameledger bench core`), without one they
stand at the top (`frameledger fold`).

Exit codes, of every command: 0 done, 1 the world said no (a file that is not there, a check that failed),
2 the command was called wrongly. A command says no with `output.refuse`, its reason on standard error.
"""

import io
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from frameledger_services.cli import (
    bench,
    calls,
    chat,
    config,
    demo,
    dlq,
    doctor,
    fold,
    infer,
    migrate,
    parked,
    publish,
    recover,
    request,
    run,
    show,
    sql,
    tail,
    topics,
    transcript,
    up,
)


def main() -> None:
    """Run the command that the process was called with, and end the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # People write in any script; what an encoding cannot say is shown as an escape, not as a traceback.
            stream.reconfigure(errors="backslashreplace")
    application()(prog_name="frameledger")


def application() -> typer.Typer:
    """The whole command line. Each call makes a new one; nothing is read or run until it is called."""
    app = typer.Typer(
        help="An event-sourced context store for LLM conversations.",
        rich_markup_mode="markdown",
        no_args_is_help=True,
        add_completion=False,
        # A traceback with local variables would print conversations.
        pretty_exceptions_show_locals=False,
    )
    app.callback()(_options)
    app.add_typer(demo.commands)
    app.add_typer(chat.commands)
    app.add_typer(fold.commands)
    app.add_typer(bench.commands)
    app.add_typer(up.commands)
    app.add_typer(run.commands, name="run")
    app.add_typer(calls.commands, name="calls")
    app.add_typer(publish.commands)
    app.add_typer(show.commands)
    app.add_typer(tail.commands)
    app.add_typer(request.commands)
    app.add_typer(transcript.commands)
    app.add_typer(infer.commands)
    app.add_typer(sql.commands)
    app.add_typer(topics.commands)
    app.add_typer(migrate.commands)
    app.add_typer(parked.commands)
    app.add_typer(recover.commands)
    app.add_typer(dlq.commands)
    app.add_typer(doctor.commands)
    app.add_typer(config.commands)
    return app


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"frameledger {version('frameledger')}")
        raise typer.Exit


def _options(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and end."),
    ] = False,
) -> None:
    """What stands before a command's name."""
