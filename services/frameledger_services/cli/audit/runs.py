"""`frameledger runs`: the runs of a conversation, one per line."""

from __future__ import annotations

import asyncio

import typer

from frameledger_services.cli.audit import trace_links
from frameledger_services.cli.terminal import backend, escape, moment, options, output, pager
from frameledger_services.cli.terminal.column_text import seconds, short_id
from frameledger_services.cli.terminal.pager import Page, Piece
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store import history
from frameledger_services.store.history import RunLine
from frameledger_services.store.moments import Moment

_COLORS = {"failed": "red", "interrupted": "yellow", "replaced": "yellow", "dropped": "dim", "open": "cyan"}

commands = typer.Typer()


@commands.command()
def runs(context: options.Context, as_json: options.AsJsonLines = False) -> None:
    """Show every run of a conversation: its status, model, duration and tokens.

    Runs are listed with the first characters of their ids; --json prints the full ids. text_s and took_s are the
    seconds from the frame that requested the run to its first text and to its end. A plus after token counts means
    that they are incomplete: there was no final usage report. In SQL, see the table `runs` and the view `run_history`.
    With FRAMELEDGER_TRACE_URL, the address of its trace is printed below each run that has one.

    Example: `frameledger runs ctx-1`
    """
    with backend.exit_on_error():
        settings = Settings.from_env()
        conversation, lines, traces = asyncio.run(backend.query(settings, _read, context, settings.trace_url))
    if as_json:
        output.print_json(lines)
        return
    with pager.page(settings.pager) as page:
        count = plural(len(lines), "run")
        page.whole(
            f"{escape.printable(conversation.context_id)} at version {conversation.version}: {count}", "bold"
        )
        if lines:
            page.line(
                (
                    _columns(
                        "version", "run", "status", "try", "model", "text_s", "took_s", "in", "out", "said"
                    ),
                    "dim",
                )
            )
        for line in lines:
            _print(page, line)
            if line.requested_version in traces:
                page.whole(f"{'':9}{traces[line.requested_version]}", "dim")


async def _read(
    connection: Connection, context: str, trace_url: str | None
) -> tuple[Moment, list[RunLine], dict[int, str]]:
    conversation, lines = (
        await moment.find(connection, context, None),
        await history.runs(connection, context),
    )
    versions = [line.requested_version for line in lines]
    return conversation, lines, await trace_links.at(connection, context, versions, trace_url)


def _print(page: Page, run: RunLine) -> None:
    became = run.status
    if run.status == "ended" and run.finish_reason not in (None, "stop"):
        became = str(run.finish_reason)
    columns = _columns(
        str(run.requested_version),
        short_id(run.run_id),
        became,
        str(run.attempt or ""),
        escape.one_line(run.model or ""),
        seconds(run.requested_at, run.first_text_at),
        seconds(run.requested_at, run.closed_at),
        _tokens(run.input_tokens, run.usage_partial),
        _tokens(run.output_tokens, run.usage_partial),
        escape.one_line(run.words or ""),
    )
    pieces: list[Piece] = [(columns, _COLORS.get(run.status, ""))]
    page.line(*pieces)


def _columns(version: str, run: str, became: str, attempt: str, model: str, *rest: str) -> str:
    numbers = "  ".join(f"{one:>6}" for one in rest[:-1])
    names = f"{pager.padded(run, 8)}  {pager.padded(became, 14)}  {attempt:>3}  {pager.padded(model, 14)}"
    return f"{version:>7}  {names}  {numbers}  {rest[-1]}"


def _tokens(count: int | None, partial: bool) -> str:
    return "" if count is None else f"{count}{'+' if partial else ''}"
