"""`frameledger publish`: publish frames from arguments, files or standard input."""

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
"""Maximum number of frames of which every outcome is printed."""

commands = typer.Typer()


@dataclass(frozen=True, slots=True)
class _Given:
    """A value of the input, and its source for error messages."""

    where: str
    value: bytes


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
            metavar="ID", help="Id of the frame in this conversation that caused them.", show_default=False
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
        # In a thread, because standard input may block while acknowledgements arrive.
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
                    f"Check the current context, and publish again if it still applies: frameledger show {context}",
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
            typer.echo("The input has no frame to publish.", err=True)
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
    """Print the outcome of each frame; of many, only of those that changed nothing."""
    told = published if len(published) <= FEW else [one for one in published if one.outcome != "applied"]
    for one in told[:FEW]:
        where = "" if one.version is None else f" is version {one.version}:"
        why = "" if one.reason is None else f", {one.reason}"
        before = " (a repetition: it was published before)" if one.repeated else ""
        typer.echo(f"{one.type} {one.frame_id}{where} {one.outcome or 'not in the tables yet'}{why}{before}")
    if len(told) > FEW:
        typer.echo(f"... and {len(told) - FEW:,} more; --json prints all.")


def _print_sum(
    context: str, count: int, last: PublishedFrame, outcomes: Counter[str | None], version: int | None
) -> None:
    said = f"Published {plural(count, 'frame')} to {context}: "
    said += f"{last.topic}, partition {last.partition}, up to offset {last.offset}."
    if version is not None:
        became = ", ".join(
            f"{number:,} {outcome or 'without a known outcome'}" for outcome, number in outcomes.most_common()
        )
        said += f" Outcomes: {became}. The conversation is at version {version}."
    typer.echo(said)


@contextmanager
def _warnings_in_our_words() -> Iterator[None]:
    """Print the client's warnings to standard error, as one sentence each."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", MisspelledWarning)
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"Warning: {message}", err=True)
        yield


def _batches(arguments: Sequence[str]) -> Iterator[list[AnyFrame]]:
    """Returns the frames in batches, one for each publish call. All arguments are read before the first batch."""
    frames = [_frame(given) for argument in arguments for given in _given(argument)]
    yield from (frames[at : at + AT_ONCE] for at in range(0, len(frames), AT_ONCE))


def _batches_of_standard_input() -> Iterator[list[AnyFrame]]:
    """Yields the frames of the lines that are available, as a batch. The frames before an invalid line are a batch."""
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
    """Yields the lines that are available, and at the end of input the rest. A line that is too long is split."""
    # Typed as Any for `read1`, which returns the available bytes instead of waiting for more.
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
        output.fail(
            f"{given.where} is not a valid frame: {error}", "Neither it nor any frame after it was published."
        )
