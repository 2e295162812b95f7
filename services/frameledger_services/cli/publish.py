"""`frameledger publish`: frames to the log, from arguments, files or standard input."""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from frameledger.frames import AnyFrame
from frameledger.record import MAX_VALUE_BYTES, DecodeError, decode
from frameledger_services.cli.terminal import backend, options, output
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.client import (
    Client,
    ContextChangedError,
    MisspelledWarning,
    PublishedFrame,
    with_defaults,
)
from frameledger_services.settings import Settings
from frameledger_services.telemetry.provider import recording

AT_ONCE = 1_000

FEW = 20
"""Up to so many frames, each one's outcome is printed."""

commands = typer.Typer()


@dataclass(frozen=True, slots=True)
class _Given:
    """A value that was given, and where, for people."""

    where: str
    value: bytes


@commands.command()
def publish(
    context: options.Context,
    frames: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FRAME|FILE|-",
            help="A JSON object; a .json file with one; another file with one on each line; - is standard input, "
            "one on each line, which is also read if nothing is given.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until SQL shows them; print what became of them.")
    ] = False,
    expected_version: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="VERSION",
            help="Only if nothing changed after this version; for one frame.",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        str, typer.Option(metavar="URI", help="Who publishes them.")
    ] = "frameledger/command-line",
    cause: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="The frame of this conversation that caused them.", show_default=False
        ),
    ] = None,
    within: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How long it may take at most.")
    ] = 30.0,
    as_json: options.AsJsonLines = False,
) -> None:
    """Publish frames of a conversation, in the order given.

    A frame without an id gets one. If one of the arguments is no frame, nothing is published; of standard input, what
    comes before it is. A type or field that is not known is published; if it looks misspelled, a warning says so.

    With --wait it prints what became of each frame (of many, of those that changed nothing): applied, ignored with the
    reason, unknown if its type is not known, parked, or rejected with the reason. Exit code 1: not all frames are on
    the log or, with --wait, frames of the conversation: they are not in the tables in time, or were rejected. What was
    ignored or is unknown is in the tables, as it may have to be, and is no failure; --json tells programs.

    With --expected-version the frame is ignored (context_changed) if messages, tools or settings of the conversation
    changed after that version; with --wait that is exit code 1.

    Example: frameledger publish ctx-1 '{"type": "LLMRunFrame"}' --wait
    """
    if not frames and sys.stdin.isatty():
        raise typer.BadParameter("give a frame, a file, or - for standard input", param_hint="FRAME")
    if frames and "-" in frames and len(frames) > 1:
        raise typer.BadParameter("standard input cannot be mixed with other frames", param_hint="FRAME")
    if expected_version is not None and (not frames or len(frames) != 1 or frames == ["-"]):
        raise typer.BadParameter("it goes with one frame", param_hint="--expected-version")
    given = _batches_of_standard_input() if not frames or frames == ["-"] else _batches(frames)
    with backend.exit_on_error(), _warnings_in_our_words(), recording("cli"):
        asyncio.run(_publish(context, given, expected_version, wait, source, cause, within, as_json))


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
        # In a thread: standard input may have nothing for a while, and acknowledgements come meanwhile.
        while frames := await asyncio.to_thread(next, batches, None):
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
                    _print_json([error.published], wait)
                output.fail(
                    str(error),
                    f"See what it is now, and say it again if it is still meant: frameledger show {context}",
                )
            except ValueError as error:
                output.fail(str(error), f"Published before: {plural(count, 'frame')}.")
            count, last = count + len(published), published[-1]
            outcomes.update(one.outcome for one in published)
            if as_json:
                _print_json(published, wait)
            elif wait:
                _print_outcomes(published)
        if last is None:
            typer.echo("There was no frame to publish.", err=True)
        elif not as_json:
            _print_sum(context, count, last, outcomes, await client.newest_version(context) if wait else None)
        if outcomes["rejected"]:
            raise typer.Exit(1)


def _print_json(published: Sequence[PublishedFrame], waited: bool) -> None:
    for one in published:
        told: dict[str, Any] = {"id": one.frame_id, "type": one.type}
        told |= {"topic": one.topic, "partition": one.partition, "offset": one.offset}
        if waited:
            told |= {
                "version": one.version,
                "outcome": one.outcome,
                "reason": one.reason,
                "repeated": one.repeated,
            }
        typer.echo(json.dumps(told, ensure_ascii=False))


def _print_outcomes(published: Sequence[PublishedFrame]) -> None:
    """What became of each; of many, of those that changed nothing."""
    told = published if len(published) <= FEW else [one for one in published if one.outcome != "applied"]
    for one in told[:FEW]:
        where = "" if one.version is None else f" is version {one.version}:"
        why = "" if one.reason is None else f", {one.reason}"
        before = " (it was published before, and counts once)" if one.repeated else ""
        typer.echo(f"{one.type} {one.frame_id}{where} {one.outcome or 'not in the tables yet'}{why}{before}")
    if len(told) > FEW:
        typer.echo(f"... and {len(told) - FEW:,} more; --json tells of all.")


def _print_sum(
    context: str, count: int, last: PublishedFrame, outcomes: Counter[str | None], version: int | None
) -> None:
    said = f"Published {plural(count, 'frame')} to {context}: "
    said += f"{last.topic}, partition {last.partition}, up to offset {last.offset}."
    if version is not None:
        became = ", ".join(
            f"{number:,} {outcome or 'not known'}" for outcome, number in outcomes.most_common()
        )
        said += f" Of these {became}. The context has version {version}."
    typer.echo(said)


@contextmanager
def _warnings_in_our_words() -> Iterator[None]:
    """What the client warns of comes on standard error, as a sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", MisspelledWarning)
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"Warning: {message}", err=True)
        yield


def _batches(arguments: Sequence[str]) -> Iterator[list[AnyFrame]]:
    """The frames, in lists that are published at once; all are read before the first is."""
    frames = [_frame(given) for argument in arguments for given in _given(argument)]
    yield from (frames[at : at + AT_ONCE] for at in range(0, len(frames), AT_ONCE))


def _batches_of_standard_input() -> Iterator[list[AnyFrame]]:
    """The frames of as many lines as there are by now, each time. What comes before a line that is none is a batch."""
    for lines in _lines_of_standard_input():
        batch: list[AnyFrame] = []
        try:
            for given in lines:
                batch.append(_frame(given))
        except typer.Exit:
            if batch:
                yield batch
            raise
        if batch:
            yield batch


def _given(argument: str) -> Iterator[_Given]:
    if argument.lstrip().startswith("{"):
        yield _Given("the argument", argument.encode(errors="surrogateescape"))
        return
    try:
        content = Path(argument).read_bytes()
    except OSError as error:
        output.fail(
            f"Cannot read {argument}: {error.strerror}.",
            "Give a frame as JSON, the path of a file with frames, or - for standard input.",
        )
    if argument.endswith(".json"):
        yield _Given(argument, content)
        return
    for number, value in enumerate(content.split(b"\n"), 1):
        if value.strip():
            yield _Given(f"line {number} of {argument}", value.strip())


def _lines_of_standard_input() -> Iterator[list[_Given]]:
    """As many lines as there are by now, each time; at its end the rest. One that is too long comes in pieces."""
    # Typed as what has no `read1`, which gives what is there instead of waiting for more.
    standard_input: Any = sys.stdin.buffer
    rest, number = b"", 0
    while chunk := standard_input.read1(1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_VALUE_BYTES:
            lines, rest = [*lines, rest], b""
        yield [
            _Given(f"line {number} of standard input", value.strip())
            for number, value in enumerate(lines, number + 1)
            if value.strip()
        ]
        number += len(lines)
    if rest.strip():
        yield [_Given(f"line {number + 1} of standard input", rest.strip())]


def _frame(given: _Given) -> AnyFrame:
    try:
        return with_defaults(decode(given.value))
    except DecodeError as error:
        output.fail(f"{given.where} is no frame: {error}", "It was not published, nor is what follows it.")
