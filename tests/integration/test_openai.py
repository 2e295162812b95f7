"""Chats by OpenAI's API with the official client, a scripted model and real functions: what is answered, and what of it
the conversation has."""

import asyncio
import http.client
import json
import shutil
import signal
import subprocess
import threading
import time
from contextlib import closing, suppress
from functools import partial
from itertools import zip_longest
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import openai
import pytest
from openai import OpenAI
from tests.bounds import ON_SERVERS, PROGRAM, scaled
from tests.support import answered_road
from tests.support.answerers import QUICK, Plan, answerer
from tests.support.gateway import running
from tests.support.killed_request import killed

from frameledger.frames import InterimTranscriptionFrame
from frameledger_services.embedded import ports
from frameledger_services.gateway.openai.asked import Asked
from frameledger_services.gateway.openai.following import Following
from frameledger_services.gateway.openai_responses.response_ids import ResponseId
from frameledger_services.gateway.service import connected
from frameledger_services.store import client_requests

SCRIPT = {
    "pace": 60,
    "replies": [
        {"when": {"user": "count"}, "say": [{"text": " ".join(f"number-{n}" for n in range(1, 4000))}]},
        {"when": {"user": "late"}, "say": [{"text": "I look. "}, {"call": "train_position"}]},
        {"when": {"result_of": "train_position"}, "say": [{"text": "By twenty-five minutes."}]},
        {"when": {"user": "hold"}, "say": [{"call": "hold_ferry", "arguments": {"leaves": "06:40"}}]},
        {"when": {"result_of": "hold_ferry"}, "say": [{"text": "He is being asked."}]},
        {
            "when": {"user": "paint and look"},
            "say": [{"call": "paint", "arguments": {"colour": "blue"}}, {"call": "train_position"}],
        },
        {
            "when": {"user": "paint twice"},
            "say": [{"call": "paint", "arguments": {"colour": colour}} for colour in ("blue", "red")],
        },
        {
            "when": {"user": "paint"},
            "say": [{"text": "I paint. "}, {"call": "paint", "arguments": {"colour": "blue"}}],
        },
        {"when": {"result_of": "paint"}, "say": [{"text": "It is painted."}]},
        {"when": {"user": "sketch"}, "say": [{"call": "sketch"}]},
        {"when": {"user": "outline"}, "say": [{"call": "outline"}]},
        {"when": {"result_of": "sketch"}, "say": [{"call": "paint", "arguments": {"colour": "blue"}}]},
        {
            "when": {"result_of": "outline"},
            "say": [{"text": "Now I paint."}, {"call": "paint", "arguments": {"colour": "blue"}}],
        },
        {
            "when": {"user": "seat and a box"},
            "say": [{"call": "keep_seat", "arguments": {"berth": 7}}, {"call": "paint"}],
        },
        {"when": {"result_of": "keep_seat"}, "say": [{"text": "Your seat is kept."}]},
        {"when": {"user": "break"}, "say": [{"fail": "refused_context", "message": "That is too much."}]},
        {"when": {"user": "story"}, "say": [{"text": " ".join(f"word-{n}" for n in range(1, 40))}]},
        {
            "when": {"user": "half"},
            "say": [{"text": "So far so"}, {"fail": "refused_context", "message": "No more."}],
        },
        {"when": {"user": "short"}, "say": [{"text": "Once upon"}], "finish_reason": "length"},
        {
            "when": {"user": "night train"},
            "say": [{"thought": "Let me think."}, {"text": "Yes, at 22:40."}],
            "usage": {"input_tokens": 9, "output_tokens": 4, "cache_read_tokens": 2},
        },
    ],
}

TRAIN = {"role": "user", "content": "Is there a night train?"}
YES = {"role": "assistant", "content": "Yes, at 22:40."}
THANKS = {"role": "user", "content": "Thanks."}


class Stage:
    """The road, a gateway, and the official client."""

    def __init__(self, road, base_url):
        self.settings = road.settings.model_copy(
            update={"inference_provider": "scripted", "inference_script": road.script}
        )
        self.address = road.address
        self.inference = road.inference
        self.rows = road.rows
        self.until = road.until
        self.context = road.context
        self.base_url = base_url
        self.client = OpenAI(base_url=f"{base_url}/v1", api_key="none", timeout=ON_SERVERS)

    def create(self, messages, **more):
        return self.client.chat.completions.create(model="frameledger", messages=messages, **more)

    def messages(self, context_id):
        """Its messages, without thoughts."""
        return [one for one in self.context(context_id)["messages"] if "role" in one]

    def stored_settings(self, context_id):
        return self.context(context_id)["settings"]

    def frames(self, context_id):
        query = "SELECT type FROM frames WHERE context_id = %s ORDER BY version"
        return [kind for (kind,) in self.rows(query, context_id)]


@pytest.fixture(scope="module")
def stage(kafka, database_server, migrated_template, tmp_path_factory):
    folder = tmp_path_factory.mktemp("openai")
    servers = (kafka.bootstrap_servers, database_server, migrated_template)
    also = {
        "gateway_port": str(ports.choose(0)),
        "gateway_openai": "true",
        "gateway_openai_begin_secs": f"{ON_SERVERS:g}",
    }
    with (
        answered_road.made(*servers, folder, SCRIPT, "--models", "owl", **QUICK) as road,
        running(road.settings, **also) as gateway,
    ):
        yield Stage(road, gateway.address)


def test_a_chat_goes_on_in_one_conversation_as_its_client_resends_it(stage):
    said = stage.create([TRAIN], extra_headers={"Frameledger-Context": "talk/1"}, temperature=0.5)
    assert said.choices[0].message.content == YES["content"]
    assert said.choices[0].finish_reason == "stop"
    assert said.model_extra["conversation"] == {"id": "talk/1"}
    assert (said.usage.prompt_tokens, said.usage.completion_tokens, said.usage.total_tokens) == (9, 4, 13)
    assert said.usage.prompt_tokens_details.cached_tokens == 2
    assert stage.stored_settings("talk/1") == {"temperature": 0.5}
    [(run_id,)] = stage.rows("SELECT run_id FROM runs WHERE context_id = 'talk/1'")
    assert said.id == f"chatcmpl-{run_id}"
    before = stage.frames("talk/1")

    again = stage.create([TRAIN, YES, THANKS], extra_body={"conversation": {"id": "talk/1"}}, temperature=0.5)
    assert again.choices[0].message.content == "You said: Thanks."
    assert stage.messages("talk/1")[-2:] == [THANKS, {"role": "assistant", "content": "You said: Thanks."}]
    assert stage.frames("talk/1")[len(before)] == "LLMMessagesAppendFrame"
    assert stage.rows("SELECT count(*) FROM eras WHERE context_id = 'talk/1'") == [(1,)]


def test_an_answer_streams_and_is_what_the_context_has(stage):
    with stage.client.chat.completions.with_streaming_response.create(
        model="owl",
        messages=[TRAIN],
        stream=True,
        stream_options={"include_usage": True},
    ) as raw:
        context_id = raw.headers["frameledger-context"]
        assert raw.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in raw.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    ids = [int(line.removeprefix("id: ")) for line in lines if line.startswith("id: ")]
    assert ids == sorted(ids)
    assert len(ids) == len(events)
    assert context_id.startswith("chat-")
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert {one["object"] for one in events} == {"chat.completion.chunk"}
    text = "".join(one["choices"][0]["delta"].get("content", "") for one in events if one["choices"])
    assert [{"role": "assistant", "content": text}] == stage.messages(context_id)[-1:] == [YES]
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["total_tokens"] == 13
    assert stage.stored_settings(context_id) == {"model": "owl"}


def streamed(chunks):
    return "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)


def test_an_answer_goes_on_across_functions_that_run_here_and_the_client_never_sees(stage):
    late = {"role": "user", "content": "Are we late?"}
    with stage.create([late], stream=True, extra_headers={"Frameledger-Context": "late"}) as chunks:
        text = streamed(chunks)
    assert text == "I look.\n\nBy twenty-five minutes."
    whole = stage.create([late], extra_headers={"Frameledger-Context": "late-whole"})
    assert whole.choices[0].message.content == text
    assert whole.choices[0].finish_reason == "stop"
    assert [one["role"] for one in stage.messages("late")] == [
        "user",
        "assistant",
        "assistant",
        "tool",
        "assistant",
    ]

    stage.create(
        [late, {"role": "assistant", "content": text}, THANKS], extra_headers={"Frameledger-Context": "late"}
    )
    assert [one["role"] for one in stage.messages("late")] == [
        *("user", "assistant", "assistant", "tool", "assistant"),
        *("user", "assistant"),
    ]
    # Somebody edits the second question: what the function said stays known.
    other = {"role": "user", "content": "Hm."}
    stage.create(
        [late, {"role": "assistant", "content": text}, other], extra_headers={"Frameledger-Context": "late"}
    )
    assert [one["role"] for one in stage.messages("late")][:5] == [
        "user",
        "assistant",
        "assistant",
        "tool",
        "assistant",
    ]
    assert stage.messages("late")[5] == other
    assert stage.rows("SELECT count(*) FROM eras WHERE context_id = 'late'") == [(2,)]


def test_the_stop_button_cuts_the_answer_and_the_chat_goes_on_from_what_was_shown(stage):
    ask = {"role": "user", "content": "Please count."}
    shown = ""
    with stage.create([ask], stream=True, extra_headers={"Frameledger-Context": "stop"}) as chunks:
        for chunk in chunks:
            shown += chunk.choices[0].delta.content or ""
            if "number-3" in shown:
                break
    # At once again, as front ends do.
    said = stage.create(
        [ask, {"role": "assistant", "content": shown}, THANKS], extra_headers={"Frameledger-Context": "stop"}
    )
    assert said.choices[0].message.content == "You said: Thanks."
    assert stage.rows("SELECT status FROM runs WHERE context_id = 'stop' ORDER BY requested_version") == [
        ("interrupted",),
        ("ended",),
    ]
    messages = stage.messages("stop")
    assert messages[1]["content"].startswith(shown.strip())
    assert "number-3999" not in messages[1]["content"]
    assert [one["role"] for one in messages] == ["user", "assistant", "user", "assistant"]


def test_a_client_that_gives_up_waiting_interrupts_too(stage):
    body = {"messages": [{"role": "user", "content": "Please count."}], "conversation": "hasty"}
    address = urlsplit(stage.base_url)
    waiting = http.client.HTTPConnection(address.hostname, address.port, timeout=ON_SERVERS)
    waiting.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    stage.until("SELECT count(*) = 1 FROM runs WHERE context_id = 'hasty' AND first_text_at IS NOT NULL")
    waiting.close()
    stage.until("SELECT count(*) = 1 FROM runs WHERE context_id = 'hasty' AND status = 'interrupted'")


@pytest.mark.regression("gateway 11")
def test_who_leaves_after_another_client_asked_does_not_interrupt_the_answer_of_that_one(stage):
    """It did not take the end of its own answer before it left."""

    async def leave(asked):
        connection = connected(stage.settings, asyncio.Event())
        async with asyncio.timeout(ON_SERVERS), connection as parts:
            with closing(Following(parts, asked)) as following:
                await following.interrupt()
            # What was published before is folded when this is.
            await parts.client.publish("shared", InterimTranscriptionFrame(text="Hm"), wait=True)

    about = {"extra_headers": {"Frameledger-Context": "shared"}}
    late = {"role": "user", "content": "Are we late?"}
    stage.create([late], **about)
    asyncio.run(leave(Asked("shared", 1)))
    count, only_new = {"role": "user", "content": "Please count."}, {"id": "shared", "append": True}
    with stage.create([count], stream=True, extra_body={"conversation": only_new}) as chunks:
        next(iter(chunks))
        asyncio.run(leave(Asked("shared", 1)))
        assert "InterruptionFrame" not in stage.frames("shared")
        [(second,)] = stage.rows("SELECT max(requested_version) FROM runs WHERE context_id = 'shared'")
        asyncio.run(leave(Asked("shared", second, is_own=False)))
        assert "InterruptionFrame" not in stage.frames("shared")
        asyncio.run(leave(Asked("shared", second)))
        assert stage.frames("shared").count("InterruptionFrame") == 1
    # It is over.
    asyncio.run(leave(Asked("shared", second)))
    assert stage.frames("shared").count("InterruptionFrame") == 1


@pytest.mark.parametrize("asks", ["late", "paint"])
def test_an_answer_is_its_own_requests_also_behind_calls(stage, asks):
    """Those of services; behind calls of a client it is the one of the request that brings their results."""
    context_id, headers = f"own-{asks}", {"Frameledger-Context": f"own-{asks}"}
    tools = [{"type": "function", "function": {"name": "paint"}}]
    said = [{"role": "user", "content": f"Please {asks}."}]
    answer = stage.create(said, tools=tools, extra_headers=headers).choices[0].message
    for call in answer.tool_calls or ():
        said += [answer.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": "done"}]
        stage.create(said, tools=tools, extra_headers=headers)

    async def read(version):
        async with asyncio.timeout(ON_SERVERS), connected(stage.settings, asyncio.Event()) as parts:
            return await parts.database.read(client_requests.has_another_asked, context_id, version)

    versions = [
        one
        for (one,) in stage.rows(
            "SELECT requested_version FROM runs WHERE context_id = %s ORDER BY 1", context_id
        )
    ]
    assert len(versions) == 2
    assert [asyncio.run(read(version)) for version in versions] == [asks == "paint", False]


def test_the_same_request_again_is_answered_once_by_the_model(stage):
    body = {"model": "owl", "messages": [TRAIN], "conversation": "again"}
    url = f"{stage.base_url}/v1/chat/completions"

    def post(**headers):
        return httpx.post(url, json=body, headers=headers, timeout=ON_SERVERS)

    first = post()
    assert first.status_code == 200, first.text
    retried = post(**{"X-Stainless-Retry-Count": "1"})
    assert retried.json() == first.json()
    assert stage.rows("SELECT count(*) FROM runs WHERE context_id = 'again'") == [(1,)]
    # Without the word that it is the same, it asks for another answer.
    assert post().json()["id"] != first.json()["id"]
    assert stage.rows("SELECT count(*) FROM runs WHERE context_id = 'again'") == [(2,)]

    body = {"model": "owl", "messages": [TRAIN]}
    keyed = [post(**{"Idempotency-Key": "k-1"}) for _ in range(2)]
    assert keyed[0].json() == keyed[1].json()
    assert keyed[0].headers["frameledger-context"] == keyed[1].headers["frameledger-context"]
    body = {"model": "owl", "messages": [THANKS]}
    assert post(**{"Idempotency-Key": "k-1"}).status_code == 422


def shown_before_the_error(ask):
    """The words of an answer that ends in the middle. Where a gateway hears of words and error at once, as it may where
    much else is done, no word was sent yet: then the error is the answer, and it is asked again."""
    until = time.monotonic() + ON_SERVERS
    while True:
        assert time.monotonic() < until
        shown: list[str] = []
        with pytest.raises(openai.APIError, match="No more") as refused, ask() as chunks:
            shown.extend(one.choices[0].delta.content or "" for one in chunks)
        if not isinstance(refused.value, openai.BadRequestError):
            return shown
        assert shown == []


def test_what_cannot_be_done_is_an_error_of_openais_client(stage):
    ask = stage.client.with_options(max_retries=0).chat.completions.create
    with pytest.raises(openai.NotFoundError, match="answers for the model 'dodo'") as unknown:
        ask(model="dodo", messages=[TRAIN])
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as several:
        ask(model="owl", messages=[TRAIN], n=2)
    assert (several.value.param, several.value.code) == ("n", "unsupported_parameter")
    broken = {"role": "user", "content": "Will you break?"}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="That is too much") as refused:
            ask(model="owl", messages=[broken], stream=stream)
        assert refused.value.code == "context_refused"
    # Words were sent: the error comes behind them.
    half = {"role": "user", "content": "Only half of it."}
    assert (
        "".join(shown_before_the_error(partial(ask, model="owl", messages=[half], stream=True)))
        == "So far so"
    )
    short = ask(model="owl", messages=[{"role": "user", "content": "A short one."}])
    assert (short.choices[0].message.content, short.choices[0].finish_reason) == ("Once upon", "length")


def test_a_conversation_that_is_being_answered_takes_no_second_question(stage):
    ask = {"role": "user", "content": "Please count."}
    with stage.create([ask], stream=True, extra_headers={"Frameledger-Context": "two"}) as chunks:
        assert next(iter(chunks)).choices[0].delta.role == "assistant"
        with pytest.raises(openai.ConflictError, match="It is being answered"):
            stage.client.with_options(max_retries=0).chat.completions.create(
                model="owl", messages=[ask, THANKS], extra_headers={"Frameledger-Context": "two"}
            )
    assert stage.rows("SELECT count(*) FROM runs WHERE context_id = 'two'") == [(1,)]


def test_an_answer_does_not_wait_for_what_goes_on_in_the_background(stage):
    said = stage.create(
        [{"role": "user", "content": "Let them hold the ferry."}], extra_body={"conversation": "bg"}
    )
    assert said.choices[0].message.content == "He is being asked."
    assert stage.rows("SELECT status FROM tool_calls WHERE context_id = 'bg'") == [("running",)]


def test_a_worker_that_dies_in_the_middle_is_no_word_twice(stage):
    stage.inference.kill()
    with answerer(stage.settings, Plan("published LLMTextFrame"), service="dying", models=("owl",)) as dying:
        stage.until("SELECT count(*) = 1 FROM live_workers() WHERE service = 'dying'")
        with stage.create(
            [{"role": "user", "content": "A story!"}], stream=True, extra_body={"conversation": "died"}
        ) as chunks:
            shown = [next(chunks).choices[0].delta.content]
            assert dying.ended() == -signal.SIGKILL
            stage.inference.begin()
            shown += [one.choices[0].delta.content or "" for one in chunks]
    assert "".join(shown) == " ".join(f"word-{n}" for n in range(1, 40))
    assert stage.messages("died")[-1] == {"role": "assistant", "content": "".join(shown)}
    assert stage.rows("SELECT attempt > 1 FROM runs WHERE context_id = 'died'") == [(True,)]


def test_where_nobody_answers_it_is_503_and_the_clients_next_try_is_answered(stage):
    stage.inference.kill()
    answers = []
    impatient = {
        "gateway_port": str(ports.choose(0)),
        "gateway_openai": "true",
        "gateway_openai_begin_secs": f"{scaled(2.0):g}",
    }
    with running(stage.settings, is_heard=False, **impatient) as gateway:
        client = stage.client.with_options(base_url=f"{gateway.address}/v1", max_retries=100)
        asking = threading.Thread(
            target=lambda: answers.append(
                client.chat.completions.create(
                    model="frameledger", messages=[TRAIN], extra_body={"conversation": "nobody"}
                )
            ),
            daemon=True,
        )
        asking.start()
        stage.until("SELECT count(*) > 0 FROM runs WHERE context_id = 'nobody' AND status = 'interrupted'")
        stage.inference.begin()
        asking.join(PROGRAM)
    assert answers[0].choices[0].message.content == YES["content"]
    assert stage.messages("nobody") == [TRAIN, YES]


RECORDED = Path(__file__).parents[1] / "support" / "open_webui.json"


def test_open_webui_has_its_chat_and_what_it_asks_beside_that(stage):
    recorded = json.loads(RECORDED.read_text())
    chat = recorded["headers"]["X-OpenWebUI-Chat-Id"]
    for one in recorded["requests"]:
        before = len(stage.frames(chat)) if one["conversation"] == "chat" else 0
        answer = httpx.post(
            f"{stage.base_url}/v1/chat/completions",
            json=one["body"],
            headers=recorded["headers"],
            timeout=ON_SERVERS,
        )
        assert answer.status_code == 200, (one["what"], answer.text)
        context_id = answer.headers["frameledger-context"]
        if one["conversation"] == "chat":
            assert context_id == chat, one["what"]
            assert one["frame"] in stage.frames(chat)[before:][:2], one["what"]
        else:
            assert context_id.startswith(f"{chat}~"), one["what"]
            assert stage.frames(context_id)[0] == "LLMContextFrame"
            [(tools,)] = stage.rows("SELECT context_at(%s, 1) -> 'tools'", context_id)
            assert tools == []
    last = recorded["requests"][-1]["body"]["messages"]
    assert stage.messages(chat)[: len(last)] == last
    assert stage.rows("SELECT count(*) FROM eras WHERE context_id = %s", chat) == [(3,)]


def test_the_models_are_those_that_are_served(stage):
    assert [one.id for one in stage.client.models.list()] == ["frameledger", "owl"]
    assert stage.client.models.retrieve("owl").owned_by == "inference-scripted"
    with pytest.raises(openai.NotFoundError):
        stage.client.models.retrieve("meta/dodo")


PAINT = {
    "type": "function",
    "function": {
        "name": "paint",
        "description": "Paints the page.",
        "parameters": {"type": "object", "properties": {"colour": {"type": "string"}}},
    },
}


def said(content):
    return {"role": "user", "content": content}


def asked(stage, context_id, messages, **more):
    return stage.create(
        messages,
        tools=[PAINT],
        extra_headers={"Frameledger-Context": context_id, **more.pop("headers", {})},
        **more,
    ).choices[0]


def message_of(choice):
    return choice.message.model_dump(exclude_none=True)


def results(choice, content="done"):
    return [
        {"role": "tool", "tool_call_id": call.id, "content": content}
        for call in choice.message.tool_calls or ()
    ]


def calls_of(stage, context_id):
    return stage.rows(
        "SELECT function_name, status, result FROM tool_calls WHERE context_id = %s "
        "ORDER BY requested_version, ordinal",
        context_id,
    )


def eras(stage, context_id):
    return stage.rows("SELECT count(*) FROM eras WHERE context_id = %s", context_id)[0][0]


def runs(stage, context_id):
    return stage.rows("SELECT count(*) FROM runs WHERE context_id = %s", context_id)[0][0]


def test_a_function_that_only_the_client_has_is_called_there_and_its_result_goes_on(stage):
    question = said("Please paint.")
    first = asked(stage, "paint", [question])
    assert (first.finish_reason, first.message.content) == ("tool_calls", "I paint.")
    [call] = first.message.tool_calls
    assert (call.type, call.function.name, json.loads(call.function.arguments)) == (
        *("function", "paint"),
        {"colour": "blue"},
    )
    assert calls_of(stage, "paint") == [("paint", "waiting", None)]
    history = [question, message_of(first), *results(first, '{"painted": true}')]
    second = asked(stage, "paint", history)
    assert (second.finish_reason, second.message.content) == ("stop", "It is painted.")
    assert second.message.tool_calls is None
    assert calls_of(stage, "paint") == [("paint", "done", {"painted": True})]
    third = asked(stage, "paint", [*history, message_of(second), THANKS])
    assert third.message.content == "You said: Thanks."
    assert [one["role"] for one in stage.messages("paint")] == [
        *("user", "assistant", "assistant", "tool", "assistant"),
        *("user", "assistant"),
    ]
    assert (eras(stage, "paint"), runs(stage, "paint")) == (1, 3)
    assert "LLMSetToolsFrame" not in stage.frames("paint")
    stage.create([THANKS], extra_body={"conversation": {"id": "paint", "append": True}})
    assert stage.frames("paint").count("LLMSetToolsFrame") == 1
    assert all("served_by" not in tool for tool in stage.context("paint")["tools"])


def test_a_call_streams_in_deltas_as_the_official_client_puts_them_together(stage):
    with stage.client.chat.completions.stream(
        model="owl",
        messages=[said("Please paint twice.")],
        tools=[PAINT],
        extra_headers={"Frameledger-Context": "paint-stream"},
    ) as stream:
        for _ in stream:
            pass
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    assert [json.loads(call.function.arguments)["colour"] for call in choice.message.tool_calls] == [
        "blue",
        "red",
    ]
    stored = [one["tool_calls"][0]["id"] for one in stage.messages("paint-stream") if "tool_calls" in one]
    assert [call.id for call in choice.message.tool_calls] == stored


def test_calls_of_the_client_and_of_a_service_in_one_answer_go_on_together(stage):
    question = said("Please paint and look.")
    first = asked(stage, "paint-look", [question])
    assert first.finish_reason == "tool_calls"
    assert [call.function.name for call in first.message.tool_calls] == ["paint"]
    assert [(name, status) for name, status, _ in calls_of(stage, "paint-look")] == [
        ("paint", "waiting"),
        ("train_position", "done"),
    ]
    second = asked(stage, "paint-look", [question, message_of(first), *results(first)])
    assert second.message.content in ("It is painted.", "By twenty-five minutes.")
    assert (eras(stage, "paint-look"), runs(stage, "paint-look")) == (1, 2)


def test_who_answers_one_of_two_calls_is_given_the_other_one_again(stage):
    question = said("Please paint twice.")
    first = asked(stage, "paint-half", [question])
    mine = results(first)
    for _ in range(2):
        half = asked(stage, "paint-half", [question, message_of(first), mine[0]])
        assert half.finish_reason == "tool_calls"
        assert [call.id for call in half.message.tool_calls] == [mine[1]["tool_call_id"]]
    assert runs(stage, "paint-half") == 1
    second = asked(stage, "paint-half", [question, message_of(first), *mine])
    assert second.message.content == "It is painted."
    assert (eras(stage, "paint-half"), runs(stage, "paint-half")) == (1, 2)


def test_a_result_with_words_behind_it_is_answered_by_one_run(stage):
    question = said("Please paint.")
    first = asked(stage, "paint-words", [question])
    second = asked(stage, "paint-words", [question, message_of(first), *results(first), TRAIN])
    assert second.message.content == YES["content"]
    assert calls_of(stage, "paint-words") == [("paint", "done", "done")]
    assert (eras(stage, "paint-words"), runs(stage, "paint-words")) == (1, 2)


def test_a_client_that_does_not_do_its_call_goes_on_and_may_do_it_later(stage):
    question = said("Please paint.")
    first = asked(stage, "paint-later", [question])
    second = asked(stage, "paint-later", [question, message_of(first), TRAIN])
    assert (second.message.content, second.finish_reason) == (YES["content"], "stop")
    assert calls_of(stage, "paint-later") == [("paint", "waiting", None)]
    late = [question, message_of(first), *results(first), TRAIN, YES, THANKS]
    asked(stage, "paint-later", late)
    assert calls_of(stage, "paint-later") == [("paint", "done", "done")]
    assert eras(stage, "paint-later") == 1


def test_an_edit_cancels_a_call_whose_place_it_takes_away_and_keeps_one_that_was_done(stage):
    question = said("Please paint.")
    asked(stage, "paint-edited", [question])
    asked(stage, "paint-edited", [TRAIN])
    assert calls_of(stage, "paint-edited") == [("paint", "cancelled", None)]
    assert eras(stage, "paint-edited") == 2

    first = asked(stage, "paint-kept", [question])
    history = [question, message_of(first), *results(first)]
    second = asked(stage, "paint-kept", history)
    third = asked(stage, "paint-kept", [*history, message_of(second), THANKS])
    asked(stage, "paint-kept", [*history, message_of(second), TRAIN])
    assert third.message.content == "You said: Thanks."
    assert eras(stage, "paint-kept") == 2
    assert [one["role"] for one in stage.messages("paint-kept")] == [
        *("user", "assistant", "assistant", "tool", "assistant"),
        *("user", "assistant"),
    ]


def test_two_clients_that_do_the_same_call_are_told_one_result(stage):
    question = said("Please paint.")
    first = asked(stage, "paint-raced", [question])
    for content in ("first", "second"):
        told = asked(stage, "paint-raced", [question, message_of(first), *results(first, content)])
        assert told.message.content == "It is painted."
    assert calls_of(stage, "paint-raced") == [("paint", "done", "first")]
    assert (eras(stage, "paint-raced"), runs(stage, "paint-raced")) == (1, 2)


def made(name):
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize("name", ["sketch", "outline"])
def test_who_does_a_call_later_than_another_client_is_given_the_one_that_the_model_made_since(stage, name):
    """With words before that call, and without any."""
    context_id, tools = f"raced-{name}", [PAINT, made(name)]

    def ask(messages):
        return stage.create(messages, tools=tools, extra_headers={"Frameledger-Context": context_id}).choices[
            0
        ]

    question = said(f"Please {name}.")
    first = ask([question])
    mine = ask([question, message_of(first), *results(first, "mine")])
    theirs = ask([question, message_of(first), *results(first, "theirs")])
    assert (theirs.finish_reason, message_of(theirs)["tool_calls"]) == (
        *("tool_calls",),
        message_of(mine)["tool_calls"],
    )
    assert calls_of(stage, context_id) == [(name, "done", "mine"), ("paint", "waiting", None)]
    assert (eras(stage, context_id), runs(stage, context_id)) == (1, 2)
    last = ask([question, message_of(first), *results(first, "mine"), message_of(mine), *results(mine)])
    assert last.message.content == "It is painted."
    assert calls_of(stage, context_id) == [(name, "done", "mine"), ("paint", "done", "done")]
    assert (eras(stage, context_id), runs(stage, context_id)) == (1, 3)


def publish(stage, context_id, **frame):
    url = f"{stage.base_url}/v1/contexts/{quote(context_id, safe='')}/frames"
    httpx.post(url, json=frame, headers={"Prefer": "wait"}, timeout=ON_SERVERS).raise_for_status()


def test_a_result_beside_a_call_that_waits_for_a_person_is_kept_and_its_client_told_whom_it_waits_for(stage):
    question = said("Keep me a seat and a box.")
    first = asked(stage, "paint-person", [question])
    assert [call.function.name for call in first.message.tool_calls] == ["paint"]
    history = [question, message_of(first), *results(first)]
    for headers in ({}, {}, {"X-Stainless-Retry-Count": "1"}):
        with pytest.raises(openai.ConflictError, match="keep_seat"):
            stage.client.with_options(max_retries=0).chat.completions.create(
                model="frameledger",
                messages=history,
                tools=[PAINT],
                extra_headers={"Frameledger-Context": "paint-person", **headers},
            )
    statuses = {name: status for name, status, _ in calls_of(stage, "paint-person")}
    assert statuses == {"keep_seat": "waiting", "paint": "done"}
    assert (eras(stage, "paint-person"), runs(stage, "paint-person")) == (1, 1)
    [(seat, version)] = stage.rows(
        "SELECT tool_call_id, requested_version FROM tool_calls WHERE context_id = 'paint-person' "
        "AND function_name = 'keep_seat'"
    )
    about = {"function_name": "keep_seat", "tool_call_id": seat, "opened_version": version}
    publish(stage, "paint-person", type="FunctionCallResultFrame", result="yes", **about)
    again = asked(stage, "paint-person", history, headers={"X-Stainless-Retry-Count": "2"})
    assert again.message.content in ("Your seat is kept.", "It is painted.")
    assert (eras(stage, "paint-person"), runs(stage, "paint-person")) == (1, 2)


def test_a_result_that_the_conversation_has_no_room_for_is_refused_by_its_limit(stage):
    question = said("Please paint.")
    first = asked(stage, "paint-full", [question])
    publish(stage, "paint-full", type="LLMSetLimitsFrame", context_bytes=2_000)
    with pytest.raises(openai.BadRequestError, match="context_bytes") as refused:
        stage.client.with_options(max_retries=0).chat.completions.create(
            model="frameledger",
            messages=[question, message_of(first), *results(first, "x" * 4_000)],
            tools=[PAINT],
            extra_headers={"Frameledger-Context": "paint-full"},
        )
    assert (refused.value.code, runs(stage, "paint-full")) == ("context_full", 1)


@pytest.mark.parametrize("kept", ["Please paint.", "We talk of something else."])
def test_a_result_whose_call_somebody_took_out_of_the_history_is_said_as_its_client_has_it(stage, kept):
    """Nothing but the call was taken out, or what was said before it too."""
    context_id = f"paint-dropped-{len(kept)}"
    question = said("Please paint.")
    first = asked(stage, context_id, [question])
    publish(stage, context_id, type="LLMMessagesUpdateFrame", messages=[said(kept)], run_llm=False)
    second = asked(stage, context_id, [question, message_of(first), *results(first)])
    assert second.message.content == "It is painted."
    messages = stage.messages(context_id)
    assert is_valid(messages)
    assert [one["content"] for one in messages if one["role"] == "tool"] == ["done"]
    third = asked(
        stage, context_id, [question, message_of(first), *results(first), message_of(second), THANKS]
    )
    assert third.message.content == "You said: Thanks."
    assert runs(stage, context_id) == 3


def test_a_call_that_somebody_took_out_of_the_history_once_it_was_done_stays_out(stage):
    question = said("Please paint.")
    first = asked(stage, "paint-pruned", [question])
    history = [question, message_of(first), *results(first)]
    second = asked(stage, "paint-pruned", history)
    rest = [
        question,
        said("I paint.") | {"role": "assistant"},
        said("It is painted.") | {"role": "assistant"},
    ]
    publish(stage, "paint-pruned", type="LLMMessagesUpdateFrame", messages=rest, run_llm=False)
    asked(stage, "paint-pruned", [*history, message_of(second), THANKS])
    assert [one["role"] for one in stage.messages("paint-pruned")] == [
        *("user", "assistant", "assistant"),
        *("user", "assistant"),
    ]
    assert eras(stage, "paint-pruned") == 2


@pytest.mark.parametrize("headers", [{"Idempotency-Key": "paint-1"}, {"X-Stainless-Retry-Count": "1"}])
def test_the_same_result_sent_again_is_answered_once(stage, headers):
    context_id = f"paint-again-{next(iter(headers)).lower()}"
    question = said("Please paint.")
    first = asked(stage, context_id, [question])
    body = [question, message_of(first), *results(first)]
    for _ in range(3):
        assert asked(stage, context_id, body, headers=headers).message.content == "It is painted."
    assert (eras(stage, context_id), runs(stage, context_id)) == (1, 2)


def test_a_call_that_an_interruption_stopped_is_cancelled_by_the_next_request_unless_it_answers(stage):
    question = said("Please paint.")
    first = asked(stage, "paint-cut", [question])
    frames = f"{stage.base_url}/v1/contexts/paint-cut/frames"
    httpx.post(frames, json={"type": "InterruptionFrame"}, timeout=ON_SERVERS).raise_for_status()
    asked(stage, "paint-cut", [question, message_of(first), TRAIN])
    assert calls_of(stage, "paint-cut") == [("paint", "cancelled", None)]
    assert eras(stage, "paint-cut") == 1


def is_valid(messages):
    """Whether each call has its tool message behind it."""
    return all(
        following and following.get("tool_call_id") == message["tool_calls"][0]["id"]
        for message, following in zip_longest(messages, messages[1:])
        if "tool_calls" in message
    )


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_gateway_that_is_killed_behind_any_frame_of_a_request_leaves_nothing_half_said(stage, number):
    context_id = f"paint-killed-{number}"
    question = said("Please paint.")
    first = asked(stage, context_id, [question])
    # It says three frames: other functions, the result, and words.
    body = {
        "model": "frameledger",
        "conversation": context_id,
        "messages": [question, message_of(first), *results(first), TRAIN],
        "tools": [PAINT, {"type": "function", "function": {"name": "erase"}}],
    }
    assert killed(stage.settings, "openai", context_id, json.dumps(body).encode(), number)
    assert is_valid(stage.messages(context_id))
    assert [status for _, status, _ in calls_of(stage, context_id)] == ["waiting" if number == 1 else "done"]
    sent = {"content": json.dumps(body), "headers": {"Content-Type": "application/json"}}
    for _ in range(2):
        sent["headers"]["X-Stainless-Retry-Count"] = "1"
        answer = httpx.post(f"{stage.base_url}/v1/chat/completions", **sent, timeout=ON_SERVERS)
        assert answer.json()["choices"][0]["message"]["content"] == YES["content"]
        assert calls_of(stage, context_id) == [("paint", "done", "done")]
        assert (eras(stage, context_id), runs(stage, context_id)) == (1, 2)
    assert stage.frames(context_id).count("FunctionCallResultFrame") == 1
    assert is_valid(stage.messages(context_id))


@pytest.mark.parametrize("number", [1, 2])
def test_a_gateway_that_is_killed_in_an_edit_leaves_a_call_cancelled_or_not_touched(stage, number):
    context_id = f"paint-edit-killed-{number}"
    asked(stage, context_id, [said("Please paint.")])
    body = {"model": "frameledger", "conversation": context_id, "messages": [TRAIN], "tools": [PAINT]}
    assert killed(stage.settings, "openai", context_id, json.dumps(body).encode(), number)
    assert is_valid(stage.messages(context_id))
    sent = {"Content-Type": "application/json", "X-Stainless-Retry-Count": "1"}
    url = f"{stage.base_url}/v1/chat/completions"
    answer = httpx.post(url, content=json.dumps(body), headers=sent, timeout=ON_SERVERS)
    assert answer.json()["choices"][0]["message"]["content"] == YES["content"]
    assert calls_of(stage, context_id) == [("paint", "cancelled", None)]
    assert (eras(stage, context_id), runs(stage, context_id)) == (2, 2)


def test_a_function_that_no_model_can_be_offered_is_refused_by_its_place(stage):
    with pytest.raises(openai.BadRequestError) as refused:
        stage.create([TRAIN], tools=[{"type": "function", "function": {"name": "two words"}}])
    assert refused.value.param == "tools[0].name"


PAINT_HERE = {"type": "function", "name": "paint", "parameters": {"type": "object", "properties": {}}}


def respond(stage, text, **more):
    return stage.client.responses.create(model="frameledger", input=text, **more)


def said_in(stage, context_id):
    return [one["content"] for one in stage.messages(context_id)]


def test_a_response_is_continued_by_its_id_and_can_be_read_again(stage):
    first = respond(
        stage,
        TRAIN["content"],
        instructions="Be brief.",
        temperature=0.5,
        metadata={"desk": "4"},
        conversation="resp/1",
    )
    assert (first.status, first.output_text) == ("completed", YES["content"])
    assert (first.conversation.id, first.instructions, first.metadata) == (
        "resp/1",
        "Be brief.",
        {"desk": "4"},
    )
    assert (first.usage.input_tokens, first.usage.output_tokens, first.usage.total_tokens) == (9, 4, 13)
    assert stage.stored_settings("resp/1") == {"temperature": 0.5, "system_instruction": "Be brief."}

    second = respond(stage, [{"role": "user", "content": "Thanks."}], previous_response_id=first.id)
    assert (second.output_text, second.previous_response_id) == ("You said: Thanks.", first.id)
    # Neither instructions nor settings are carried over.
    assert stage.stored_settings("resp/1") == {}
    assert said_in(stage, "resp/1") == [
        "Is there a night train?",
        YES["content"],
        "Thanks.",
        "You said: Thanks.",
    ]
    assert (eras(stage, "resp/1"), runs(stage, "resp/1")) == (1, 2)

    # What was said behind it is no part of it, whoever says it; nor is it stopped any more.
    publish(stage, "resp/1", type="InterruptionFrame")
    assert stage.client.responses.retrieve(second.id) == second
    stage.create([said("Hm.")], extra_body={"conversation": {"id": "resp/1", "append": True}})
    for one in (first, second):
        assert stage.client.responses.retrieve(one.id) == one


def test_an_instruction_that_another_program_gave_a_conversation_stays(stage):
    settings = {"system_instruction": "You are a guard."}
    publish(stage, "resp-guard", type="LLMUpdateSettingsFrame", settings=settings)
    respond(stage, "Hello.", conversation="resp-guard")
    assert stage.stored_settings("resp-guard") == settings
    respond(stage, "Hello.", conversation="resp-guard", instructions="Be brief.")
    respond(stage, "Hello.", conversation="resp-guard")
    assert stage.stored_settings("resp-guard") == {}


def test_a_response_streams_in_events_which_are_the_same_when_it_is_read_again(stage):
    with stage.client.responses.stream(model="owl", input="Are we late?") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [one.type.removeprefix("response.") for one in events] == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *["output_text.delta"] * (len(events) - 8),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert [one.sequence_number for one in events] == list(range(len(events)))
    text = "".join(one.delta for one in events if one.type == "response.output_text.delta")
    assert text == final.output_text == "I look.\n\nBy twenty-five minutes."
    assert stage.client.responses.retrieve(final.id).output_text == text

    def numbers(**more):
        with stage.client.responses.retrieve(final.id, stream=True, **more) as again:
            return [(one.sequence_number, one.type, getattr(one, "delta", None)) for one in again]

    every = [(one.sequence_number, one.type, getattr(one, "delta", None)) for one in events]
    assert numbers() == every
    assert numbers(starting_after=4) == every[5:]
    with pytest.raises(openai.BadRequestError, match="stream=true"):
        stage.client.responses.retrieve(final.id, extra_query={"starting_after": 4})


def test_a_function_of_the_client_is_called_in_a_response_and_its_output_goes_on(stage):
    first = respond(stage, "Please paint.", tools=[PAINT_HERE], conversation="resp-paint")
    assert (first.status, first.output_text) == ("completed", "I paint.")
    call = first.output[1]
    assert (call.type, call.name, json.loads(call.arguments)) == (
        "function_call",
        "paint",
        {"colour": "blue"},
    )
    assert [tool.name for tool in first.tools] == ["paint"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": '{"painted": true}'}
    with stage.client.responses.stream(
        model="owl", input=[output], previous_response_id=first.id, tools=[PAINT_HERE]
    ) as stream:
        second = stream.get_final_response()
    assert second.output_text == "It is painted."
    assert calls_of(stage, "resp-paint") == [("paint", "done", {"painted": True})]
    third = respond(stage, "Thanks.", previous_response_id=second.id)
    assert third.output_text == "You said: Thanks."
    assert (eras(stage, "resp-paint"), runs(stage, "resp-paint")) == (1, 3)
    assert stage.client.responses.retrieve(first.id) == first
    assert stage.client.responses.retrieve(second.id).output_text == second.output_text

    # Another who continues the first is told that its call is done: that is a fact.
    again = respond(stage, [output, said("Nice.")], previous_response_id=first.id)
    assert again.output_text == "You said: Nice."
    assert calls_of(stage, "resp-paint") == [("paint", "done", {"painted": True})]
    assert is_valid(stage.messages("resp-paint"))


def test_a_call_streams_in_events_as_the_official_client_reads_them(stage):
    with stage.client.responses.stream(model="owl", input="Please paint.", tools=[PAINT_HERE]) as stream:
        events = [one for one in stream if "function_call" in one.type or "output_item" in one.type]
        [_, call] = stream.get_final_response().output
    assert [one.type.removeprefix("response.") for one in events] == [
        *("output_item.added", "output_item.done", "output_item.added"),
        *("function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
    ]
    assert events[-2].arguments == call.arguments == events[-3].snapshot
    assert {one.output_index for one in events[2:]} == {1}


def test_an_older_response_is_continued_from_where_it_ended(stage):
    first = respond(stage, "One.", conversation="resp-fork")
    second = respond(stage, "Two.", previous_response_id=first.id)
    other = respond(stage, "Three.", previous_response_id=first.id)
    assert said_in(stage, "resp-fork") == ["One.", "You said: One.", "Three.", "You said: Three."]
    again = respond(stage, "Four.", previous_response_id=second.id)
    assert said_in(stage, "resp-fork") == [
        *("One.", "You said: One.", "Two.", "You said: Two."),
        *("Four.", "You said: Four."),
    ]
    assert eras(stage, "resp-fork") == 3
    for one in (first, second, other, again):
        assert stage.client.responses.retrieve(one.id) == one


def test_the_same_request_for_a_response_again_is_answered_once(stage):
    first = respond(stage, "One.", conversation="resp-again")
    body = {"model": "owl", "input": "Two.", "previous_response_id": first.id}
    url = f"{stage.base_url}/v1/responses"

    def post(**headers):
        return httpx.post(url, json=body, headers=headers, timeout=ON_SERVERS)

    sent = post()
    assert sent.status_code == 200, sent.text
    assert post(**{"X-Stainless-Retry-Count": "1"}).json() == sent.json()
    keyed = [post(**{"Idempotency-Key": "resp-1"}).json() for _ in range(2)]
    assert keyed[0] == keyed[1]
    assert keyed[0]["id"] != sent.json()["id"]
    assert runs(stage, "resp-again") == 3
    body["input"] = "Three."
    assert post(**{"Idempotency-Key": "resp-1"}).status_code == 422
    assert runs(stage, "resp-again") == 3


def test_a_response_that_goes_on_is_cancelled_and_then_continued(stage):
    client = stage.client.with_options(max_retries=0)
    with client.responses.create(model="owl", input="Please count.", stream=True) as stream:
        first = next(iter(stream)).response
        context_id = first.conversation.id
        stage.until(
            "SELECT count(*) = 1 FROM runs WHERE context_id = %s AND first_text_at IS NOT NULL", context_id
        )
        assert client.responses.retrieve(first.id).status == "in_progress"
        with pytest.raises(openai.ConflictError, match="being answered"):
            client.responses.create(model="owl", input="Hm.", previous_response_id=first.id)
        cancelled = client.responses.cancel(first.id)
        *_, last = stream
    assert cancelled.status == "cancelled"
    assert (last.type, last.response.status) == ("response.incomplete", "cancelled")
    assert "number-1" in cancelled.output_text
    assert "number-3999" not in cancelled.output_text
    assert client.responses.cancel(first.id) == client.responses.retrieve(first.id) == cancelled
    assert stage.frames(context_id).count("InterruptionFrame") == 1
    again = client.responses.create(model="owl", input="Thanks.", previous_response_id=first.id)
    assert again.output_text == "You said: Thanks."
    assert eras(stage, context_id) == 1
    # One that is over is not interrupted.
    assert client.responses.cancel(again.id) == again
    assert stage.frames(context_id).count("InterruptionFrame") == 1


def test_a_client_that_leaves_a_response_interrupts_it_and_one_that_looks_on_does_not(stage):
    with stage.client.responses.create(model="owl", input="Please count.", stream=True) as stream:
        first = next(iter(stream)).response
        with stage.client.responses.retrieve(first.id, stream=True) as looking:
            assert next(iter(looking)).type == "response.created"
        assert stage.client.responses.retrieve(first.id).status == "in_progress"
    stage.until("SELECT status = 'interrupted' FROM runs WHERE context_id = %s", first.conversation.id)
    assert stage.client.responses.retrieve(first.id).status == "cancelled"


def test_responses_that_fail_or_are_cut_off_say_why(stage):
    short = respond(stage, "Keep it short.")
    assert (short.status, short.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    with pytest.raises(openai.BadRequestError, match="That is too much"):
        respond(stage, "Will you break?", conversation="resp-broken")
    last = last_event_of_half(stage)
    assert (last.type, last.response.error.code) == ("response.failed", "invalid_prompt")
    found = stage.client.responses.retrieve(last.response.id)
    assert (found.status, found.output_text) == ("failed", "So far so")


def last_event_of_half(stage):
    """Of a response that fails in the middle. As in `shown_before_the_error` the failure may come with its words."""
    until = time.monotonic() + ON_SERVERS
    while True:
        assert time.monotonic() < until
        with (
            suppress(openai.BadRequestError),
            stage.client.responses.create(model="owl", input="Only half of it.", stream=True) as stream,
        ):
            return list(stream)[-1]


def test_what_no_response_can_be_made_of_is_an_error_of_openais_client(stage):
    client = stage.client.with_options(max_retries=0)
    ask = client.responses.create
    for response_id in ("resp_1", "1", str(ResponseId("no-such-conversation", 1)), "resp_" + "a" * 300):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(response_id)
        with pytest.raises(openai.NotFoundError) as unknown:
            ask(model="owl", input="Hm.", previous_response_id=response_id)
        assert (unknown.value.param, unknown.value.code) == (
            *("previous_response_id", "previous_response_not_found"),
        )
    # A frame that asked for no response is none.
    publish(stage, "resp-none", type="LLMMessagesAppendFrame", messages=[THANKS])
    with pytest.raises(openai.NotFoundError, match="no response"):
        client.responses.retrieve(str(ResponseId("resp-none", 1)))

    first = ask(model="owl", input="Hm.", conversation="resp-erased")
    httpx.delete(f"{stage.base_url}/v1/contexts/resp-erased", params={"why": "asked"}, timeout=ON_SERVERS)
    stage.until("SELECT count(*) = 0 FROM contexts WHERE context_id = 'resp-erased'")
    for call in (
        lambda: client.responses.retrieve(first.id),
        lambda: client.responses.cancel(first.id),
        lambda: ask(model="owl", input="Hm.", previous_response_id=first.id),
    ):
        with pytest.raises(openai.APIStatusError) as erased:
            call()
        assert (erased.value.status_code, erased.value.code) == (410, "erased")


NODE = """
import OpenAI from "openai";
const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none" });
const chunks = await client.chat.completions.create(
  { model: "owl", messages: [{ role: "user", content: "Is there a night train?" }], stream: true },
  { headers: { "Frameledger-Context": "node" } },
);
let text = "";
for await (const chunk of chunks) text += chunk.choices[0]?.delta?.content ?? "";
const again = await client.chat.completions.create({
  model: "owl",
  messages: [
    { role: "user", content: "Is there a night train?" },
    { role: "assistant", content: text },
    { role: "user", content: "Thanks." },
  ],
  conversation: "node",
});
const tools = [{ type: "function", function: { name: "paint", parameters: { type: "object", properties: {} } } }];
const painted = await client.chat.completions.runTools({
  model: "owl",
  messages: [{ role: "user", content: "Please paint." }],
  tools: [{ type: "function", function: { ...tools[0].function, parse: JSON.parse, function: () => "done" } }],
}, { headers: { "Frameledger-Context": "node-paint" } }).finalContent();
if (painted !== "It is painted.") throw new Error(painted);
const responses = client.responses.stream({ model: "owl", input: "Thanks." });
const first = await responses.finalResponse();
const second = await client.responses.create({
  model: "owl",
  input: "And now?",
  previous_response_id: first.id,
});
if (second.output_text !== "You said: And now?") throw new Error(second.output_text);
if ((await client.responses.retrieve(first.id)).output_text !== "You said: Thanks.") throw new Error(first.id);
console.log(JSON.stringify([text, again.choices[0].message.content, again.conversation.id]));
"""


def test_the_client_for_node_talks_with_it_too(stage, tmp_path):
    if shutil.which("npm") is None:
        pytest.skip("There is no npm.")
    (tmp_path / "package.json").write_text("{}")
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "openai"]
    if subprocess.run(install, cwd=tmp_path, capture_output=True, timeout=PROGRAM).returncode:
        pytest.skip("npm does not reach a registry with the package openai.")
    (tmp_path / "chat.mjs").write_text(NODE)
    done = subprocess.run(
        ["node", "chat.mjs", f"{stage.base_url}/v1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROGRAM,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [YES["content"], "You said: Thanks.", "node"]
    assert [one["role"] for one in stage.messages("node")] == ["user", "assistant", "user", "assistant"]
    assert calls_of(stage, "node-paint") == [("paint", "done", "done")]
    assert eras(stage, "node-paint") == 1
