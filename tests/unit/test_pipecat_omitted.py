"""Messages that cannot be stored do not change the positions of the others."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest
from tests.bounds import ONE_ANSWER

from frameledger.fold import Conversation, Folding
from frameledger.frames import LLMMirrorFrame
from frameledger_services.client import FramesRefusedError
from frameledger_services.pipecat.capture import CHANGES, FIELDS
from frameledger_services.pipecat.captured_items import CapturedItems
from frameledger_services.pipecat.mirror import Mirror
from frameledger_services.pipecat.outbox import Outbox
from frameledger_services.pipecat.outgoing import Encoder

SESSION = UUID(int=7)
LARGE = "x" * 9 * 1024 * 1024
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


class Recorded:
    """The encoder before the real fold. The broker rejects frames of more than `most` bytes."""

    def __init__(self, most: int) -> None:
        self.folding = Folding(Conversation.new("s"))
        self.folding.step(LLMMirrorFrame(mirror=str(SESSION), react=False))
        self.encoder, self.mirror = Encoder(SESSION), Mirror(known=True)
        self.most, self.syncs = most, 0

    def sync(self, messages: list[Any]) -> None:
        self._take(CHANGES, self.mirror.changes(messages))

    def tell(self, **fields: Any) -> None:
        self._take(FIELDS, [fields])

    def _take(self, at: str, captured: Any) -> None:
        self.syncs += 1
        for one in self.encoder.encode((self.syncs, 10**18, at, captured, None)):
            while one.size > self.most:
                one = self.encoder.replacement_of(one, "it is too large")
            step = self.folding.step(one.frame.frame)
            assert step is not None
            assert step.outcome in ("applied", "unknown")

    @property
    def messages(self) -> list[Any]:
        return [dict(one) for one in self.folding.conversation().messages]


NOT_STORABLE = pytest.mark.parametrize(
    ("content", "most"),
    [
        (LARGE, 2**30),
        (10**400, 2**30),
        (json.loads('{"a":' * 98 + "{}" + "}" * 98), 2**30),
        ("x" * 200_000, 100_000),
    ],
    ids=["larger than a frame", "a number beyond a double", "too deep", "rejected by the broker"],
)


@pytest.mark.regression("bridge 4")
@NOT_STORABLE
def test_a_result_reaches_its_call_behind_a_message_that_cannot_be_stored(content, most):
    recorded, call = Recorded(most), {"role": "tool", "tool_call_id": "c1", "content": "IN_PROGRESS"}
    messages: list[Any] = [{"role": "user", "content": content}]
    recorded.sync(messages)
    messages += [{"role": "assistant", "tool_calls": [CALL]}, call]
    recorded.sync(messages)
    call["content"] = "rain"
    recorded.sync(messages)
    omitted, *others = recorded.messages
    assert omitted["role"] == "user"
    assert omitted["content"].startswith("(This message could not be stored: ")
    assert others == messages[1:]


@pytest.mark.regression("bridge 4")
def test_messages_that_cannot_be_stored_name_their_calls_and_the_others_stay():
    called = [{**CALL, "function": {"name": "weather", "arguments": LARGE}}, {"id": 7}]
    result = {"role": "tool", "tool_call_id": "c1", "content": "IN_PROGRESS"}
    hello = {"role": "user", "content": "Hello"}
    messages: list[Any] = [hello, {"role": "assistant", "tool_calls": called}, result]
    recorded = Recorded(2**30)
    recorded.sync(messages)
    assert recorded.messages[0] == hello
    assert recorded.messages[1]["tool_calls"] == [CALL]
    result["content"] = LARGE
    recorded.sync(messages)
    assert recorded.messages[2]["tool_call_id"] == "c1"
    assert recorded.messages[2]["content"].startswith("(This message could not be stored: ")
    assert recorded.encoder.refused_here == 2


@pytest.mark.regression("bridge 46")
@NOT_STORABLE
def test_a_call_ends_whose_result_cannot_be_stored(content, most):
    recorded, call = Recorded(most), {"function_name": "weather", "tool_call_id": "c1"}
    recorded.tell(type="FunctionCallInProgressFrame", **call, arguments="{}")
    assert recorded.folding.state.calls.open
    recorded.tell(type="FunctionCallResultFrame", **call, result={"a": content}, settled_as="failed")
    assert not recorded.folding.state.calls.open


@pytest.mark.regression("bridge 6")
def test_a_removal_that_the_broker_rejects_holds_up_no_later_frame():
    class Broker:
        def __init__(self) -> None:
            self.frames: list[Any] = []

        async def publish(self, context_id: str, *frames: Any, within: float) -> None:
            if any(one.frame.type == "LLMMessageRewriteFrame" for one in frames):
                raise FramesRefusedError("not by this policy", [one.frame for one in frames])
            self.frames += [one.frame for one in frames]

        async def close(self) -> None:
            pass

    broker, mirror = Broker(), Mirror(known=True)
    one, two, three = ({"role": "user", "content": text} for text in ("One", "Two", "Three"))
    histories = enumerate(([one, two], [one], [one, three]))
    items = CapturedItems((at, 10**18, CHANGES, mirror.changes(told), None) for at, told in histories)
    outbox = Outbox("call-7", SESSION, items, lambda: broker)
    outbox.start()
    asyncio.run(outbox.finish(ONE_ANSWER))
    assert (outbox.unpublished, outbox.refused) == (0, 1)
    first, refused, last = broker.frames
    assert refused.model_extra["refused"] == "LLMMessageRewriteFrame"
    assert (first.messages, last.messages) == ((one, two), (three,))
