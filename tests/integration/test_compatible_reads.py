"""The queries of the compatible APIs before they publish: the state of a conversation, and its latest request."""

import asyncio
import json
from secrets import token_hex
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.support.batches import HISTORIES, Log, folded, project
from tests.support.databases import made
from tests.support.plans import Explaining
from tests.support.tiers import every

from frameledger.context import LLMContext
from frameledger_services.settings import Settings
from frameledger_services.store import (
    client_calls,
    client_requests,
    connections,
    conversation_state,
    newest_requests,
    shown_messages,
)
from frameledger_services.store.shown_messages import CLIENT

SAID: dict[str, Any] = {
    "type": "LLMMessagesAppendFrame",
    "id": "said",
    "messages": [{"role": "user", "content": "One."}, {"role": "user", "content": "Two."}],
    "metadata": {CLIENT: {"run_id": "run-of-theirs", "message_ids": ["m1", "m2"]}},
}

REWRITTEN: list[dict[str, Any]] = [
    SAID,
    {"type": "LLMMessageRewriteFrame", "position": 1, "message": {"role": "user", "content": "First."}},
]

REPLACED: dict[str, Any] = {
    "type": "LLMMessagesUpdateFrame",
    "messages": [{"role": "user", "content": f"{number} {token_hex(500)}"} for number in range(300)],
    "metadata": {CLIENT: {"message_ids": [f"m{number}" for number in range(300)]}},
}

CALL = {"function_name": "look", "tool_call_id": "c1"}
CALLED: list[dict[str, Any]] = [
    {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": "Look."}]},
    {"type": "FunctionCallsStartedFrame", "function_calls": [{**CALL, "arguments": {}}]},
    {"type": "FunctionCallInProgressFrame", **CALL, "arguments": {}},
]
WAITS = [*CALLED, {**CALLED[-1], "waiting": {"for": "Anna"}}]
DONE = {"type": "FunctionCallResultFrame", **CALL}
RESULTS = {
    "a service's result about this API": (
        {**DONE, "result": {"chat_completion": "chat_completion"}, "metadata": {"of": "chat_completion"}},
        False,
    ),
    "a client's result": ({**DONE, "result": 1, "metadata": {newest_requests.REQUEST: {}}}, True),
    "a client's result that is no text of Postgres's": (
        {**DONE, "result": "\x00\ud800", "metadata": {newest_requests.REQUEST: {"request_sha256": "\x00"}}},
        True,
    ),
}


class Tables:
    """What a database holds, read over one connection: some tests ask for every version of a conversation."""

    def __init__(self, runner, connection, address):
        self._runner = runner
        self._connection = connection
        self.address = address

    def ask(self, read, *arguments):
        """The result of `read`, as the gateway gets it."""
        return self._runner.run(read(self._connection, *arguments))

    def rows(self, query, *parameters):
        async def fetched():
            return await (await self._connection.execute(query, parameters)).fetchall()

        return self._runner.run(fetched())

    def applied(self, context_id, types):
        """The versions of applied frames of these types."""
        query = "SELECT version FROM frames WHERE context_id = %s AND outcome = 'applied' AND type = ANY (%s)"
        return sorted(version for (version,) in self.rows(query, context_id, list(types)))


@pytest.fixture(scope="module")
def tables(database_server, migrated_template):
    log = Log()
    for path in HISTORIES:
        for line in path.read_bytes().splitlines():
            log.add(path.stem, line)
    for name, said in {"theirs": [SAID], "corrected": REWRITTEN, "replaced": [REPLACED]}.items():
        for one in said:
            log.add(name, json.dumps(one).encode())
    for name, (result, _) in RESULTS.items():
        for frame in (*CALLED, result):
            log.add(name, json.dumps(frame).encode())
    for frame in WAITS:
        log.add("waits", json.dumps(frame).encode())
    with made(database_server, template=migrated_template) as (_, address):
        project(address, log.records, sizes=(500,))
        with asyncio.Runner() as runner:
            connection = runner.run(psycopg.AsyncConnection.connect(address, autocommit=True))
            yield Tables(runner, connection, address)
            runner.run(connection.close())


READ = every(6, HISTORIES)


@pytest.mark.parametrize("path", READ, ids=lambda path: path.stem)
def test_how_a_conversation_stands_is_what_its_frames_fold_to(tables, path):
    contexts, _ = folded(path)
    found = tables.ask(conversation_state.readiness, path.stem)
    assert found.version == len(contexts) - 1
    assert found.stored.context == LLMContext.from_wire(contexts[-1])
    statuses = dict(tables.rows("SELECT run_id, status FROM runs WHERE context_id = %s", path.stem))
    assert all(statuses[run] in ("interrupted", "failed", "context_ended") for run in found.cut_runs)
    [(open_run,)] = tables.rows("SELECT open_run_id FROM contexts WHERE context_id = %s", path.stem)
    calls = [
        status for (status,) in tables.rows("SELECT status FROM tool_calls WHERE context_id = %s", path.stem)
    ]
    runs = any(one in ("announced", "dispatched", "running") for one in calls)
    assert tables.ask(conversation_state.has_running_calls, path.stem) == runs
    assert found.goes_on or open_run is None

    thread = tables.ask(conversation_state.thread, path.stem)
    assert thread.version == found.version
    assert list(thread.tools) == contexts[-1]["tools"]
    assert [one.message for one in thread.messages] == contexts[-1]["messages"]
    assert len(tables.ask(client_calls.waiting, path.stem)) == calls.count("waiting")
    assert list(thread.waiting) == tables.ask(client_calls.waiting, path.stem)


@pytest.mark.parametrize("path", READ, ids=lambda path: path.stem)
def test_messages_are_those_of_their_version(tables, path):
    contexts, _ = folded(path)
    for version in {*range(1, len(contexts), 23), len(contexts) - 1}:
        shown = tables.ask(shown_messages.shown_messages, path.stem, version)
        assert [one.message for one in shown] == contexts[version]["messages"]


def test_a_message_has_the_id_that_its_client_gave_it(tables):
    shown = tables.ask(shown_messages.shown_messages, "theirs", 1)
    assert [(one.client_id, one.message["content"]) for one in shown] == [("m1", "One."), ("m2", "Two.")]
    assert tables.ask(client_requests.message_ids_of, "theirs", 1) == ["m1", "m2"]
    for nobody in (("theirs", 999), ("nowhere", 1), (HISTORIES[0].stem, 1)):
        assert tables.ask(client_requests.message_ids_of, *nobody) == []


@pytest.mark.regression("gateway 98")
def test_a_message_keeps_its_id_when_one_before_it_is_rewritten(tables):
    shown = tables.ask(shown_messages.shown_messages, "corrected", 2)
    assert [(one.client_id, one.message["content"]) for one in shown] == [(None, "First."), ("m2", "Two.")]


@pytest.mark.regression("gateway 97")
def test_a_history_that_came_in_one_frame_is_read_without_reading_that_frame_for_each_message(tables):
    async def read(connection):
        explaining = Explaining(connection, "ANALYZE, BUFFERS, FORMAT JSON")
        shown = await shown_messages.shown_messages(explaining, "replaced", 1)
        return shown, explaining.plan["Shared Hit Blocks"] + explaining.plan["Shared Read Blocks"]

    shown, blocks = tables.ask(read)
    assert [one.client_id for one in shown] == [f"m{number}" for number in range(300)]
    assert blocks < 10 * len(shown)


@pytest.mark.parametrize("path", READ, ids=lambda path: path.stem)
def test_who_asked_last_is_the_newest_frame_that_asks_and_counts(tables, path):
    asking = tables.applied(path.stem, newest_requests.ASKING)
    found = tables.ask(client_requests.last_question, path.stem)
    assert (found.version if found else None) == (asking[-1] if asking else None)
    assert found is None or found.is_newest
    for version in asking:
        [(frame_id,)] = tables.rows(
            "SELECT frame_id FROM frames WHERE context_id = %s AND version = %s", path.stem, version
        )
        count, question = tables.ask(client_requests.asked_by, path.stem, [frame_id, uuid4()])
        assert (count, question.version, question.is_newest) == (1, version, version == asking[-1])
        stored = tables.ask(client_requests.outcomes_of, path.stem, [frame_id, uuid4()])
        assert stored == {frame_id: client_requests.FrameOutcome(version, "applied", None)}
    assert tables.ask(client_requests.asked_by, path.stem, [uuid4()]) == (0, None)
    assert tables.ask(client_requests.outcomes_of, path.stem, [uuid4()]) == {}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_asks_if_its_request_marked_it_and_not_by_what_it_says(tables, name):
    _, asks = RESULTS[name]
    assert tables.applied(name, ["FunctionCallResultFrame"]) == [4]
    found = tables.ask(client_requests.last_question, name)
    assert (found.version, found.is_newest) == (4 if asks else 1, True)


def test_a_run_has_the_name_that_its_client_gave_it(tables):
    [(frame_id,)] = tables.rows("SELECT frame_id FROM frames WHERE context_id = 'theirs'")
    found = tables.ask(client_requests.last_asked_run, "theirs")
    assert (found.version, found.run_id, found.is_answer, found.by_client) == (
        1,
        "run-of-theirs",
        False,
        True,
    )
    _, question = tables.ask(client_requests.asked_by, "theirs", [UUID(str(frame_id))])
    assert question.metadata == SAID["metadata"]
    assert tables.ask(client_requests.last_asked_run, "nowhere") is None
    others = [tables.ask(client_requests.last_asked_run, path.stem) for path in HISTORIES]
    assert not any(one.by_client for one in others)
    assert tables.ask(conversation_state.readiness, "nowhere").stored is None
    assert tables.ask(conversation_state.thread, "nowhere").version == 0


@pytest.mark.regression("gateway 125")
def test_the_state_of_a_conversation_is_that_of_one_moment(tables, monkeypatch):
    """Somebody answers the call that waits, while the messages before its answer are read."""

    async def answered_meanwhile(*arguments):
        shown = await read_messages(*arguments)
        with psycopg.connect(tables.address) as another:
            another.execute("UPDATE tool_calls SET status = 'done' WHERE context_id = 'waits'")
        return shown

    async def read():
        connection = await connections.connect(Settings(database_url=tables.address))
        async with connection:
            return await conversation_state.thread(connection, "waits")

    read_messages = shown_messages.shown_messages
    monkeypatch.setattr(conversation_state, "shown_messages", answered_meanwhile)
    assert [one.tool_call_id for one in asyncio.run(read()).waiting] == ["c1"]
