"""The work of `frameledger rerun`: one version, or every completed run of conversations with a report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import typer

from frameledger_services.cli.rerun import render, report, to_json
from frameledger_services.cli.rerun.session import RerunOptions, RerunSession, rerun_session
from frameledger_services.cli.terminal import moment, output
from frameledger_services.cli.terminal.whole_file import writable
from frameledger_services.client import ForkRefusedError
from frameledger_services.database_types import Connection
from frameledger_services.forks import batch
from frameledger_services.forks.compared import ComparedAnswers
from frameledger_services.forks.summary import Summary
from frameledger_services.store import reruns
from frameledger_services.store.contexts import NoSuchContextError, NoSuchVersionError


async def rerun_one(options: RerunOptions, context_id: str, at: moment.At | None, as_json: bool) -> bool:
    """Rerun a version, by default the one that the newest run read. Returns whether all answers are equal."""
    async with rerun_session(options) as session:
        version = await session.connections.read(_version, context_id, at)
        comparison = await session.rerun(batch.RunAt(context_id, version))
    if as_json:
        output.print_json_object(to_json.compared(comparison))
    else:
        render.show(comparison, output.console())
    return comparison.same


async def rerun_all(
    options: RerunOptions,
    context_ids: Sequence[str],
    since: datetime | None,
    jobs: int,
    path: Path,
    as_json: bool,
) -> bool:
    """Rerun every completed run of these conversations, and of those with a frame `since`, and write the report.
    Returns whether all answers are equal. A run whose context no frame holds is left out and named; one of a
    conversation that was erased meanwhile is passed over. Ends the command if one of these conversations does not
    exist."""
    totals, console = Summary(), output.console()

    def tell(result: ComparedAnswers | ForkRefusedError | None) -> None:
        match result:
            case ComparedAnswers():
                totals.add(result)
                compared = to_json.compared(result)
                written.add(compared)
                if as_json:
                    output.print_json_object(compared)
                else:
                    console.print(render.line(result))
            case ForkRefusedError():
                totals.left_out += 1
                typer.echo(f"Left out: {result}", err=True)

    async with rerun_session(options) as session:
        for context_id in context_ids:
            # A mistyped id has no run, so `--check` would pass.
            await session.connections.read(moment.find, context_id, None)
        with writable(path), report.writing(path) as written:
            runs = batch.answered_runs(session.connections, context_ids, since)
            await batch.in_order(runs, partial(_rerun_or_why_not, session), tell, jobs)
            written.end(totals)
    if as_json:
        output.print_json_object({"summary": totals.to_json(), "report": str(path)})
    elif not totals.reruns and not totals.left_out:
        typer.echo("The selected conversations have no completed run. The provider was not called.")
    else:
        console.print()
        render.summary(totals, console)
        console.print(f"\nFull report: {path}", soft_wrap=True)
    return totals.same == totals.reruns and not totals.left_out


async def _rerun_or_why_not(
    session: RerunSession, run: batch.RunAt
) -> ComparedAnswers | ForkRefusedError | None:
    """Returns the reruns of a run, why it has none, or None if its conversation was erased since it was listed."""
    try:
        return await session.rerun(run)
    except (NoSuchContextError, NoSuchVersionError):
        return None
    except ForkRefusedError as refused:
        return refused


async def _version(connection: Connection, context_id: str, at: moment.At | None) -> int:
    conversation = await moment.find(connection, context_id, at)
    if at is not None:
        return conversation.version
    newest = await reruns.run_versions(connection, context_id)
    if not newest:
        output.fail(
            f"The conversation {context_id!r} has no run.",
            "Choose a version with --at to see what a model answers there.",
        )
    return newest[0]
