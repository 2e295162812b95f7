"""Chats by OpenAI's API with the official clients: the responses, and the conversation that is stored."""

import asyncio
import http.client
import json
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.bounds import ON_SERVERS, PROGRAM, scaled
from tests.support.answerers import Plan, answerer
from tests.support.gateway import running
from tests.support.openai_stage import (
    THANKS,
    TRAIN,
    YES,
    openai_stage,  # noqa: F401  # a fixture
)
from tests.support.polling import pause

from frameledger.frames import InterimTranscriptionFrame
from frameledger_services.embedded import ports
from frameledger_services.gateway.openai.following import Following
from frameledger_services.gateway.openai.question import AskedQuestion
from frameledger_services.gateway.service import connected
from frameledger_services.store import client_requests


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
    assert stage.eras("talk/1") == 1


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
    # The user edits the second question: the result of the function is kept.
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
    assert stage.eras("late") == 2


def test_the_stop_button_cuts_the_answer_and_the_chat_goes_on_from_what_was_shown(stage):
    ask = {"role": "user", "content": "Please count."}
    shown = ""
    with stage.create([ask], stream=True, extra_headers={"Frameledger-Context": "stop"}) as chunks:
        for chunk in chunks:
            shown += chunk.choices[0].delta.content or ""
            if "number-3" in shown:
                break
    # Immediately followed by the next request, as front ends do.
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


@pytest.mark.long
@pytest.mark.regression("gateway 76")
def test_a_client_that_leaves_before_its_answer_is_not_counted_as_a_failure_of_the_gateway(stage):
    stage.inference.kill()
    metrics_port = ports.choose(0)
    patient = {
        "gateway_port": str(ports.choose(0)),
        "gateway_openai": "true",
        "gateway_openai_begin_secs": f"{ON_SERVERS:g}",
        "metrics_port": str(metrics_port),
    }
    asked: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"messages": [THANKS]},
        "/v1/responses": {"input": "Thanks."},
    }
    requests = list(product(asked.items(), (False, True)))
    with running(stage.settings, is_heard=False, **patient) as gateway:
        address = urlsplit(gateway.address)
        for number, ((path, said), is_streamed) in enumerate(requests):
            body = {"model": "frameledger", "conversation": f"left-{number}", "stream": is_streamed, **said}
            leaving = http.client.HTTPConnection(address.hostname, address.port, timeout=ON_SERVERS)
            leaving.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            stage.until("SELECT count(*) = 1 FROM runs WHERE context_id = %s", body["conversation"])
            leaving.close()
        end = time.monotonic() + ON_SERVERS
        while (counted := posts_by_status(metrics_port)).total() < len(requests):
            assert time.monotonic() < end, counted
            pause()
    stage.inference.begin()
    assert counted == {"499": len(requests)}


def posts_by_status(metrics_port):
    """Returns how many requests a gateway has counted, by the status of the response."""
    page = httpx.get(f"http://127.0.0.1:{metrics_port}/metrics", timeout=ON_SERVERS).text
    counted: Counter[str] = Counter()
    for family in text_string_to_metric_families(page):
        for one in family.samples:
            is_post = one.labels.get("http_request_method") == "POST"
            if one.name == "http_server_request_duration_seconds_count" and is_post:
                counted[one.labels["http_response_status_code"]] += int(one.value)
    return counted


@pytest.mark.regression("gateway 11")
def test_who_leaves_after_another_client_asked_does_not_interrupt_the_answer_of_that_one(stage):
    """The client disconnects before it has read the end of its own answer."""

    async def leave(asked):
        connection = connected(stage.settings, asyncio.Event())
        async with asyncio.timeout(ON_SERVERS), connection as dependencies:
            with closing(Following(dependencies, asked)) as following:
                await following.interrupt()
            # Once this is folded, everything that was published before is too.
            await dependencies.client.publish("shared", InterimTranscriptionFrame(text="Hm"), wait=True)

    about = {"extra_headers": {"Frameledger-Context": "shared"}}
    late = {"role": "user", "content": "Are we late?"}
    stage.create([late], **about)
    asyncio.run(leave(AskedQuestion("shared", 1)))
    count, only_new = {"role": "user", "content": "Please count."}, {"id": "shared", "append": True}
    with stage.create([count], stream=True, extra_body={"conversation": only_new}) as chunks:
        next(iter(chunks))
        asyncio.run(leave(AskedQuestion("shared", 1)))
        assert "InterruptionFrame" not in stage.frames("shared")
        [(second,)] = stage.rows("SELECT max(requested_version) FROM runs WHERE context_id = 'shared'")
        asyncio.run(leave(AskedQuestion("shared", second, is_own=False)))
        assert "InterruptionFrame" not in stage.frames("shared")
        asyncio.run(leave(AskedQuestion("shared", second)))
        assert stage.frames("shared").count("InterruptionFrame") == 1
    # The answer is complete now.
    asyncio.run(leave(AskedQuestion("shared", second)))
    assert stage.frames("shared").count("InterruptionFrame") == 1


@pytest.mark.parametrize("asks", ["late", "paint"])
def test_an_answer_is_its_own_requests_also_behind_calls(stage, asks):
    """Behind calls of services. Behind calls of a client the answer is of the request that brings their results."""
    context_id, headers = f"own-{asks}", {"Frameledger-Context": f"own-{asks}"}
    tools = [{"type": "function", "function": {"name": "paint"}}]
    said = [{"role": "user", "content": f"Please {asks}."}]
    answer = stage.create(said, tools=tools, extra_headers=headers).choices[0].message
    for call in answer.tool_calls or ():
        said += [answer.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": "done"}]
        stage.create(said, tools=tools, extra_headers=headers)

    async def read(version):
        async with asyncio.timeout(ON_SERVERS), connected(stage.settings, asyncio.Event()) as dependencies:
            return await dependencies.database.read(client_requests.has_another_asked, context_id, version)

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
    assert stage.runs("again") == 1
    # Without the header that marks it as a repetition, the request gets another answer.
    assert post().json()["id"] != first.json()["id"]
    assert stage.runs("again") == 2

    body = {"model": "owl", "messages": [TRAIN]}
    keyed = [post(**{"Idempotency-Key": "k-1"}) for _ in range(2)]
    assert keyed[0].json() == keyed[1].json()
    assert keyed[0].headers["frameledger-context"] == keyed[1].headers["frameledger-context"]
    body = {"model": "owl", "messages": [THANKS]}
    assert post(**{"Idempotency-Key": "k-1"}).status_code == 422


@pytest.mark.regression("gateway 95")
def test_a_client_that_left_one_gateway_does_not_interrupt_what_its_next_try_is_given_by_another(stage):
    """A load balancer may send the retry to the other gateway before the first one notices the disconnect."""
    body = {
        "messages": [{"role": "user", "content": "Please count."}],
        "conversation": "moved",
        "stream": True,
    }
    also = {"gateway_openai": "true", "gateway_port": str(ports.choose(0))}

    def until(lines, number):
        assert any(f"number-{number}" in line for line in lines)

    with (
        running(stage.settings, is_heard=False, **also) as other,
        httpx.Client(timeout=ON_SERVERS) as http,
        ExitStack() as first,
    ):
        url = f"{stage.base_url}/v1/chat/completions"
        left = first.enter_context(http.stream("POST", url, json=body))
        # The response is closed with the last reference to its lines.
        told = left.iter_lines()
        until(told, 3)
        url, retry = f"{other.address}/v1/chat/completions", {"X-Stainless-Retry-Count": "1"}
        with http.stream("POST", url, json=body, headers=retry) as again:
            lines = again.iter_lines()
            until(lines, 3)
            first.close()
            # Long after the first gateway would have interrupted it.
            until(lines, 100)
        stage.until("SELECT count(*) = 1 FROM runs WHERE context_id = 'moved' AND status = 'interrupted'")
    assert stage.runs("moved") == 1


def shown_before_the_error(ask):
    """Returns the words of an answer that fails in the middle. If the gateway reads words and error at once, as on a
    busy machine, it sends the error without the words: then the request is repeated."""
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
    with pytest.raises(openai.NotFoundError, match="offers the model 'dodo'") as unknown:
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
    # Words were sent, so the error follows them.
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
    assert stage.runs("two") == 1


def test_an_answer_does_not_wait_for_what_goes_on_in_the_background(stage):
    said = stage.create(
        [{"role": "user", "content": "Let them hold the ferry."}], extra_body={"conversation": "bg"}
    )
    assert said.choices[0].message.content == "He is being asked."
    assert stage.rows("SELECT status FROM tool_calls WHERE context_id = 'bg'") == [("running",)]


@pytest.mark.long
def test_no_word_comes_twice_when_a_worker_dies_in_the_middle_of_an_answer(stage):
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


@pytest.mark.long
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


@pytest.mark.long
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
    assert stage.eras(chat) == 3


def test_the_models_are_those_that_are_served(stage):
    assert [one.id for one in stage.client.models.list()] == ["frameledger", "owl"]
    assert stage.client.models.retrieve("owl").owned_by == "inference-scripted"
    with pytest.raises(openai.NotFoundError):
        stage.client.models.retrieve("meta/dodo")


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


@pytest.mark.long
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
    assert stage.calls("node-paint") == [("paint", "done", "done")]
    assert stage.eras("node-paint") == 1
