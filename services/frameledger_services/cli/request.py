"""`frameledger request`: a run's request to its model, rebuilt from the log and compared with the one that was sent."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from frameledger_services.cli.terminal import backend, options, output
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store import history

if TYPE_CHECKING:
    from frameledger_services.inference.recorded_request import RecordedRequest

commands = typer.Typer()


@commands.command()
def request(
    context: options.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id of the run, or a unique prefix of it.")],
    attempt: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Attempt of the run. Default: the latest.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the exact bytes that were sent, and nothing else.")
    ] = False,
) -> None:
    """Show the request that a run sent to its model, rebuilt from the log.

    The request is built from the context at the version that the run saw and the configuration of its worker, and
    compared with the hash in the run's start frame. Exit code 1 if they differ.

    Example: `frameledger request ctx-1 5f0c6b0a-6a43-5b7e-9c11-0d8e4b1f2a33`
    """
    from frameledger_services.inference import recorded_request
    from frameledger_services.providers import plugins

    with backend.exit_on_error():
        settings = Settings.from_env()
        recorded = asyncio.run(backend.query(settings, _read, context, run, attempt))
        rebuilt = recorded_request.rebuild(
            recorded, lambda provider: plugins.create(provider, plugins.without_request_settings(settings))
        )
    if raw:
        sys.stdout.buffer.write(rebuilt.content)
    else:
        typer.echo(output.json_text(rebuilt.body, indent=2))
    if rebuilt.sha256 != recorded.start.request_sha256:
        output.fail(
            f"The rebuilt request differs from the one that was sent: its hash is {rebuilt.sha256}, and the start "
            f"frame of attempt {recorded.start.attempt or 1} has {recorded.start.request_sha256}.",
            "The service had another configuration then, or another release of it built the request.",
        )


async def _read(connection: Connection, context: str, run: str, attempt: int | None) -> RecordedRequest:
    from frameledger_services.inference import recorded_request

    run_ids = await history.runs_named(connection, context, run)
    if len(run_ids) > 1:
        output.fail(
            f"More than one run of {context!r} begins with {run}: {run_ids[0]}, {run_ids[1]}.",
            "Give a longer prefix; `frameledger runs --json` prints the full ids.",
        )
    return await recorded_request.recorded_request(
        connection, context, run_ids[0] if run_ids else run, attempt
    )
