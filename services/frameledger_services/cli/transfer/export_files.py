"""`frameledger export`: conversations written to files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from frameledger_services.cli.terminal import backend, escape, moment, options, output
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.cli.terminal.whole_file import whole_file, writable
from frameledger_services.cli.transfer import export_work
from frameledger_services.cli.transfer.export_work import Format, Summary
from frameledger_services.settings import Settings
from frameledger_services.store.contexts import NoSuchContextError
from frameledger_services.transfer.exporting import EarlierLifeError

commands = typer.Typer()

_FEW = 10

_EARLIER_LIFE = "Fork it (`frameledger fork`) and export the fork, or export it in another --format."


@commands.command("export")
def export(
    contexts_: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONTEXT",
            callback=options.context_ids,
            help="Ids of the conversations.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All conversations.")] = False,
    since: Annotated[
        datetime | None,
        typer.Option(
            parser=moment.parse_time,
            metavar="TIME",
            help="With --all: only conversations with a frame since this time.",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="Format of the export.")] = Format.JSONL,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|FOLDER",
            help="Output file, or folder for parquet. Default: standard output.",
        ),
    ] = None,
    at: moment.Option = None,
    as_json: options.AsJson = False,
) -> None:
    """Export conversations to a file.

    Formats: jsonl is lossless, and `frameledger import` restores the same frames and hash chain in another database.
    cloudevents is a JSON array of CloudEvents 1.0. openai is the context of one conversation, current or at --at, as
    a request of the chat completions API: messages, tools, tool_choice. parquet is a folder with frames.parquet,
    messages.parquet, runs.parquet and calls.parquet (pip install 'frameledger[parquet]').

    Each conversation is exported from one snapshot. jsonl cannot hold a conversation that continues after an erasure:
    --all leaves it out, names it, and ends with exit code 1. --json prints a summary and needs -o.

    Example: `frameledger export ctx-1 -o ctx-1.jsonl`
    """
    # A file has a conversation once.
    named = list(dict.fromkeys(contexts_ or ()))
    if bool(named) == everything:
        raise typer.BadParameter("give ids of conversations, or --all", param_hint="CONTEXT")
    if since is not None and not everything:
        raise typer.BadParameter("use it with --all", param_hint="--since")
    if as_json and out is None:
        raise typer.BadParameter("use it with -o FILE: standard output has the export", param_hint="--json")
    _check_format(format_, named, out, at)
    summary = Summary(str(format_), file=None if out is None else str(out))
    with backend.exit_on_error(), _named_if_missing():
        _write(Settings.from_env(), format_, named, since, out, at, summary)
    if as_json:
        typer.echo(json.dumps(asdict(summary)))
    elif out is not None:
        written = f"{plural(summary.conversations, 'conversation')}, {plural(summary.frames, 'frame')}"
        typer.echo(f"{out}: {written}, {plural(summary.bytes, 'byte')}.")
    if summary.left_out:
        # The file is complete without them.
        _name(summary.left_out)
        raise typer.Exit(1)


def _check_format(format_: Format, named: Sequence[str], out: Path | None, at: moment.At | None) -> None:
    """Raise `BadParameter` for options that this format does not have."""
    if at is not None and format_ is not Format.OPENAI:
        raise typer.BadParameter(
            "use it with --format openai; the other formats have every version", param_hint="--at"
        )
    if format_ is Format.OPENAI and len(named) != 1:
        raise typer.BadParameter("the format openai exports a single conversation", param_hint="CONTEXT")
    if format_ is Format.PARQUET and out is None:
        raise typer.BadParameter("parquet needs a folder", param_hint="-o")


def _write(
    settings: Settings,
    format_: Format,
    named: Sequence[str],
    from_time: datetime | None,
    out: Path | None,
    at: moment.At | None,
    summary: Summary,
) -> None:
    if format_ is Format.PARQUET and out is not None:
        with writable(out):
            asyncio.run(export_work.tables(settings, named, from_time, out, summary))
        return
    with whole_file(out) as file:
        if format_ is Format.OPENAI:
            asyncio.run(export_work.context(settings, named[0], at, file, summary))
            return
        try:
            asyncio.run(export_work.frames(settings, named, from_time, format_, file, summary))
        except EarlierLifeError as error:
            output.fail(str(error), _EARLIER_LIFE)


@contextmanager
def _named_if_missing() -> Iterator[None]:
    """End the command with exit code 1 if the block finds that a conversation does not exist."""
    try:
        yield
    except NoSuchContextError as error:
        moment.fail_missing(error)


def _name(left_out: Sequence[str]) -> None:
    """Print what was left out to standard error: standard output may have the export."""
    which = ", ".join(map(escape.printable, left_out[:_FEW])) + (", ..." if len(left_out) > _FEW else "")
    is_single = len(left_out) == 1
    typer.echo(
        f"{plural(len(left_out), 'conversation')} {'was' if is_single else 'were'} left out, because "
        f"{'it continues' if is_single else 'they continue'} after an erasure: {which}.\n{_EARLIER_LIFE}",
        err=True,
    )
