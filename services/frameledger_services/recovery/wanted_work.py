"""The effects of unparked frames: those that are still needed are requested, or closed by a frame if too old."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from frameledger.effects import CallFunction, Cancel, Effect, RunInference
from frameledger.evolve.state import State
from frameledger.record import LogPosition
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.projector.outbox_rows import effect_row, effect_topics
from frameledger_services.projector.stale_work import MAX_AGE, Closing, closing_row
from frameledger_services.store.outbox import OutboxRow
from frameledger_services.store.parked import ParkedFrame

TOO_LATE = Closing(
    "frameledger/unpark",
    "parked",
    "The conversation was parked when this run was asked for, and unparked too late to begin it.",
)


@dataclass(frozen=True, slots=True)
class Caused:
    """An effect, and the frame that caused it."""

    cause: ParkedFrame
    effect: Effect


def outbox(
    names: TopicNames, caused: Sequence[Caused], before: State, after: State, now: datetime
) -> Iterator[OutboxRow]:
    """Yields the outbox rows for effects that are still needed, in the order of the frames that caused them. `before`
    and `after` are the states before the first and after the last of these frames."""
    topics = effect_topics(names)
    for ordinal, caused_effect in enumerate(caused):
        cause, effect = caused_effect.cause, caused_effect.effect
        if not _is_due(effect, before, after):
            continue
        place = LogPosition(names.frames, cause.partition, cause.offset, cause.generation)
        if isinstance(effect, Cancel) or now - cause.logged_at < MAX_AGE:
            yield effect_row(effect, place, ordinal, topics[effect.effect])
        else:
            yield closing_row(effect, place, ordinal, TOO_LATE)


def _is_due(effect: Effect, before: State, after: State) -> bool:
    """Whether an effect is still needed: to begin open work, or to cancel work that may have begun before."""
    match effect:
        case RunInference():
            run = after.runs.open
            return run is not None and run.run_id == effect.run_id and run.untouched
        case CallFunction():
            call = after.calls.open.get(effect.tool_call_id)
            return (
                call is not None
                and (call.requested_version, call.ordinal) == (effect.requested_version, effect.ordinal)
                and call.stage == "dispatched"
            )
        case Cancel():
            run = before.runs.open
            return (run is not None and run.run_id == effect.run_id) or (
                effect.tool_call_id is not None and effect.tool_call_id in before.calls.open
            )
