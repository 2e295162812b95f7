"""`frameledger asyncapi`: the Kafka side as an AsyncAPI document, for generators and for people."""

from __future__ import annotations

import json

import typer

from frameledger_services.cli.terminal import backend
from frameledger_services.event_log.asyncapi import document
from frameledger_services.settings import Settings

commands = typer.Typer()


@commands.command()
def asyncapi() -> None:
    """Print the AsyncAPI 3.0 document of the topics: every frame, effect and header, as JSON.

    Generators make clients and pages of it, in any language. Topics have the names of your settings; nothing is asked
    of the broker.

    Example: `frameledger asyncapi > frameledger.asyncapi.json`
    """
    with backend.exit_on_error():
        settings = Settings.from_env(look_for_running=False)
    typer.echo(json.dumps(document(settings), indent=2, ensure_ascii=False))
