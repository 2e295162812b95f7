"""`frameledger calls`: function calls that go on, wait for a person, or may or may not have happened."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import uuid4

import typer
from psycopg import AsyncConnection
from psycopg.rows import class_row

from frameledger import derived
from frameledger.frames import FunctionCallResultFrame
from frameledger.ids import ContextId, ToolCallId, Version
from frameledger_services.cli.terminal import backend, format_frame, output
from frameledger_services.client import Client
from frameledger_services.settings import Settings

MOST = 1_000
SOURCE = "frameledger/command-line"

commands = typer.Typer(
    name="calls",
    no_args_is_help=True,
    help="Function calls that go on, wait for a person, or may or may not have happened.",
)

Context = Annotated[str, typer.Argument(metavar="CONTEXT", help="The conversation.")]
CallId = Annotated[str, typer.Argument(metavar="CALL", help="The call's id.")]
Result = Annotated[str, typer.Option(metavar="JSON", help="What the model shall read, as JSON.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True)
class ListedCall:
    """A call that is not over, or of which nobody knows whether it happened."""

    context_id: str
    tool_call_id: str
    function_name: str
    status: str
    since: datetime
    worker: str | None
    waiting_for: str | None
    waiting_deadline: datetime | None
    requested_version: int
    ordinal: int
    idempotency_key: str = ""
    """What its handler was given to send along to whoever must do it once."""


@commands.command("list")
def list_calls(
    context: Annotated[
        str | None, typer.Argument(metavar="[CONTEXT]", help="One conversation's.", show_default=False)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each call, on a line of its own.")
    ] = False,
) -> None:
    """List the calls that are not over, and those that are ambiguous: nobody knows whether they happened.

    The oldest come first, a thousand at most.

    Example: `frameledger calls list`
    """
    with backend.exit_on_error():
        found = asyncio.run(backend.query(Settings.from_env(), _listed, context))
    if as_json:
        for one in found:
            typer.echo(json.dumps(asdict(one), default=datetime.isoformat))
        return
    if not found:
        typer.echo("No call goes on, waits for a person, or is ambiguous.")
        return
    for one in found:
        for line in _shown(one):
            # Not through rich, which would fold an id that is to be copied.
            typer.echo(line)


def _shown(call: ListedCall) -> Iterator[str]:
    """A call in a few lines. Its ids stand whole, each at the end of a line, and the command that settles it is whole
    too, but for the result."""
    waits = f", for {format_frame.line(call.waiting_for)}" if call.waiting_for else ""
    name = format_frame.printable(call.function_name)
    yield f"{call.status:<10} {name}  since {call.since.astimezone(UTC):%Y-%m-%d %H:%MZ}{waits}"
    yield f"  call             {format_frame.printable(call.tool_call_id)}"
    yield f"  conversation     {format_frame.printable(call.context_id)}"
    yield f"  idempotency key  {call.idempotency_key}"
    if call.status in _SETTLE:
        does, command = _SETTLE[call.status]
        yield f"  {does:<16} {format_frame.settling(command, call.context_id, call.tool_call_id)}"


_SETTLE: dict[str, tuple[str, Literal["answer", "resolve"]]] = {
    "waiting": ("answer it", "answer"),
    "ambiguous": ("say what became", "resolve"),
}


@commands.command()
def answer(context: Context, call: CallId, result: Result, as_json: AsJson = False) -> None:
    """Answer a call that waits for a person. Its result goes to the model, and the conversation goes on.

    Example: frameledger calls answer ctx-1 call-7 --result '{"approved": true}'
    """
    _settle(context, call, result, "waiting", as_json)


@commands.command()
def resolve(context: Context, call: CallId, result: Result, as_json: AsJson = False) -> None:
    """Say what became of an ambiguous call, once you have found out. The model is told; nothing is run again.

    Example: frameledger calls resolve ctx-1 call-7 --result '"It was paid."'
    """
    _settle(context, call, result, "ambiguous", as_json)


def _settle(
    context: str, call: str, result: str, status: Literal["waiting", "ambiguous"], as_json: bool
) -> None:
    try:
        value = json.loads(result)
    except ValueError as error:
        raise typer.BadParameter(
            f"{error}. Text stands in double quotes inside the shell's: '\"done\"'", param_hint="--result"
        ) from error
    with backend.exit_on_error():
        outcome = asyncio.run(_published(Settings.from_env(), context, call, value, status))
    if outcome is None:
        output.fail(
            f"The context {context!r} has no {status} call {call!r}.",
            "`frameledger calls list` lists those that there are.",
        )
    if as_json:
        typer.echo(json.dumps({"context_id": context, "tool_call_id": call} | asdict(outcome)))
    if outcome.outcome == "parked":
        output.fail(
            f"It is on the log, but the context {context!r} is parked.",
            f"It counts once the cause is mended: `frameledger unpark {shlex.quote(context)}`.",
        )
    if outcome.outcome != "applied":
        output.fail(
            f"It came too late, and was ignored ({outcome.reason}): the call was settled meanwhile.",
            f"`frameledger transcript {shlex.quote(context)}` shows by what.",
        )
    if not as_json:
        typer.echo(f"The call {call} of {context} is {'answered' if status == 'waiting' else 'resolved'}.")


@dataclass(frozen=True, slots=True)
class _Outcome:
    version: int
    outcome: str
    reason: str | None


async def _published(
    settings: Settings, context: str, call: str, result: Any, status: Literal["waiting", "ambiguous"]
) -> _Outcome | None:
    """What became of the result; null if there is no such call."""
    found = await backend.query(settings, _found, context, call, status)
    if found is None:
        return None
    name, requested_version = found
    frame = FunctionCallResultFrame(
        id=str(uuid4()),
        function_name=name,
        tool_call_id=call,
        result=result,
        settled_as="resolved" if status == "ambiguous" else None,
        opened_version=requested_version,
    )
    async with Client(settings, source=SOURCE) as client:
        await client.publish(context, frame, wait=True)
    return await backend.query(settings, _outcome, context, str(frame.id))


async def _listed(connection: AsyncConnection[Any], context: str | None) -> list[ListedCall]:
    async with connection.cursor(row_factory=class_row(ListedCall)) as cursor:
        await cursor.execute(
            """
            SELECT
                context_id, tool_call_id, function_name, status,
                coalesce(settled_at, started_at, dispatched_at, requested_at) AS since,
                worker, waiting_for, waiting_deadline, requested_version, ordinal
            FROM tool_calls
            WHERE (
                    status IN ('announced', 'dispatched', 'running') OR status = 'waiting'
                    OR status = 'ambiguous' AND resolved_version IS NULL
                )
                AND (%(context)s::text IS NULL OR context_id = %(context)s)
            ORDER BY requested_at, context_id, requested_version, ordinal
            LIMIT %(most)s
            """,
            {"context": context, "most": MOST},
        )
        return [replace(call, idempotency_key=_key_of(call)) for call in await cursor.fetchall()]


def _key_of(call: ListedCall) -> str:
    """Reckoned, since rows of an older release do not have it."""
    return derived.idempotency_key(
        ContextId(call.context_id),
        Version(call.requested_version),
        call.ordinal,
        ToolCallId(call.tool_call_id),
    )


async def _found(
    connection: AsyncConnection[Any], context: str, call: str, status: str
) -> tuple[str, int] | None:
    cursor = await connection.execute(
        """
        SELECT function_name, requested_version
        FROM tool_calls
        WHERE context_id = %s AND tool_call_id = %s AND status = %s AND resolved_version IS NULL
        ORDER BY requested_version DESC
        LIMIT 1
        """,
        (context, call, status),
    )
    return await cursor.fetchone()


async def _outcome(connection: AsyncConnection[Any], context: str, frame_id: str) -> _Outcome | None:
    async with connection.cursor(row_factory=class_row(_Outcome)) as cursor:
        await cursor.execute(
            "SELECT version, outcome, reason FROM frames WHERE context_id = %s AND frame_id = %s::uuid",
            (context, frame_id),
        )
        return await cursor.fetchone()
