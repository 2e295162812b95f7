"""The option `--at`: a version of a conversation or a time, and its lookup in the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, NoReturn

import typer

from frameledger_services.cli.terminal import escape, output
from frameledger_services.database_types import Connection
from frameledger_services.store import contexts, moments
from frameledger_services.store.contexts import ContextErasedError, NoSuchContextError
from frameledger_services.store.moments import Moment

LARGEST_VERSION = 2**63 - 1


@dataclass(frozen=True, slots=True)
class At:
    """The parsed option: a version, a time, or neither."""

    version: int | None = None
    time: datetime | None = None


def parse(written: str) -> At:
    """Parses the option's text. A time without an offset is UTC."""
    if written.isascii() and written.isdigit():
        if int(written) > LARGEST_VERSION:
            raise typer.BadParameter(f"a version is at most {LARGEST_VERSION}")
        return At(version=int(written))
    try:
        # RFC 3339 allows T and Z in either case.
        time = datetime.fromisoformat(written.upper())
    except ValueError:
        raise typer.BadParameter(
            f"{written!r} is neither a version (12) nor a time (2026-05-01T12:00:00+02:00)"
        ) from None
    return At(time=time if time.tzinfo is not None else time.replace(tzinfo=UTC))


def parse_time(written: str) -> datetime:
    """Parses the text of an option that takes a time only. Returns it in UTC."""
    try:
        time = parse(written).time
    except typer.BadParameter:
        time = None
    if time is None:
        raise typer.BadParameter(f"{written!r} is not a time such as 2026-05-01 or 2026-05-01T12:00:00+02:00")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        # In UTC it is before the year 1 or after 9999, where no frame is: the nearest time that there is.
        return (datetime.min if time.year == 1 else datetime.max).replace(tzinfo=UTC)


def checked(written: str | None) -> str | None:
    """Typer callback that validates an argument, which stays text: the help shows an argument's type."""
    if written is not None:
        parse(written)
    return written


def check_range(first: int | None, last: int | None, end: str) -> None:
    """Refuse a range in which there is no version. `end`: the option that has its last one."""
    if first is not None and last is not None and last < first:
        raise typer.BadParameter(
            f"version {last} comes before --from {first}: give {first} or a later version", param_hint=end
        )


Option = Annotated[
    At | None,
    typer.Option(
        "--at",
        parser=parse,
        metavar="VERSION|TIME",
        help="A version (number of frames), or an ISO 8601 time of the broker's clock, UTC without an offset. Default: "
        "the newest version.",
        show_default=False,
    ),
]


def fail_missing(error: NoSuchContextError) -> NoReturn:
    """End the command with the reason why a conversation is missing, and where to look."""
    if isinstance(error, ContextErasedError):
        output.fail(escape.printable(str(error)), "Its receipt is in the table erasures: `frameledger sql`.")
    output.fail(
        str(error),
        "`frameledger list` lists the conversations; `frameledger tail` shows the latest records of the log.",
    )


async def find(connection: Connection, context_id: str, at: At | None) -> Moment:
    """Returns the requested version. Ends the command if the conversation or that version does not exist."""
    target = at or At()
    conversation = await moments.moment(connection, context_id, version=target.version, time=target.time)
    if conversation is None:
        fail_missing(await contexts.missing(connection, context_id))
    if not conversation.exists:
        erased = conversation.erased_version
        output.fail(
            f"The conversation {context_id!r} has no version {conversation.version}.",
            f"It has {erased} to {conversation.newest}."
            + (" Earlier versions were erased." if erased else ""),
        )
    return conversation


async def find_range(connection: Connection, context_id: str, first: int | None, last: int | None) -> Moment:
    """Returns the last version of a range, by default the newest. Ends the command if its first or last one does not
    exist."""
    if first is not None:
        await find(connection, context_id, At(version=first))
    return await find(connection, context_id, None if last is None else At(version=last))
