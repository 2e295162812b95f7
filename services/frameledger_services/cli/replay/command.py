"""`frameledger replay`: playback of a conversation in the terminal, or publication of copies of its frames."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated

import typer

from frameledger.record import is_context_id
from frameledger_services.cli.replay import copying, playback
from frameledger_services.cli.terminal import backend, moment, options
from frameledger_services.forks.copies import Copies
from frameledger_services.settings import Settings

commands = typer.Typer()


@commands.command()
def replay(
    context: options.Context,
    speed: Annotated[
        float,
        typer.Option(min=0, metavar="N", help="Speed factor. 0: without pauses."),
    ] = 1.0,
    first: Annotated[
        int | None,
        typer.Option("--from", min=1, metavar="VERSION", help="First version to play.", show_default=False),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option("--until", min=1, metavar="VERSION", help="Last version to play.", show_default=False),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TOPIC", help="Publish copies to this topic instead.", show_default=False
        ),
    ] = None,
    new: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NEW",
            help="With --to: id of the copy. Default: CONTEXT-replay.",
            show_default=False,
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="With --to: publish only the frames of users and applications. Models and functions are really called "
            "again.",
        ),
    ] = False,
    as_json: options.AsJsonLines = False,
) -> None:
    """Play a conversation in the terminal with its timing, or publish copies of its frames to another conversation.

    In the terminal, pauses of more than three seconds are shortened and marked. Copies are a recording with another
    id: all frames are folded, but no model and no function is called. Repeating the command publishes nothing twice.

    Example: `frameledger replay ctx-1 --speed 2 --from 10`
    """
    moment.check_range(first, last, "--until")
    if topic is None and (new is not None or live):
        raise typer.BadParameter("use them with --to", param_hint="--as, --live")
    copy = new or f"{context}-replay"
    if topic is not None and (copy == context or not is_context_id(copy)):
        raise typer.BadParameter("the copy needs another id, of at most 255 bytes", param_hint="--as")
    with backend.exit_on_error():
        settings = Settings.from_env()
        if topic is None:
            with suppress(KeyboardInterrupt):
                asyncio.run(playback.play(settings, context, first, last, speed, as_json))
        else:
            # Not suppressed: exit code 0 means that all copies are published.
            asyncio.run(
                copying.publish(settings, Copies(context, copy, live), topic, first, last, speed, as_json)
            )
