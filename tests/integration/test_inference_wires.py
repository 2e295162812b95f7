"""The official SDKs with a server that speaks their wire formats: the frames on the log, the context, the run's row."""

import asyncio
import itertools
import json
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from socket import socket

import pytest
from tests.bounds import ON_SERVERS
from tests.support import databases, pipeline
from tests.support.answerers import STEADY, answering, ask, frame, rows, spoken, until_closed
from tests.support.killable import projector
from tests.support.pipeline import Raw
from tests.support.polling import pause
from tests.support.tiers import long

from frameledger_services.bench.inference.answers import (
    Answer,
    Arguments,
    Call,
    Cut,
    EndEarly,
    Failure,
    Garbage,
    Hang,
    Pause,
    Signature,
    StreamError,
    Text,
    Thought,
    say,
)
from frameledger_services.bench.inference.model_server import ModelServer, serving
from frameledger_services.inference import recorded_request
from frameledger_services.providers.anthropic import AnthropicLLMService
from frameledger_services.providers.openai import OpenAILLMService
from frameledger_services.store.connections import connect

WIRES = ("openai", "anthropic")
NOBODY = "nobody"
"""A model whose server does not listen."""


def in_turn(*cases):
    """Returns each case on one of the two wires, in turn; `make test-long` tries it on the other one too. What differs
    between them is tested in `contracts/`."""
    return [
        (wire, *case) if (number + turn) % 2 == 0 else long(wire, *case)
        for number, case in enumerate(cases)
        for turn, wire in enumerate(WIRES)
    ]


_contexts = itertools.count(1)


@dataclass
class Stage:
    pipeline: pipeline.Pipeline
    server: ModelServer
    services: dict
    """By wire."""

    def answer(self, wire, *replies, before=()):
        """Request a run in a new context, which the server answers with these replies. Returns the context when its run
        is over."""
        context_id = f"{wire}-{next(_contexts)}"
        self.server.then(*replies)
        first = len(self.server.received)
        model = frame("LLMUpdateSettingsFrame", settings={"model": wire})
        ask(self.pipeline, context_id, "Hello?", model, *before)
        until_closed(self.pipeline, context_id)
        self.requests = self.server.received[first:]
        return context_id

    def log(self, context_id):
        """Returns type, attempt and outcome of the answer's frames; adjacent equal ones are one."""
        found = rows(
            self.pipeline,
            "SELECT type, (payload ->> 'attempt')::int, outcome FROM frames "
            "WHERE context_id = %s AND run_id IS NOT NULL ORDER BY version",
            context_id,
        )
        named = [
            (name.removeprefix("LLM").removesuffix("Frame"), attempt, outcome)
            for name, attempt, outcome in found
        ]
        return [one for one, _ in itertools.groupby(named)]

    def run(self, context_id):
        [row] = rows(
            self.pipeline,
            "SELECT status, attempt, provider, model, finish_reason, error_code, input_tokens, output_tokens "
            "FROM runs WHERE context_id = %s",
            context_id,
        )
        names = "status", "attempt", "provider", "model", "finish_reason", "error_code", "read", "written"
        return dict(zip(names, row, strict=True))


@pytest.fixture(scope="module")
def stage(kafka, database_server, migrated_template):
    with ExitStack() as stack:

        def database():
            return stack.enter_context(databases.made(database_server, template=migrated_template))[1]

        made = pipeline.made(kafka.bootstrap_servers, database(), database)
        projecting = stack.enter_context(projector(made.settings))
        settings = made.settings.model_copy(update={**STEADY, "inference_retries": 2})
        # Bound but not listening: connections are refused, and no other program gets the port.
        taken = stack.enter_context(socket())
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        openai = stack.enter_context(
            answering(
                settings,
                lambda server: OpenAILLMService(
                    api_key="sk-secret", base_url=server.openai_base_url, developer_role="system"
                ),
                serving(),
                models=["openai"],
                service="openai",
            )
        )
        anthropic = stack.enter_context(
            answering(
                settings,
                lambda _: AnthropicLLMService(api_key="sk-secret", base_url=openai.needed.anthropic_base_url),
                models=["anthropic"],
                service="anthropic",
            )
        )
        stack.enter_context(
            answering(
                settings,
                lambda _: OpenAILLMService(api_key="sk-secret", base_url=address),
                models=[NOBODY],
                service=NOBODY,
            )
        )
        yield Stage(made, openai.needed, {"openai": openai.model, "anthropic": anthropic.model})
        made.check(projecting, every=5)


def started(outcome="applied", attempt=1):
    return "FullResponseStart", attempt, outcome


def words(outcome="applied", attempt=1):
    return "Text", attempt, outcome


def failed(attempt=1):
    return [("Error", attempt, "applied"), ("FullResponseEnd", attempt, "applied")]


WHOLE = [started(), words(), ("FullResponseEnd", 1, "applied")]
AGAIN = [
    *(started(), words()),
    *(started(attempt=2), words(attempt=2), ("FullResponseEnd", 2, "applied")),
]


@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_in_pieces_is_one_message_and_its_request_can_be_made_again(stage, wire):
    kindly = frame("LLMMessagesAppendFrame", messages=[{"role": "developer", "content": "Be kind."}])
    context_id = stage.answer(wire, say("Good", " day", " to", " you", "."), before=[kindly])
    assert stage.log(context_id) == WHOLE
    assert spoken(stage.pipeline, context_id)[1:] == [("user", "Hello?"), ("assistant", "Good day to you.")]
    assert stage.run(context_id) == {
        "status": "ended",
        "attempt": 1,
        "provider": wire,
        "model": wire,
        "finish_reason": "stop",
        "error_code": None,
        "read": 11,
        "written": 7,
    }
    [request] = stage.requests
    assert asyncio.run(rendered_again(stage.pipeline, context_id, wire)) == request.body


@pytest.mark.parametrize("wire", WIRES)
def test_calls_in_interleaved_pieces_come_out_whole_in_order_and_under_ids_of_their_own(stage, wire):
    tools = frame(
        "LLMSetToolsFrame",
        tools=[
            {
                "type": "function",
                "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
            }
        ],
    )
    caching = frame("LLMEnablePromptCachingFrame", enable=True)
    pieces = (
        *(Call(0, "call_0", "look"), Call(1, "call_1", "look")),
        *(Arguments(0, '{"at"'), Arguments(1, '{"at":'), Arguments(0, ": 1}"), Arguments(1, " 2}")),
    )
    context_id = stage.answer(
        wire, Answer((Text("Let me see."), *pieces), "tool_calls"), before=[tools, caching]
    )
    assert stage.log(context_id) == [started(), words(), ("FunctionCallsStarted", 1, "applied"), WHOLE[-1]]
    calls = rows(
        stage.pipeline,
        "SELECT tool_call_id, arguments, status FROM tool_calls WHERE context_id = %s ORDER BY ordinal",
        context_id,
    )
    assert [one[1:] for one in calls] == [('{"at": 1}', "dispatched"), ('{"at": 2}', "dispatched")]
    assert not {"call_0", "call_1"} & {one[0] for one in calls}
    assert stage.run(context_id)["finish_reason"] == "tool_calls"
    [request] = stage.requests
    assert asyncio.run(rendered_again(stage.pipeline, context_id, wire)) == request.body


def test_a_thought_is_kept_with_its_signature_and_goes_back_as_it_came(stage):
    context_id = stage.answer(
        "anthropic", Answer((Thought("Hm"), Thought("m."), Signature("c2ln"), Text("Yes.")))
    )
    stage.server.then(say("Still yes."))
    ask(stage.pipeline, context_id, "Really?")
    stage.pipeline.until(
        "SELECT count(*) = 2 FROM runs WHERE context_id = %s AND status = 'ended'", context_id
    )
    body = stage.server.received[-1].body
    assert b'{"type":"thinking","thinking":"Hmm.","signature":"c2ln"}' in body


@pytest.mark.regression("trial m1")
@pytest.mark.parametrize("wire", WIRES)
def test_all_calls_of_an_answer_go_back_together_and_those_of_the_next_answer_apart(stage, wire):
    """The user says something before the second call starts, and the model calls again without a word."""
    mind = Thought("Both."), Signature("c2ln")
    two = Call(0, "call_0", "look"), Arguments(0, "{}"), Call(1, "call_1", "look"), Arguments(1, "{}")
    context_id = stage.answer(wire, Answer((*mind, Text("Let me see."), *two), "tool_calls"))
    first, second = called(stage, context_id)
    aside = frame("LLMMessagesAppendFrame", messages=[{"role": "user", "content": "Quick!"}], run_llm=False)
    stage.server.then(Answer((Call(0, "call_0", "look"), Arguments(0, "{}")), "tool_calls"))
    publish(stage, context_id, start(first), aside, start(second), end(first), end(second))
    ended = "SELECT count(*) = %s FROM runs WHERE context_id = %s AND status = 'ended'"
    stage.pipeline.until(ended, 2, context_id)
    *_, third = called(stage, context_id)
    stage.server.then(say("It is 1."))
    publish(stage, context_id, start(third), end(third))
    stage.pipeline.until(ended, 3, context_id)
    request = stage.server.received[-1]
    messages = json.loads(request.body)["messages"]
    if wire == "openai":
        reasoning = [one["reasoning_content"] for one in messages if one["role"] == "assistant"]
        assert reasoning == ["Both.", ""]
    assert [one for one in turns(messages) if one != "system"] == (
        ["user", 2, "results 2 and words", 1, "results 1"]
        if wire == "anthropic"
        else ["user", 2, "tool", "tool", "user", 1, "tool"]
    )
    assert asyncio.run(rendered_again(stage.pipeline, context_id, wire)) == request.body


def publish(stage, context_id, *frames):
    stage.pipeline.publish([Raw(context_id.encode(), one) for one in frames])


def called(stage, context_id):
    asked = "SELECT tool_call_id FROM tool_calls WHERE context_id = %s ORDER BY requested_version, ordinal"
    return [name for (name,) in rows(stage.pipeline, asked, context_id)]


def start(name):
    return frame(
        "FunctionCallInProgressFrame",
        function_name="look",
        tool_call_id=name,
        arguments={},
        cancel_on_interruption=True,
    )


def end(name):
    return frame("FunctionCallResultFrame", function_name="look", tool_call_id=name, arguments={}, result=1)


def turns(messages):
    """Yields each message in short: the number of its calls or results, or else its speaker."""
    for message in messages:
        blocks = message["content"] if isinstance(message.get("content"), list) else []
        kinds = [block["type"] for block in blocks]
        calls = len(message.get("tool_calls", ())) or kinds.count("tool_use")
        if calls:
            assert not kinds or calls == 1 or kinds[0] == "thinking"
            yield calls
        elif results := kinds.count("tool_result"):
            yield f"results {results}" + (" and words" if "text" in kinds else "")
        else:
            yield message["role"]


TOKENS = "SELECT input_tokens, output_tokens, usage_partial FROM runs WHERE context_id = %s"
SUMMED = "SELECT input, output FROM token_usage WHERE context_id = %s"


@pytest.mark.regression("trial m4")
@pytest.mark.rule("RA5.usage")
def test_a_run_that_is_interrupted_has_read_what_the_provider_said_at_the_start(stage):
    context_id = f"interrupted-{next(_contexts)}"
    stage.server.then(Answer((Text("I was about to"), Pause(60), Text(" say."))))
    ask(
        stage.pipeline, context_id, "Hello?", frame("LLMUpdateSettingsFrame", settings={"model": "anthropic"})
    )
    stage.pipeline.until(
        "SELECT count(*) = 1 FROM runs WHERE context_id = %s AND first_text_at > '-infinity'", context_id
    )
    publish(stage, context_id, frame("InterruptionFrame"))
    until_closed(stage.pipeline, context_id)
    assert stage.run(context_id)["status"] == "interrupted"
    [(read, _, partial)] = rows(stage.pipeline, TOKENS, context_id)
    assert (read, partial) == (11, True)
    assert rows(stage.pipeline, SUMMED, context_id)[0][0] == 11
    stage.pipeline.until(
        "SELECT count(*) = 0 FROM claims WHERE context_id = %s AND finished_at IS NULL", context_id
    )


@pytest.mark.regression("trial m4")
@pytest.mark.rule("RA5.usage")
@pytest.mark.parametrize(
    ("trouble", "status"),
    [(StreamError("invalid_request_error", "no"), "failed"), (Cut(), "failed"), (None, "ended")],
    ids=["error", "cut three times", "none"],
)
def test_a_run_has_used_what_is_known_and_only_an_ordinary_end_knows_all(stage, trouble, status):
    pieces = (Text("Good day."),) if trouble is None else (Text("Good day."), trouble)
    context_id = stage.answer("anthropic", *[Answer(pieces)] * (3 if trouble == Cut() else 1))
    assert stage.run(context_id)["status"] == status
    [(read, _, partial)] = rows(stage.pipeline, TOKENS, context_id)
    assert (read, partial) == (11, trouble is not None)


@pytest.mark.parametrize(
    ("wire", "status", "code"),
    in_turn((400, "context_refused"), (401, "provider_refused"), (403, "provider_refused")),
)
def test_what_the_provider_refuses_ends_the_run_and_is_not_asked_again(stage, wire, status, code):
    context_id = stage.answer(wire, Failure(status, "sk-secret is not what we want"))
    assert len(stage.requests) == 1
    assert stage.log(context_id) == [started(), *failed()]
    assert spoken(stage.pipeline, context_id) == [("user", "Hello?")]
    run = stage.run(context_id)
    assert (run["status"], run["finish_reason"], run["error_code"]) == ("failed", "error", code)
    [(error,)] = rows(stage.pipeline, "SELECT error FROM runs WHERE context_id = %s", context_id)
    assert "sk-secret" not in error


@pytest.mark.parametrize(
    ("wire", "trouble"), in_turn((Failure(429, retry_after="0.1"),), (Failure(500),), (Failure(529),))
)
def test_what_passes_is_tried_again_inside_the_attempt(stage, wire, trouble):
    context_id = stage.answer(wire, trouble, say("Here", " I am."))
    assert len(stage.requests) == 2
    assert stage.log(context_id) == WHOLE
    assert spoken(stage.pipeline, context_id)[1:] == [("assistant", "Here I am.")]


@pytest.mark.parametrize("wire", WIRES)
def test_what_does_not_pass_ends_the_run_with_its_error(stage, wire):
    context_id = stage.answer(wire, Failure(529), Failure(529), Failure(529))
    assert len(stage.requests) == 3
    assert stage.log(context_id) == [started(), *failed()]
    assert stage.run(context_id)["error_code"] == "overloaded"


def test_a_server_that_does_not_listen_ends_the_run_with_its_error(stage):
    context_id = stage.answer(NOBODY)
    assert stage.log(context_id) == [started(), *failed()]
    assert stage.run(context_id)["error_code"] == "connection_lost"


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_that_is_cut_is_begun_anew_as_the_next_attempt(stage, wire):
    context_id = stage.answer(wire, Answer((Text("Good da"), Cut())), say("Good evening."))
    assert stage.log(context_id) == AGAIN
    assert spoken(stage.pipeline, context_id)[1:] == [("assistant", "Good evening.")]
    assert stage.run(context_id)["attempt"] == 2


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_that_is_cut_three_times_closes_the_run_with_a_fatal_error(stage, wire):
    context_id = stage.answer(wire, *[Answer((Text("Good da"), Cut()))] * 3)
    assert stage.log(context_id)[-2:] == [words(attempt=3), ("Error", 3, "applied")]
    run = stage.run(context_id)
    assert (run["status"], run["attempt"], run["error_code"]) == ("failed", 3, "attempts_exhausted")
    assert spoken(stage.pipeline, context_id)[1:] == [("assistant", "Good da")]


@pytest.mark.regression("trial m2")
@pytest.mark.parametrize(("wire", "end"), in_turn((EndEarly(),), (Cut(),)))
def test_an_answer_that_ends_early_in_a_call_is_begun_anew_as_the_next_attempt(stage, wire, end):
    pieces = Text("Let me see."), Call(0, "call_0", "look"), Arguments(0, '{"at": '), end
    context_id = stage.answer(wire, Answer(pieces), say("It is here."))
    assert stage.log(context_id) == AGAIN
    assert rows(stage.pipeline, "SELECT * FROM tool_calls WHERE context_id = %s", context_id) == []
    assert spoken(stage.pipeline, context_id)[1:] == [("assistant", "It is here.")]


@pytest.mark.regression("trial m2")
@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_that_always_ends_early_in_a_call_ends_with_an_error_that_says_so(stage, wire):
    pieces = Text("Let me see."), Call(0, "call_0", "look"), Arguments(0, '{"at": 1}'), EndEarly()
    context_id = stage.answer(wire, *[Answer(pieces)] * 3)
    run = stage.run(context_id)
    assert (run["status"], run["attempt"], run["error_code"]) == ("failed", 3, "attempts_exhausted")
    [(error,)] = rows(stage.pipeline, "SELECT error FROM runs WHERE context_id = %s", context_id)
    assert "in a call of look" in error
    assert rows(stage.pipeline, "SELECT * FROM tool_calls WHERE context_id = %s", context_id) == []
    assert spoken(stage.pipeline, context_id)[1:] == [("assistant", "Let me see.")]


@pytest.mark.parametrize("wire", WIRES)
def test_half_a_call_at_the_limit_of_tokens_is_no_call_and_is_not_asked_for_again(stage, wire):
    pieces = Text("Let me see."), Call(0, "call_0", "look"), Arguments(0, '{"at": ')
    context_id = stage.answer(wire, Answer(pieces, "length"))
    assert stage.log(context_id) == [started(), words(), *failed()]
    run = stage.run(context_id)
    assert (run["error_code"], run["read"], run["written"]) == ("incomplete_call", 11, 7)
    assert rows(stage.pipeline, "SELECT * FROM tool_calls WHERE context_id = %s", context_id) == []
    assert spoken(stage.pipeline, context_id)[1:] == [("assistant", "Let me see.")]


@pytest.mark.parametrize("wire", WIRES)
def test_an_empty_answer_is_an_end_without_a_message(stage, wire):
    context_id = stage.answer(wire, Answer())
    assert stage.log(context_id) == [started(), ("FullResponseEnd", 1, "applied")]
    assert spoken(stage.pipeline, context_id) == [("user", "Hello?")]
    assert stage.run(context_id)["status"] == "ended"


@pytest.mark.parametrize("wire", WIRES)
def test_a_slow_first_byte_is_waited_for(stage, wire):
    context_id = stage.answer(wire, Answer((Text("At last."),), first_byte_secs=0.5))
    assert stage.log(context_id) == WHOLE


@contextmanager
def impatient(service):
    """Set a short timeout for a silent provider within the block; elsewhere an answer may take its time."""
    usual, service.completion_timeout_secs = service.completion_timeout_secs, 0.5
    try:
        yield
    finally:
        service.completion_timeout_secs = usual


@pytest.mark.parametrize(("wire", "pieces"), in_turn(((Hang(),),), ((Text("Good da"), Hang()),)))
def test_a_provider_that_hangs_is_left_and_the_conversation_goes_on(stage, wire, pieces):
    with impatient(stage.services[wire]):
        context_id = stage.answer(wire, Answer(pieces))
    assert stage.log(context_id)[-2:] == failed()
    assert stage.run(context_id)["error_code"] == "completion_timeout"
    stage.server.then(say("Here I am."))
    ask(stage.pipeline, context_id, "Are you there?")
    stage.pipeline.until(
        "SELECT count(*) = 1 FROM runs WHERE context_id = %s AND status = 'ended'", context_id
    )
    assert spoken(stage.pipeline, context_id)[-1] == ("assistant", "Here I am.")
    until = time.monotonic() + ON_SERVERS
    while stage.server.open_streams:
        assert time.monotonic() < until
        pause()


@pytest.mark.regression("trial m3")
@pytest.mark.parametrize(("wire", "trouble"), in_turn((StreamError(),), (Garbage(),)))
def test_an_error_after_the_first_word_takes_the_half_back_and_the_next_attempt_says_it_anew(
    stage, wire, trouble
):
    context_id = stage.answer(wire, Answer((Text("Good da"), trouble)), say("Good evening."))
    assert stage.log(context_id) == AGAIN
    assert spoken(stage.pipeline, context_id)[1:] == [("assistant", "Good evening.")]


@pytest.mark.regression("trial m3")
def test_an_error_after_the_first_word_in_all_three_attempts_keeps_the_half(stage):
    context_id = stage.answer("anthropic", *[Answer((Text("Good da"), StreamError()))] * 3)
    run = stage.run(context_id)
    assert (run["status"], run["attempt"], run["error_code"]) == ("failed", 3, "attempts_exhausted")
    assert spoken(stage.pipeline, context_id)[1:] == [("assistant", "Good da")]


def test_a_refusal_after_the_first_word_ends_the_run(stage):
    refusal = StreamError("invalid_request_error", "no")
    context_id = stage.answer("anthropic", Answer((Text("Good da"), refusal)))
    assert stage.log(context_id) == [started(), words(), *failed()]
    assert spoken(stage.pipeline, context_id)[1:] == [("assistant", "Good da")]


@pytest.mark.parametrize(
    ("wire", "setting"), [("openai", "top_k"), ("anthropic", "seed"), ("openai", "warmth")]
)
def test_a_setting_that_the_provider_has_no_form_for_is_named_and_nothing_is_sent(stage, wire, setting):
    context_id = stage.answer(wire, before=[frame("LLMUpdateSettingsFrame", settings={setting: 1})])
    assert stage.requests == []
    assert stage.log(context_id) == [started(), *failed()]
    [(code, error)] = rows(
        stage.pipeline, "SELECT error_code, error FROM runs WHERE context_id = %s", context_id
    )
    assert code == "unmappable"
    assert setting in error


async def rendered_again(on, context_id, wire):
    """Returns the bytes of the latest request of this context, rebuilt from the log."""
    latest = "SELECT run_id FROM runs WHERE context_id = %s ORDER BY requested_version DESC LIMIT 1"
    [(run_id,)] = rows(on, latest, context_id)
    async with await connect(on.settings) as connection:
        asked = await recorded_request.recorded_request(connection, context_id, run_id)
    providers = {"openai": OpenAILLMService, "anthropic": AnthropicLLMService}
    request = recorded_request.rebuild(
        asked, lambda name: providers[name](api_key="another", run_in_parallel=False)
    )
    assert request.sha256 == asked.start.request_sha256
    return request.content
