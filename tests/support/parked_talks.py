"""Conversations that a projector parks although nothing is wrong with them: for a while a constraint refuses a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from tests.support.batches import value_of
from tests.support.pipeline import Pipeline, Raw

from frameledger import derived
from frameledger.frames import (
    FunctionCallFromLLM,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    encode_frame,
)
from frameledger.ids import ContextId, Version

REFUSED = "refused"

PARKED_AT = 2


def said(context_id: str, text: str, *, run: bool = False) -> Raw:
    frame = LLMMessagesAppendFrame(messages=[{"role": "user", "content": text}], run_llm=run)
    return Raw(context_id.encode(), encode_frame(frame))


def talk(context_id: str) -> list[Raw]:
    """Returns a conversation that interrupts a run after the refused text, and ends with an open call."""
    run: dict[str, Any] = {"run_id": derived.run_id(ContextId(context_id), Version(4)), "attempt": 1}
    call = FunctionCallFromLLM(function_name="look", tool_call_id=f"call-{context_id}", arguments={})
    frames = [
        InterruptionFrame(),
        LLMMessagesAppendFrame(messages=[{"role": "user", "content": "Look!"}], run_llm=True),
        LLMFullResponseStartFrame(**run),
        FunctionCallsStartedFrame(function_calls=[call], **run),
        LLMFullResponseEndFrame(**run),
    ]
    return [
        said(context_id, "Hi", run=True),
        said(context_id, REFUSED),
        *(Raw(context_id.encode(), encode_frame(frame)) for frame in frames),
    ]


def talks(context_ids: Sequence[str]) -> Iterator[Raw]:
    """Yields one such conversation for each id, interleaved frame by frame."""
    for turn in zip(*map(talk, context_ids), strict=True):
        yield from turn


def park(pipeline: Pipeline, running: Any, context_ids: Sequence[str]) -> None:
    """Let the projector park these conversations at `PARKED_AT`, and remove the cause."""
    with psycopg.connect(pipeline.address, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE messages ADD CONSTRAINT refused CHECK (text <> '{REFUSED}')")
        pipeline.publish(talks(context_ids))
        pipeline.until_idle(running)
        connection.execute("ALTER TABLE messages DROP CONSTRAINT refused")
        parked = "SELECT count(*) FROM contexts WHERE parked_version = %s"
        assert value_of(connection, parked, PARKED_AT) == len(context_ids)
