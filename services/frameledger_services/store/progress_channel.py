"""The channel on which projectors notify what they have stored, so that waiting readers need not poll."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass, field
from zlib import crc32

from frameledger_services import database
from frameledger_services.database_types import Connection
from frameledger_services.store import durability

CHANNEL = "frameledger_projected"


async def notifications(connection: Connection) -> AsyncGenerator[str, None]:
    """Subscribe the connection to `notify_progress`. Yields the payload of each notification, and an empty one first,
    when the subscription has begun. Raises psycopg's errors when the connection breaks or the server is silent."""
    await connection.execute(f"LISTEN {CHANNEL}")
    yield ""
    while True:
        async for notification in connection.notifies(timeout=database.LISTENERS_ASK_SECONDS):
            yield notification.payload
        await database.ping(connection)


@dataclass(frozen=True, slots=True)
class Notification:
    """The content of a notification by `notify_progress`. Listeners have to check the tables, because any user may
    notify."""

    topic: str = ""
    """Empty if it is unknown: anything may have been stored."""

    offsets: Mapping[int, int] = field(default_factory=dict)
    """The next offset of each partition that made progress; none if that is unknown."""

    conversations: frozenset[str] | None = None
    """The hashes (`hash_of`) of all conversations that may have changed; None if that is unknown."""


def hash_of(context_id: str) -> str:
    """Returns a short hash of a conversation's id, because those of a whole batch have to fit into a notification.
    Another conversation may have the same hash."""
    return f"{crc32(context_id.encode('utf-8', 'surrogatepass')):08x}"


async def notify_progress(
    connection: Connection,
    topic: str,
    offsets: Mapping[int, int],
    context_ids: Collection[str] | None = None,
) -> None:
    """NOTIFY the next offsets of partitions, and the conversations of the stored records if they are known and not
    more than `MAX_CONVERSATIONS`. If the offsets do not fit into a notification, it is sent without content.

    Commits before this call are on disk when it returns.
    """
    payload = " ".join([topic, *(f"{partition}:{offset}" for partition, offset in offsets.items())])
    if not offsets or len(payload) > _LONGEST:
        payload = ""
    elif context_ids is not None and len(context_ids) <= MAX_CONVERSATIONS:
        payload = " ".join([payload, _CONVERSATIONS, *sorted(map(hash_of, context_ids))])
    await connection.execute(f"SELECT {durability.WAL_MESSAGE}, pg_notify(%s, %s)", (CHANNEL, payload))


MAX_CONVERSATIONS = 200
"""The maximum number in one notification: every listener receives them, also those that do not need them. With more of
them, checking everything that is followed is a small part of the work."""

_HASH_BYTES = len(f" {hash_of('')}")
_LONGEST = 7_990 - (MAX_CONVERSATIONS + 1) * _HASH_BYTES
"""The maximum bytes of topic and offsets. PostgreSQL's limit of a payload is 8,000 bytes."""

_CONVERSATIONS = "#"
"""Precedes the hashes of conversations in a payload. A release that does not know it reads a payload without offsets,
and checks the tables."""


def read_notification(payload: str) -> Notification:
    """Returns the content of a payload of `notify_progress`. A malformed one has only its topic."""
    progress, mark, hashes = payload.partition(f" {_CONVERSATIONS}")
    topic, *offsets = progress.split(" ")
    try:
        read = {int(partition): int(offset) for partition, offset in (one.split(":") for one in offsets)}
    except ValueError:
        return Notification(topic)
    return Notification(topic, read, frozenset(hashes.split()) if read and mark else None)
