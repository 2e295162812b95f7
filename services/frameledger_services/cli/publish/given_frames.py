"""Frames as they are given to `frameledger publish`: as arguments, in files, or on standard input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from frameledger.frames import AnyFrame
from frameledger.record import MAX_VALUE_BYTES, DecodeError, decode
from frameledger_services.cli.terminal import output, stdin
from frameledger_services.client import with_defaults

AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class _Input:
    """A value of the input, and its source for error messages."""

    where: str
    value: bytes


def of_arguments(arguments: Sequence[str]) -> Iterator[list[AnyFrame]]:
    """Returns the frames in batches, one for each publish call. All arguments are read before the first batch."""
    frames = [_frame(item) for argument in arguments for item in _inputs(argument)]
    yield from (frames[at : at + AT_ONCE] for at in range(0, len(frames), AT_ONCE))


def of_standard_input() -> Iterator[list[AnyFrame]]:
    """Yields the frames of the lines that are available, as a batch. The frames before an invalid line are a batch."""
    for lines in _lines_of_standard_input():
        batch: list[AnyFrame] = []
        try:
            for item in lines:
                batch.append(_frame(item))
        except typer.Exit:
            if batch:
                yield batch
            raise
        if batch:
            yield batch


def _inputs(argument: str) -> Iterator[_Input]:
    if argument.lstrip().startswith("{"):
        yield _Input("the argument", argument.encode(errors="surrogateescape"))
        return
    try:
        content = Path(argument).read_bytes()
    except OSError as error:
        output.fail(
            f"Cannot read {argument}: {error.strerror}.",
            "Give a frame as JSON, the path of a file with frames, or - for standard input.",
        )
    if argument.endswith(".json"):
        yield _Input(argument, content)
        return
    for number, value in enumerate(content.split(b"\n"), 1):
        if value.strip():
            yield _Input(f"line {number} of {argument}", value.strip())


def _lines_of_standard_input() -> Iterator[list[_Input]]:
    """Yields the lines that are available, and at the end of input the rest. A line that is too long is split."""
    rest, number = b"", 0
    while chunk := stdin.read_available():
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_VALUE_BYTES:
            lines, rest = [*lines, rest], b""
        yield [
            _Input(f"line {number} of standard input", value.strip())
            for number, value in enumerate(lines, number + 1)
            if value.strip()
        ]
        number += len(lines)
    if rest.strip():
        yield [_Input(f"line {number + 1} of standard input", rest.strip())]


def _frame(item: _Input) -> AnyFrame:
    try:
        return with_defaults(decode(item.value))
    except DecodeError as error:
        output.fail(
            f"{item.where} is not a valid frame: {error}", "Neither it nor any frame after it was published."
        )
