"""What an AG-UI request publishes: each frame once, and the application's context in its place."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from frameledger.frames import encode_frame
from frameledger_services.client import ContextChangedError, PublishedFrame
from frameledger_services.client.frame_inputs import FramePreparation, expecting
from frameledger_services.gateway import conversation_gate, publishing
from frameledger_services.gateway.ag_ui import asking, history, run_input
from frameledger_services.gateway.ag_ui.asking import Question
from frameledger_services.gateway.ag_ui.request_frames import RequestFrames
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.projector.duplicates import is_duplicate
from frameledger_services.settings import Settings
from frameledger_services.store import client_calls, client_requests, conversation_state
from frameledger_services.store.client_requests import FrameOutcome
from frameledger_services.store.conversation_state import Thread
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.shown_messages import ShownMessage

TOLD = {"role": "developer", "content": "The application says:\n- page: home"}
USER = {"role": "user", "content": "Hi."}
CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "paint", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "done"}


@pytest.mark.regression("gateway 8")
@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ([], [TOLD]),
        ([USER], [TOLD, USER]),
        ([USER, CALL, RESULT], [USER, CALL, RESULT, TOLD]),
        ([USER, CALL, RESULT, USER], [USER, CALL, RESULT, TOLD, USER]),
    ],
)
def test_it_never_comes_between_a_call_and_its_result(said, stored):
    wanted = run_input.read(
        b'{"threadId":"t","runId":"r","messages":[],"context":[{"description":"page","value":"home"}]}'
    )
    ids = [str(number) for number in range(len(said))]
    messages, known = RequestFrames(wanted, ()).with_context(Thread(), history.Plan("append", said, ids))
    assert messages == stored
    assert [one for one in known if one is not None] == ids
    assert known[messages.index(TOLD)] is None


@pytest.mark.regression("gateway 45")
def test_the_same_request_twice_at_once_is_one_run_for_both(monkeypatch):
    """This one found the conversation as the other had just made it: its frame has the same id and says less."""
    body: Any = {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "Hi."}]}
    wanted = run_input.read(json.dumps(body).encode())
    frames = RequestFrames(wanted, ())
    asked = FrameOutcome(1, "applied", None)
    outcomes = iter([{}, {frame_uuid(frames.frame_id("ask 0")): asked}])
    said = ShownMessage(1, 1, None, "m", {"role": "user", "content": "Hi."})

    async def read(function, *_):
        found = {
            client_requests.outcomes_of: lambda: next(outcomes),
            conversation_state.thread: lambda: Thread(version=1, messages=[said]),
            client_calls.of_clients: dict,
        }
        return found[function]()

    async def publish(*_):
        return PublishedFrame("llm.frames", 0, 1, 1, "id", outcome="rejected", reason="id_reused")

    monkeypatch.setattr(publishing, "publish", publish)
    dependencies: Any = SimpleNamespace(database=SimpleNamespace(read=read), settings=Settings())
    request: Any = None
    run = asyncio.run(Question(dependencies, request, wanted, frames).ask())
    assert (run.version, run.run_id) == (1, "r")


@pytest.mark.regression("gateway 46")
def test_who_asks_a_parked_conversation_is_told_so_at_once_also_while_a_run_is_open_in_it():
    body: Any = {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "Hi."}]}
    wanted = run_input.read(json.dumps(body).encode())

    async def read(function, *_):
        parked = Thread(version=1, is_parked=True, goes_on=True)
        return {client_requests.outcomes_of: {}, conversation_state.thread: parked}[function]

    async def wait(*_):
        raise AssertionError("It waits for the end of the run, which does not come.")

    dependencies: Any = SimpleNamespace(database=SimpleNamespace(read=read), check_not_stopping=wait)
    request: Any = None
    with pytest.raises(ProblemError, match="It is parked"):
        asyncio.run(Question(dependencies, request, wanted, RequestFrames(wanted, ()), wait).ask())


class Busy:
    """A conversation of two messages with several clients. It keeps the frames of one as a projector does."""

    def __init__(self):
        self.version = self.changed = 2
        self.goes_on = False
        self.said = [ShownMessage(1, 1, None, "m1", {"role": "user", "content": "Hi."})]
        self.stored = {}
        self.others = 0
        """How many frames of others come just before frames of this client, one each."""

    async def read(self, function, _, *names):
        found = {
            client_requests.outcomes_of: lambda: {
                frame_uuid(id_): one for id_, (_, one) in self.stored.items() if frame_uuid(id_) in names[0]
            },
            conversation_state.thread: lambda: Thread(
                self.version, goes_on=self.goes_on, messages=[*self.said]
            ),
            client_calls.of_clients: dict,
        }
        return found[function]()

    async def publish(self, dependencies, request, context_id, frame, expected):
        if self.others:
            self.others -= 1
            self.another_speaks()
        prepared = expecting(FramePreparation().prepare(context_id, [frame]), expected)
        value = encode_frame(prepared[0].complete)
        if frame.id in self.stored:
            before, outcome = self.stored[frame.id]
            if not is_duplicate(value, before):
                return published(frame, FrameOutcome(0, "rejected", "id_reused"))
        else:
            self.version += 1
            is_late = expected < self.changed
            outcome = FrameOutcome(
                self.version, *(("ignored", "context_changed") if is_late else ("applied", None))
            )
            self.stored[frame.id] = value, outcome
        if outcome.reason is not None:
            raise ContextChangedError(context_id, expected, published(frame, outcome))
        return published(frame, outcome)

    def another_speaks(self):
        self.version += 1
        self.changed = self.version
        self.said.append(
            ShownMessage(1, self.version, None, f"m{self.version}", {"role": "user", "content": "I"})
        )

    def ask(self):
        messages = [{"id": one, "role": "user", "content": "Hi."} for one in ("m1", "mine")]
        wanted = run_input.read(json.dumps({"threadId": "t", "runId": "r", "messages": messages}).encode())
        dependencies: Any = SimpleNamespace(
            database=SimpleNamespace(read=self.read), check_not_stopping=lambda *_: None
        )
        request: Any = None
        return asyncio.run(Question(dependencies, request, wanted, RequestFrames(wanted, ())).ask()).version


def published(frame, outcome):
    return PublishedFrame(
        "llm.frames", 0, 1, 1, frame.id, frame.name, outcome.version, outcome.outcome, outcome.reason
    )


@pytest.fixture
def busy(monkeypatch):
    conversation = Busy()
    monkeypatch.setattr(publishing, "publish", conversation.publish)
    monkeypatch.setattr(conversation_gate, "BUSY_SECONDS", 0)
    return conversation


@pytest.mark.regression("gateway 84")
def test_a_run_whose_question_came_too_late_is_asked_for_again(busy):
    for _ in range(3):
        busy.others = conversation_gate.TRIES
        with pytest.raises(ProblemError, match="keep publishing") as refused:
            busy.ask()
        assert refused.value.word == "conversation-busy"
    version = busy.ask()
    assert version == busy.version
    assert len(busy.stored) == 3 * conversation_gate.TRIES + 1
    # Once more it is the same run.
    assert busy.ask() == version == busy.version


@pytest.mark.regression("gateway 84")
def test_the_same_request_twice_at_once_that_came_too_late_is_compared_again(busy, monkeypatch):
    """The other one was too late with another frame of the same id, after this one had looked for what is stored."""

    async def publish(dependencies, request, context_id, frame, expected):
        if not busy.stored:
            busy.another_speaks()
            busy.stored[frame.id] = b"{}", FrameOutcome(busy.version, "ignored", "context_changed")
        return await busy.publish(dependencies, request, context_id, frame, expected)

    monkeypatch.setattr(publishing, "publish", publish)
    assert busy.ask() == busy.version
    assert len(busy.stored) == 2


@pytest.mark.regression("gateway 84")
def test_a_run_that_is_too_late_too_often_is_refused_before_anything_is_published(busy, monkeypatch):
    monkeypatch.setattr(asking, "ASKS", asking.ASKS[: conversation_gate.TRIES])
    busy.others = conversation_gate.TRIES
    for _ in range(2):
        with pytest.raises(ProblemError, match="keep publishing"):
            busy.ask()
    assert len(busy.stored) == conversation_gate.TRIES
