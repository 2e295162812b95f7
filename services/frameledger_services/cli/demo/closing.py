"""The end of `frameledger demo`: runs and calls, a look back, the proof, and SQL to try."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from psycopg import AsyncConnection
from rich.console import Console
from rich.text import Text

from frameledger.ids import ContextId
from frameledger_services.cli.demo import render
from frameledger_services.demo.forgetting import Forgotten
from frameledger_services.demo.playing import Played
from frameledger_services.demo.proof import Proof


async def look_back(
    console: Console, connection: AsyncConnection[Any], context_id: ContextId, played: Played
) -> None:
    """Show in SQL which worker did what, and how the conversation was before."""
    for title, sql in _questions(context_id, played):
        console.print()
        console.print(title, style="bold")
        print_sql(console, sql)
        # What is executed is the text that is shown.
        cursor = await connection.execute(sql.encode())
        names = [column.name for column in cursor.description or ()]
        console.print(render.answer(names, await cursor.fetchall(), console.width))


def print_verdict(console: Console, played: Played, found: Proof) -> None:
    """Print what was proved, or every difference."""
    console.print()
    for one in found.differences[:5]:
        console.print(f"Version {one.version}, {one.about}", style="bold red")
        console.print(f"  SQL   {one.stored}\n  fold  {one.folded}", markup=False)
    for sentence in found.wrong:
        console.print(sentence, style="bold red", markup=False)
    if found.differences:
        console.print(f"{len(found.differences)} differences between SQL and the fold", style="bold red")
    if not found.right:
        return
    console.print(
        Text.assemble(
            ("Verified: ", "bold green"),
            f"at all {len(played.seen) + 1} versions context_at() equals the fold of Kafka's frames; {found.runs} runs "
            f"and {found.calls} calls are settled; breakfast was ordered {_times(found.effects)}.",
        )
    )
    delays = [1000 * one.delay for one in played.seen]
    console.print(
        f"{len(played.log)} frames of {len({one.frame.type for one in played.seen})} kinds. From whoever made it to "
        f"SQL a frame took {statistics.median(delays):.0f} ms in the median, and 19 of 20 took "
        f"{statistics.quantiles(delays, n=20)[-1]:.0f} ms at most.",
        style="dim",
    )
    console.print()
    for sentence in _lessons(found):
        console.print(sentence)


def print_forgotten(console: Console, forgotten: Forgotten) -> None:
    """Print what became of the conversation that was erased."""
    receipt = forgotten.receipt
    console.print()
    if not forgotten.right:
        console.print(
            f"{receipt.context_id} was erased, and {forgotten.frames} frames of it are there",
            style="bold red",
        )
        return
    console.print(
        Text.assemble(
            ("Forgotten: ", "bold green"),
            f"{receipt.context_id}, a second conversation, whose passenger asked for it. Its {receipt.frame_count} "
            "frames are gone from all tables, the erasure is a record on the log, and a receipt is in erasures.",
        )
    )


def _lessons(found: Proof) -> Iterator[str]:
    """What was seen, in three sentences."""
    yield (
        "What a model was told is in SQL as it was after each frame, also what was cut off, corrected or replaced."
    )
    if found.effects:
        yield (
            "A worker died in the middle of an order, and nobody ordered twice: a table of jobs would have begun it "
            "again, or forgotten it; here the call was ambiguous until the kitchen said what had happened."
        )
    else:
        yield "The model ordered nothing, so no worker was killed; the scripted one shows what happens then."
    yield (
        "All of it comes from the frames in Kafka, which were folded once more just now: the tables can be lost, and "
        "are made again from them."
    )


def to_try(context_id: ContextId, played: Played) -> Iterator[str]:
    """Yields SQL to look around with."""
    where = f"WHERE context_id = '{context_id}'"
    for view in (
        "transcript",
        "timeline",
        "turns",
        "run_history",
        "token_usage",
        "latency",
        "tool_call_history",
    ):
        yield f"SELECT * FROM {view} {where};"
    yield f"SELECT version, type, reason FROM frames {where} AND outcome <> 'applied';"
    middle = played.seen[len(played.seen) // 2].frame.logged_at
    yield f"SELECT context_at_time('{context_id}', '{middle:%Y-%m-%d %H:%M:%S%z}');"


def print_sql(console: Console, sql: str) -> None:
    """As a person would type it; never broken, since it is there to be copied."""
    console.print(f"  {sql}", style="cyan", soft_wrap=True, markup=False)


def _questions(context_id: ContextId, played: Played) -> Iterator[tuple[str, str]]:
    where = f"WHERE context_id = '{context_id}'"
    yield (
        "Who answered: each run, how often it was tried, and the tokens that it took",
        "SELECT requested_version AS version, substring(worker FROM '[.](\\w+)/') AS worker, attempt AS try, status,\n"
        "    finish_reason AS because, input_tokens AS input, output_tokens AS output\n"
        f"  FROM runs {where} ORDER BY 1;",
    )
    yield (
        "Who did what they called for",
        "SELECT function_name AS function, substring(worker FROM '[.](\\w+)/') AS worker, attempt AS try,\n"
        "    status, resolved_version AS resolved, left(result::text, 38) AS result\n"
        f"  FROM tool_calls {where} ORDER BY requested_version, ordinal;",
    )
    cut = next((one for one in played.seen if one.frame.type == "InterruptionFrame" and one.written), None)
    if cut is not None:
        version = cut.frame.version
        yield (
            "Time travel: the context as it was just before the passenger cut in",
            f"SELECT context_at('{context_id}', {version - 1});",
        )
        yield "What cutting in did to it", f"SELECT context_diff('{context_id}', {version - 1}, {version});"
    new = next((one for one in played.seen if one.frame.type == "LLMMessagesUpdateFrame"), None)
    if new is not None:
        yield (
            "The end of the history that the summary replaced: nothing is lost",
            f"SELECT position, role, text FROM messages_at('{context_id}', {new.frame.version - 1}) "
            "ORDER BY position DESC LIMIT 3;",
        )


def _times(effects: int) -> str:
    return "once" if effects == 1 else f"{effects} times"
