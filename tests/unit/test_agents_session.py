"""A session of the OpenAI Agents SDK returns what was added, once, also after retries and crashes."""

import asyncio
import json
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bounds import IN_PROCESS
from tests.support.conversation_in_memory import ConversationInMemory, Said
from tests.support.turns import turns

from frameledger.frames import LLMContextEraseFrame, LLMMessagesAppendFrame
from frameledger_services.agents_sdk import FrameledgerSession
from frameledger_services.client import (
    BrokerError,
    ConversationParkedError,
    FrameRejectedError,
    PublishedFrame,
)

ITEMS = [
    {"role": "user", "content": "Is there a night train?"},
    {"content": "other order", "role": "user"},
    {"role": "user", "content": [{"type": "input_text", "text": "a part"}]},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Yes", "logprobs": []}],
    },
    {"type": "function_call", "call_id": "c1", "name": "trains", "arguments": '{"a": 1}', "id": "fc_1"},
    {"type": "function_call_output", "call_id": "c1", "output": "22:40"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
    {"llm": "openai-responses", "message": {"role": "user"}},
    {"role": "user", "content": "é\U0001f600", "n": [1, 1.0, True, None, 2**70]},
]


def session(ledger):
    return FrameledgerSession("s", ledger, within=IN_PROCESS)


MOVES = st.one_of(
    st.tuples(st.just("add"), st.lists(st.sampled_from(ITEMS), max_size=3)),
    st.tuples(st.just("pop"), st.none()),
    st.tuples(st.just("clear"), st.none()),
    st.tuples(st.just("get"), st.sampled_from([None, 0, 1, 2, 50, -1])),
)


@given(st.lists(MOVES, max_size=25), st.lists(st.sampled_from([None, None, "lost", "unheard"]), max_size=25))
def test_it_is_a_list_of_items_byte_for_byte_whatever_is_lost_and_sent_again(moves, faults):
    async def scenario():
        ledger, items = ConversationInMemory(faults=list(faults)), []
        # Another session continues after every step, as after a crash.
        for move, given_ in moves:
            one = session(ledger)
            if move == "add":
                await one.add_items(given_)
                items += given_
            elif move == "pop":
                assert await one.pop_item() == (items.pop() if items else None)
            elif move == "clear":
                await one.clear_session()
                items = []
            else:
                wanted = (
                    items if given_ is None or given_ < 0 else items[len(items) - min(given_, len(items)) :]
                )
                assert json.dumps(await one.get_items(given_)) == json.dumps(wanted)
            assert json.dumps(await one.get_items()) == json.dumps(items)

    asyncio.run(scenario())


def test_of_two_who_pop_at_once_each_gets_another_item():
    async def scenario():
        ledger = ConversationInMemory()
        one, other = session(ledger), session(ledger)
        await one.add_items(ITEMS[:3])
        popped = await asyncio.gather(one.pop_item(), other.pop_item())
        assert sorted(map(json.dumps, popped)) == sorted(map(json.dumps, ITEMS[1:3]))
        assert await one.get_items() == ITEMS[:1]

    asyncio.run(scenario())


def test_beyond_the_gaps_that_are_remembered_items_are_popped_all_the_same():
    async def scenario():
        ledger = ConversationInMemory()
        one = session(ledger)
        for _ in range(260):
            await one.add_items(ITEMS[:2])
            await one.pop_item()
        for _ in range(260):
            assert await one.pop_item() == ITEMS[0]
        assert await one.pop_item() is None

    asyncio.run(scenario())


@pytest.mark.parametrize("times", [1, 3])
def test_a_cancelled_call_is_carried_out_first(times):
    async def scenario():
        ledger = ConversationInMemory(gate=asyncio.Event())
        task = asyncio.ensure_future(session(ledger).add_items(ITEMS[:1]))
        for _ in range(times):
            await asyncio.wait([task], timeout=0)
            task.cancel()
        await asyncio.wait([task], timeout=0)
        assert not task.done()
        ledger.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await session(ledger).get_items() == ITEMS[:1]

    asyncio.run(scenario())


def test_it_keeps_its_history_elsewhere_and_asks_for_nothing():
    async def scenario():
        ledger = ConversationInMemory()
        await session(ledger).add_items(ITEMS)
        await session(ledger).clear_session()
        terms = ledger.folding.state.terms
        assert (terms.mirror, terms.recording, ledger.folding.state.version) == ("openai-agents", True, 3)

    asyncio.run(scenario())


@dataclass
class ParkedLedger(ConversationInMemory):
    """From `parked_version` on, frames are stored and not folded; a read is older than that with `is_late`."""

    parked_version: int | None = None
    is_late: bool = False
    stored: int = 0

    async def publish(self, context_id, *inputs, within, wait=False):
        if self.parked_version is None:
            return await super().publish(context_id, *inputs, within=within, wait=wait)
        self.stored += len(inputs)
        assert self.stored <= 2, "a call goes on until a frame is folded"
        return tuple(Said("parked", None) for _ in inputs)

    async def context(self, context_id, version=None):
        stored = await super().context(context_id, version)
        return stored if self.is_late else replace(stored, parked_version=self.parked_version)


CALLS = {
    "get": lambda one: one.get_items(),
    "add": lambda one: one.add_items(ITEMS[:1]),
    "pop": lambda one: one.pop_item(),
    "clear": lambda one: one.clear_session(),
}


@pytest.mark.regression("bridge 12")
@pytest.mark.parametrize(
    ("call", "is_late"), [*((name, False) for name in CALLS), ("pop", True), ("clear", True)]
)
def test_each_method_says_that_the_conversation_is_parked(call, is_late):
    async def scenario():
        ledger = ParkedLedger(is_late=is_late)
        one = session(ledger)
        await one.add_items(ITEMS[:2])
        ledger.parked_version = 3
        with pytest.raises(ConversationParkedError, match=r"'s' is parked .*frameledger unpark"):
            await CALLS[call](one)

    asyncio.run(scenario())


def test_what_is_no_item_is_refused_before_anything_is_published():
    async def scenario():
        ledger = ConversationInMemory()
        with pytest.raises(TypeError, match="str is not an item of a session"):
            await session(ledger).add_items([ITEMS[0], "a text"])
        assert ledger.frames == []

    asyncio.run(scenario())


CHANGES = {
    "add": lambda one: one.add_items(ITEMS[:1]),
    "pop": lambda one: one.pop_item(),
    "clear": lambda one: one.clear_session(),
}


@pytest.mark.regression("bridge 16")
@pytest.mark.parametrize("change", CHANGES)
def test_a_session_that_outlives_its_conversation_keeps_the_next_one_too(change):
    async def scenario():
        ledger = ConversationInMemory()
        one = session(ledger)
        await one.add_items(ITEMS[:2])
        ledger.folding.step(LLMContextEraseFrame(why="request 17"))
        await CHANGES[change](one)
        await one.add_items(ITEMS)
        terms = ledger.folding.state.terms
        assert (terms.mirror, terms.recording) == ("openai-agents", True)
        assert (await one.get_items())[-len(ITEMS) :] == ITEMS

    asyncio.run(scenario())


@dataclass
class ListeningLedger(ConversationInMemory):
    """A ledger that notes all that is published."""

    sent: list = field(default_factory=list)

    async def publish(self, context_id, *inputs, within, wait=False):
        self.sent.append(inputs)
        return await super().publish(context_id, *inputs, within=within, wait=wait)


def test_what_comes_with_each_change_has_the_same_bytes_each_time():
    """A projector tells a frame with an id that it knows from another one without a query only by its bytes."""

    async def scenario():
        ledger = ListeningLedger()
        one = session(ledger)
        for item in ITEMS:
            await one.add_items([item])
        first, *others = [mirror for mirror, _ in ledger.sent]
        assert len(others) == len(ITEMS) - 1
        assert first.id is not None
        assert first.produced_at is not None
        assert all(other == first for other in others)

    asyncio.run(scenario())


@dataclass
class RefusingLedger(ConversationInMemory):
    """A ledger whose projector rejects what is published, once it `refuses`."""

    refuses: bool = False

    async def publish(self, context_id, *inputs, within, wait=False):
        if not self.refuses:
            return await super().publish(context_id, *inputs, within=within, wait=wait)
        known = ("llm.frames", 0, 0, 0)
        about = {"outcome": "rejected", "reason": "context_erased"}
        return tuple(PublishedFrame(*known, str(one.id), one.type, None, **about) for one in inputs)


@pytest.mark.regression("bridge 18")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_is_rejected_is_no_silent_success(change):
    async def scenario():
        ledger = RefusingLedger()
        one = session(ledger)
        await one.add_items(ITEMS[:2])
        ledger.refuses = True
        with pytest.raises(FrameRejectedError, match=r"of 's' was rejected \(context_erased\)"):
            await CHANGES[change](one)

    asyncio.run(scenario())


@pytest.mark.regression("bridge 25")
@pytest.mark.parametrize(
    ("pause", "is_asked_again"), [(IN_PROCESS, False), (0.0, True)], ids=["a pause", "none"]
)
def test_a_broker_that_is_away_is_asked_again_after_a_pause(monkeypatch, pause, is_asked_again):
    monkeypatch.setattr("frameledger_services.agents_sdk.session.PAUSE_SECONDS", pause)

    @dataclass
    class Away(ConversationInMemory):
        asked: int = 0

        async def publish(self, context_id, *inputs, within, wait=False):
            self.asked += 1
            await turns(1)
            raise BrokerError("no broker answers")

    async def scenario():
        ledger = Away()
        adding = asyncio.create_task(session(ledger)._publish(LLMMessagesAppendFrame(messages=ITEMS[:1])))
        await turns()
        assert (ledger.asked > 1) == is_asked_again
        adding.cancel()

    asyncio.run(scenario())


def test_a_broker_that_stays_away_is_told_at_the_deadline():
    class Away(ConversationInMemory):
        async def publish(self, context_id, *inputs, within, wait=False):
            raise BrokerError("no broker answers")

    with pytest.raises(BrokerError):
        asyncio.run(FrameledgerSession("s", Away(), within=0.0).add_items(ITEMS[:1]))
