"""`frameledger why`: the origin of a message, and discarded output."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import typer

from frameledger_services.cli.audit import trace_links
from frameledger_services.cli.audit.render_why import render
from frameledger_services.cli.terminal import backend, moment, options, output, pager, suggestion
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store import history

commands = typer.Typer()


@commands.command()
def why(
    context: options.Context,
    position: Annotated[
        int, typer.Argument(min=0, metavar="POSITION", help="Position of the message, as `show` prints it.")
    ],
    at: moment.Option = None,
    era: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Number of the history, if the history was replaced; the first is 1."
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show where a message of a context comes from: its frames, its run or call, and their cause.

    Also shows what was discarded: superseded attempts, ignored frames, and generated text that the user never heard.
    The SQL function `explain_message` returns the same. With FRAMELEDGER_TRACE_URL, the addresses of its traces are
    printed at the end.

    Example: `frameledger why ctx-1 3 --at 22`
    """
    if at is not None and era is not None:
        raise typer.BadParameter("use either --at or --era", param_hint="--era")
    with backend.exit_on_error():
        settings = Settings.from_env()
        explanation, traces = asyncio.run(
            backend.query(settings, _read, context, position, at, era, settings.trace_url)
        )
    if as_json:
        typer.echo(json.dumps(explanation))
        return
    with pager.page(settings.pager) as page:
        render(page, explanation, traces)


async def _read(
    connection: Connection,
    context: str,
    position: int,
    at: moment.At | None,
    era: int | None,
    trace_url: str | None,
) -> tuple[dict[str, Any], list[str]]:
    conversation = await moment.find(connection, context, at)
    version: int | None = conversation.version
    if era is not None:
        version = await history.last_of_era(connection, context, era)
        if version is None:
            output.fail(
                f"The conversation {context!r} has no history number {era}.",
                "`frameledger timeline` shows where each history starts. Without --era, the current one is used.",
            )
    explanation = await history.explanation(connection, context, position, version or 0)
    if explanation is None:
        output.fail(
            f"No message of {context!r} has the position {position} in the history of version {version}.",
            f"`{suggestion.command('show', context, options=('--at', str(version)))}` prints the position before each "
            "message.",
        )
    written = explanation["readings"][0]["began_by"]["version"]
    requested = (
        explanation["run"] and explanation["run"]["asked_by"] and explanation["run"]["asked_by"]["version"]
    )
    versions = [version for version in (requested, written) if version is not None]
    traces = await trace_links.at(connection, context, versions, trace_url)
    return explanation, list(dict.fromkeys(traces[version] for version in versions if version in traces))
