"""The end of `frameledger demo`: runs and calls, queries of the history, the proof, and SQL to try."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from frameledger.ids import ContextId
from frameledger_services.cli.demo import query_result
from frameledger_services.database_types import Connection
from frameledger_services.demo.forgetting import Forgotten
from frameledger_services.demo.playing import Played
from frameledger_services.demo.proof import Proof


async def look_back(console: Console, connection: Connection, context_id: ContextId, played: Played) -> None:
    """Print the SQL of the runs, the calls and earlier versions, with its results."""
    for title, sql in _questions(context_id, played):
        console.print()
        console.print(title, style="bold")
        print_sql(console, sql)
        # The executed statement is the printed one.
        cursor = await connection.execute(sql.encode())
        names = [column.name for column in cursor.description or ()]
        console.print(query_result.answer(names, await cursor.fetchall(), console.width))


def print_verdict(console: Console, played: Played, result: Proof) -> None:
    """Print the result of the proof, or every difference."""
    console.print()
    for difference in result.differences[:5]:
        console.print(f"Version {difference.version}, {difference.about}", style="bold red")
        console.print(f"  SQL   {difference.stored}\n  fold  {difference.folded}")
    for sentence in result.wrong:
        console.print(sentence, style="bold red")
    if result.differences:
        console.print(f"{len(result.differences)} differences between SQL and the fold", style="bold red")
    if not result.right:
        return
    console.print(
        Text.assemble(
            ("Verified: ", "bold green"),
            f"at all {len(played.frames) + 1} versions context_at() equals the fold of Kafka's frames; {result.runs} "
            f"runs and {result.calls} calls are settled; breakfast was ordered {_times(result.effects)}.",
        )
    )
    delays = [1000 * one.delay for one in played.frames]
    console.print(
        f"{len(played.frames)} frames of {len({one.frame.type for one in played.frames})} types. Latency from publish "
        f"to SQL: median {statistics.median(delays):.0f} ms, p95 "
        f"{statistics.quantiles(delays, n=20)[-1]:.0f} ms.",
        style="dim",
    )
    console.print()
    for sentence in _lessons(result):
        console.print(sentence)


def print_forgotten(console: Console, forgotten: Forgotten) -> None:
    """Print the result of the erasure of the second conversation."""
    receipt = forgotten.receipt
    console.print()
    if not forgotten.right:
        console.print(
            f"{receipt.context_id} was erased, but {forgotten.frames} of its frames are still stored",
            style="bold red",
        )
        return
    console.print(
        Text.assemble(
            ("Erased: ", "bold green"),
            f"{receipt.context_id}, a second conversation, at the request of its passenger. Its "
            f"{receipt.frame_count} frames are deleted from all tables, the erasure is a record on the log, and the "
            "receipt is in the table erasures.",
        )
    )


def _lessons(result: Proof) -> Iterator[str]:
    """Yields the conclusions of the demo."""
    yield (
        "SQL has the context of the model after each frame, including what was cut off, corrected or replaced."
    )
    if result.effects:
        yield (
            "A worker was killed during an order, and the order was placed once. A table of jobs would have run it "
            "again or lost it; here the call was ambiguous until the kitchen reported the result."
        )
    else:
        yield "The model ordered nothing, so no worker was killed; the scripted model shows that case."
    yield (
        "All tables derive from the frames in Kafka, which were just folded again: if the tables are lost, they can "
        "be rebuilt from Kafka."
    )


def to_try(context_id: ContextId, played: Played) -> Iterator[str]:
    """Yields SQL statements to try."""
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
    middle = played.frames[len(played.frames) // 2].frame.logged_at
    yield f"SELECT context_at_time('{context_id}', '{middle:%Y-%m-%d %H:%M:%S%z}');"


def print_sql(console: Console, sql: str) -> None:
    """Print a statement without wrapping, for copying."""
    console.print(f"  {sql}", style="cyan", soft_wrap=True)


def _questions(context_id: ContextId, played: Played) -> Iterator[tuple[str, str]]:
    where = f"WHERE context_id = '{context_id}'"
    yield (
        "The runs: worker, attempts, status and tokens",
        "SELECT requested_version AS version, substring(worker FROM '[.](\\w+)/') AS worker, attempt AS try, status,\n"
        "    finish_reason AS because, input_tokens AS input, output_tokens AS output\n"
        f"  FROM runs {where} ORDER BY 1;",
    )
    yield (
        "The function calls: worker, attempts, status and result",
        "SELECT function_name AS function, substring(worker FROM '[.](\\w+)/') AS worker, attempt AS try,\n"
        "    status, resolved_version AS resolved, left(result::text, 38) AS result\n"
        f"  FROM tool_calls {where} ORDER BY requested_version, ordinal;",
    )
    cut = next((one for one in played.frames if one.frame.type == "InterruptionFrame" and one.written), None)
    if cut is not None:
        version = cut.frame.version
        yield (
            "Time travel: the context just before the passenger interrupted",
            f"SELECT context_at('{context_id}', {version - 1});",
        )
        yield (
            "The changes of the interruption",
            f"SELECT context_diff('{context_id}', {version - 1}, {version});",
        )
    new = next((one for one in played.frames if one.frame.type == "LLMMessagesUpdateFrame"), None)
    if new is not None:
        yield (
            "The end of the history that the summary replaced: earlier versions are kept",
            f"SELECT position, role, text FROM messages_at('{context_id}', {new.frame.version - 1}) "
            "ORDER BY position DESC LIMIT 3;",
        )


def _times(effects: int) -> str:
    return "once" if effects == 1 else f"{effects} times"
