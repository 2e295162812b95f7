"""Publishing dead letters again, unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC

from frameledger.headers import milliseconds, originally_logged, originally_logged_ms
from frameledger.record import LogPosition, Outgoing
from frameledger_services import database
from frameledger_services.cli.repair import positions
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.publish_errors import PublishError
from frameledger_services.settings import Settings
from frameledger_services.store import dead_letters, schema
from frameledger_services.store.dead_letters import DeadLetter
from frameledger_services.store.outbox import headers_from_json


@dataclass(frozen=True, slots=True)
class Retried:
    """What became of each dead letter, by its place. Its value is not kept: all together may not fit into memory."""

    published: list[tuple[LogPosition, LogPosition]] = field(default_factory=list)
    left: list[tuple[LogPosition, str]] = field(default_factory=list)


async def retry(settings: Settings, places: Sequence[LogPosition], *, again: bool) -> Retried:
    """Publish the dead letters at these places again, or without places all that were not retried yet."""
    async with (
        await database.connect(settings, "frameledger dlq") as connection,
        Producer(settings, name="frameledger-dlq") as producer,
    ):
        await schema.check(connection)
        asked = places or await dead_letters.not_retried(connection, positions.topic(settings))
        done = Retried()
        for first in range(0, len(asked), dead_letters.AT_ONCE):
            page = asked[first : first + dead_letters.AT_ONCE]
            rejected = {positions.of(one): one for one in await dead_letters.at(connection, page)}
            for place in places and page:
                if place in rejected:
                    continue
                if first == 0:
                    positions.refuse_missing(place)
                # Records of earlier pages are published, which must be told.
                done.left.append((place, "there is no dead letter at this position."))
            for place, one in rejected.items():
                why = _why_not(one, again=again)
                if why is None:
                    try:
                        (published,) = await producer.publish(one.topic, [outgoing(one)])
                    except PublishError as error:
                        why = str(error)
                    else:
                        # Marked after Kafka acknowledged it: a crash in between publishes it twice, and loses none.
                        await dead_letters.note_retried(connection, place)
                        done.published.append((place, published))
                if why is not None:
                    done.left.append((place, why))
        return done


def _why_not(one: DeadLetter, *, again: bool) -> str | None:
    if one.key is None or not one.key:
        return (
            "it has no key, so it belongs to no conversation. Publish its value with `frameledger publish`."
        )
    if one.value is None:
        return "it has no value."
    if one.retried_at is not None and not again:
        return f"it was retried at {one.retried_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC. Use --again to repeat that."
    return None


def outgoing(one: DeadLetter) -> Outgoing:
    """Returns the record that is published again: the same bytes and headers, and one that says when it was logged.
    Its conversation may be erased before the broker has it; then it is left out (RA5.lives)."""
    assert one.key is not None
    assert one.value is not None
    headers = headers_from_json(one.headers)
    if one.logged_at is not None and originally_logged_ms(dict(headers)) is None:
        headers = (*headers, originally_logged(milliseconds(one.logged_at)))
    return Outgoing(one.key, one.value, headers)
