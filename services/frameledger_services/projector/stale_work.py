"""Closing work that was requested too long ago: nobody waits for the answer to a question of yesterday."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid5

from frameledger.effects import CallFunction, RunInference
from frameledger.frames import ErrorFrame, FunctionCallCancelFrame
from frameledger.record import Place, outgoing
from frameledger_services.projector.outbox_rows import effect_row
from frameledger_services.store.outbox import OutboxRow

MAX_AGE = timedelta(minutes=5)
"""Unclaimed work that was requested longer ago than this is not begun any more."""

CLOSING_IDS = UUID("5d8e2f0b-94c7-5a16-b3e0-7c41a96f2d18")
"""The namespace of the ids of frames that close old work. It never changes: stored ids came from it."""


def closing_id(effect: RunInference | CallFunction) -> UUID:
    """Returns the id of the frame that closes the work of an effect. It follows from the effect's id, so publishing the
    frame twice counts once."""
    return uuid5(CLOSING_IDS, effect.id)


def closing_row(
    effect: RunInference | CallFunction, cause: Place, ordinal: int, *, source: str, code: str, message: str
) -> OutboxRow:
    """Returns the frame that closes the work of an old effect, as a row of the outbox: its cause is that of the effect.
    `code` and `message` are for a run, which fails."""
    frame_id = str(closing_id(effect))
    frame: ErrorFrame | FunctionCallCancelFrame
    if isinstance(effect, RunInference):
        frame = ErrorFrame(id=frame_id, run_id=effect.run_id, fatal=True, code=code, message=message)
    else:
        frame = FunctionCallCancelFrame(
            id=frame_id, tool_call_id=effect.tool_call_id, function_name=effect.function_name
        )
    record = outgoing(frame, effect.context_id, source=source, causation_id=effect.causation_id)
    return replace(
        effect_row(effect, cause, ordinal, cause.topic),
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )
