"""`frameledger rebuild`: fold conversations again, compare them with their tables, and replace what differs."""

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
from frameledger_services.audit.rebuild import Pair, RebuildOptions, RebuildOutcome
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
    # If this process stalls during a rebuild, projectors continue after this time.
    "idle_in_transaction_session_timeout": "10s",
    "jit": "off",
}

PLANS = {name: value for name, value in service.SESSION.items() if name.startswith(("enable_", "plan_"))}
"""Planner settings of projectors: rows are replaced by key, whatever the tables' statistics."""

commands = typer.Typer()


class OutcomeChoice(StrEnum):
    """Outcomes by which conversations can be selected."""

    UNKNOWN = "unknown"


class Source(StrEnum):
    """The source of the frames."""

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
            help="Source of the frames: the table of frames, or kafka, which with --apply first restores missing rows "
            "of frames.",
        ),
    ] = Source.FRAMES,
    outcome: Annotated[
        OutcomeChoice | None,
        typer.Option(help="Only conversations that have frames with this outcome."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Replace rows that differ. Without it, only compare.")
    ] = False,
    why: Annotated[
        str,
        typer.Option(metavar="TEXT", help="Reason, recorded with every frame of which the outcome changes."),
    ] = "",
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Conversations in parallel.")] = 2,
    again: Annotated[
        bool, typer.Option("--again", help="Start over instead of resuming an interrupted rebuild.")
    ] = False,
    downgrade: Annotated[
        bool,
        typer.Option(
            "--downgrade", help="Include conversations folded by a newer release, to return to this one."
        ),
    ] = False,
    as_json: options.AsJsonLines = False,
) -> None:
    """Fold conversations again and compare them with their tables; with --apply, replace what differs.

    Each conversation is rebuilt in its own transaction while projectors and workers keep running; a frame that arrives
    for it waits until the transaction ends. Rebuilding emits no effects for old frames. Runs and calls that only the
    new fold leaves open are dispatched if recent, and otherwise closed by a frame. Stored frames do not change except
    for their outcomes; the table `outcome_changes` records those changes. With --from kafka, missing rows of frames
    are restored if the hash chain proves them. A parked conversation is folded up to the frame at which it is parked;
    `frameledger unpark` folds the rest. Running the same command again resumes an interrupted rebuild. Exit code 1 if
    something differs and was not replaced.

    Example: `frameledger rebuild --context ctx-1 --apply`
    """
    if contexts and outcome is not None:
        raise typer.BadParameter("use either --context or --outcome", param_hint="--outcome")
    if "\x00" in why:
        raise typer.BadParameter("the reason has a NUL", param_hint="--why")
    settings = Settings.from_env()
    chosen = RebuildOptions(
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
        output.fail(
            "Some of these conversations do not exist.", "`frameledger list` lists the conversations."
        )
    if as_json:
        typer.echo(json.dumps({"summary": asdict(done)}))
    else:
        typer.echo(render_rebuild.summary(done, apply=apply))
    if done.failed_count or (done.differ_count and not apply):
        raise typer.Exit(1)


class _View:
    """Output during the rebuild: results on standard output, and progress on standard error if it is a terminal."""

    def __init__(self, progress: Progress, say: Callable[[RebuildOutcome], None]) -> None:
        self._progress = progress
        self._task = progress.add_task("Rebuilding", total=None)
        self._say = say

    def begun(self, progress: rebuilds.RebuildProgress, left: int) -> None:
        before = progress.read_count
        self._progress.update(self._task, total=before + left, completed=before)
        if progress.reached is not None:
            typer.echo(
                f"Resuming rebuild {progress.number} after {progress.reached}: {before:,} conversations are done",
                err=True,
            )

    def report(self, done: RebuildOutcome) -> None:
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
    chosen: RebuildOptions,
    contexts: list[str] | None,
    selection: rebuilds.Selection,
    jobs: int,
    view: _View,
    *,
    again: bool,
) -> rebuilds.RebuildProgress:
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
