"""`frameledger rebuild`: fold conversations again, compare them with their tables, and replace what differs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, NoReturn

import typer

from frameledger import stored
from frameledger_services.audit.rebuild import RebuildOptions
from frameledger_services.cli.audit import rebuild_progress, rebuild_work, render_rebuild
from frameledger_services.cli.terminal import backend, options, output
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings
from frameledger_services.store import rebuilds, transfer

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
    with backend.exit_on_error():
        settings = Settings.from_env()
    chosen = RebuildOptions(
        TopicNames(settings.topic_prefix),
        apply=apply,
        why=why.strip() or f"rebuilt with fold version {stored.FOLD_VERSION}",
        source=source.value,
        downgrade=downgrade,
    )
    selection: rebuilds.Selection = "all" if outcome is None else "unknown"
    with (
        backend.exit_on_error(),
        backend.change(lock_timeout=rebuild_work.LOCK_TIMEOUT),
        rebuild_progress.shown(as_json=as_json) as view,
    ):
        progress = asyncio.run(
            rebuild_work.run(settings, chosen, contexts, selection, jobs, view, again=again)
        )
    if contexts and progress.read_count < len(set(contexts)):
        with backend.exit_on_error():
            presences = asyncio.run(
                backend.query(settings, transfer.presence, [(one, 0) for one in contexts])
            )
        fail_of_missing(presences)
    if as_json:
        typer.echo(json.dumps({"summary": asdict(progress)}))
    else:
        typer.echo(render_rebuild.summary(progress, apply=apply))
    if progress.failed_count or (progress.differ_count and not apply):
        raise typer.Exit(1)


def fail_of_missing(presences: Sequence[transfer.StoredPresence]) -> NoReturn:
    """End the command because some of these conversations were not folded again."""
    missing = ", ".join(dict.fromkeys(repr(one.context_id) for one in presences if one.version is None))
    if missing:
        output.fail(
            f"These conversations do not exist: {missing}.", "`frameledger list` lists the conversations."
        )
    output.fail(
        "A conversation was created, or erased and created again, while this command ran. It was not folded again.",
        "Run the command again.",
    )
