"""`frameledger request`: what a run asked its model, made again from the log and compared with what was sent."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from psycopg import AsyncConnection

from frameledger_services.cli.terminal import backend, options, output
from frameledger_services.settings import Settings
from frameledger_services.store import history

if TYPE_CHECKING:
    from frameledger_services.inference.recorded_request import RecordedRequest

commands = typer.Typer()


@commands.command()
def request(
    context: options.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or its beginning.")],
    attempt: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Which attempt of it. Not given: the latest.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the bytes as they went over the wire, and nothing else.")
    ] = False,
) -> None:
    """Show the request that a run sent to its model, made again from the log.

    It is made of the context at the version that the run saw and of how its worker was set up, and compared with the
    hash that the run's start frame carries. Ends with exit code 1, and says so, when it is not the same.

    Example: `frameledger request ctx-1 5f0c6b0a-6a43-5b7e-9c11-0d8e4b1f2a33`
    """
    from frameledger_services.inference import recorded_request
    from frameledger_services.providers import plugins

    with backend.exit_on_error():
        settings = Settings.from_env()
        asked = asyncio.run(backend.query(settings, _read, context, run, attempt))
        made = recorded_request.rebuild(
            asked, lambda provider: plugins.create(provider, plugins.unspoken(settings))
        )
    if raw:
        sys.stdout.buffer.write(made.content)
    else:
        typer.echo(json.dumps(made.body, indent=2, ensure_ascii=False))
    if made.sha256 != asked.start.request_sha256:
        output.fail(
            f"This is not what was sent: its hash is {made.sha256}, and the start frame of attempt "
            f"{asked.start.attempt or 1} says {asked.start.request_sha256}.",
            "The service was set up otherwise then, or another release of it made the request.",
        )


async def _read(
    connection: AsyncConnection[Any], context: str, run: str, attempt: int | None
) -> RecordedRequest:
    from frameledger_services.inference import recorded_request

    found = await history.runs_named(connection, context, run)
    if len(found) > 1:
        output.fail(
            f"More than one run of {context!r} begins with {run}: {found[0]}, {found[1]}.",
            "Give more of its id; `frameledger runs --json` has them whole.",
        )
    return await recorded_request.recorded_request(connection, context, found[0] if found else run, attempt)
