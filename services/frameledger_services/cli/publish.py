"""`frameledger publish`: frames to the log, from arguments, files or standard input."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from frameledger.frames import AnyFrame
from frameledger.record import MAX_VALUE_BYTES, DecodeError, Place, decode
from frameledger_services.cli import failures, output
from frameledger_services.client import Client, completed

AT_ONCE = 1_000

commands = typer.Typer()


@dataclass(frozen=True, slots=True)
class _Given:
    """A value that was given, and where, for people."""

    where: str
    value: bytes


@commands.command()
def publish(
    context: Annotated[str, typer.Argument(metavar="CONTEXT", help="The conversation.")],
    frames: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FRAME|FILE|-]...",
            help="A JSON object; a .json file with one; another file with one on each line; - is standard input, "
            "one on each line, which is also read if nothing is given.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until SQL shows them.")] = False,
    source: Annotated[
        str, typer.Option(metavar="URI", help="Who publishes them.")
    ] = "frameledger/command-line",
    within: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How long it may take at most.")
    ] = 30.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each frame, on a line of its own.")
    ] = False,
) -> None:
    """Publish frames of a conversation, in the order given.

    A frame without an id gets one. If one of the arguments is no frame, nothing is published; of standard input, what
    comes before it is. Exit code 1: not all frames are on the log (or, with --wait, in the tables).

    Example: frameledger publish ctx-1 '{"type": "LLMRunFrame"}' --wait
    """
    if not frames and sys.stdin.isatty():
        raise typer.BadParameter("give a frame, a file, or - for standard input", param_hint="FRAME")
    if frames and "-" in frames and len(frames) > 1:
        raise typer.BadParameter("standard input cannot be mixed with other frames", param_hint="FRAME")
    given = _batches_of_standard_input() if not frames or frames == ["-"] else _batches(frames)
    with failures.said():
        asyncio.run(_publish(context, given, wait, source, within, as_json))


async def _publish(
    context: str, batches: Iterator[list[AnyFrame]], wait: bool, source: str, within: float, as_json: bool
) -> None:
    async with Client(failures.settings(), source=source) as client:
        count, last = 0, None
        # In a thread: standard input may have nothing for a while, and acknowledgements come meanwhile.
        while frames := await asyncio.to_thread(next, batches, None):
            try:
                places = await client.publish(context, *frames, wait=wait, within=within)
            except ValueError as error:
                output.refuse(str(error), f"{count} frames were published before.")
            count, last = count + len(places), places[-1]
            if as_json:
                _print_json(frames, places)
        if as_json or last is None:
            return
        said = f"Published {count} {'frame' if count == 1 else 'frames'} to {context}: "
        said += f"{last.topic}, partition {last.partition}, up to offset {last.offset}."
        if wait:
            said += f" The context has version {await client.newest_version(context)}."
        typer.echo(said)


def _print_json(frames: Sequence[AnyFrame], places: Sequence[Place]) -> None:
    for frame, place in zip(frames, places, strict=True):
        known = {"id": frame.id, "type": frame.type}
        where = {"topic": place.topic, "partition": place.partition, "offset": place.offset}
        typer.echo(json.dumps(known | where, ensure_ascii=False))


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
        output.refuse(
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
        return completed(decode(given.value))
    except DecodeError as error:
        output.refuse(f"{given.where} is no frame: {error}", "It was not published, nor is what follows it.")
