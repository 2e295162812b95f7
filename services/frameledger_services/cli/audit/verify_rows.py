"""Verification of the tables, and their comparison with Kafka, by `frameledger verify`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import psycopg
import typer

from frameledger_services.audit.differences import ROW, Differences
from frameledger_services.audit.log_comparison import ComparedWithLog, compare_with_log
from frameledger_services.audit.verify import Verified
from frameledger_services.audit.verify_many import connected, verify_many
from frameledger_services.cli.audit.render_difference import as_objects, in_words
from frameledger_services.cli.terminal import backend, escape, output
from frameledger_services.cli.terminal.counting import counting
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.settings import Settings
from frameledger_services.store import leftovers
from frameledger_services.store.connections import failure
from frameledger_services.store.contexts import NoSuchContextError
from frameledger_services.store.leftovers import ErasureSummary


@dataclass(slots=True)
class _Summary:
    """The totals of all conversations, and the differences."""

    conversations: int = 0
    frames: int = 0
    frames_before: int = 0
    older: int = 0
    parked: int = 0
    log: ComparedWithLog | None = None
    receipts: list[ErasureSummary] = field(default_factory=list)
    differences: dict[str, Differences] = field(default_factory=dict)
    headless: set[str] = field(default_factory=set)
    """The conversations that have rows in other tables and none in `contexts`."""

    def add(self, conversation: Verified) -> None:
        self.conversations += 1
        self.frames += conversation.frames
        self.frames_before += conversation.frames_before
        self.older += conversation.is_older
        self.parked += conversation.parked_version is not None and not conversation.is_older
        if conversation.differences.count:
            self.differences[conversation.context_id] = conversation.differences

    def add_log(self, log: ComparedWithLog) -> None:
        self.log = log
        for context_id, differences in log.differences.items():
            self.differences.setdefault(context_id, Differences()).extend(differences)


def verify_rows(
    context_ids: Sequence[str] | None, *, log: bool, again: bool, jobs: int, as_json: bool
) -> None:
    """Verify these conversations, or all if None, and print the result. Ends the command with exit code 1 if one
    differs or does not exist."""
    summary = _Summary()
    reported: set[str] = set()
    with backend.exit_on_error(TimeoutError):
        settings = Settings.from_env()
        with counting("Verifying conversations: {count:,} ...") as count:

            def report(conversation: Verified) -> None:
                count()
                summary.add(conversation)
                if context_ids is not None:
                    reported.add(conversation.context_id)

            asyncio.run(verify_many(settings, context_ids, report, jobs=jobs, again=again))
        asyncio.run(_beside(settings, context_ids, summary, log=log))
    known = reported | {one.context_id for one in summary.receipts} | summary.differences.keys()
    missing = [one for one in context_ids or () if one not in known]
    if as_json:
        output.print_json_object(_as_json(summary, missing))
    elif known or not missing:
        for line in _lines(summary):
            typer.echo(line)
        for line in _remedies(summary):
            typer.echo(line, err=True)
    if missing:
        output.fail(
            "\n".join(
                f"{NoSuchContextError(one)} There is no file with that name either." for one in missing
            ),
            "`frameledger list` lists the conversations.",
        )
    if summary.differences:
        raise typer.Exit(1)


async def _beside(
    settings: Settings, context_ids: Sequence[str] | None, summary: _Summary, *, log: bool
) -> None:
    """Check what heads do not lead to: receipts, rows without a head, and the log."""
    try:
        async with connected(settings) as connection, connection.transaction():
            summary.receipts = await leftovers.receipts(connection, context_ids)
            for left in await leftovers.without_head(connection, context_ids):
                summary.headless.add(left.context_id)
                differences = summary.differences.setdefault(left.context_id, Differences())
                differences.add(left.version, left.name, ROW, f"{left.count:,} rows", None)
            if log:
                with counting("Comparing with Kafka: {count:,} records ...") as count:
                    summary.add_log(await compare_with_log(settings, connection, context_ids, count))
    except psycopg.Error as error:
        raise failure("The database could not be read", error) from error


def _lines(summary: _Summary) -> Iterator[str]:
    for context_id, differences in sorted(summary.differences.items()):
        first = differences.first
        assert first is not None
        more = f" ({differences.count - 1:,} more)" if differences.count > 1 else ""
        name = escape.printable(context_id) or "(no conversation)"
        yield f"{name}  version {first.version:,}  {in_words(first)}{more}"
    before = summary.frames_before
    again = f"; {before:,} were verified earlier and not read: see --again" if before else ""
    yield f"Verified {plural(summary.conversations, 'conversation')}: {plural(summary.frames, 'frame')}{again}."
    yield "  chain   each link computed from the bytes of its frame, up to the head"
    compared = summary.conversations - summary.older
    yield f"  tables  {plural(compared, 'conversation')} folded again and compared; every prefix valid for a provider"
    if summary.older:
        yield f"          {summary.older:,} folded by older rules: `frameledger rebuild` shows what differs"
    if summary.parked:
        yield f"          {summary.parked:,} parked: compared up to the parked frame"
    if summary.log is not None:
        log, total = summary.log, summary.frames + summary.frames_before
        yield f"  Kafka   {log.frames:,} frames equal their records; {log.records:,} records were read"
        rest = max(total - log.frames, 0)
        yield f"          {rest:,} were imported, have expired, are of an older generation, or differ"
    rowless = [one for one in summary.receipts if not one.lives_again]
    if summary.receipts:
        yield f"  erased  {len(summary.receipts):,} have a receipt; of {len(rowless):,} no row is left in any table"
    wrong = len(summary.differences)
    yield f"{wrong:,} differ." if wrong else "No difference."


def _remedies(summary: _Summary) -> Iterator[str]:
    """Yields what to do about the differences."""
    is_folded = is_missing = is_changed = is_lost = False
    for context_id, differences in summary.differences.items():
        if context_id in summary.headless:
            continue
        lacks_frames = False
        for one in differences.in_order():
            if one.table != "log" and not one.is_of_a_frame:
                is_folded = True
            elif one.field == ROW and one.stored is None:
                is_missing = lacks_frames = True
            elif one.table == "log" and one.field == ROW:
                is_lost = True
            elif not lacks_frames or (one.table, one.field) != ("frames", "payload"):
                # A frame after a missing one cannot be folded, which is no change of its own.
                is_changed = True
    if is_folded:
        yield (
            "`frameledger rebuild --context ID --apply` folds the frames of a conversation again and replaces what "
            "differs in the other tables."
        )
    if is_missing:
        yield (
            "`frameledger rebuild --from kafka --context ID --apply` restores missing frames, as far as Kafka has them."
        )
    if is_lost:
        yield "If Kafka lost the records of stored frames, `frameledger recover` shows it, and publishes them again."
    if is_changed:
        yield (
            "No command reverts changes of frames: `frameledger verify --from kafka` compares them with the records "
            "that Kafka still has. Otherwise use a backup."
        )
    if summary.headless:
        yield (
            "No command repairs rows without a row of `contexts`. Restore that row from a backup, or fill an empty "
            "database from Kafka, which recovers what Kafka still has of the conversation."
        )


def _as_json(summary: _Summary, missing: Sequence[str]) -> dict[str, Any]:
    log = summary.log
    return {
        "conversations": summary.conversations,
        "frames": summary.frames,
        "frames_verified_before": summary.frames_before,
        "folded_by_an_older_rule": summary.older,
        "parked": summary.parked,
        "kafka": None if log is None else {"frames": log.frames, "records": log.records},
        "receipts": [asdict(one) for one in summary.receipts],
        "missing": list(missing),
        "different": [
            {
                "context_id": context_id,
                "count": differences.count,
                "differences": as_objects(differences),
            }
            for context_id, differences in sorted(summary.differences.items())
        ],
    }
