"""Makes outbox rows for open work: rows that request it, or that close it if it was requested too long ago."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID, uuid5

from frameledger.effects import CallFunction, RunInference
from frameledger.frames import ErrorFrame, FunctionCallCancelFrame
from frameledger.record import LogPosition, outgoing
from frameledger_services import call_words
from frameledger_services.projector.outbox_rows import effect_row
from frameledger_services.store.held_effects import UnclaimedWork
from frameledger_services.store.outbox import OutboxRow

MAX_AGE = timedelta(minutes=5)
"""Unclaimed work that was requested longer ago than this is not started any more."""

CLOSING_IDS = UUID("5d8e2f0b-94c7-5a16-b3e0-7c41a96f2d18")
"""The namespace of the ids of frames that close old work. It never changes: stored ids were derived from it."""


@dataclass(frozen=True, slots=True)
class Closing:
    """How old work is closed, and by whom. `code` and `message` are for a run, which fails."""

    source: str
    code: str
    message: str


def closing_id(effect: RunInference | CallFunction) -> UUID:
    """Returns the id of the frame that closes the work of an effect. It is derived from the effect's id, so publishing
    the frame twice counts once."""
    return uuid5(CLOSING_IDS, effect.id)


def open_work_rows(
    topic: str,
    partition: int,
    effects: Mapping[str, str],
    work: Iterable[UnclaimedWork],
    closing: Closing | None,
    last: OutboxRow | None = None,
) -> Iterator[OutboxRow]:
    """Yields the rows that request open work of a partition, or close it if `closing` is given. `effects` has the topic
    of each effect. The work is in the order of its places, after the row `last`, whose place it may share."""
    for item in work:
        place, effect = LogPosition(topic, partition, item.offset, item.generation), item.effect
        ordinal = (
            last.ordinal + 1
            if last is not None and (last.generation, last.offset) == (item.generation, item.offset)
            else 0
        )
        if closing is None:
            last = effect_row(effect, place, ordinal, effects[effect.effect])
        else:
            last = closing_row(effect, place, ordinal, closing)
        yield last


def closing_row(
    effect: RunInference | CallFunction, cause: LogPosition, ordinal: int, closing: Closing
) -> OutboxRow:
    """Returns the frame that closes the work of an old effect, as an outbox row. Its cause is that of the effect."""
    frame_id = str(closing_id(effect))
    frame: ErrorFrame | FunctionCallCancelFrame
    if isinstance(effect, RunInference):
        frame = ErrorFrame(
            id=frame_id, run_id=effect.run_id, fatal=True, code=closing.code, message=closing.message
        )
    else:
        frame = FunctionCallCancelFrame(
            id=frame_id,
            tool_call_id=effect.tool_call_id,
            function_name=call_words.shown(effect.function_name),
        )
    record = outgoing(frame, effect.context_id, source=closing.source, causation_id=effect.causation_id)
    return replace(
        effect_row(effect, cause, ordinal, cause.topic),
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )
