"""`/v1/responses/{id}/cancel` when there is nothing to interrupt."""

import asyncio
import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from starlette.requests import Request
from tests.bounds import IN_PROCESS
from tests.unit.test_openai_following import Hub, answered

from frameledger_services.gateway.access import caller
from frameledger_services.gateway.live.follower import Chunk
from frameledger_services.gateway.openai_responses import stored_responses
from frameledger_services.gateway.openai_responses.response_ids import ResponseId
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.settings import Settings
from frameledger_services.store import client_calls, client_requests, conversation_state
from frameledger_services.store.answered_requests import AnsweredRequest, answered_request
from frameledger_services.store.following import StreamHead

ASKED = AnsweredRequest(3, datetime(2026, 1, 2, tzinfo=UTC), {}, None, None, None, {}, ())

CALLING = Chunk(
    b"",
    6,
    is_all=True,
    exists=True,
    erased_version=None,
    ended=False,
    frames=answered(4, "", "r1", 3),
    head=StreamHead(6, "calling", False, None),
)
"""The model has said nothing and called a function that runs in the background."""


def cancelled(settings, found, client=None):
    """What the route answers, where the database has what was found; without a client an interruption is an error."""

    async def read(function, *_):
        return found[function]

    scope = {
        "type": "http",
        "method": "POST",
        "path": "",
        "query_string": b"",
        "headers": [],
        "path_params": {"response_id": str(ResponseId("talk", 3))},
    }
    caller.set_caller(scope, caller.LOOPBACK)

    async def cancel():
        database = SimpleNamespace(read=read)
        dependencies = SimpleNamespace(settings=settings, database=database, hub=Hub(CALLING), client=client)
        async with asyncio.timeout(IN_PROCESS):
            return await stored_responses.cancel(dependencies, Request(scope))

    return asyncio.run(cancel())


def calling(goes_on, has_another_asked):
    return {
        answered_request: ASKED,
        conversation_state.goes_on: (goes_on, 6),
        conversation_state.has_running_calls: True,
        client_calls.left_since: [],
        client_requests.has_another_asked: has_another_asked,
    }


@pytest.mark.regression("gateway 17")
@pytest.mark.parametrize(("goes_on", "has_another_asked"), [(False, False), (True, True)])
def test_a_response_that_no_interruption_stops_is_answered_as_it_is(goes_on, has_another_asked):
    """It waits for a call in the background; or another client has asked since, whose answer it would stop."""
    answer = cancelled(Settings(), calling(goes_on, has_another_asked))
    assert json.loads(answer.body)["status"] == "in_progress"


@pytest.mark.regression("gateway 17")
def test_an_interruption_that_nobody_stores_is_waited_for_as_long_as_for_any_frame():
    published = []

    async def publish(_, frame, **__):
        published.append(frame.type)

    with pytest.raises(ProblemError) as problem:
        cancelled(Settings(gateway_request_secs=1), calling(True, False), SimpleNamespace(publish=publish))
    assert problem.value.word == "not-visible-yet"
    assert published == ["InterruptionFrame"]
