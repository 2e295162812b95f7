"""`--at`: a version of a conversation, or a time, and the moment of the conversation that it names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from psycopg import AsyncConnection

from frameledger_services.cli.terminal import output
from frameledger_services.store import moments
from frameledger_services.store.contexts import NoSuchContextError
from frameledger_services.store.moments import Moment

LARGEST_VERSION = 2**63 - 1


@dataclass(frozen=True, slots=True)
class At:
    """What was asked for: at most one of the two."""

    version: int | None = None
    time: datetime | None = None


def parse(written: str) -> At:
    """Read the option's text. A time without an offset from UTC is UTC."""
    if written.isascii() and written.isdigit():
        if int(written) > LARGEST_VERSION:
            raise typer.BadParameter("no conversation has so many frames")
        return At(version=int(written))
    try:
        # RFC 3339 takes the T and the Z in either case.
        time = datetime.fromisoformat(written.upper())
    except ValueError:
        raise typer.BadParameter(
            f"{written!r} is neither a version (12) nor a time (2026-05-01T12:00:00+02:00)"
        ) from None
    return At(time=time if time.tzinfo is not None else time.replace(tzinfo=UTC))


Option = Annotated[
    At | None,
    typer.Option(
        "--at",
        parser=parse,
        metavar="VERSION|TIME",
        help="After so many frames, or at an ISO 8601 time by the broker's clock; UTC if it names no offset. Now, if "
        "not given.",
        show_default=False,
    ),
]


async def find(connection: AsyncConnection[Any], context_id: str, at: At | None) -> Moment:
    """The moment that was asked for; ends the command if the conversation, or that version of it, is not there."""
    asked = at or At()
    found = await moments.moment(connection, context_id, version=asked.version, time=asked.time)
    if found is None:
        output.fail(
            str(NoSuchContextError(context_id)),
            "`frameledger list` lists the conversations; `frameledger tail` shows the latest records of the log.",
        )
    if not found.exists:
        erased = found.erased_version
        output.fail(
            f"The context {context_id!r} has no version {found.version}.",
            f"It has {erased} to {found.newest}." + (" What was before was erased." if erased else ""),
        )
    return found
