"""A result that is sent again while its call still reads as open: the projector is quicker than the request, or the
frame is parked."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from frameledger.frames import FunctionCallResultFrame, encode_frame
from frameledger_services.gateway import call_results
from frameledger_services.gateway.access.caller import LOOPBACK
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.store import tool_calls, wanted_frames

OPENED = 7
NEWER = 9


class PublishedError(Exception):
    """Another frame would be stored."""


class Database:
    """The call is open; the first `stored` frames of a request are there, with these outcomes."""

    def __init__(self, status, result, stored):
        self.status, self.result, self.stored = status, result, stored

    async def read(self, function, context_id, *arguments):
        if function is tool_calls.with_status:
            is_so = arguments[1] == self.status
            return tool_calls.Settleable("c1", self.status, "refund", OPENED, None, None) if is_so else None
        assert function is wanted_frames.page
        ids = arguments[0].ids
        payload = encode_frame(
            FunctionCallResultFrame(function_name="refund", tool_call_id="c1", result=self.result)
        )
        frames = [
            SimpleNamespace(
                frame_id=one, version=NEWER + number, outcome=outcome, reason=reason, payload=payload
            )
            for number, (one, (outcome, reason)) in enumerate(zip(ids, self.stored, strict=False))
        ]
        return wanted_frames.FramePage(frames, True)


def settle(stored, *, status="waiting", result="Granted.", key=None, sent=b'"Granted."'):
    """Returns the answer to the result that is `sent`, or the id of the frame that it would publish. The stored frames
    have the result `result`."""
    published = []

    async def publish(context_id, frame, **_):
        published.append(frame)
        raise PublishedError

    async def receive():
        return {"type": "http.request", "body": b'{"result":%b}' % sent, "more_body": False}

    headers = [(b"content-type", b"application/json")]
    if key is not None:
        headers.append((b"idempotency-key", key))
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/contexts/shop/calls/c1/result",
        "query_string": b"",
        "headers": headers,
        "path_params": {"context_id": "shop", "call": "c1"},
        "frameledger.caller": LOOPBACK,
    }
    dependencies = SimpleNamespace(
        database=Database(status, result, stored),
        client=SimpleNamespace(publish=publish),
        settings=SimpleNamespace(gateway_request_secs=1),
    )
    try:
        answer = asyncio.run(call_results._settle(dependencies, Request(scope, receive)))
    except PublishedError:
        return published[0].id
    return answer.status_code, json.loads(answer.body)


@pytest.mark.parametrize(("status", "settled"), [("waiting", "answered"), ("ambiguous", "resolved")])
@pytest.mark.parametrize(
    "how", [("applied", None), ("parked", None), ("ignored", "place_replaced")], ids=lambda how: how[0]
)
@pytest.mark.parametrize("key", [None, b"k1"])
def test_a_result_that_settled_its_call_is_answered_again_though_the_call_reads_as_open(
    status, settled, how, key
):
    code, answer = settle([how], status=status, key=key)
    assert (code, answer["settled"], answer["version"]) == (201, settled, NEWER)
    assert (answer["outcome"], answer["reason"]) == how


def test_a_key_that_settled_the_call_is_not_of_another_result():
    with pytest.raises(ProblemError) as problem:
        settle([("applied", None)], result="Refused.", key=b"k1")
    assert problem.value.word == "key-reused"


@pytest.mark.regression("gateway 94")
@pytest.mark.parametrize(
    ("sent", "is_same"),
    [(b'{"approved":1}', False), (b'{"approved":true}', True), (b'{"approved":false}', False)],
)
def test_true_and_one_are_different_results_of_a_key(sent, is_same):
    stored = {"result": {"approved": True}, "key": b"k1", "sent": sent}
    if is_same:
        assert settle([("applied", None)], **stored)[0] == 201
        return
    with pytest.raises(ProblemError) as problem:
        settle([("applied", None)], **stored)
    assert problem.value.word == "key-reused"


def test_an_id_that_was_ignored_is_used_up():
    ignored = ("ignored", "call_unknown")
    assert settle([ignored]) != settle([])
    assert settle([ignored, ("parked", None)])[1]["version"] == NEWER + 1
