"""`frameledger calls`: open function calls, listed and settled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NoReturn

import typer

from frameledger import derived, strict_json
from frameledger.decode_error import DecodeError
from frameledger.ids import ContextId, ToolCallId, Version
from frameledger_services.cli.terminal import (
    backend,
    escape,
    format_frame,
    moment,
    options,
    output,
    suggestion,
)
from frameledger_services.client import Client, PublishedFrame
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store import tool_calls
from frameledger_services.store.tool_calls import SettleableStatus, UnsettledCall
from frameledger_services.telemetry import tracing
from frameledger_services.telemetry.message_spans import settling
from frameledger_services.telemetry.provider import recording

SOURCE = "frameledger/command-line"

commands = typer.Typer(
    name="calls",
    no_args_is_help=True,
    help="List and settle open function calls: running, waiting for a person, or ambiguous.",
)

CallId = Annotated[str, typer.Argument(metavar="CALL", help="Id of the call.")]
Result = Annotated[str, typer.Option(metavar="JSON", help="Result that the model receives, as JSON.")]


@commands.command("list")
def list_calls(
    context: Annotated[
        str | None,
        typer.Argument(
            metavar="CONTEXT",
            callback=options.context_id,
            help="Only calls of this conversation.",
            show_default=False,
        ),
    ] = None,
    as_json: options.AsJsonLines = False,
) -> None:
    """List open calls and ambiguous calls, of which it is unknown whether they were executed.

    Lists up to a thousand calls, oldest first.

    Example: `frameledger calls list`
    """
    with backend.exit_on_error():
        calls = asyncio.run(backend.query(Settings.from_env(), _unsettled, context))
    if as_json:
        for call in calls:
            listed = asdict(call) | {"idempotency_key": _key_of(call)}
            typer.echo(json.dumps(listed, default=datetime.isoformat))
        return
    if not calls:
        typer.echo("No call is running, waiting for a person, or ambiguous.")
        return
    for call in calls:
        for line in _shown(call):
            # Not through rich, which would wrap ids that are to be copied.
            typer.echo(line)


async def _unsettled(connection: Connection, context: str | None) -> list[UnsettledCall]:
    if context is not None:
        await moment.find(connection, context, None)
    return await tool_calls.unsettled(connection, context)


def _shown(call: UnsettledCall) -> Iterator[str]:
    """Yields the lines that describe a call. Ids and the command that settles it are complete, at the ends of lines,
    for copying."""
    waits = f", for {escape.one_line(call.waiting_for)}" if call.waiting_for else ""
    name = escape.printable(call.function_name)
    yield f"{call.status:<10} {name}  since {call.since.astimezone(UTC):%Y-%m-%d %H:%MZ}{waits}"
    yield f"  call             {escape.printable(call.tool_call_id)}"
    yield f"  conversation     {escape.printable(call.context_id)}"
    yield f"  idempotency key  {_key_of(call)}"
    if call.status in _SETTLE:
        does, command = _SETTLE[call.status]
        yield f"  {does:<16} {format_frame.settle_command(command, call.context_id, call.tool_call_id)}"


_SETTLE: dict[str, tuple[str, Literal["answer", "resolve"]]] = {
    "waiting": ("answer it", "answer"),
    "ambiguous": ("resolve it", "resolve"),
}


@commands.command()
def answer(context: options.Context, call: CallId, result: Result, as_json: options.AsJson = False) -> None:
    """Answer a call that waits for a person. The model receives the result, and the conversation continues.

    Example: frameledger calls answer ctx-1 call-7 --result '{"approved": true}'
    """
    _settle(context, call, result, "waiting", as_json)


@commands.command()
def resolve(context: options.Context, call: CallId, result: Result, as_json: options.AsJson = False) -> None:
    """Record the result of an ambiguous call after you have determined it. The model receives it; nothing is executed.

    Example: frameledger calls resolve ctx-1 call-7 --result '"It was paid."'
    """
    _settle(context, call, result, "ambiguous", as_json)


def _settle(context: str, call: str, result: str, status: SettleableStatus, as_json: bool) -> None:
    try:
        value = strict_json.loads(result.encode())
    except (DecodeError, ValueError) as error:
        raise typer.BadParameter(
            f"{error}. JSON text needs double quotes inside the shell's quotes: '\"done\"'",
            param_hint="--result",
        ) from error
    try:
        with backend.exit_on_error(), recording("cli"):
            outcome = asyncio.run(_published(Settings.from_env(), context, call, value, status))
    except ValueError as error:
        raise typer.BadParameter(
            f"The result cannot be encoded as a frame: {error}.", param_hint="--result"
        ) from error
    if outcome is None:
        with backend.exit_on_error():
            _fail_unsettleable(
                context, call, asyncio.run(backend.query(Settings.from_env(), _status, context, call))
            )
    if as_json:
        became = {"version": outcome.version, "outcome": outcome.outcome, "reason": outcome.reason}
        typer.echo(json.dumps({"context_id": context, "tool_call_id": call} | became))
    if outcome.outcome == "parked":
        output.fail(
            f"The result is on the log, but the conversation {context!r} is parked.",
            f"Fix the cause, then run `{suggestion.command('unpark', context)}` to apply it.",
        )
    is_unread = outcome.reason in tool_calls.SETTLES_ALL_THE_SAME
    if outcome.outcome != "applied" and not is_unread:
        output.fail(
            f"The result was ignored ({outcome.reason}): it does not settle the call.",
            f"`{suggestion.command('transcript', context)}` shows the result that counts.",
        )
    if not as_json:
        verb = "Answered" if status == "waiting" else "Resolved"
        typer.echo(f"{verb} the call {call} of {context}.")
        if is_unread:
            typer.echo(
                f"The model does not read the result ({outcome.reason}): the history has no place for it."
            )


async def _status(connection: Connection, context: str, call: str) -> str | None:
    await moment.find(connection, context, None)
    return await tool_calls.status_of(connection, context, call)


def _fail_unsettleable(context: str, call: str, status: str | None) -> NoReturn:
    """End the command with the status of a call that it cannot settle, and what to do instead."""
    name = escape.printable(call)
    if status is None:
        output.fail(
            f"The conversation {context!r} has no call {call!r}.",
            "`frameledger calls list` lists the open calls.",
        )
    if status in _SETTLE:
        does, command = _SETTLE[status]
        settle = format_frame.settle_command(command, context, call)
        output.fail(f"The call {name} is {status}.", f"{does.capitalize()} with: {settle}")
    if status in tool_calls.NOT_SETTLED:
        output.fail(
            f"The call {name} is {status}: its function has not ended, and no person has to settle it.",
            "`frameledger calls list` lists the open calls.",
        )
    output.fail(
        f"The call {name} is settled already: it is {status}.",
        f"`{suggestion.command('transcript', context)}` shows the result that counts.",
    )


async def _published(
    settings: Settings, context: str, call: str, result: Any, status: SettleableStatus
) -> PublishedFrame | None:
    """Publishes the result and returns its outcome, or None if there is no such call."""
    stored_call = await backend.query(settings, tool_calls.with_status, context, call, status)
    if stored_call is None:
        return None
    frame = stored_call.settled_with(result)
    of_call = tracing.of_stored(stored_call.trace_id, stored_call.cause)
    async with Client(settings, source=SOURCE) as client:
        with settling(context, call, stored_call.function_name, of_call):
            [published] = await client.publish(context, frame, causation_id=stored_call.cause, wait=True)
    return published


def _key_of(call: UnsettledCall) -> str:
    """Returns the idempotency key that the call's handler received. Derived, because old rows do not store it."""
    return derived.idempotency_key(
        ContextId(call.context_id),
        Version(call.requested_version),
        call.ordinal,
        ToolCallId(call.tool_call_id),
    )
