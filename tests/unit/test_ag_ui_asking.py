"""What a request of AG-UI publishes: where what the application wants the model to know stands, and once only."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from frameledger_services.client import PublishedFrame
from frameledger_services.gateway import call_settlement
from frameledger_services.gateway.ag_ui import history, run_input
from frameledger_services.gateway.ag_ui.asking import Question
from frameledger_services.gateway.ag_ui.request_frames import RequestFrames
from frameledger_services.gateway.problems import ProblemError
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

    monkeypatch.setattr(call_settlement, "publish", publish)
    parts: Any = SimpleNamespace(database=SimpleNamespace(read=read), settings=Settings())
    request: Any = None
    run = asyncio.run(Question(parts, request, wanted, frames).ask())
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

    parts: Any = SimpleNamespace(database=SimpleNamespace(read=read), check_not_stopping=wait)
    request: Any = None
    with pytest.raises(ProblemError, match="It is parked"):
        asyncio.run(Question(parts, request, wanted, RequestFrames(wanted, ()), wait).ask())
