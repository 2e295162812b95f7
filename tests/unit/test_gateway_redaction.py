"""Tokens that are shown no words: of every answer only shapes, times and counts are left."""

import asyncio
import json
from datetime import datetime
from types import SimpleNamespace
from typing import get_args, get_type_hints

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from tests.unit.frame_examples import EXAMPLES

from frameledger.context import LLMContext
from frameledger.frames import encode_frame
from frameledger_services.gateway import contexts, runs
from frameledger_services.gateway.access.caller import Caller, set_caller
from frameledger_services.gateway.access.redacted_answers import RedactedAnswers
from frameledger_services.gateway.access.shapes import ANSWER, FRAME, redacted
from frameledger_services.gateway.problems import ProblemError, response
from frameledger_services.inference import recorded_request
from frameledger_services.providers import plugins
from frameledger_services.providers.errors import ProviderError
from frameledger_services.settings import Settings
from frameledger_services.store import contexts as stored_contexts
from frameledger_services.store import history
from frameledger_services.store.context_json import ContextHead, WantedContext
from frameledger_services.store.contexts import StoredContext
from frameledger_services.store.history import RunLine
from frameledger_services.store.listing import ListedContext
from frameledger_services.store.parked import Parked
from frameledger_services.store.tool_calls import UnsettledCall

AUDITOR = Caller("auditor", frozenset(("read",)), redact=True)
WORDS = "the PIN is 4711"
HIDDEN = {"redacted": True, "bytes": len(WORDS)}

FRAME_OF_WORDS = {
    "type": "FunctionCallInProgressFrame",
    "id": "f-1",
    "produced_at": "2026-11-22T12:00:00Z",
    "function_name": "order",
    "tool_call_id": "c-1",
    "arguments": {"pin": 4711},
    "metadata": {WORDS: WORDS},
    "of_mine": WORDS,
    "secret_id": WORDS,
    "timeout_secs": 4.5,
    "run_llm": None,
}
REDACTED_FRAME = {
    "type": "FunctionCallInProgressFrame",
    "id": "f-1",
    "produced_at": "2026-11-22T12:00:00Z",
    "function_name": "order",
    "tool_call_id": "c-1",
    "arguments": {"redacted": True, "bytes": len('{"pin":4711}')},
    "metadata": {"redacted": True, "bytes": len(json.dumps({WORDS: WORDS}, separators=(",", ":")))},
    "of_mine": HIDDEN,
    "secret_id": HIDDEN,
    "timeout_secs": 4.5,
    "run_llm": None,
}
CONTEXT = {
    "context_id": "a",
    "version": 3,
    "logged_at": "2026-11-22T12:00:00Z",
    "positions": [1, 2],
    "messages": [
        {"role": "user", "content": WORDS, "name": WORDS},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": WORDS}],
            "tool_calls": [
                {"id": "c-1", "type": "function", "function": {"name": "order", "arguments": WORDS}}
            ],
        },
        {"role": "tool", "tool_call_id": "c-1", "content": WORDS},
    ],
    "settings": {"temperature": 0.5},
    "last_words": WORDS,
    "input_tokens": 71,
}


def ask(answer, path="/v1/contexts/a", asking=AUDITOR, method="GET"):
    """What somebody gets of an answer of the app."""

    async def endpoint(_):
        return answer

    app = RedactedAnswers(Starlette(routes=[Route("/{path:path}", endpoint, methods=[method])]))

    async def with_caller(scope, receive, send):
        set_caller(scope, asking)
        await app(scope, receive, send)

    async def asked():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(with_caller), base_url="http://a") as http:
            return await http.request(method, path)

    return asyncio.run(asked())


def in_pieces(body, size):
    async def pieces():
        for start in range(0, len(body), size):
            yield body[start : start + size]

    return pieces()


def test_a_frame_keeps_its_shape_and_none_of_its_words():
    assert redacted(FRAME_OF_WORDS, FRAME) == REDACTED_FRAME


def test_a_context_keeps_its_shape_and_none_of_its_words():
    assert redacted(CONTEXT, ANSWER) == {
        "context_id": "a",
        "version": 3,
        "logged_at": "2026-11-22T12:00:00Z",
        "positions": [1, 2],
        "messages": [
            {"role": "user", "content": HIDDEN, "name": HIDDEN},
            {
                "role": "assistant",
                "content": {"redacted": True, "bytes": len('[{"type":"text","text":""}]') + len(WORDS)},
                "tool_calls": [
                    {"id": "c-1", "type": "function", "function": {"name": "order", "arguments": HIDDEN}}
                ],
            },
            {"role": "tool", "tool_call_id": "c-1", "content": HIDDEN},
        ],
        "settings": {"redacted": True, "bytes": len('{"temperature":0.5}')},
        "last_words": HIDDEN,
        "input_tokens": 71,
    }


@pytest.mark.parametrize("frame", EXAMPLES, ids=lambda frame: frame.type)
def test_of_every_type_of_frame_no_field_that_can_hold_words_is_shown(frame):
    found = json.loads(encode_frame(frame))
    shown = redacted(found, FRAME)
    assert shown["type"] == frame.type
    said = {
        "text",
        "message",
        "content",
        "arguments",
        "result",
        "heard_text",
        "metadata",
        "tools",
        "settings",
        "why",
    }
    if isinstance(found.get("message"), dict):
        # The rest of a message is shown, and who speaks.
        assert redacted(found["message"], FRAME.inside["message"]) == shown["message"]
        found["message"], shown["message"] = found["message"]["content"], shown["message"]["content"]
    for name in said & found.keys():
        assert found[name] is None or name not in shown or shown[name]["redacted"] is True
    assert list(shown) == list(found)


def test_a_field_that_shows_a_number_does_not_show_what_a_publisher_hides_in_it():
    hiding = {"type": {"words": WORDS}, "id": [WORDS, {"x": WORDS}], "run_id": 4711}
    shown = redacted(hiding, FRAME)
    assert shown["run_id"] == 4711
    assert WORDS not in json.dumps(shown)


@pytest.mark.regression("gateway 103")
@pytest.mark.parametrize("model", [UnsettledCall, ListedContext, RunLine, Parked])
def test_every_time_of_an_answer_is_shown(model):
    kinds = get_type_hints(model)
    times = {
        name: "2026-11-29T12:00:00Z" for name, kind in kinds.items() if datetime in (kind, *get_args(kind))
    }
    assert times
    assert redacted(times, ANSWER) == times


def test_lists_of_nothing_stay_empty_and_lists_of_numbers_stay():
    assert redacted({"messages": [], "eras": [1, 2], "frames": 7}, ANSWER) == {
        "messages": [],
        "eras": [1, 2],
        "frames": 7,
    }


def test_of_a_reason_it_is_shown_which_frames_it_names_and_none_of_their_words():
    frame = {
        "version": 7,
        "type": "TranscriptionFrame",
        "logged_at": "2026-11-22T12:00:00Z",
        "outcome": "ignored",
    }
    why = {
        "heard": [{"frame": frame, "text": WORDS}],
        "run": {"run_id": "r", "ignored": [{"frame": frame, "attempt": 1, "text": WORDS}]},
        "call": {
            "status": "done",
            "arguments": {"pin": WORDS},
            "versions": {"requested": 7, "resolved": None, WORDS: WORDS},
            "frames": [{"frame": frame, "attempt": "1", "worker": "w"}],
        },
    }
    shown = redacted(why, ANSWER)
    assert shown["heard"] == [{"frame": frame, "text": HIDDEN}]
    assert shown["run"]["ignored"] == [{"frame": frame, "attempt": 1, "text": HIDDEN}]
    assert shown["call"]["frames"] == why["call"]["frames"]
    assert shown["call"]["versions"] == {"requested": 7, "resolved": None, WORDS: HIDDEN}
    assert WORDS not in json.dumps(shown["call"]["arguments"])


def test_of_a_difference_it_is_shown_which_terms_changed_and_not_to_what():
    terms = {
        "tools": {"before": [], "after": [{"name": WORDS}]},
        "settings": {"before": {}, "after": {"a": 1}},
        "limits": {"before": {}, "after": {"rounds": 2}},
        "mirror": {"before": None, "after": WORDS},
        "recording": {"before": False, "after": True},
    }
    assert redacted({"terms": terms}, ANSWER) == {
        "terms": {
            "tools": {
                "before": {"redacted": True, "bytes": 2},
                "after": {"redacted": True, "bytes": len(WORDS) + 13},
            },
            "settings": {
                "before": {"redacted": True, "bytes": 2},
                "after": {"redacted": True, "bytes": 7},
            },
            "limits": {
                "before": {"redacted": True, "bytes": 2},
                "after": {"redacted": True, "bytes": 12},
            },
            "mirror": {"before": None, "after": HIDDEN},
            "recording": {
                "before": {"redacted": True, "bytes": 5},
                "after": {"redacted": True, "bytes": 4},
            },
        }
    }
    assert redacted({"terms": {}}, ANSWER) == {"terms": {}}


def test_how_long_something_is_is_said_in_bytes_of_utf8():
    assert redacted("ü\ud83d", ANSWER) == {"redacted": True, "bytes": 5}
    assert redacted([None, 12, True], ANSWER) == [
        None,
        {"redacted": True, "bytes": 2},
        {"redacted": True, "bytes": 4},
    ]


SHOWN = st.integers(-5, 5) | st.booleans() | st.none()
JSONS = st.recursive(
    SHOWN | st.just(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["frame", "messages", "content", "text", "result", "function", "usage", "calls", "x"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


@given(JSONS, st.sampled_from([ANSWER, FRAME]))
def test_words_in_fields_that_are_not_listed_are_shown_nowhere_however_deep(value, shape):
    assert WORDS not in json.dumps(redacted(value, shape))


# Answers


def test_whoever_is_shown_words_gets_the_answer_as_it_is():
    body = b'{ "content":"x" }'
    answer = ask(Response(body, media_type="application/json"), asking=Caller("a", frozenset(("read",))))
    assert answer.content == body


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_json_is_redacted_when_it_is_whole(size):
    body = json.dumps(CONTEXT).encode()
    whole = StreamingResponse(in_pieces(body, size), media_type="application/json", headers={"ETag": '"3"'})
    answer = ask(whole)
    assert answer.json() == redacted(CONTEXT, ANSWER)
    assert answer.headers["etag"] == '"3"'
    assert int(answer.headers["content-length"]) == len(answer.content)


def test_a_raw_frame_is_redacted_as_one():
    assert ask(JSONResponse(FRAME_OF_WORDS), "/v1/contexts/a/frames/3?raw=1").json() == REDACTED_FRAME


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_ndjson_is_redacted_line_by_line(size):
    lines = [{"version": number, "frame": FRAME_OF_WORDS} for number in range(3)]
    body = "".join(json.dumps(line) + "\n" for line in lines).encode().removesuffix(b"\n")
    answer = ask(StreamingResponse(in_pieces(body, size), media_type="application/x-ndjson"))
    assert [json.loads(line) for line in answer.text.splitlines()] == [
        {"version": number, "frame": REDACTED_FRAME} for number in range(3)
    ]


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_events_are_redacted_one_by_one_and_all_else_of_a_stream_stays(size, end):
    pretty = json.dumps({"version": 8, "frame": FRAME_OF_WORDS}, indent=1)
    lines = [
        "retry: 2000",
        "",
        "event: frame",
        "id: 8",
        *(f"data: {line}" for line in pretty.splitlines()),
        "",
        ": 15",
        "",
        f'data:"{WORDS}"',
        "",
        "data: [DONE]",
        "",
        f"data: {WORDS}",
    ]
    body = end.join(lines).encode()
    answer = ask(StreamingResponse(in_pieces(body, size), media_type="text/event-stream"))
    assert WORDS not in answer.text
    hidden = json.dumps(HIDDEN, separators=(",", ":"))
    assert answer.text.splitlines() == [
        "retry: 2000",
        "",
        "event: frame",
        "id: 8",
        "data: " + json.dumps({"version": 8, "frame": REDACTED_FRAME}, separators=(",", ":")),
        "",
        ": 15",
        "",
        f"data: {hidden}",
        "",
        "data: [DONE]",
        "",
        f"data: {hidden}",
    ]


def test_events_come_as_they_are_made():
    sent = []

    async def stream():
        yield b"id: 1\ndata: 1\n\nid: "
        sent.append(b"".join(received))
        yield b"2\n\n"

    received: list[bytes] = []

    async def app(scope, receive, send):
        await StreamingResponse(stream(), media_type="text/event-stream")(scope, receive, send)

    async def send(message):
        received.append(message.get("body", b""))

    async def run():
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/v1/contexts/a/stream",
            "query_string": b"",
            "headers": [],
        }
        set_caller(scope, AUDITOR)
        await RedactedAnswers(app)(scope, asyncio.Queue().get, send)

    asyncio.run(run())
    assert sent == [b'id: 1\ndata: {"redacted":true,"bytes":1}\n\n']
    assert b"".join(received).endswith(b"\n\nid: 2\n\n")


def test_what_cannot_be_redacted_is_not_sent():
    answer = ask(PlainTextResponse(WORDS * 3))
    assert answer.status_code == 403
    assert WORDS not in answer.text
    assert WORDS not in ask(Response(WORDS, media_type="application/json")).text


def test_problems_and_answers_without_a_body_stay():
    problem = response(
        httpx.URL("http://a/v1/contexts/a"), ProblemError("no-such-version", "As told.", newest=7)
    )
    assert ask(problem).json()["newest"] == 7
    assert ask(Response(status_code=204)).status_code == 204
    head = ask(Response(headers={"ETag": '"3"', "Content-Type": "application/json"}), method="HEAD")
    assert (head.status_code, head.headers["etag"]) == (200, '"3"')


@pytest.mark.parametrize(
    ("word", "members"),
    [
        ("log-away", {"published": ["f-1"], "unpublished": ["f-2", None]}),
        ("bad-frame", {"code": "not_json", "frame": 3}),
        (
            "key-reused",
            {"frames": [{"id": "f-1", "place": "1:2:3", "outcome": "rejected", "reason": "id_reused"}]},
        ),
    ],
)
def test_of_a_problem_it_is_shown_which_frames_it_is_about(word, members):
    asked = httpx.URL("http://a/v1/contexts/a/frames")
    shown = ask(response(asked, ProblemError(word, "As told.", **members))).json()
    assert {name: shown[name] for name in members} == members


def test_of_the_frames_that_a_problem_is_about_no_words_are_shown():
    frames = [{"id": "f-1", "frame": FRAME_OF_WORDS, "text": WORDS}]
    problem = ProblemError("key-reused", "As told.", frames=frames)
    shown = ask(response(httpx.URL("http://a/v1/contexts/a/frames"), problem)).json()
    assert shown["frames"] == [{"id": "f-1", "frame": REDACTED_FRAME, "text": HIDDEN}]


def test_of_an_erasure_it_is_shown_when_and_not_why_or_for_whom():
    receipt = {"erased_at": "2026-03-04", "version": 7, "frames": 3, "why": WORDS, "requested_by": WORDS}
    erased = ProblemError("erased", "It was erased.", context_id="a", receipt=receipt, said=WORDS)
    answer = ask(response(httpx.URL("http://a/v1/contexts/a"), erased))
    said = answer.json()
    assert (answer.status_code, said["type"], said["detail"]) == (410, "/problems/erased", "It was erased.")
    assert {name: said["receipt"][name] for name in ("erased_at", "version", "frames")} == {
        "erased_at": "2026-03-04",
        "version": 7,
        "frames": 3,
    }
    assert WORDS not in answer.text


class Stored:
    """The contexts of conversations, which no provider accepts."""

    async def read(self, *asked):
        if isinstance(asked[0], WantedContext):
            return ContextHead(3, 3, 0, 0, None)
        return {
            stored_contexts.context: StoredContext("a", 3, LLMContext()),
            history.runs_named: ["r-1"],
            recorded_request.recorded_request: SimpleNamespace(config={"provider": "openai"}),
        }[asked[0]]


@pytest.mark.regression("fault 67")
@pytest.mark.parametrize("is_shown", [False, True], ids=["redacted", "shown"])
@pytest.mark.parametrize("endpoint", [contexts._context, runs._run_request])
def test_why_a_request_cannot_be_made_is_not_told_who_may_not_read_words(monkeypatch, endpoint, is_shown):
    def refuses(*_):
        raise ProviderError(f"It takes no temperature {WORDS!r}.")

    monkeypatch.setattr(plugins, "create", refuses)
    path = {"context_id": "a", "run_id": "r-1"}
    scope = {"type": "http", "query_string": b"form=openai", "headers": [], "path_params": path}
    set_caller(scope, Caller("reader", frozenset(("read",))) if is_shown else AUDITOR)
    dependencies = SimpleNamespace(settings=Settings(), heads=Stored(), database=Stored())
    with pytest.raises(ProblemError) as problem:
        asyncio.run(endpoint(dependencies, Request(scope)))
    assert problem.value.word == "no-such-form"
    assert (WORDS in str(problem.value)) is is_shown


def test_what_has_no_words_of_conversations_stays():
    for path in ("/v1/lag", "/readyz", "/openapi.json"):
        assert ask(JSONResponse({"check": WORDS}), path).json() == {"check": WORDS}


def test_who_may_not_read_words_may_not_search_for_them():
    found = JSONResponse({"contexts": []})
    assert ask(found, "/v1/contexts?q=PIN").status_code == 403
    assert ask(found, "/v1/contexts?prefix=a").status_code == 200
    assert ask(found, "/v1/contexts?q=PIN", asking=Caller("a", frozenset(("read",)))).status_code == 200
