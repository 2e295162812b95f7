"""The version from which a response is continued, also with concurrent requests."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from frameledger_services.gateway.access import caller
from frameledger_services.gateway.openai_responses import request
from frameledger_services.gateway.openai_responses.continuing import continued, new_messages
from frameledger_services.gateway.openai_responses.response_ids import ResponseId
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.store import contexts, conversation_state
from frameledger_services.store.answered_requests import AnsweredRequest, answered_request, latest_request

ANSWERED = AnsweredRequest(3, datetime(2026, 1, 2, tzinfo=UTC), {}, None, None, None, {}, ())


class Database:
    """A conversation of five frames, in which somebody asks with the sixth: before this read, counted from 0."""

    def __init__(self, asked_before):
        self.asked_before = asked_before
        self.reads = 0
        self.at = None

    async def read(self, function, _, *given):
        is_asked = self.reads >= self.asked_before
        self.reads += 1
        if function is conversation_state.goes_on:
            return is_asked, 6 if is_asked else 5
        if function is latest_request:
            return None
        if function is answered_request:
            return replace(ANSWERED, next_version=6 if is_asked else None)
        assert function is contexts.context
        [self.at] = given
        return SimpleNamespace(context=SimpleNamespace(to_wire=lambda: {"messages": [{"role": "user"}]}))


@pytest.mark.parametrize("asked_before", range(5))
def test_nobody_who_asks_meanwhile_gets_into_the_history_that_is_continued(asked_before):
    database = Database(asked_before)
    scope = {"type": "http", "headers": []}
    caller.set_caller(scope, caller.LOOPBACK)
    body = {"input": "Hi", "previous_response_id": str(ResponseId("talk", 3))}
    wanted, named = asyncio.run(
        continued(
            SimpleNamespace(database=database),
            Request(scope),
            request.read(request.parse(json.dumps(body).encode())),
        )
    )
    assert database.at == 5
    assert named.context_id == "talk"
    assert list(wanted.messages) == [{"role": "user"}, {"role": "user", "content": "Hi"}]
    assert not wanted.is_only_new


def asked_in(context_id, **body):
    """What a request that has this body, and names this conversation in its header, continues."""
    scope = {"type": "http", "headers": [(b"frameledger-context", context_id)]}
    caller.set_caller(scope, caller.LOOPBACK)
    return asyncio.run(continued(SimpleNamespace(database=Database(9)), Request(scope), read(**body)))


def read(**body):
    return request.read(request.parse(json.dumps({"input": "Hi", **body}).encode()))


@pytest.mark.regression("gateway 28")
def test_a_response_is_not_continued_in_another_conversation_than_its_own():
    previous = str(ResponseId("talk/1", 3))
    _, named = asked_in(b"talk%2F1", previous_response_id=previous)
    assert named.context_id == "talk/1"
    with pytest.raises(ProblemError, match="Frameledger-Context") as refused:
        asked_in(b"talk%2F2", previous_response_id=previous)
    assert refused.value.word == "bad-parameter"
    assert refused.value.members["param"] == "previous_response_id"


def asked(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


def call(name):
    function = {"name": "paint", "arguments": "{}"}
    return {"role": "assistant", "tool_calls": [{"id": name, "type": "function", "function": function}]}


def result(name, content="done"):
    return {"role": "tool", "tool_call_id": name, "content": content}


RUN = [
    asked("Hi"),
    said("Hello."),
    asked("Paint."),
    said("I paint."),
    call("c1"),
    result("c1", "IN_PROGRESS"),
]


@pytest.mark.regression("gateway 135")
@pytest.mark.parametrize(
    ("stored", "sent", "new"),
    [
        # As Semantic Kernel's agent sends its run again: with results, and without their calls.
        (RUN, [asked("Paint."), said("I paint."), result("c1")], [result("c1")]),
        (RUN, [asked("Paint."), result("c1")], [result("c1")]),
        ([*RUN[:3], *RUN[4:]], [asked("Paint."), result("c1")], [result("c1")]),
        (
            [*RUN[:5], result("c1"), said("Again."), call("c2"), result("c2", "IN_PROGRESS")],
            [asked("Paint."), said("I paint."), result("c1"), said("Again."), result("c2"), asked("Hm.")],
            [result("c1"), result("c2"), asked("Hm.")],
        ),
        # Only what is new, though the user may say the same again.
        (RUN, [result("c1")], None),
        (RUN, [result("c1"), asked("Paint.")], None),
        (RUN[:2], [asked("Hi")], None),
        (RUN[:2], [asked("Hi"), said("Bye."), asked("Hm.")], None),
    ],
)
def test_what_a_response_has_already_is_not_continued_with_again(stored, sent, new):
    assert list(new_messages(stored, sent, {"paint"})) == (sent if new is None else new)
