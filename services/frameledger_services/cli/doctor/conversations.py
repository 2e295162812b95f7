"""What `doctor` says of conversations: frames of unknown types, and contexts that a provider refuses."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.cli.terminal.escape import one_line
from frameledger_services.client.spelling import meant_type
from frameledger_services.store import conversations, other_releases

Connection = AsyncConnection[Any]

NAMED = 3


async def unknown_types(connection: Connection) -> Finding:
    """Whether frames of the last days have types that this release does not know."""
    found = await other_releases.unknown_frames(connection)
    since = f"the last {other_releases.UNKNOWN_DAYS} days"
    if found is None:
        return Finding("types", "ok", f"All frames of {since} have types that are known.")
    count = f"{found.count:,}" if found.count < other_releases.COUNTED else f"At least {found.count:,}"
    newest = f"newest {found.newest_type} from {found.newest_source or 'nobody who said so'}"
    meant = meant_type(found.newest_type)
    guess = "" if meant is None else f" Was {meant} meant?"
    what = "1 frame of an unknown type" if found.count == 1 else f"{count} frames of unknown types"
    return Finding(
        "types",
        "warn",
        f"{what} in {since}, {newest}.{guess}",
        "They are stored and change nothing. Publish anew what is misspelled; with a release that knows the type, "
        "`frameledger rebuild --outcome unknown --apply` folds what is stored.",
    )


async def without_time(connection: Connection) -> Finding:
    """Whether messages that an older release wrote have their time."""
    found = await other_releases.messages_without_time(connection)
    if not found:
        return Finding("times", "ok", "Every message has the time at which it was said.")
    count = f"{found:,}" if found < other_releases.COUNTED else f"At least {found:,}"
    what = "1 message has" if found == 1 else f"{count} messages have"
    return Finding(
        "times",
        "warn",
        f"{what} no time (said_at), since an older release wrote them: facts_messages and facts_turns, asked for a "
        "day, leave them out.",
        'Once no process of that release writes any more: `frameledger sql -c "CALL fill_said_at()"`, while everything '
        "goes on. Rows that are locked meanwhile are left: call it again.",
    )


async def refused(connection: Connection) -> Finding:
    """Returns how many conversations had their latest run refused for their content, and the newest errors."""
    rows = await conversations.refused(connection)
    if not rows:
        return Finding("requests", "ok", "No provider refuses what is in a conversation.")
    what = (
        "One conversation is not answered"
        if len(rows) == 1
        else f"{len(rows):,} conversations are not answered"
    )
    named = "; ".join(
        f"{context_id}: {one_line(error or 'no reason was given')}" for context_id, error in rows[:NAMED]
    )
    return Finding(
        "requests",
        "warn",
        f"{what}, since the provider refuses what is in it as it is. {named}{'; ...' if len(rows) > NAMED else ''}",
        "`frameledger show CONTEXT` shows its messages; what a client put there wrongly (a role that nobody knows, a "
        "part without a form) is replaced with an LLMMessagesUpdateFrame.",
    )
