"""Publishing dead letters again, unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC

from frameledger.headers import milliseconds
from frameledger.record import LogPosition, Outgoing, Record, forward
from frameledger_services import database
from frameledger_services.cli.repair import positions
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.publish_errors import PublishError
from frameledger_services.settings import Settings
from frameledger_services.store import dead_letters, schema
from frameledger_services.store.dead_letters import DeadLetter
from frameledger_services.store.record_headers import headers_from_json


@dataclass(frozen=True, slots=True)
class Retried:
    """The result for a dead letter, by its place. Values are not kept: all together may not fit into memory."""

    published: list[tuple[LogPosition, LogPosition]] = field(default_factory=list)
    left: list[tuple[LogPosition, str]] = field(default_factory=list)


async def retry(settings: Settings, places: Sequence[LogPosition], *, again: bool) -> Retried:
    """Publish the dead letters at these places again, or without places all that were not retried yet."""
    async with (
        await database.connect(settings, "frameledger dlq", role="frameledger_projector") as connection,
        Producer(settings, name="frameledger-dlq") as producer,
    ):
        await schema.check(connection)
        chosen_places = places or await dead_letters.not_retried(connection, positions.topic(settings))
        result = Retried()
        for first in range(0, len(chosen_places), dead_letters.AT_ONCE):
            page = chosen_places[first : first + dead_letters.AT_ONCE]
            rejected = {positions.of(one): one for one in await dead_letters.at(connection, page)}
            for place in places and page:
                if place in rejected:
                    continue
                if first == 0:
                    positions.refuse_missing(place)
                # Records of earlier pages are published already, and have to be reported.
                result.left.append((place, "there is no dead letter at this position."))
            for place, letter in rejected.items():
                why = _why_not(letter, again=again)
                if why is None:
                    try:
                        (published,) = await producer.publish(letter.topic, [outgoing(letter)])
                    except PublishError as error:
                        why = str(error)
                    else:
                        # After Kafka acknowledged it: a crash in between publishes it twice, which counts once.
                        await dead_letters.note_retried(connection, place)
                        result.published.append((place, published))
                if why is not None:
                    result.left.append((place, why))
        return result


def _why_not(letter: DeadLetter, *, again: bool) -> str | None:
    if letter.key is None or not letter.key:
        return (
            "it has no key, so it belongs to no conversation. Publish its value with `frameledger publish`."
        )
    if letter.value is None:
        return "it has no value."
    try:
        headers_from_json(letter.headers)
    except ValueError as error:
        return f"its headers are not those of a record: {error}. Correct `headers` of its row in `rejected_frames`."
    if letter.retried_at is not None and not again:
        retried_at = letter.retried_at.astimezone(UTC)
        return f"it was retried at {retried_at:%Y-%m-%d %H:%M:%S} UTC. Use --again to repeat that."
    return None


def outgoing(letter: DeadLetter) -> Outgoing:
    """Returns the record that is published again: the same bytes and headers, with the place of the original, so that a
    frame without an id counts once however often it is published, and when it was logged: its conversation may be
    erased before the broker has it; then it is left out (RA5.lives). Raises ValueError for headers that are not those
    of a record."""
    logged_ms = None if letter.logged_at is None else milliseconds(letter.logged_at)
    headers = headers_from_json(letter.headers)
    return forward(
        Record(
            letter.topic,
            letter.partition,
            letter.offset,
            letter.key,
            letter.value,
            headers,
            logged_ms,
            letter.generation,
        )
    )
