"""`frameledger fold`: fold the frames of a file, without any server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from frameledger.fold import Conversation, Folding
from frameledger_services.cli.fold import render, to_json
from frameledger_services.cli.terminal import options, output
from frameledger_services.frame_file import fold_lines

EXPORTED = b'{"frameledger":'
"""How a file of `frameledger export` begins."""

commands = typer.Typer()


@commands.command()
def fold(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.jsonl", help="File with one frame as JSON per line, or - for standard input."
        ),
    ],
    at: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Stop after the first N frames.", show_default=False),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            callback=options.context_id,
            help="Id of the conversation; run ids derive from it. Default: the file's name without .jsonl.",
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Show every line and message of a long file instead of the last ones."),
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Fold the frames of a file, and show the context and the outcome of each frame.

    All frames belong to one conversation. A line that is not a valid frame is shown as rejected and has no effect; on
    the log it would become a dead letter. A frame with an id that came before is shown as duplicate. Neither is an
    error.

    Example: frameledger fold tests/histories/barge-in.jsonl --at 12
    """
    folding = Folding(Conversation.new(context or _name(file)))
    with _opened(file) as lines:
        folded = fold_lines(lines, folding, at)
        if as_json:
            typer.echo(to_json.to_json(folded, folding))
        else:
            render.show(folded, folding, output.console(), everything=everything)


def _name(file: Path) -> str:
    """Returns the default id: the file's name, with bytes replaced that are not text, because ids are text."""
    stem = "stdin" if str(file) == "-" else file.stem
    return stem.encode(errors="replace").decode()


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    try:
        lines = file.open("rb")
    except OSError as error:
        output.fail(
            f"Cannot read {file}: {error.strerror}.",
            "Give the path of a file with one frame as JSON on each line, or - for standard input.",
        )
    with lines:
        # Each of its lines would be rejected, or taken for a frame by its type that has lost its fields.
        if file.is_file() and lines.peek(len(EXPORTED)).startswith(EXPORTED):
            output.fail(
                f"{file} is an export: its lines are about frames, and have them as text in `payload`.",
                "Write the frames of one conversation to a file, with `jq -c '.payload // empty | fromjson'`, and fold "
                "that with --context and its id. "
                "`frameledger import` takes the export as it is, and checks it.",
            )
        yield lines
