"""A request outside of a pipeline: its frames, its answer and its timeouts."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.bounds import ONE_ANSWER

from frameledger.fold import Conversation, Folding
from frameledger.frames import ErrorFrame, LLMFullResponseEndFrame, LLMFullResponseStartFrame, LLMTextFrame
from frameledger_services.client import BrokerError, EncodedFrame
from frameledger_services.pipecat.errors import AskingError
from frameledger_services.pipecat.side_conversation import SideQuestion, ask_side_question

MESSAGES = [{"role": "user", "content": "Conversation history: ..."}]


class Kept:
    """An in-memory log with the real fold, and a worker that answers the run with these frames."""

    def __init__(self, *answer: Any, is_away: bool = False) -> None:
        self.answer, self.is_away = answer, is_away
        self.context_id = ""
        self.rows: list[Any] = []
        self.waits = asyncio.Event()

    async def publish(self, context_id: str, *frames: Any, within: float) -> None:
        if self.is_away:
            raise BrokerError("no broker answers")
        if not self.rows:
            self.context_id = context_id
            self.folding = Folding(Conversation.new(context_id))
        for one in frames:
            self.store(EncodedFrame.of(json.dumps(one).encode()).frame)

    def store(self, frame: Any) -> None:
        step = self.folding.step(frame)
        assert step is not None
        about = {"version": len(self.rows) + 1, "outcome": step.outcome, "reason": step.reason}
        self.rows.append(SimpleNamespace(frame=frame, frame_id=UUID(frame.id), **about))

    async def follow(self, context_id: str) -> Any:
        assert context_id == self.context_id
        run = self.folding.state.runs.open
        assert run is not None
        for frame in self.answer:
            self.store(frame.model_copy(update={"run_id": run.run_id, "id": str(uuid4())}))
        for one in self.rows:
            yield one
        self.waits.set()
        await asyncio.Event().wait()

    @property
    def types(self) -> list[str]:
        return [one.frame.type for one in self.rows]


def ask(client: Any, about: str = "call-7", within: float = ONE_ANSWER) -> Any:
    return ask_side_question(client, SideQuestion(about, MESSAGES, {"max_tokens": 9}, within, within))


START, END = LLMFullResponseStartFrame(attempt=1), LLMFullResponseEndFrame(attempt=1)


def text(words: str, attempt: int = 1) -> LLMTextFrame:
    return LLMTextFrame(text=words, attempt=attempt)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([START, text("They spoke "), text("of trains."), END], "They spoke of trains."),
        ([START, END], None),
        # The worker died, and the next attempt differs.
        (
            [START, text("They s"), LLMFullResponseStartFrame(attempt=2), text("Trains.", 2)]
            + [LLMFullResponseEndFrame(attempt=2)],
            "Trains.",
        ),
    ],
    ids=["an answer", "none", "another attempt"],
)
def test_the_answer_comes_back_and_its_conversation_is_over(answer, said):
    client = Kept(*answer)
    assert asyncio.run(ask(client)) == said
    assert client.context_id.startswith("call-7-aside-")
    assert client.rows[0].frame.metadata["aside_of"] == "call-7"
    conversation = client.folding.conversation()
    assert conversation.context.to_wire()["settings"] == {"max_tokens": 9}
    assert conversation.context.to_wire()["messages"][:1] == MESSAGES
    assert (client.types[0], client.types[-1]) == ("LLMContextFrame", "EndFrame")
    assert {one.outcome for one in client.rows} == {"applied"}


def test_who_has_no_answer_is_told_why_and_the_worker_is_stopped():
    failed = Kept(START, ErrorFrame(fatal=True, code="timeout", message="no answer", attempt=1))
    with pytest.raises(AskingError, match="timeout: no answer"):
        asyncio.run(ask(failed))
    assert failed.types[-1] == "CancelFrame"
    silent = Kept(START, text("They s"))
    with pytest.raises(AskingError, match="no output within"):
        asyncio.run(ask(silent, within=0.05))
    assert silent.types[-1] == "CancelFrame"
    assert silent.folding.state.runs.open is None
    with pytest.raises(BrokerError):
        asyncio.run(ask(Kept(is_away=True)))


def test_who_asks_no_more_stops_the_worker():
    async def scene():
        client = Kept(START)
        asked = asyncio.create_task(ask(client))
        await client.waits.wait()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert asked.cancelled()
        assert client.types[-1] == "CancelFrame"

    asyncio.run(scene())


@pytest.mark.parametrize("about", ["x" * 255, "ü" * 127])
def test_the_name_of_a_long_conversation_is_cut(about):
    client = Kept(START, END)
    asyncio.run(ask(client, about))
    assert len(client.context_id.encode()) <= 255
    assert about.startswith(client.context_id.partition("-aside-")[0])
