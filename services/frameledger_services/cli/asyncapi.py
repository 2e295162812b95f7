"""`frameledger asyncapi`: the topics and their records as an AsyncAPI document."""

from __future__ import annotations

import typer

from frameledger_services.cli.terminal import backend, output
from frameledger_services.event_log.asyncapi import document
from frameledger_services.settings import Settings

commands = typer.Typer()


@commands.command()
def asyncapi() -> None:
    """Print the AsyncAPI 3.0 document of the topics as JSON: every frame, effect and header.

    Generators build clients and documentation from it, in many languages. Topic names follow your settings; the broker
    is not contacted.

    Example: `frameledger asyncapi > frameledger.asyncapi.json`
    """
    with backend.exit_on_error():
        settings = Settings.from_env(look_for_running=False)
    typer.echo(output.json_text(document(settings), indent=2))
