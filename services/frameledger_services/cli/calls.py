"""`frameledger calls`: function calls that go on, wait for a person, or may or may not have happened."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import typer

from frameledger import derived, strict_json
from frameledger.decode_error import DecodeError
from frameledger.frames import FunctionCallResultFrame
from frameledger.ids import ContextId, ToolCallId, Version
from frameledger_services.cli.terminal import backend, escape, format_frame, options, output
from frameledger_services.client import Client, PublishedFrame
from frameledger_services.settings import Settings
from frameledger_services.store import tool_calls
from frameledger_services.store.tool_calls import UnsettledCall
from frameledger_services.telemetry import tracing
from frameledger_services.telemetry.message_spans import settling
from frameledger_services.telemetry.provider import recording

SOURCE = "frameledger/command-line"

commands = typer.Typer(
    name="calls",
    no_args_is_help=True,
    help="Function calls that go on, wait for a person, or may or may not have happened.",
)

CallId = Annotated[str, typer.Argument(metavar="CALL", help="The call's id.")]
Result = Annotated[str, typer.Option(metavar="JSON", help="What the model shall read, as JSON.")]


@commands.command("list")
def list_calls(
    context: Annotated[
        str | None,
        typer.Argument(
            metavar="CONTEXT", callback=options.context_id, help="One conversation's.", show_default=False
        ),
    ] = None,
    as_json: options.AsJsonLines = False,
) -> None:
    """List the calls that are not over, and those that are ambiguous: nobody knows whether they happened.

    The oldest come first, a thousand at most.

    Example: `frameledger calls list`
    """
    with backend.exit_on_error():
        found = asyncio.run(backend.query(Settings.from_env(), tool_calls.unsettled, context))
    if as_json:
        for one in found:
            listed = asdict(one) | {"idempotency_key": _key_of(one)}
            typer.echo(json.dumps(listed, default=datetime.isoformat))
        return
    if not found:
        typer.echo("No call goes on, waits for a person, or is ambiguous.")
        return
    for one in found:
        for line in _shown(one):
            # Not through rich, which would fold an id that is to be copied.
            typer.echo(line)


def _shown(call: UnsettledCall) -> Iterator[str]:
    """A call in a few lines. Its ids stand whole, each at the end of a line, and the command that settles it is whole
    too, but for the result."""
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
    "ambiguous": ("say what became", "resolve"),
}


@commands.command()
def answer(context: options.Context, call: CallId, result: Result, as_json: options.AsJson = False) -> None:
    """Answer a call that waits for a person. Its result goes to the model, and the conversation goes on.

    Example: frameledger calls answer ctx-1 call-7 --result '{"approved": true}'
    """
    _settle(context, call, result, "waiting", as_json)


@commands.command()
def resolve(context: options.Context, call: CallId, result: Result, as_json: options.AsJson = False) -> None:
    """Say what became of an ambiguous call, once you have found out. The model is told; nothing is run again.

    Example: frameledger calls resolve ctx-1 call-7 --result '"It was paid."'
    """
    _settle(context, call, result, "ambiguous", as_json)


def _settle(
    context: str, call: str, result: str, status: Literal["waiting", "ambiguous"], as_json: bool
) -> None:
    try:
        value = strict_json.loads(result.encode())
    except (DecodeError, ValueError) as error:
        raise typer.BadParameter(
            f"{error}. Text stands in double quotes inside the shell's: '\"done\"'", param_hint="--result"
        ) from error
    try:
        with backend.exit_on_error(), recording("cli"):
            outcome = asyncio.run(_published(Settings.from_env(), context, call, value, status))
    except ValueError as error:
        raise typer.BadParameter(f"No frame can carry it: {error}.", param_hint="--result") from error
    if outcome is None:
        output.fail(
            f"The context {context!r} has no {status} call {call!r}.",
            "`frameledger calls list` lists those that there are.",
        )
    if as_json:
        became = {"version": outcome.version, "outcome": outcome.outcome, "reason": outcome.reason}
        typer.echo(json.dumps({"context_id": context, "tool_call_id": call} | became))
    if outcome.outcome == "parked":
        output.fail(
            f"It is on the log, but the context {context!r} is parked.",
            f"It counts once the cause is mended: `frameledger unpark {shlex.quote(context)}`.",
        )
    is_unread = outcome.reason in tool_calls.SETTLES_ALL_THE_SAME
    if outcome.outcome != "applied" and not is_unread:
        output.fail(
            f"The result was ignored ({outcome.reason}): it does not settle the call.",
            f"`frameledger transcript {shlex.quote(context)}` shows by what.",
        )
    if not as_json:
        typer.echo(f"The call {call} of {context} is {'answered' if status == 'waiting' else 'resolved'}.")
        if is_unread:
            typer.echo(
                f"The model does not read the result ({outcome.reason}): the history has no place for it."
            )


async def _published(
    settings: Settings, context: str, call: str, result: Any, status: Literal["waiting", "ambiguous"]
) -> PublishedFrame | None:
    """Returns what became of the result; None if there is no such call."""
    found = await backend.query(settings, tool_calls.with_status, context, call, status)
    if found is None:
        return None
    frame = FunctionCallResultFrame(
        function_name=found.function_name,
        tool_call_id=call,
        result=result,
        settled_as="resolved" if status == "ambiguous" else None,
        opened_version=found.requested_version,
    )
    of_call = tracing.of_stored(found.trace_id, found.cause)
    async with Client(settings, source=SOURCE) as client:
        with settling(context, call, found.function_name, of_call):
            [published] = await client.publish(context, frame, causation_id=found.cause, wait=True)
    return published


def _key_of(call: UnsettledCall) -> str:
    """What its handler got to send along, so that a repetition is recognized. Derived: old rows do not have it."""
    return derived.idempotency_key(
        ContextId(call.context_id),
        Version(call.requested_version),
        call.ordinal,
        ToolCallId(call.tool_call_id),
    )
