"""A `restore` that timed out and is called again publishes the same frames, once."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from frameledger.fold import Conversation, Folding
from frameledger.frames import (
    FunctionCallFromLLM,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    LLMContextEraseFrame,
    LLMFullResponseStartFrame,
    LLMMessageRewriteFrame,
    LLMMessagesAppendFrame,
    LLMMirrorFrame,
    LLMRunFrame,
    LLMTextFrame,
    LLMUpdateSettingsFrame,
    TextFrame,
    TranscriptionFrame,
)
from frameledger.values import replace
from frameledger_services.client import (
    ConversationParkedError,
    EncodedFrame,
    FrameRejectedError,
    FramesUnacknowledgedError,
    PublishedFrame,
)
from frameledger_services.pipecat.errors import TakenOverError
from frameledger_services.pipecat.outgoing import Encoder
from frameledger_services.pipecat.restore import NOTED, restore_conversation
from frameledger_services.pipecat.stored_tail import WINDOWS
from frameledger_services.pipecat.unrecorded import SPOKEN

SESSION = UUID(int=7)
LEFT = (
    LLMMirrorFrame(mirror="old", react=True),
    LLMUpdateSettingsFrame(settings={"model": "m", NOTED: {"seat": 4}}, mirror="old"),
    LLMMessagesAppendFrame(messages=[{"role": "user", "content": "When?"}], mirror="old"),
    LLMRunFrame(mirror="old", metadata={SPOKEN: False}),
    TextFrame(text="At nine."),
    FunctionCallsStartedFrame(
        function_calls=[FunctionCallFromLLM(function_name="order", tool_call_id="c1", arguments="{}")]
    ),
    TranscriptionFrame(text="Thanks."),
)
"""The frames of a process that died during a worker's answer: an answer, a call and a turn that are in no message."""


class Kept:
    """An in-memory conversation with all its versions and the real fold. In the publish number `fault`, counted from 0,
    the first `so_far` frames are stored and the caller gets an error."""

    def __init__(self, left: Any, fault: int | None = None, so_far: int = 0) -> None:
        self.folding = Folding(Conversation.new("s"))
        self.rows: list[Any] = []
        self.versions: list[Conversation] = []
        self.fault, self.so_far, self.asked = fault, so_far, 0
        for frame in left:
            self.store(frame)

    def store(self, frame: Any) -> Any:
        step = self.folding.step(frame)
        if step is None:
            return next(one for one in self.rows if one.frame.id == frame.id)
        self.versions.append(self.folding.conversation())
        about = {"version": len(self.versions), "outcome": step.outcome, "reason": step.reason}
        if isinstance(frame, LLMContextEraseFrame):
            self.rows.clear()
            return None
        self.rows.append(SimpleNamespace(frame=frame, run_id=None, **about))
        return self.rows[-1]

    async def publish(self, context_id: str, *frames: Any, wait: bool, within: float) -> Any:
        assert wait
        read = [EncodedFrame.of(json.dumps(one).encode()).frame for one in frames]
        number, self.asked = self.asked, self.asked + 1
        if number == self.fault:
            for one in read[: self.so_far]:
                self.store(one)
            raise FramesUnacknowledgedError("it took too long", read)
        return tuple(self.store(one) for one in read)

    async def newest_version(self, context_id: str) -> int:
        return len(self.versions)

    async def context(self, context_id: str, version: int) -> Any:
        then = self.versions[version - 1]
        positions = tuple(position for position, _ in then.rows)
        return SimpleNamespace(context=then.context, positions=positions)

    async def frames(self, context_id: str, after: int) -> Any:
        for one in self.rows:
            if one.version > after:
                yield one


HOW: Any = {
    "initial": [{"role": "developer", "content": "Be brief."}],
    "react": False,
    "open_calls": "ambiguous",
    "within": 1.0,
}


def restored(client: Any, initial: Any = None, session: UUID = SESSION) -> Any:
    how = HOW if initial is None else HOW | {"initial": initial}
    return asyncio.run(restore_conversation(client, "s", session, **how))


@pytest.mark.parametrize("left", [(), LEFT], ids=["new", "left by a process that died"])
@pytest.mark.parametrize("so_far", [0, 1, 2, 100], ids=lambda count: f"{count} arrived")
@pytest.mark.parametrize("fault", range(3))
def test_called_again_it_finds_what_it_would_have_found(left, fault, so_far):
    whole, again = Kept(left), Kept(left, fault, so_far)
    wanted = restored(whole)
    if fault < whole.asked:
        with pytest.raises(FramesUnacknowledgedError):
            restored(again)
    found = restored(again)
    assert found == wanted
    for client in (whole, again):
        rows = client.versions[-1].rows
        assert [position for position, _ in rows] == found.positions.positions
        assert [json.dumps(message) for _, message in rows] == [json.dumps(one) for one in found.messages]
    assert len(again.versions) == len(whole.versions)


def test_what_was_noted_is_apart_from_the_settings():
    found = restored(Kept(LEFT)).restored
    assert (found.settings, found.noted) == ({"model": "m"}, {"seat": 4})
    assert [one["role"] for one in found.repaired] == ["assistant", "tool", "assistant", "user"]


@pytest.mark.regression("bridge 26")
@pytest.mark.parametrize("last", ["InterruptionFrame", "EndFrame", "CancelFrame"])
@pytest.mark.parametrize("react", [True, False])
def test_a_process_that_was_replaced_takes_no_words_of_its_successor_with_it(last, react):
    """It is not dead: its pipeline is interrupted, or ends, while the other one's answer is spoken."""
    replaced = UUID(int=3)
    late = Encoder(replaced).own({"type": last, "metadata": {"session": str(replaced)}}, 0).frame.frame
    client = Kept([LLMMirrorFrame(mirror=str(replaced), react=react), *LEFT[:5]])
    before = client.folding.state
    assert client.store(late).reason == "mirror_superseded"
    assert client.folding.state == replace(before, version=before.version + 1)
    assert restored(client).restored.repaired == ({"role": "assistant", "content": "At nine."},)


@pytest.mark.regression("bridge 1")
@pytest.mark.parametrize(
    "left",
    [
        [LLMMirrorFrame(mirror="died here", react=False)],
        [*LEFT, LLMContextEraseFrame(why="asked to")],
    ],
    ids=["only fenced", "erased"],
)
def test_a_conversation_of_which_nothing_is_left_begins_with_what_it_is_given(left):
    found = restored(Kept(left))
    assert found.restored.is_new
    assert [one["content"] for one in found.messages] == ["Be brief."]


SAID = LLMMessagesAppendFrame(
    mirror="old", messages=[{"role": "user", "content": "When?"}, {"role": "user", "content": "Er."}]
)


@pytest.mark.regression("bridge 2")
@pytest.mark.parametrize(
    ("then", "known"),
    [
        ([], True),
        (
            [LLMMessageRewriteFrame(position=2, message={"role": "user", "content": "Now?"}, mirror="old")],
            True,
        ),
        ([LLMMessageRewriteFrame(position=2, message=None, mirror="old")], False),
        ([LLMMessageRewriteFrame(position=2, message=None, mirror="old"), SAID.model_copy()], True),
        ([LLMMirrorFrame(mirror=None, react=True), TextFrame(text="At nine.")], False),
    ],
    ids=["nothing", "rewritten", "removed", "removed and appended", "continued without a mirror"],
)
def test_next_position_is_known_unless_the_newest_message_is_gone(then, known):
    """A position is given once, so that of a removed message is not given again."""
    client = Kept([LLMMirrorFrame(mirror="old", react=False), SAID, *then])
    found = restored(client)
    assert found.next_is_known == known
    if known:
        place = client.folding.state.place
        assert found.positions.next_position == place.next_position


@pytest.mark.regression("bridge 13")
def test_a_parked_conversation_is_not_restored_from_what_was_folded_before():
    class Parked(Kept):
        async def publish(self, context_id: str, *frames: Any, wait: bool, within: float) -> Any:
            published = await super().publish(context_id, *frames, wait=wait, within=within)
            return tuple(SimpleNamespace(version=one.version, outcome="parked") for one in published)

    parked = Parked(LEFT)
    with pytest.raises(ConversationParkedError, match=r"'s' is parked .*frameledger unpark"):
        restored(parked)
    # Only the fence: no repairs of a history that is not known.
    assert parked.asked == 1


def published_as(outcome: str, times: int) -> Any:
    """Returns a conversation in which the first frames that are published get this outcome and no version."""

    class Without(Kept):
        async def publish(self, context_id: str, *frames: Any, wait: bool, within: float) -> Any:
            if self.asked < times:
                self.asked += 1
                one = PublishedFrame("llm.frames", 0, 0, 0, frames[0]["id"], frames[0]["type"])
                return (replace(one, outcome=outcome, reason="context_erased"),)
            return await super().publish(context_id, *frames, wait=wait, within=within)

    return Without(())


@pytest.mark.regression("bridge 17")
def test_an_erased_conversation_whose_id_is_refused_is_not_restored():
    with pytest.raises(FrameRejectedError, match=r"LLMMirrorFrame .* of 's' was rejected \(context_erased\)"):
        restored(published_as("rejected", times=1))


@pytest.mark.regression("bridge 17")
def test_a_conversation_that_is_erased_while_it_is_fenced_begins_again():
    client = published_as("erased", times=2)
    assert restored(client).restored.is_new
    assert [one.frame.type for one in client.rows] == ["LLMMirrorFrame", "LLMMessagesAppendFrame"]


@pytest.mark.regression("bridge 24")
@pytest.mark.parametrize(("left", "place"), [((), 1), (LEFT, 1), (LEFT, 2)])
def test_of_two_processes_that_restore_at_once_the_later_repairs_it_once_and_the_other_is_told(left, place):
    class Overtaken(Kept):
        """Another process restores the conversation before the publish of this number, counted from 0."""

        other: Any = None

        async def publish(self, context_id: str, *frames: Any, wait: bool, within: float) -> Any:
            if self.asked == place and self.other is None:
                self.other = ()
                self.other = await restore_conversation(self, "s", UUID(int=8), **HOW)
            return await super().publish(context_id, *frames, wait=wait, within=within)

    alone = Kept(left)
    restored(alone)
    client: Any = Overtaken(left)
    assert place < alone.asked
    with pytest.raises(TakenOverError, match="Another process restored 's' at the same time"):
        restored(client)
    assert client.folding.state.terms.mirror == str(UUID(int=8))
    assert client.other.messages == messages_of(client)
    assert messages_of(client) == messages_of(alone)


def messages_of(client: Any) -> list[Any]:
    return [dict(one) for one in client.folding.conversation().messages]


@pytest.mark.regression("bridge 29")
@pytest.mark.parametrize("role", ["developer", "user", "assistant"])
def test_of_a_long_answer_all_words_are_restored_whatever_was_appended_meanwhile(role):
    tokens = [LLMTextFrame(text=f"w{number} ") for number in range(WINDOWS[0] + 200)]
    note = LLMMessagesAppendFrame(messages=[{"role": role, "content": "A note."}], mirror="old")
    asked = LLMMessagesAppendFrame(messages=[{"role": "user", "content": "Tell me."}], mirror="old")
    begun = [LLMMirrorFrame(mirror="old", react=False), asked, LLMFullResponseStartFrame()]
    found = restored(Kept([*begun, *tokens[:-100], note, *tokens[-100:]]))
    assert found.messages[-1]["content"].split() == [one.text.strip() for one in tokens]


LONG = [{"role": "user", "content": f"{number} {'x' * 3_000_000}"} for number in range(3)]


@pytest.mark.regression("bridge 30")
def test_first_messages_that_are_too_long_for_one_frame_are_published_as_several():
    client = Kept(())
    found = restored(client, LONG)
    assert found.messages == messages_of(client) == LONG
    assert found.positions.positions == [position for position, _ in client.versions[-1].rows]
    assert [one.frame.type for one in client.rows] == ["LLMMirrorFrame", *["LLMMessagesAppendFrame"] * 3]
    again = restored(client, [], session=UUID(int=8))
    assert (again.restored.is_new, again.messages) == (False, LONG)


@pytest.mark.regression("bridge 30")
@pytest.mark.parametrize("initial", [LONG, []], ids=["the same", "none"])
@pytest.mark.parametrize("so_far", [0, 1, 2])
def test_first_messages_of_a_process_that_died_between_them_are_replaced(so_far, initial):
    client = Kept((), fault=1, so_far=so_far)
    with pytest.raises(FramesUnacknowledgedError):
        restored(client, LONG)
    found = restored(client, initial, session=UUID(int=8))
    assert found.restored.is_new
    assert found.messages == messages_of(client) == initial
    assert found.positions.positions == [position for position, _ in client.versions[-1].rows]


@pytest.mark.regression("bridge 30")
def test_repairs_that_are_too_long_for_one_frame_are_published_as_several():
    calls = []
    for number in range(3):
        call: Any = {"function_name": "order", "tool_call_id": f"c{number}"}
        calls += [
            FunctionCallsStartedFrame(function_calls=[FunctionCallFromLLM(**call, arguments="{}")]),
            FunctionCallResultFrame(**call, result="x" * 3_000_000),
        ]
    client = Kept([*LEFT[:3], *calls])
    found = restored(client)
    assert found.messages == messages_of(client)
    assert [one["role"] for one in found.restored.repaired] == ["assistant", "tool"] * 3
