"""The events for an AG-UI client: for any frames they follow the protocol, and the client has the stored messages."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.laws.arbitrary import HIGH_HALF, LOW_HALF, as_from_a_record
from tests.laws.simulation.play import play
from tests.laws.strategies import CONTEXT, Moment, conversations, moments
from tests.support.ag_ui import Consumer

from frameledger import derived
from frameledger.evolve import State
from frameledger.evolve.changes import CallDispatched, CallStarted, MessageAppended
from frameledger.evolve.text import plus, trimmed
from frameledger.frames import (
    AnyFrame,
    Frame,
    LLMAssistantPushAggregationFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMMirrorFrame,
    LLMRunFrame,
    LLMTextFrame,
    LLMThoughtStartFrame,
    TranscriptionFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from frameledger.frames.base import SecondInput
from frameledger.ids import ContextId, Version
from frameledger_services.gateway.ag_ui.messages import shown
from frameledger_services.gateway.ag_ui.streamed_text import StreamedText
from frameledger_services.gateway.ag_ui.translation import QUIET, Translation
from frameledger_services.projector.message_text import readable
from frameledger_services.store.shown_messages import ShownMessage, WrittenMessage


@dataclass
class Waits:
    tool_call_id: str
    requested_version: int
    waiting_for: str | None = "approval"
    waiting_deadline: datetime | None = datetime(2026, 1, 1, tzinfo=UTC)


def with_messages(found: Iterable[Moment]) -> Iterator[tuple[Moment, list[ShownMessage]]]:
    """Yields each moment with its messages as in the tables."""
    runs: dict[tuple[int, int], str | None] = {}
    for moment in found:
        era = moment.after.place.era
        for change in moment.step.changes:
            if isinstance(change, MessageAppended):
                runs[era, change.position] = change.run_id
        yield (
            moment,
            [
                ShownMessage(era, position, runs.get((era, position)), None, message)
                for position, message in moment.rows
            ],
        )


def held(consumer: Consumer) -> dict[str, dict[str, object]]:
    return {key: one for key, one in consumer.messages.items() if one["role"] != "reasoning"}


def all_calls_are_shown(state: State, stored: Sequence[ShownMessage]) -> bool:
    _, calls = shown(stored)
    return all(calls.is_open(name) for name, call in state.calls.open.items() if call.running is not None)


def begun(moment: Moment) -> list[CallStarted]:
    """Returns the calls that the frame both dispatched and began."""
    changes = moment.step.changes
    dispatched = {change.key for change in changes if isinstance(change, CallDispatched)}
    return [change for change in changes if isinstance(change, CallStarted) and change.key in dispatched]


def written(moment: Moment) -> list[WrittenMessage]:
    """Returns the messages that the frame wrote."""
    return [
        WrittenMessage(
            int(moment.after.version),
            (int(moment.after.place.era), int(change.position)),
            readable(change.message)[0],
            change.run_id,
            makes_calls=bool(change.message.get("tool_calls")),
        )
        for change in moment.step.changes
        if isinstance(change, MessageAppended)
    ]


def follow(frames: Sequence[AnyFrame], begin: int, end: int) -> None:
    """Let a client connect after `begin` frames, and let its run end after `end` more."""
    consumer, translation = Consumer(), Translation(CONTEXT, "run-1")
    stored: list[ShownMessage] = []
    found = list(with_messages(moments(frames)))[: begin + end]
    for number, (moment, messages) in enumerate(found):
        # A client that connects later does not know a call that continues after the history was replaced.
        if consumer.run is None and (number < begin or not all_calls_are_shown(moment.before, stored)):
            stored = messages
            continue
        if consumer.run is None:
            is_mirror = moment.before.terms.mirror is not None
            translation = Translation(CONTEXT, "run-1", is_mirror=is_mirror)
            consumer.take_all(translation.started(stored))
        outcome = moment.step.outcome
        of_frame = moment.after.version, moment.frame, outcome, moment.step.reason
        taken = translation.take(*of_frame, begun(moment), written(moment))
        consumer.take_all(taken)
        assert not consumer.reads_text or moment.after.speech.response, "a text is open that is over"
        following = found[number + 1][0].frame.type if number + 1 < len(found) else None
        if translation.is_stale and following not in QUIET:
            consumer.take_all(translation.snapshot(messages))
        if not consumer.reads_text and not translation.is_stale:
            stated = {one["id"]: one for one in shown(messages)[0]}
            assert held(consumer) == stated, f"{moment.after.version}: {held(consumer)} is not {stated}"
    if consumer.run is None:
        consumer.take_all(translation.started(stored))
    open_calls = found[-1][0].after.calls.open.values() if found else ()
    waiting = [Waits(call.tool_call_id, call.requested_version) for call in open_calls]
    consumer.take_all(translation.finished(waiting))
    assert consumer.ended in ("RUN_FINISHED", "RUN_ERROR")


RUN = derived.run_id(ContextId(CONTEXT), Version(1))
ASKED = (LLMRunFrame(), LLMFullResponseStartFrame(run_id=RUN))
CALL = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "f"}}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "7"}


def asks(way: SecondInput, *messages: dict[str, Any]) -> LLMMessagesAppendFrame:
    return LLMMessagesAppendFrame(messages=messages, run_llm=True, second_input=way)


def logged(*frames: Frame) -> tuple[AnyFrame, ...]:
    """Returns these frames as from the log."""
    return tuple(as_from_a_record(frame) for frame in frames)


@pytest.mark.regression("gateway 39")
@example(logged(*ASKED, LLMTextFrame(text="Yes", run_id=RUN), asks("interrupt")), 0, 60)
@example(
    logged(
        *ASKED,
        LLMTextFrame(text="Yes", run_id=RUN),
        LLMThoughtStartFrame(run_id=RUN),
        UserStartedSpeakingFrame(second_input="interrupt"),
        TranscriptionFrame(text="Stop."),
        UserStoppedSpeakingFrame(),
        UserStoppedSpeakingFrame(),
    ),
    0,
    60,
)
@example(logged(*ASKED, LLMTextFrame(text=HIGH_HALF, run_id=RUN), asks("interrupt", RESULT)), 0, 60)
@example(logged(*ASKED, asks("coalesce", RESULT), LLMFullResponseEndFrame(run_id=RUN)), 0, 60)
@example(logged(*ASKED, asks("coalesce", CALL, RESULT), LLMFullResponseEndFrame(run_id=RUN)), 0, 60)
@example(
    logged(
        *ASKED,
        LLMTextFrame(text="Yes", run_id=RUN),
        LLMAssistantPushAggregationFrame(run_id=RUN),
        LLMMirrorFrame(mirror="elsewhere", react=True),
        LLMFullResponseStartFrame(run_id=RUN, attempt=2),
        LLMTextFrame(text="No", run_id=RUN, attempt=2),
    ),
    5,
    60,
)
@given(conversations(erases=True), st.integers(0, 30), st.integers(1, 60))
def test_a_client_holds_what_is_stored_and_its_protocol_is_kept_wherever_it_comes_in(frames, begin, end):
    follow(frames, begin, end)


def test_so_it_is_in_conversations_of_workers_that_are_killed_and_frozen():
    for seed in range(8):
        follow([stored.frame for stored in play(seed).lives_kept.frames], 0, 10_000)


def test_so_it_is_where_clients_have_functions_of_their_own():
    for seed in (64, 94):
        frames = [stored.frame for stored in play(seed).lives_kept.frames]
        assert any(begun(moment) for moment in moments(frames))
        follow(frames, 0, 10_000)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ("a", " b", "c ", " ", "\n", "", HIGH_HALF, LOW_HALF, f"{LOW_HALF} ", f" {HIGH_HALF}")
            ),
            st.booleans(),
        )
    )
)
def test_what_streams_of_a_text_is_the_text_that_is_stored(pieces):
    text, streamed, deltas = None, StreamedText(), []
    for piece, carries_spaces in pieces:
        text = plus(text, piece, carries_spaces)
        deltas.append(streamed.add(piece, carries_spaces))
    deltas.append(streamed.end())
    assert "".join(deltas) == trimmed(text)
    assert streamed.is_begun == bool(trimmed(text))
