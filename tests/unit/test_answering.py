"""One run, from its request to its terminal frame: the published frames for any behaviour of the model."""

import asyncio
import json

import pytest
from tests.bounds import IN_PROCESS
from tests.support.polling import look_again

from frameledger.context import LLMContext
from frameledger.decoding import decode
from frameledger.evolve import evolve
from frameledger.evolve.state import State
from frameledger.frames import FunctionCallFromLLM, LLMFullResponseEndFrame, LLMTextFrame, Usage, encode_frame
from frameledger.ids import ContextId
from frameledger.record import MAX_VALUE_BYTES, Outgoing, outgoing
from frameledger_services.claims import ClaimedRun
from frameledger_services.claims.rules import HIGHEST_ATTEMPT
from frameledger_services.event_log.publish_errors import TooLargeError
from frameledger_services.inference import answer_attempt
from frameledger_services.inference.answering import answer
from frameledger_services.inference.dependencies import PreparedRequest, RunDependencies
from frameledger_services.inference.metrics import InferenceMetrics
from frameledger_services.inference.preparation import request_of
from frameledger_services.inference.stream_closing import closing_in_time
from frameledger_services.providers.errors import (
    ConnectionLostError,
    ProviderRefusedError,
    ProviderUnavailableError,
    UnmappableError,
)
from frameledger_services.providers.script import Script
from frameledger_services.providers.scripted import ScriptedLLMService
from frameledger_services.store.contexts import StoredContext
from frameledger_services.telemetry import metrics
from frameledger_services.telemetry.metrics_registry import ProcessMetrics

RUN = ClaimedRun("effect", "ctx", 7, "run-1", 1, "claim", None)


class Stage:
    """The world of one run, as it would be with nobody else in it."""

    def __init__(self, *say, attempts=(2, 3, 4), skip_tts=None, hidden=(), tools=(), refuse=None, **script):
        wire = {"replies": [{"say": list(say)}], **script}
        told = Script.model_validate_json(json.dumps(wire))
        self.model = ScriptedLLMService(script=told, completion_timeout_secs=0.05)
        self.keepalive_secs = None
        self.calls_per_run = None
        self.metrics = InferenceMetrics()
        self.cancel_tools: tuple[str, ...] = ()
        self.log = []
        self.published = asyncio.Event()
        self._attempts = iter(attempts)
        self._skip_tts = skip_tts
        self._hidden = hidden
        self._refuse = refuse or (lambda record: None)
        self._context = LLMContext([{"role": "user", "content": "Hello"}], tools)

    async def prepare(self):
        stored = StoredContext("ctx", 7, self._context)
        return PreparedRequest(request_of(self.model, stored, self.cancel_tools), self._skip_tts)

    async def publish(self, context_id, frames):
        assert context_id == "ctx"
        records = [outgoing(frame, context_id, source="test") for frame in frames]
        for frame, record in zip(frames, records, strict=True):
            self._refuse(record)
            self.log.append(frame)
        self.published.set()

    async def next_attempt(self, attempt):
        return next(self._attempts)

    def world(self):
        return RunDependencies(
            worker="me",
            prepare=self.prepare,
            publish=self.publish,
            next_attempt=self.next_attempt,
            merge_secs=0.0,
            retries=2,
            keepalive_secs=self.keepalive_secs,
            secrets=self._hidden,
            calls_per_run=self.calls_per_run,
            metrics=self.metrics,
        )

    def answer(self, run=RUN):
        async def life():
            async with asyncio.timeout(IN_PROCESS):
                return await answer(run, self.model, self.world())

        outcome = asyncio.run(life())
        assert self.model.open_streams == 0
        return outcome

    def types(self):
        return [frame.type.removeprefix("LLM").removesuffix("Frame") for frame in self.log]

    def said(self, attempt=1):
        return "".join(getattr(frame, "text", "") for frame in self.log if frame.attempt == attempt)

    def errors(self):
        return [(one.code, one.fatal, one.message) for one in self.log if one.type == "ErrorFrame"]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(answer_attempt, "FIRST_PAUSE", 0.001)


def test_an_answer_is_start_words_end_each_with_its_run_and_attempt():
    stage = Stage({"text": "Good day to you."}, skip_tts=True)
    assert stage.answer() == "done"
    start, *words, end = stage.log
    assert (start.type, start.provider, start.model) == ("LLMFullResponseStartFrame", "scripted", "scripted")
    assert (start.context_version, start.worker) == (7, "me")
    assert start.request_sha256 == asyncio.run(stage.prepare()).request.sha256
    assert stage.said() == "Good day to you."
    assert end.finish_reason == "stop"
    assert end.usage.output_tokens == 4
    assert {(frame.run_id, frame.attempt, frame.claim) for frame in stage.log} == {("run-1", 1, "claim")}
    assert {frame.skip_tts for frame in (start, *words, end)} == {True}
    assert len({frame.id for frame in stage.log}) == len(stage.log)


def test_the_same_attempt_gives_its_frames_the_same_ids():
    first, second = Stage({"text": "Good day."}), Stage({"text": "Good day."})
    first.answer()
    second.answer()
    assert first.log[0].id == second.log[0].id
    assert first.log[-1].id == second.log[-1].id


def test_calls_are_announced_after_the_words_as_one_group():
    stage = Stage(
        {"thought": "Hm.", "signature": "sig"},
        {"text": "Let me look."},
        {"call": "look", "arguments": {"at": 1}, "id": "call_0"},
        {"call": "look", "arguments": {"at": 2}, "id": "call_1"},
    )
    heard = []
    stage.model.event_handler("on_function_calls_started")(lambda _, calls: heard.append(len(calls)))
    stage.answer()
    assert stage.types()[-2:] == ["FunctionCallsStarted", "FullResponseEnd"]
    announced = stage.log[-2]
    assert announced.group_id is not None
    ids = [call.tool_call_id for call in announced.function_calls]
    assert len(set(ids)) == 2
    assert "call_0" not in ids
    assert heard == [2]


def test_an_id_that_chance_has_drawn_is_kept():
    stage = Stage({"call": "look", "id": "toolu_01A09q90qw90lq917835lq9"})
    stage.answer()
    assert [call.tool_call_id for call in stage.log[-2].function_calls] == ["toolu_01A09q90qw90lq917835lq9"]


def test_what_fails_for_a_while_is_tried_again_and_nobody_sees_it():
    stage = Stage(
        replies=[{"times": 2, "say": [{"fail": "overloaded"}]}, {"say": [{"text": "Here I am."}]}],
    )
    assert stage.answer() == "done"
    assert stage.said() == "Here I am."
    assert stage.types()[0] == "FullResponseStart"
    assert stage.types().count("FullResponseStart") == 1
    assert stage.errors() == []


def test_what_fails_for_longer_ends_the_run_with_its_error():
    stage = Stage({"fail": "overloaded", "message": "Too much to do."})
    assert stage.answer() == "done"
    assert stage.types() == ["FullResponseStart", "Error", "FullResponseEnd"]
    assert stage.errors() == [("provider_unavailable", False, "Too much to do.")]
    assert stage.log[-1].finish_reason == "error"


def test_a_provider_that_asks_for_a_long_wait_is_not_waited_for():
    stage = Stage({"fail": "rate_limited", "retry_after": 3600})
    assert stage.answer() == "done"
    assert stage.types() == ["FullResponseStart", "Error", "FullResponseEnd"]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("refused_context", "context_refused"),
        ("refused", "provider_refused"),
        ("timeout", "completion_timeout"),
        ("incomplete_call", "incomplete_call"),
    ],
)
@pytest.mark.parametrize("before", [(), ({"text": "I think"},)])
def test_what_waiting_does_not_mend_is_never_tried_again(kind, code, before):
    stage = Stage(*before, {"fail": kind})
    waited = []
    stage.model.event_handler("on_completion_timeout")(lambda _: waited.append(True))
    assert stage.answer() == "done"
    assert [one[:2] for one in stage.errors()] == [(code, False)]
    assert stage.types()[0] == "FullResponseStart"
    assert stage.types()[-2:] == ["Error", "FullResponseEnd"]
    assert stage.said() == ("I think" if before else "")
    assert waited == [True] * (kind == "timeout")


@pytest.mark.regression("trial m3")
@pytest.mark.parametrize("kind", ["overloaded", "rate_limited"])
def test_an_error_after_the_first_word_that_may_pass_begins_the_next_attempt(kind):
    stage = Stage(
        replies=[{"times": 1, "say": [{"text": "I th"}, {"fail": kind}]}, {"say": [{"text": "I think so."}]}]
    )
    assert stage.answer() == "done"
    assert (stage.said(1), stage.said(2)) == ("I th", "I think so.")
    assert [frame.attempt for frame in stage.log if "End" in frame.type] == [2]
    assert stage.errors() == []


def test_a_provider_that_asks_for_a_long_wait_in_the_middle_of_its_answer_ends_the_run():
    stage = Stage({"text": "I think"}, {"fail": "overloaded", "retry_after": 3600})
    assert stage.answer() == "done"
    assert stage.types()[-2:] == ["Error", "FullResponseEnd"]
    assert {frame.attempt for frame in stage.log} == {1}


def test_a_connection_lost_before_the_first_word_is_made_again_inside_the_attempt():
    stage = Stage(replies=[{"times": 1, "say": [{"fail": "cut"}]}, {"say": [{"text": "Again."}]}])
    assert stage.answer() == "done"
    assert {frame.attempt for frame in stage.log} == {1}
    assert stage.said() == "Again."


def test_a_connection_lost_in_the_middle_begins_the_next_attempt():
    stage = Stage(
        replies=[{"times": 1, "say": [{"text": "I th"}, {"fail": "cut"}]}, {"say": [{"text": "I think so."}]}]
    )
    assert stage.answer() == "done"
    assert stage.said(1) == "I th"
    assert stage.said(2) == "I think so."
    assert [frame.attempt for frame in stage.log if "Start" in frame.type] == [1, 2]
    assert [frame.attempt for frame in stage.log if "End" in frame.type] == [2]


def test_after_three_attempts_a_fatal_error_closes_the_run():
    stage = Stage({"text": "I th"}, {"fail": "cut", "message": "Gone."})
    assert stage.answer() == "given_up"
    assert [frame.attempt for frame in stage.log if "Start" in frame.type] == [1, 2, 3]
    assert stage.errors() == [
        ("attempts_exhausted", True, "3 attempts failed. In the last one the answer broke off: Gone."),
    ]
    assert stage.log[-1].attempt == 3


@pytest.mark.parametrize(("attempt", "deaths"), [(4, 3), (11, 0)])
def test_after_three_deaths_or_ten_attempts_nobody_is_asked_and_the_run_is_over(attempt, deaths):
    stage = Stage({"text": "Never said."})
    run = ClaimedRun("effect", "ctx", 7, "run-1", attempt, "claim", None, deaths=deaths)
    assert stage.answer(run) == "given_up"
    assert [(frame.type, frame.attempt, frame.fatal) for frame in stage.log] == [
        ("ErrorFrame", attempt, True)
    ]


@pytest.mark.regression("worker 85")
def test_attempts_that_workers_released_are_no_failures():
    stage = Stage({"text": "Good day."})
    assert stage.answer(ClaimedRun("effect", "ctx", 7, "run-1", 5, "claim", None, deaths=2)) == "done"
    assert stage.said(5) == "Good day."


@pytest.mark.regression("worker 85")
def test_deaths_and_answers_that_broke_off_are_counted_together():
    stage = Stage({"text": "I th"}, {"fail": "cut", "message": "Gone."}, attempts=[6])
    assert stage.answer(ClaimedRun("effect", "ctx", 7, "run-1", 5, "claim", None, deaths=1)) == "given_up"
    assert [frame.attempt for frame in stage.log if "Start" in frame.type] == [5, 6]


@pytest.mark.regression("worker 72")
@pytest.mark.parametrize("by_client", [HIGHEST_ATTEMPT - 1, HIGHEST_ATTEMPT])
def test_a_run_to_which_a_client_gave_the_highest_attempt_is_given_up_by_the_first_worker_that_has_it(
    by_client,
):
    """No attempt above it can be given out, so the worker's own has the client's number."""
    asked = decode(
        b'{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"Hi"}],"run_llm":true}'
    )
    state = evolve(State(ContextId("ctx")), asked).state
    run_id = state.runs.open.run_id
    start = {"type": "LLMFullResponseStartFrame", "run_id": run_id, "attempt": by_client}
    state = evolve(state, decode(json.dumps(start).encode())).state
    assert state.runs.open.attempt == by_client
    stage = Stage({"text": "Never said."})
    assert stage.answer(ClaimedRun("effect", "ctx", 1, run_id, HIGHEST_ATTEMPT, "ours", None)) == "given_up"
    for frame in stage.log:
        state = evolve(state, decode(encode_frame(frame))).state
    assert state.runs.open is None


def test_a_run_that_is_not_for_certain_ours_is_left_alone_and_given_back():
    stage = Stage({"text": "I th"}, {"fail": "cut"}, attempts=[None])
    assert stage.answer() == "release"
    assert stage.errors() == []


def test_an_empty_answer_is_an_end_without_text():
    stage = Stage()
    assert stage.answer() == "done"
    assert stage.types() == ["FullResponseStart", "FullResponseEnd"]
    assert stage.log[-1].finish_reason == "stop"


def test_what_cannot_be_asked_is_named_and_nothing_is_sent(monkeypatch):
    stage = Stage({"text": "Never said."})

    async def prepare():
        return PreparedRequest(UnmappableError("scripted", "the setting top_k"))

    monkeypatch.setattr(stage, "prepare", prepare)
    assert stage.answer() == "done"
    start, error, end = stage.log
    assert (start.provider, start.model, start.request_sha256) == ("scripted", None, None)
    assert (error.code, "top_k" in error.message) == ("unmappable", True)
    assert end.finish_reason == "error"


def test_a_context_that_an_adapter_fails_on_costs_its_run_only(monkeypatch):
    stage = Stage({"text": "Never said."})
    monkeypatch.setattr(stage.model, "request", lambda *_, **__: 1 / 0)
    assert stage.answer() == "done"
    assert [one[0] for one in stage.errors()] == ["provider_error"]


@pytest.mark.parametrize(
    "error",
    [
        KeyError("secret things"),
        pytest.param(SystemExit("secret things"), marks=pytest.mark.regression("worker 49")),
        pytest.param(GeneratorExit("secret things"), marks=pytest.mark.regression("worker 60")),
        pytest.param(
            BaseExceptionGroup("secret things", [SystemExit()]), marks=pytest.mark.regression("worker 60")
        ),
        pytest.param(asyncio.CancelledError("secret things"), marks=pytest.mark.regression("worker 118")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_provider_whose_code_fails_costs_its_run_only(monkeypatch, error):
    stage = Stage()

    async def fails(request):
        yield (await anext(aiter(ScriptedLLMService().answer(request))))
        raise error

    monkeypatch.setattr(stage.model, "answer", fails)
    assert stage.answer() == "done"
    assert [(code, fatal, "secret" in message) for code, fatal, message in stage.errors()] == [
        ("provider_error", False, False)
    ]
    assert stage.log[-1].finish_reason == "error"


@pytest.mark.regression("worker 60")
@pytest.mark.parametrize(
    "no_frame", ["Hello", {"type": "LLMTextFrame", "text": "Hello"}, LLMTextFrame], ids=repr
)
def test_a_provider_that_yields_something_else_than_frames_costs_its_run_only(monkeypatch, no_frame):
    stage = Stage()

    async def yields(request):
        yield LLMTextFrame(text="Good ")
        yield no_frame

    monkeypatch.setattr(stage.model, "answer", yields)
    assert stage.answer() == "done"
    assert [code for code, _, _ in stage.errors()] == ["provider_error"]
    assert (stage.said(), stage.log[-1].finish_reason) == ("Good ", "error")


def test_no_secret_is_published_even_if_the_provider_repeats_it():
    stage = Stage({"fail": "refused", "message": "The key sk-1234 is wrong."}, hidden=["sk-1234"])
    stage.answer()
    assert stage.errors()[0][2] == "The key ******** is wrong."


def test_an_announcement_that_the_topic_does_not_take_ends_the_run_and_calls_nothing():
    def refuse(record: Outgoing):
        if b"FunctionCallsStartedFrame" in record.value:
            raise TooLargeError("too large", [None])

    stage = Stage({"text": "Look: "}, {"call": "look", "arguments": {}}, refuse=refuse)
    assert stage.answer() == "done"
    assert stage.said() == "Look: "
    assert [one[:2] for one in stage.errors()] == [("frame_refused", False)]
    assert [frame.finish_reason for frame in stage.log if "End" in frame.type] == ["error"]


def test_what_no_frame_can_carry_ends_the_run_and_keeps_the_words_before_it():
    large = "x" * (9 * 1024 * 1024)
    stage = Stage({"text": "Look: "}, {"call": "look", "arguments": large})
    assert stage.answer() == "done"
    assert stage.said() == "Look: "
    assert [one[:2] for one in stage.errors()] == [("frame_refused", False)]
    assert [frame.finish_reason for frame in stage.log if "End" in frame.type] == ["error"]


@pytest.mark.regression("worker 70")
def test_an_answer_that_no_frame_can_carry_is_not_attempted_again_where_it_broke_off(monkeypatch):
    stage = Stage()

    async def breaks_off(request):
        yield LLMTextFrame(text="x" * MAX_VALUE_BYTES)
        raise ConnectionLostError("The connection was lost.")

    monkeypatch.setattr(stage.model, "answer", breaks_off)
    assert stage.answer() == "done"
    assert stage.types() == ["FullResponseStart", "Error", "FullResponseEnd"]
    assert stage.errors()[0][0] == "frame_refused"


@pytest.mark.regression("worker 70")
def test_a_task_that_outlived_a_cancellation_is_told_what_fails_in_its_stream():
    """A task group leaves its task marked as cancelled if another of its tasks fails while it waits for them."""

    async def fails():
        task = asyncio.current_task()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.Event().wait()
        assert task.cancelling()
        async with closing_in_time(ScriptedLLMService().answer(None)):
            raise KeyError("a bug")

    with pytest.raises(KeyError):
        asyncio.run(fails())


def test_what_a_provider_pushes_by_itself_is_stamped_and_in_its_place(monkeypatch):
    stage = Stage()

    async def pushes(request):
        yield LLMTextFrame(text="Look: ")
        await stage.model.run_function_calls(
            [FunctionCallFromLLM(function_name="look", tool_call_id="0", arguments={})]
        )
        yield LLMFullResponseEndFrame(finish_reason="tool_calls")

    monkeypatch.setattr(stage.model, "answer", pushes)
    assert stage.answer() == "done"
    assert stage.types() == ["FullResponseStart", "Text", "FunctionCallsStarted", "FullResponseEnd"]
    assert {(frame.run_id, frame.attempt, frame.claim) for frame in stage.log} == {("run-1", 1, "claim")}
    assert stage.log[2].function_calls[0].tool_call_id != "0"


@pytest.mark.regression("worker 5")
@pytest.mark.parametrize("given", ["0", "toolu_01A09q90qw90lq917835lq9"])
def test_calls_of_several_announcements_of_one_answer_have_ids_of_their_own(monkeypatch, given):
    stage = Stage()

    async def pushes(request):
        for name in ("pay", "mail"):
            await stage.model.run_function_calls(
                [FunctionCallFromLLM(function_name=name, tool_call_id=given, arguments={})]
            )
        yield LLMFullResponseEndFrame(finish_reason="tool_calls")

    monkeypatch.setattr(stage.model, "answer", pushes)
    assert stage.answer() == "done"
    announced = [frame for frame in stage.log if frame.type == "FunctionCallsStartedFrame"]
    assert len({call.tool_call_id for frame in announced for call in frame.function_calls}) == 2


@pytest.mark.regression("repair 5")
def test_a_cancel_tool_that_a_provider_announces_by_itself_is_marked_and_kept_from_the_hook(monkeypatch):
    search = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
    stage = Stage(tools=[search])
    stage.cancel_tools = ("search",)
    told: list[str] = []

    @stage.model.event_handler("on_function_calls_started")
    def started(_, calls):
        told.extend(call.function_name for call in calls)

    async def pushes(request):
        names = ("search", "cancel_search")
        await stage.model.run_function_calls(
            [FunctionCallFromLLM(function_name=name, tool_call_id=name, arguments={}) for name in names]
        )
        yield LLMFullResponseEndFrame(finish_reason="tool_calls")

    monkeypatch.setattr(stage.model, "answer", pushes)
    assert stage.answer() == "done"
    announced = next(frame for frame in stage.log if frame.type == "FunctionCallsStartedFrame")
    assert [call.builtin for call in announced.function_calls] == [False, True]
    assert told == ["search"]


@pytest.mark.regression("trial m4")
@pytest.mark.parametrize("fails", [False, True])
def test_what_was_used_so_far_goes_out_with_the_first_words_and_with_the_error_that_ends_them(
    monkeypatch, fails
):
    stage = Stage()

    async def counts(request):
        for word in ("Good ", "day."):
            await stage.model.push_usage(Usage(input_tokens=len(word)))
            yield LLMTextFrame(text=word)
        if fails:
            raise ProviderRefusedError("No more.")
        yield LLMFullResponseEndFrame(finish_reason="stop", usage=Usage(input_tokens=5, output_tokens=2))

    monkeypatch.setattr(stage.model, "answer", counts)
    assert stage.answer() == "done"
    assert stage.types()[:3] == ["FullResponseStart", "Text", "Text"]
    told = [frame.usage.input_tokens for frame in stage.log if getattr(frame, "usage", None)]
    assert told == [5, 4 if fails else 5]
    assert stage.said() == "Good day."


@pytest.mark.regression("trial m4")
def test_a_provider_that_has_only_counted_has_not_begun_to_speak(monkeypatch):
    stage, tried = Stage(), []

    async def counts(request):
        tried.append(request)
        await stage.model.push_usage(Usage(input_tokens=5))
        if len(tried) < 3:
            raise ProviderUnavailableError("Overloaded.")
        yield LLMFullResponseEndFrame(finish_reason="stop", usage=Usage(input_tokens=5, output_tokens=0))

    monkeypatch.setattr(stage.model, "answer", counts)
    assert stage.answer() == "done"
    assert len(tried) == 3
    assert stage.types() == ["FullResponseStart", "FullResponseEnd"]


@pytest.mark.regression("worker 152")
def test_tokens_of_answers_that_are_cut_off_are_counted_once(monkeypatch):
    stage, counted, asked = Stage(), ProcessMetrics(), []
    stage.metrics = InferenceMetrics(counted)

    async def breaks_off(request):
        asked.append(request)
        if len(asked) < 3:
            await stage.model.push_usage(Usage(input_tokens=100))
        if len(asked) > 1:
            yield LLMTextFrame(text="Half of")
        raise ProviderUnavailableError("Overloaded.")

    monkeypatch.setattr(stage.model, "answer", breaks_off)
    assert stage.answer() == "given_up"
    assert len(asked) == 4
    [tokens] = [
        sample.value
        for family in counted.registry.collect()
        for sample in family.samples
        if sample.name == metrics.INPUT_TOKENS.name
    ]
    assert tokens == 200


def test_a_run_whose_model_is_silent_shows_that_it_lives(monkeypatch):
    stage = Stage()
    stage.keepalive_secs = 0.01

    async def silent_until_it_showed_it_twice(request):
        while len(stage.log) < 3:
            stage.published.clear()
            await stage.published.wait()
        yield LLMTextFrame(text="At last.")
        yield LLMFullResponseEndFrame(finish_reason="stop")

    monkeypatch.setattr(stage.model, "answer", silent_until_it_showed_it_twice)
    assert stage.answer() == "done"
    texts = [frame.text for frame in stage.log if frame.type == "LLMTextFrame"]
    assert texts.count("") >= 2
    assert stage.said() == "At last."
    assert stage.types()[-1] == "FullResponseEnd"


def test_a_model_that_never_says_anything_is_not_said_to_live_for_ever(monkeypatch):
    monkeypatch.setattr(answer_attempt, "LONGEST_SILENCE", 0.03)
    stage = Stage()
    stage.keepalive_secs = 0.01

    def shown():
        return [frame.text for frame in stage.log if frame.type == "LLMTextFrame"].count("")

    async def silent_for_too_long(request):
        yield LLMTextFrame(text="Well")
        while shown() < 3:
            stage.published.clear()
            await stage.published.wait()
        # Long enough for more of them.
        await look_again(5 * stage.keepalive_secs)
        yield LLMTextFrame(text="...")
        yield LLMFullResponseEndFrame(finish_reason="stop")

    monkeypatch.setattr(stage.model, "answer", silent_for_too_long)
    assert stage.answer() == "done"
    assert shown() == 3


def test_to_cancel_it_closes_the_stream_and_publishes_nothing_more():
    stage = Stage({"text": "I was about to"}, {"delay": 3600}, {"text": "say."})
    stage.model.completion_timeout_secs = 3600

    async def life():
        async with asyncio.timeout(IN_PROCESS):
            running = asyncio.create_task(answer(RUN, stage.model, stage.world()))
            while stage.said() != "I was about to":
                stage.published.clear()
                await stage.published.wait()
            assert stage.model.open_streams == 1
            running.cancel()
            await asyncio.wait([running])
        assert running.cancelled()

    asyncio.run(life())
    assert stage.model.open_streams == 0
    assert stage.said() == "I was about to"
    assert "FullResponseEnd" not in stage.types()


@pytest.mark.parametrize(("most", "made"), [(None, 2), (2, 2), (1, 0)])
def test_a_model_that_makes_more_calls_than_a_run_may_makes_none(most, made):
    stage = Stage({"call": "f"}, {"call": "g"})
    stage.calls_per_run = most
    assert stage.answer() == "done"
    announced = [
        call for one in stage.log if one.type == "FunctionCallsStartedFrame" for call in one.function_calls
    ]
    assert len(announced) == made
    said = "The model makes 2 calls in one answer. FRAMELEDGER_LIMIT_CALLS_PER_RUN is 1."
    assert stage.errors() == ([] if made else [("too_many_calls", False, said)])
    assert stage.log[-1].type == "LLMFullResponseEndFrame"
    assert (stage.log[-1].finish_reason == "error") == (not made)


@pytest.mark.regression("worker 27")
@pytest.mark.parametrize("error", [RuntimeError, ProviderRefusedError, ProviderUnavailableError])
def test_a_run_that_is_stopped_publishes_nothing_more_though_closing_its_stream_fails(error):
    stage = Stage(attempts=(None,))

    async def answer_and_break(request):
        try:
            yield LLMTextFrame(text="Well,")
            await asyncio.Event().wait()
        finally:
            raise error("The connection is closed already.")

    vars(stage.model)["answer"] = answer_and_break

    async def life():
        answering = asyncio.create_task(answer(RUN, stage.model, stage.world()))
        async with asyncio.timeout(IN_PROCESS):
            while "".join(stage.types()) != "FullResponseStartText":
                stage.published.clear()
                await stage.published.wait()
            answering.cancel()
            await asyncio.wait([answering])
        return answering.cancelled()

    assert asyncio.run(life())
    assert stage.types() == ["FullResponseStart", "Text"]
