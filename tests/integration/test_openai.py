"""Chats by OpenAI's API with the official client, a scripted model and real functions: what is answered, and what of it
the conversation has."""

import http.client
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from openai import OpenAI
from tests.bounds import ON_SERVERS, PROGRAM
from tests.support import databases
from tests.support.gateway import running
from tests.support.killable import projector
from tests.support.road import made

from frameledger_services.embedded import ports

SCRIPT = {
    "pace": 60,
    "replies": [
        {"when": {"user": "count"}, "say": [{"text": " ".join(f"number-{n}" for n in range(1, 400))}]},
        {"when": {"user": "late"}, "say": [{"text": "I look. "}, {"call": "train_position"}]},
        {"when": {"result_of": "train_position"}, "say": [{"text": "By twenty-five minutes."}]},
        {"when": {"user": "hold"}, "say": [{"call": "hold_ferry", "arguments": {"leaves": "06:40"}}]},
        {"when": {"result_of": "hold_ferry"}, "say": [{"text": "He is being asked."}]},
        {"when": {"user": "break"}, "say": [{"fail": "refused_context", "message": "That is too much."}]},
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


def command(*words):
    return [sys.executable, "-m", "frameledger_services", *words]


@contextmanager
def service(environment, *words):
    process = subprocess.Popen(command(*words), env=environment, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait(PROGRAM)


class Stage:
    """The servers of this module, and a client of each kind."""

    def __init__(self, address, base_url):
        self.address = address
        self.base_url = base_url
        self.client = OpenAI(base_url=f"{base_url}/v1", api_key="none", timeout=ON_SERVERS)

    def create(self, messages, **more):
        return self.client.chat.completions.create(model="frameledger", messages=messages, **more)

    def rows(self, query, *parameters):
        with psycopg.connect(self.address) as connection:
            return connection.execute(query, parameters).fetchall()

    def messages(self, context_id, version=None):
        [(context,)] = self.rows(
            "SELECT context_at(%s, coalesce(%s, version)) FROM contexts WHERE context_id = %s",
            context_id,
            version,
            context_id,
        )
        return context["messages"]

    def settings(self, context_id):
        query = "SELECT context_at(%s, version) FROM contexts WHERE context_id = %s"
        return self.rows(query, context_id, context_id)[0][0]["settings"]

    def frames(self, context_id):
        return [
            kind
            for (kind,) in self.rows(
                "SELECT type FROM frames WHERE context_id = %s ORDER BY version", context_id
            )
        ]

    def until(self, query, *parameters):
        with psycopg.connect(self.address, autocommit=True) as connection:
            while not connection.execute(query, parameters).fetchone()[0]:
                pass


@pytest.fixture(scope="module")
def stage(kafka, database_server, migrated_template, tmp_path_factory):
    folder = tmp_path_factory.mktemp("openai")
    script = folder / "script.json"
    script.write_text(json.dumps(SCRIPT))
    with (
        databases.made(database_server, template=migrated_template) as (_, address),
        made(kafka.bootstrap_servers, address, None) as road,
        projector(road.settings),
    ):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FRAMELEDGER_")}
        environment = inherited | {
            "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "FRAMELEDGER_DATABASE_URL": address,
            "FRAMELEDGER_TOPIC_PREFIX": road.settings.topic_prefix,
            "FRAMELEDGER_DATA_DIR": str(folder),
        }
        inference = ("run", "inference", "--provider", "scripted", "--script", str(script), "--models", "owl")
        functions = ("run", "functions", "--module", "frameledger_services.demo.tools")
        also = {
            "gateway_port": str(ports.choose(0)),
            "gateway_openai": "true",
            "gateway_openai_begin_secs": "2",
        }
        with (
            service(environment, *inference),
            service(environment, *functions),
            running(road.settings, **also) as gateway,
        ):
            made_stage = Stage(address, gateway.address)
            made_stage.until("SELECT count(*) = 2 FROM live_workers()")
            yield made_stage


def test_a_chat_goes_on_in_one_conversation_as_its_client_resends_it(stage):
    said = stage.create([TRAIN], extra_headers={"Frameledger-Context": "talk/1"}, temperature=0.5)
    assert said.choices[0].message.content == YES["content"]
    assert said.choices[0].finish_reason == "stop"
    assert said.model_extra["conversation"] == {"id": "talk/1"}
    assert (said.usage.prompt_tokens, said.usage.completion_tokens, said.usage.total_tokens) == (9, 4, 13)
    assert said.usage.prompt_tokens_details.cached_tokens == 2
    assert stage.settings("talk/1") == {"temperature": 0.5}
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
    assert stage.settings(context_id) == {"model": "owl"}


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
    assert "number-399" not in messages[1]["content"]
    assert [one["role"] for one in messages] == ["user", "assistant", "user", "assistant"]


def test_a_client_that_gives_up_waiting_interrupts_too(stage):
    body = {"messages": [{"role": "user", "content": "Please count."}], "conversation": "hasty"}
    address = urlsplit(stage.base_url)
    waiting = http.client.HTTPConnection(address.hostname, address.port, timeout=ON_SERVERS)
    waiting.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    stage.until("SELECT count(*) = 1 FROM runs WHERE context_id = 'hasty' AND first_text_at IS NOT NULL")
    waiting.close()
    stage.until("SELECT count(*) = 1 FROM runs WHERE context_id = 'hasty' AND status = 'interrupted'")


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
