"""Requests that the AG-UI API of the gateway rejects before a run begins."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.ag_ui import Consumer
from tests.support.gateway import AWAY, app_of

from frameledger.decoding import decode
from frameledger.frames import (
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    LLMThoughtEndFrame,
    LLMThoughtStartFrame,
    LLMThoughtTextFrame,
    Usage,
    encode_frame,
)
from frameledger_services.gateway import answers as answers_json
from frameledger_services.gateway.access import tokens
from frameledger_services.gateway.ag_ui import answers, run_input
from frameledger_services.gateway.ag_ui.interrupt_ids import call_of_interrupt, interrupt_id
from frameledger_services.gateway.ag_ui.translation import Translation
from frameledger_services.gateway.live import hub
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.settings import Settings
from frameledger_services.store.shown_messages import ShownMessage

MESSAGE: dict[str, Any] = {"id": "u1", "role": "user", "content": "Hi"}
BODY: dict[str, Any] = {"threadId": "acme/1", "runId": "r1", "messages": [MESSAGE]}


def asked(settings, token=None, **more):
    async def ask():
        async with app_of(settings, token) as http:
            return [await http.post("/v1/ag-ui", **more), await http.get("/v1/ag-ui/acme%2F1")]

    return asyncio.run(ask())


def test_without_the_setting_it_is_not_there_and_says_which_one_it_is():
    for answer in asked(Settings(**{**AWAY, "gateway_ag_ui": False}), json=BODY):
        assert answer.status_code == 404
        assert "FRAMELEDGER_GATEWAY_AG_UI" in answer.json()["detail"]


def test_a_token_without_words_may_not_converse(tmp_path):
    file = tmp_path / "tokens.json"
    _, text = tokens.create(file, "one", ("read", "append"), redact=True, now=datetime.now(UTC))
    for answer in asked(Settings(**AWAY, gateway_tokens_file=file), text, json=BODY):
        assert (answer.status_code, answer.json()["type"]) == (403, "/problems/forbidden")


def test_a_conversation_beyond_the_prefix_is_not_there(tmp_path):
    file = tmp_path / "tokens.json"
    _, text = tokens.create(file, "one", ("read", "append"), prefix="other/", now=datetime.now(UTC))
    for answer in asked(Settings(**AWAY, gateway_tokens_file=file), text, json=BODY):
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/no-such-context")


def test_without_room_for_a_follower_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(hub, "MAX_FOLLOWERS", 0)
    answer, _ = asked(Settings(**AWAY), json=BODY)
    assert (answer.status_code, answer.json()["type"]) == (429, "/problems/too-many")


def test_half_a_character_that_a_client_was_sent_is_read_again():
    half = "\ud83d"
    shown = answers_json.json_bytes({**BODY, "messages": [{**MESSAGE, "content": half}]})
    assert run_input.read(shown).messages[0].content == half
    for change in ({"threadId": half}, {"runId": half}, {"messages": [{**MESSAGE, "toolCallId": half}]}):
        with pytest.raises(ProblemError, match=next(iter(change))):
            run_input.read(json.dumps({**BODY, **change}).encode())


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"runId": 7}, "runId"),
        ({"threadId": ""}, "threadId"),
        ({"messages": None}, "messages"),
        ({"messages": [{"id": "u1", "role": "poet", "content": "O"}]}, "messages.0.role"),
        ({"resume": [{"interruptId": "c1@7", "status": "maybe"}]}, "resume.0.status"),
        ({"context": [{"description": "The time"}]}, "context.0.value"),
    ],
)
def test_a_value_that_a_field_cannot_have_is_refused_by_its_name(change, place):
    [answer, _] = asked(Settings(**AWAY), json=BODY | change)
    assert answer.status_code == 400
    assert f"RunAgentInput: {place}:" in answer.json()["detail"]


def test_a_body_that_is_no_json_is_refused():
    [answer, _] = asked(Settings(**AWAY), content=b"{", headers={"Content-Type": "application/json"})
    assert answer.status_code == 400


def test_what_the_protocol_does_not_describe_is_passed_over():
    body = BODY | {"later": 1, "messages": [MESSAGE | {"mood": 2}]}
    found = run_input.read(json.dumps(body).encode())
    assert (found.thread_id, found.conversation[0].content) == ("acme/1", "Hi")
    with pytest.raises(ProblemError):
        run_input.read(b"[]")


def test_an_interrupt_names_one_call_of_all_of_its_id():
    assert call_of_interrupt(interrupt_id("a@3", 17)) == ("a@3", 17)
    assert call_of_interrupt("a") is None


def test_a_run_counts_its_tokens_by_model_and_leaves_out_what_no_client_can_read():
    translation = Translation("t", "r")
    consumer = Consumer()
    consumer.take_all(translation.started([]))
    for count in (5, 2**60):
        frame = LLMFullResponseEndFrame(usage=Usage(input_tokens=count, output_tokens=2))
        consumer.take_all(translation.take(1, frame))
    [finished] = translation.finished()
    consumer.take(finished)
    assert finished["usage"] == [{"outputTokens": 4}]


@pytest.mark.regression("gateway 9")
def test_messages_are_not_stated_again_before_anything_else_is_told():
    stored = [ShownMessage(1, 1, None, "m1", {"role": "user", "content": "Hi."})]
    more = [*stored, ShownMessage(1, 2, None, "m2", {"role": "user", "content": "And?"})]
    translation = Translation("t", "r")
    assert [one["type"] for one in translation.started(stored)] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
    assert translation.take(2, LLMFullResponseStartFrame(run_id="r1")) == []
    assert translation.is_stale
    assert translation.snapshot(stored) == []
    assert not translation.is_stale
    assert [len(one["messages"]) for one in translation.snapshot(more)] == [2]
    translation.take(3, LLMTextFrame(text="Yes", run_id="r1"))
    assert [len(one["messages"]) for one in translation.snapshot(more)] == [2]


def test_arguments_that_are_no_json_stay_the_text_they_are():
    translation = Translation("t", "r")
    consumer = Consumer()
    consumer.take_all(translation.started([]))
    frame = FunctionCallInProgressFrame(
        function_name="f", tool_call_id="c1", arguments='{"city": "Ly', cancel_on_interruption=True
    )
    consumer.take_all(translation.take(1, frame))
    [call] = consumer.messages["call-c1"]["toolCalls"]
    assert call["function"]["arguments"] == '{"city": "Ly'


DEEP = 99 * "[" + 99 * "]"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (' {"deck": ["upper"]}', {"deck": ["upper"]}),
        ('"upper"', "upper"),
        *((text, text) for text in ("1.10", "12345678901234567890.0", "null", "upper", "")),
        *((text, text) for text in ("NaN", "-Infinity", "1e999", '{"a": NaN}', "[-Infinity]", "[1e999]")),
        *((text, text) for text in (200_000 * "[", f"[{DEEP}]", "{broken", '{"a": 1}, {"b": 2}')),
        (DEEP, json.loads(DEEP)),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_tool_message_says_the_json_that_a_frame_can_carry_or_its_text(text, value):
    found = answers.result(run_input.Message(id="m", role="tool", content=text))
    assert found == value
    frame = FunctionCallResultFrame(id="r", function_name="f", tool_call_id="c", result=found)
    assert decode(encode_frame(frame)).result == frame.result


@pytest.mark.regression("gateway 29")
@pytest.mark.parametrize("pieces", [[], [""], [" "], ["Hm", "."]])
def test_a_thought_is_shown_once_it_has_text(pieces):
    translation = Translation("t", "r")
    frames = [
        LLMFullResponseStartFrame(run_id="a"),
        LLMThoughtStartFrame(llm="anthropic"),
        *(LLMThoughtTextFrame(text=piece) for piece in pieces),
        LLMThoughtEndFrame(signature="c2ln"),
    ]
    told = [event for version, one in enumerate(frames, 1) for event in translation.take(version, one)]
    shown = [event["type"].removeprefix("REASONING_") for event in told]
    about_text = ["MESSAGE_START", *["MESSAGE_CONTENT"] * len(pieces), "MESSAGE_END"]
    assert shown == (["START", *about_text, "END"] if "".join(pieces).strip() else [])
