"""`frameledger rebuild`: conversations folded again, compared with their tables, and replaced where they differ."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, replace
from enum import StrEnum
from typing import Annotated

import typer
from psycopg import IsolationLevel
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from frameledger import stored
from frameledger_services import database
from frameledger_services.audit import rebuild as rebuilding
from frameledger_services.audit.rebuild import Options, Outcome, Pair
from frameledger_services.audit.restore import Restoring
from frameledger_services.cli.audit import render_rebuild
from frameledger_services.cli.terminal import backend, options, output
from frameledger_services.event_log.log_probe import open_probe
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.projector import service
from frameledger_services.projector.destination import Send
from frameledger_services.projector.relay import sender
from frameledger_services.settings import Settings
from frameledger_services.store import rebuilds, schema
from frameledger_services.store.outbox import OutboxRow

LOCK_TIMEOUT = "30s"

SESSION = {
    "lock_timeout": LOCK_TIMEOUT,
    # If this process stops in the middle of a rebuild, projectors get on after so long.
    "idle_in_transaction_session_timeout": "10s",
    "jit": "off",
}

PLANS = {name: value for name, value in service.SESSION.items() if name.startswith(("enable_", "plan_"))}
"""Rows are replaced by their keys, as projectors write them, whatever the tables' statistics say."""

commands = typer.Typer()


class OutcomeChoice(StrEnum):
    """Outcomes by which conversations can be chosen."""

    UNKNOWN = "unknown"


class Source(StrEnum):
    """Where frames come from."""

    FRAMES = "frames"
    KAFKA = "kafka"


@commands.command()
def rebuild(
    contexts: Annotated[
        list[str] | None,
        typer.Option(
            "--context",
            metavar="CONTEXT",
            callback=options.context_ids,
            help="Only this conversation. Repeatable.",
        ),
    ] = None,
    source: Annotated[
        Source,
        typer.Option(
            "--from",
            help="What is folded: the stored frames; or kafka, which with --apply first restores frames whose rows are "
            "missing.",
        ),
    ] = Source.FRAMES,
    outcome: Annotated[
        OutcomeChoice | None,
        typer.Option(help="Only conversations that hold frames of a type which was unknown."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Replace the rows that differ; otherwise it only compares.")
    ] = False,
    why: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason; kept with every frame whose outcome changes.")
    ] = "",
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Conversations at a time.")] = 2,
    again: Annotated[
        bool, typer.Option("--again", help="Begin anew, not where an interrupted rebuild stopped.")
    ] = False,
    downgrade: Annotated[
        bool,
        typer.Option("--downgrade", help="Also those that a newer release folded, to go back to this one."),
    ] = False,
    as_json: options.AsJsonLines = False,
) -> None:
    """Fold conversations again, and compare each with its tables; with --apply replace what differs.

    One at a time, each in a transaction of its own, while projectors and workers go on: a frame that arrives for the
    conversation in hand waits until it is done. Nothing that old frames asked for is asked for again. Frames stay as
    they are, but for outcomes, whose changes are kept in `outcome_changes`; with --from kafka rows that are missing
    come back, if the hash chain proves them. Of what is open only now, recent work is asked for, and older work is
    closed by a frame. A parked conversation is folded up to where it is parked, and `frameledger unpark` does the rest.
    An interrupted rebuild of many goes on where it stopped when the same command is called again. Ends with exit code 1
    if something differs and was not replaced.

    Example: `frameledger rebuild --context ctx-1 --apply`
    """
    if contexts and outcome is not None:
        raise typer.BadParameter("choose by --context or by --outcome", param_hint="--outcome")
    if "\x00" in why:
        raise typer.BadParameter("it has a NUL", param_hint="--why")
    settings = Settings.from_env()
    chosen = Options(
        TopicNames(settings.topic_prefix),
        apply=apply,
        why=why.strip() or f"rebuilt with fold version {stored.FOLD_VERSION}",
        source=source.value,
        downgrade=downgrade,
    )
    selection: rebuilds.Selection = "all" if outcome is None else "unknown"
    with backend.exit_on_error(), backend.change(lock_timeout=LOCK_TIMEOUT), _view(as_json=as_json) as view:
        done = asyncio.run(_rebuild(settings, chosen, contexts, selection, jobs, view, again=again))
    if contexts and done.read_count < len(set(contexts)):
        output.fail("Some of these conversations are not there.", "`frameledger list` shows those that are.")
    if as_json:
        typer.echo(json.dumps({"summary": asdict(done)}))
    else:
        typer.echo(render_rebuild.summary(done, apply=apply))
    if done.failed_count or (done.differ_count and not apply):
        raise typer.Exit(1)


class _View:
    """What a person sees meanwhile: lines on standard output, progress on standard error if that is a terminal."""

    def __init__(self, progress: Progress, say: Callable[[Outcome], None]) -> None:
        self._progress = progress
        self._task = progress.add_task("Folding again", total=None)
        self._say = say

    def begun(self, progress: rebuilds.Progress, left: int) -> None:
        before = progress.read_count
        self._progress.update(self._task, total=before + left, completed=before)
        if progress.reached is not None:
            typer.echo(
                f"Goes on with rebuild {progress.number} behind {progress.reached}: {before:,} conversations are done",
                err=True,
            )

    def report(self, done: Outcome) -> None:
        self._progress.advance(self._task)
        self._say(done)


@contextmanager
def _view(*, as_json: bool) -> Iterator[_View]:
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield _View(progress, render_rebuild.print_json if as_json else render_rebuild.print_lines)


async def _rebuild(
    settings: Settings,
    chosen: Options,
    contexts: list[str] | None,
    selection: rebuilds.Selection,
    jobs: int,
    view: _View,
    *,
    again: bool,
) -> rebuilds.Progress:
    async with AsyncExitStack() as stack:
        if chosen.source == "kafka":
            probe = await stack.enter_async_context(open_probe(settings, chosen.names.frames))
            chosen = replace(chosen, restoring=Restoring(settings, chosen.names.frames, probe))
        pairs, send = await stack.enter_async_context(_connected(settings, jobs, publishes=chosen.apply))
        if contexts:
            return await rebuilding.rebuild_some(pairs, chosen, sorted(set(contexts)), send, view.report)
        return await rebuilding.rebuild_many(
            pairs, chosen, selection, send, view.report, view.begun, again=again
        )


@asynccontextmanager
async def _connected(
    settings: Settings, jobs: int, *, publishes: bool
) -> AsyncIterator[tuple[list[Pair], Send]]:
    async with AsyncExitStack() as stack:
        pairs = []
        for _ in range(jobs):
            reader = await stack.enter_async_context(
                await database.connect(settings, "frameledger rebuild, reading", SESSION)
            )
            await reader.set_isolation_level(IsolationLevel.REPEATABLE_READ)
            writer = await stack.enter_async_context(
                await database.connect(settings, "frameledger rebuild", SESSION | PLANS)
            )
            pairs.append(Pair(reader, writer))
        await schema.check(pairs[0].writer)
        if not publishes:
            yield pairs, _nothing_to_send
            return
        producer = await stack.enter_async_context(Producer(settings, name="frameledger-rebuild"))
        yield pairs, sender(producer)


async def _nothing_to_send(rows: Sequence[OutboxRow]) -> list[OutboxRow]:
    raise AssertionError(f"comparing leaves nothing in the outbox: {rows}")
