"""`frameledger publish`: publish frames from arguments, files or standard input."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated

import typer

from frameledger.frames import AnyFrame
from frameledger_services.cli.publish import given_frames, render
from frameledger_services.cli.terminal import backend, options, output, stdin, suggestion
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.client import Client, ContextChangedError, MisspelledWarning, PublishedFrame
from frameledger_services.settings import Settings
from frameledger_services.telemetry.provider import recording

commands = typer.Typer()


@commands.command()
def publish(
    context: options.Context,
    frames: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FRAME|FILE|-",
            help="A JSON object, a .json file with one, another file with one per line, or - for standard input with "
            "one per line. Default: standard input.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until the frames are in the tables, and print their outcomes."),
    ] = False,
    expected_version: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="VERSION",
            help="Apply the frame only if the context did not change after this version. For a single frame.",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        str, typer.Option(metavar="URI", help="Source recorded with the frames.")
    ] = "frameledger/command-line",
    cause: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Id of the frame in this conversation that caused them.",
            show_default=False,
            callback=options.frame_id,
        ),
    ] = None,
    within: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Timeout.")] = 30.0,
    as_json: options.AsJsonLines = False,
) -> None:
    """Publish frames of a conversation, in the order given.

    A frame without an id gets one. If an argument is not a valid frame, nothing is published; from standard input, the
    frames before it are. Unknown types and fields are published, with a warning if they look misspelled.

    With --wait, prints the outcome of each frame (of many, only of those that changed nothing): applied, ignored with
    the reason, unknown for an unknown type, parked, or rejected with the reason. Exit code 1: a frame was not
    published or, with --wait, was rejected or is not in the tables in time. Ignored and unknown frames are in the
    tables and are not failures; use --json to tell them apart.

    With --expected-version, the frame is ignored (context_changed) if messages, tools or settings of the conversation
    changed after that version; with --wait the exit code is then 1.

    Example: frameledger publish ctx-1 '{"type": "LLMRunFrame"}' --wait
    """
    if not frames and sys.stdin.isatty():
        raise typer.BadParameter("give a frame, a file, or - for standard input", param_hint="FRAME")
    if frames and "-" in frames and len(frames) > 1:
        raise typer.BadParameter("standard input cannot be mixed with other frames", param_hint="FRAME")
    if expected_version is not None and (not frames or len(frames) != 1 or frames == ["-"]):
        raise typer.BadParameter("use it with a single frame", param_hint="--expected-version")
    batches = (
        given_frames.of_standard_input()
        if not frames or frames == ["-"]
        else given_frames.of_arguments(frames)
    )
    with backend.exit_on_error(), _warnings_in_our_words(), recording("cli"):
        asyncio.run(_publish(context, batches, expected_version, wait, source, cause, within, as_json))


async def _publish(
    context: str,
    batches: Iterator[list[AnyFrame]],
    expected_version: int | None,
    wait: bool,
    source: str,
    cause: str | None,
    within: float,
    as_json: bool,
) -> None:
    async with Client(Settings.from_env(), source=source) as client:
        count, outcomes = 0, Counter[str | None]()
        last: PublishedFrame | None = None
        # In a thread, because standard input may block while acknowledgements arrive.
        while frames := await stdin.in_thread(partial(next, batches, None)):
            try:
                published = await client.publish(
                    context,
                    *frames,
                    causation_id=cause,
                    expected_version=expected_version,
                    wait=wait,
                    within=within,
                )
            except ContextChangedError as error:
                if as_json:
                    render.print_json([error.published], wait)
                output.fail(
                    str(error),
                    "Check the current context, and publish again if it still applies: "
                    f"{suggestion.command('show', context)}",
                )
            except ValueError as error:
                output.fail(str(error), f"Published before: {plural(count, 'frame')}.")
            count, last = count + len(published), published[-1]
            outcomes.update(one.outcome for one in published)
            if as_json:
                render.print_json(published, wait)
            elif wait:
                render.print_outcomes(published)
        if last is None:
            typer.echo("The input has no frame to publish.", err=True)
        elif not as_json:
            render.print_sum(
                context, count, last, outcomes, await client.newest_version(context) if wait else None
            )
        if outcomes["rejected"]:
            raise typer.Exit(1)


@contextmanager
def _warnings_in_our_words() -> Iterator[None]:
    """Print the client's warnings to standard error, as one sentence each."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", MisspelledWarning)
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"Warning: {message}", err=True)
        yield
