"""Findings of `doctor` about conversations: unknown frame types, missing times, and content that a provider rejects."""

from __future__ import annotations

from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.cli.terminal.escape import one_line
from frameledger_services.client.spelling import closest_type
from frameledger_services.database_types import Connection
from frameledger_services.store import conversations, other_releases

NAMED = 3


async def unknown_types(connection: Connection) -> Finding:
    """Checks the frames of the last days for types that are unknown to this release."""
    frames = await other_releases.unknown_frames(connection)
    since = f"the last {other_releases.UNKNOWN_DAYS} days"
    if frames is None:
        return Finding("types", "ok", f"All frames of {since} have known types.")
    count = f"{frames.count:,}" if frames.count < other_releases.COUNTED else f"At least {frames.count:,}"
    newest = f"newest {frames.newest_type} from {frames.newest_source or 'an unnamed source'}"
    closest = closest_type(frames.newest_type)
    guess = "" if closest is None else f" Did you mean {closest}?"
    what = "1 frame of an unknown type" if frames.count == 1 else f"{count} frames of unknown types"
    return Finding(
        "types",
        "warn",
        f"{what} in {since}, {newest}.{guess}",
        "They are stored and not applied. Publish misspelled frames again with the right type. After an upgrade to a "
        "release that knows the type, apply the stored ones: `frameledger rebuild --outcome unknown --apply`.",
    )


async def without_time(connection: Connection) -> Finding:
    """Checks for messages without a time, which an older release wrote."""
    message_count = await other_releases.messages_without_time(connection)
    if not message_count:
        return Finding("times", "ok", "Every message has its time.")
    count = f"{message_count:,}" if message_count < other_releases.COUNTED else f"At least {message_count:,}"
    what = "1 message has" if message_count == 1 else f"{count} messages have"
    return Finding(
        "times",
        "warn",
        f"{what} no time (said_at), because an older release wrote them. Queries of facts_messages and facts_turns by "
        "day leave them out.",
        'When all processes of that release have stopped, run `frameledger sql -c "CALL fill_said_at()"`. Services '
        "of this release can keep running. It skips locked rows: repeat it for them.",
    )


async def refused(connection: Connection) -> Finding:
    """Checks for conversations whose latest run a provider rejected because of their content."""
    rows = await conversations.refused(connection)
    if not rows:
        return Finding("requests", "ok", "No provider rejects the content of a conversation.")
    what = (
        "One conversation gets no answer" if len(rows) == 1 else f"{len(rows):,} conversations get no answer"
    )
    named = "; ".join(
        f"{context_id}: {one_line(error or 'no reason was given')}" for context_id, error in rows[:NAMED]
    )
    return Finding(
        "requests",
        "warn",
        f"{what}, because the provider rejects the content. {named}{'; ...' if len(rows) > NAMED else ''}",
        "`frameledger show CONTEXT` shows the messages. Replace an invalid one (an unknown role, a malformed part) "
        "with an LLMMessagesUpdateFrame.",
    )
