"""Makes outbox rows from a record: its effects, a forwarded copy, or a dead letter."""

from __future__ import annotations

import orjson

from frameledger import headers
from frameledger.effects import CallFunction, Cancel, Effect, RunInference, to_wire
from frameledger.record import MAX_KEY_BYTES, LoggedFrame, LogPosition, Record, forward
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.store.outbox import OutboxRow


def effect_topics(names: TopicNames) -> dict[str, str]:
    """Returns the topic of each kind of effect."""
    return {
        RunInference.effect: names.inference,
        CallFunction.effect: names.function_calls,
        Cancel.effect: names.cancellations,
    }


def effect_row(
    effect: Effect, cause: LogPosition, ordinal: int, to_topic: str, traceparent: str | None = None
) -> OutboxRow:
    """Returns the row of an effect: at the place of the record that caused it, with its number among the record's
    effects, and in the trace of that record, if it has one."""
    of_trace = () if traceparent is None else ((headers.TRACEPARENT, traceparent.encode()),)
    return OutboxRow(
        topic=cause.topic,
        partition=cause.partition,
        generation=cause.generation,
        offset=cause.offset,
        ordinal=ordinal,
        kind="effect",
        to_topic=to_topic,
        context_id=effect.context_id,
        key=effect.context_id.encode(),
        value=orjson.dumps(to_wire(effect)),
        headers=((headers.CE_ID, effect.id.encode()), (headers.CE_TYPE, effect.effect.encode()), *of_trace),
    )


def forward_row(record: Record, logged: LoggedFrame) -> OutboxRow:
    """Returns the row of a copy of a record, which is published to the partition of its conversation. Clients with
    another partitioner need this."""
    copy = forward(record)
    return OutboxRow(
        topic=record.topic,
        partition=record.partition,
        generation=record.generation,
        offset=record.offset,
        ordinal=0,
        kind="forward",
        to_topic=record.topic,
        context_id=logged.context_id,
        key=copy.key,
        value=copy.value,
        headers=tuple(copy.headers),
    )


def dead_letter_row(record: Record, code: str, error: str, to_topic: str) -> OutboxRow:
    """Returns the row of a dead letter: the record as it was received, with its place and the error in headers."""
    place = (
        (headers.REJECTED_TOPIC, record.topic),
        (headers.REJECTED_GENERATION, record.generation),
        (headers.REJECTED_PARTITION, record.partition),
        (headers.REJECTED_OFFSET, record.offset),
    )
    return OutboxRow(
        topic=record.topic,
        partition=record.partition,
        generation=record.generation,
        offset=record.offset,
        ordinal=0,
        kind="dead_letter",
        to_topic=to_topic,
        context_id=readable_key(record),
        key=record.key,
        value=record.value,
        headers=(
            *record.headers,
            *((name, str(part).encode()) for name, part in place),
            (headers.REJECTED_CODE, code.encode()),
            (headers.REJECTED_ERROR, error.encode("utf-8", "replace")),
        ),
    )


def readable_key(record: Record) -> str | None:
    """Returns the conversation that the key of a record names, or None if it cannot be a conversation's id. A longer
    key might not fit into an index of PostgreSQL."""
    if not record.key or len(record.key) > MAX_KEY_BYTES or b"\x00" in record.key:
        return None
    try:
        return record.key.decode()
    except UnicodeDecodeError:
        return None
