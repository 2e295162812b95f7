"""Copies of a conversation, as a replay publishes them: a recording with the same messages, without effects."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from tests.laws.strategies import CONTEXT, conversations
from tests.support.batches import HISTORIES
from tests.unit.rules import dsl
from tests.unit.rules.dsl import (
    announce,
    append,
    ask,
    begin,
    cancel,
    committed,
    end,
    finish,
    flat,
    interrupt,
    mirror,
    play,
    push,
    result,
    rewrite,
    start,
    tokens,
    update,
)

from frameledger.evolve.changes import CallDispatched, CallStarted, EraBegan, MessageAppended, RunStarted
from frameledger.fold import Conversation, Folding
from frameledger.frames import LLMContextFrame, LLMSetToolsFrame, encode_frame
from frameledger.react import react
from frameledger.record import DecodeError, decode
from frameledger.tools import of_client
from frameledger_services.forks.copies import Copies
from frameledger_services.forks.places import PlacedCopies
from frameledger_services.store.client_calls import BegunCall
from frameledger_services.store.replays import RecordedFrame, WrittenMessage

IDS = UUID("6b3f1f0e-3f7d-5a5c-9a53-9b7a1b2c3d4e")
AT = datetime(2026, 3, 4, tzinfo=UTC)


def recorded(values, context_id=CONTEXT):
    """Returns the frames as in a database, and the fold of the conversation."""
    folding = Folding(Conversation.new(context_id))
    steps, attempts = [], {}
    written: dict[int, WrittenMessage] = {}
    said: dict[int, Any] = {}
    keeps: dict[int, Any] = {}
    for value in values:
        try:
            frame = decode(value)
        except DecodeError:
            continue
        step = folding.step(frame)
        if step is None:
            continue
        rewrites = None
        if frame.type == "LLMMessageRewriteFrame" and step.outcome == "applied":
            rewrites = written[frame.position]
            if frame.message is not None and frame.position in said:
                keeps.setdefault(rewrites.version, said[frame.position])
        steps.append((value, frame, step, rewrites))
        if any(isinstance(change, EraBegan) for change in step.changes):
            written.clear()
            said.clear()
        for change in step.changes:
            if isinstance(change, MessageAppended) and change.run_id is not None:
                said[change.position] = change.message
        appended = [change.position for change in step.changes if isinstance(change, MessageAppended)]
        for number, position in enumerate(appended):
            written[position] = WrittenMessage(int(step.state.version), number, int(position))
        for change in step.changes:
            if isinstance(change, RunStarted):
                attempts[change.run_id] = (change.attempt, change.claim)
    frames = [
        RecordedFrame(
            int(step.state.version),
            uuid5(IDS, str(step.state.version)),
            frame.type,
            step.outcome,
            AT,
            None,
            None,
            value,
            *attempts.get(getattr(frame, "run_id", None), (None, None)),
            rewrites,
            keeps.get(int(step.state.version)),
            begun_with(step),
        )
        for value, frame, step, rewrites in steps
    ]
    return frames, folding.conversation()


def begun_with(step):
    """Returns the calls that start in the step that dispatches them."""
    dispatched = {change.key for change in step.changes if isinstance(change, CallDispatched)}
    return tuple(
        BegunCall(int(step.state.version), change.tool_call_id, change.function_name, change.arguments)
        for change in step.changes
        if isinstance(change, CallStarted) and change.key in dispatched
    )


def copied(frames, context_id=CONTEXT, *, live=False):
    """Returns the copies as they are published."""
    opening = LLMContextFrame(context={}, react=live)
    placed = PlacedCopies(Copies(context_id, "copy", live), [opening], 1, [])
    made = [one for frame in frames for one in placed.of(frame, decode(frame.payload))]
    return [decode(encode_frame(frame)) for frame in (opening, *made)]


def folded_without_effects(frames):
    folding = Folding(Conversation.new("copy"))
    for frame in frames:
        before = folding.state
        step = folding.step(frame)
        assert react(before, frame, step.state) == ()
    return folding.conversation()


PUT_ASIDE = pytest.mark.xfail(
    strict=True, reason="an answer that a worker's put aside is in the copy (RA5.adopt)"
)


HELD = pytest.mark.xfail(
    strict=True, reason="what was held until an answer was over stands before it in the copy (R7.5)"
)
NOT_THE_SAME = {"plain-client": [PUT_ASIDE], "coalesced-inputs": [HELD]}


@pytest.mark.parametrize(
    "history",
    [pytest.param(path, id=path.stem, marks=NOT_THE_SAME.get(path.stem, ())) for path in HISTORIES],
)
def test_the_copy_of_a_history_has_its_messages(history):
    frames, original = recorded(history.read_bytes().splitlines(), history.stem)
    copy = folded_without_effects(copied(frames, history.stem))
    assert copy.context.to_wire() == original.context.to_wire()
    assert copy.state.terms.recording


FIRST = [ask(), start(1), tokens("one", run=1), push(1)]
TAKEN_BACK = [*FIRST, start(1, 2), tokens("two", run=1, attempt=2), end(1, 2)]


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        ([*TAKEN_BACK, rewrite(2, "2")], ["2"]),
        ([*TAKEN_BACK, append("x"), rewrite(3, None), append("y"), rewrite(4, "z")], ["two", "z"]),
        ([*TAKEN_BACK, append("x", "y"), rewrite(4, "Y"), rewrite(4, None)], ["two", "x"]),
        ([*TAKEN_BACK, update("x", "y"), rewrite(2, "Y")], ["x", "Y"]),
        # What was rewritten stays when its attempt is taken back.
        ([*FIRST, rewrite(1, "mine"), start(1, 2), end(1, 2), rewrite(1, "MINE")], ["MINE"]),
        # In its place, though what it rewrote is of an attempt that was taken back.
        (
            [
                *FIRST,
                append("x"),
                rewrite(1, "mine"),
                start(1, 2),
                tokens("two", run=1, attempt=2),
                end(1, 2),
            ],
            ["mine", "x", "two"],
        ),
        (
            [
                *FIRST,
                append("x"),
                rewrite(1, "a"),
                rewrite(1, "b"),
                append("y"),
                rewrite(1, "c"),
                start(1, 2),
            ],
            ["c", "x", "y"],
        ),
        ([*FIRST, append("x"), rewrite(1, "mine"), rewrite(1, None), start(1, 2), end(1, 2)], ["x"]),
        ([*FIRST, rewrite(1, None), start(1, 2), tokens("two", run=1, attempt=2), end(1, 2)], ["two"]),
    ],
)
@pytest.mark.regression("repair 20")
def test_what_was_rewritten_behind_a_message_that_was_taken_back_is_rewritten_in_the_copy(frames, said):
    played = play(frames)
    assert [str(one["content"]) for one in played.messages] == said
    frames, original = recorded([encode_frame(one) for one in flat(frames)], dsl.CONTEXT)
    copy = folded_without_effects(copied(frames, dsl.CONTEXT))
    assert copy.context.to_wire() == original.context.to_wire()


BROUGHT = LLMSetToolsFrame(
    tools=[
        {"type": "function", "function": {"name": "s"}},
        *(of_client({"type": "function", "function": {"name": name}}) for name in ("a", "b")),
    ]
)
IN_A_QUEUE: list[dsl.Frames] = [
    *(BROUGHT, ask(), committed("s", "a", "b", run=2, run_in_parallel=False)),
    *(begin("s", attempt=1), result("s", 1, attempt=1)),
]


@pytest.mark.parametrize(
    "frames",
    [
        [BROUGHT, ask(), committed("a", "b", run=2), result("b", 1), interrupt(), result("a", {"x": 2})],
        [*IN_A_QUEUE, interrupt(), result("b", 1), result("a", 2)],
        [*IN_A_QUEUE, cancel("a"), finish(), result("b", 1)],
        # Places of what one frame wrote in the original, and several in the copy.
        [BROUGHT, ask(), start(2), tokens("x", run=2), announce("a", "b", run=2), end(2), rewrite(5, None)],
        [*IN_A_QUEUE, rewrite(4, "mine"), rewrite(6, "mine too"), result("a", 1), result("b", 1)],
        [*IN_A_QUEUE, update("Anew."), result("a", 1), append("x"), rewrite(2, "y")],
        [BROUGHT, mirror("pipecat"), ask(), committed("a", run=3), append("x"), mirror(None), result("a", 1)],
        # An attempt that was taken back, a model that makes one id twice, and a call that is given up.
        [
            BROUGHT,
            ask(),
            start(2),
            announce("a", run=2),
            start(2, 2),
            announce("a", run=2, attempt=2),
            end(2, 2),
        ],
        [BROUGHT, ask(), committed("a", run=2), result("a", 1), committed("a", run=6), result("a", 2)],
        # It is begun by what makes room in the queue, whatever that is.
        [BROUGHT, ask(), committed("s", "a", run=2, run_in_parallel=False), cancel("s"), result("a", 1)],
        [
            *(BROUGHT, ask(), committed("s", "a", run=2, run_in_parallel=False)),
            *(begin("s", attempt=1, waiting={"for": "a person"}), result("a", 1), result("s", 2)),
        ],
    ],
)
@pytest.mark.rule("RA5.client")
def test_calls_of_a_client_are_in_the_copy_and_have_its_answers(frames):
    frames, original = recorded([encode_frame(one) for one in flat(frames)], dsl.CONTEXT)
    assert any(frame.begins for frame in frames)
    copies = copied(frames, dsl.CONTEXT)
    copy = folded_without_effects(copies)
    assert copy.context.to_wire() == original.context.to_wire()
    assert len({one.id for one in copies}) == len(copies)


def test_where_models_are_asked_anew_neither_calls_of_a_client_nor_its_answers_are_said():
    frames, _ = recorded([encode_frame(one) for one in [*flat(IN_A_QUEUE), result("a", 1)]], dsl.CONTEXT)
    assert [one.type for one in copied(frames, dsl.CONTEXT, live=True)] == [
        "LLMContextFrame",
        "LLMSetToolsFrame",
        "LLMRunFrame",
    ]


@given(conversations())
def test_no_copy_of_any_conversation_has_an_effect(frames):
    frames, _ = recorded([encode_frame(frame) for frame in frames])
    folded_without_effects(copied(frames))
