"""A rerun without servers: the model's request, the results that it gets, and the resulting experiment."""

import asyncio
import itertools
import json
from typing import Any

import pytest

from frameledger.context import LLMContext
from frameledger.fold import Conversation, Folding
from frameledger.frames import ErrorFrame, ForkedFrom, FunctionCallResultFrame, LLMContextFrame
from frameledger.ids import ContextId, Version
from frameledger.react import react
from frameledger_services.forks.answer import AnswerCall, ModelAnswer, UsedTokens
from frameledger_services.forks.compared import compared
from frameledger_services.forks.comparison import compare
from frameledger_services.forks.original import Original
from frameledger_services.forks.rerun import MAX_REQUESTS, Rerunner
from frameledger_services.forks.rerun_model import Changes
from frameledger_services.forks.summary import Summary
from frameledger_services.providers.out_of_band import OutOfBand
from frameledger_services.settings import Settings
from frameledger_services.store.contexts import StoredContext
from frameledger_services.store.reruns import RecordedCall

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
ORIGIN = ForkedFrom(context_id="old", version=2, chain="0f" * 32)


def moment(*calls, answer=None, settings=None):
    """A moment whose user asks, with calls on record: the arguments and the result of each."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"}]
    context = LLMContext(messages, [TOOL], settings or {})
    stored = StoredContext(ContextId("old"), Version(2), context, answers=(None, None))
    recorded = tuple(RecordedCall("run", "weather", arguments, "done", result) for arguments, result in calls)
    return Original(stored, ORIGIN, answer, recorded)


def rerun(tmp_path, replies, original, changes=None, causes=None):
    """The answer, and the frames that were published, with the conversation that each of them is of. `causes` gets the
    cause of each frame, by its id."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": replies}))
    settings = Settings(inference_provider="scripted", inference_script=script, inference_retries=0)
    published: list[Any] = []

    async def publish(context_id, frames, cause):
        published.extend((context_id, frame) for frame in frames)
        if causes is not None:
            causes.update({frame.id: cause for frame in frames})

    async def ask():
        asked = OutOfBand(settings)
        ticks = itertools.count()
        try:
            return await Rerunner(asked, changes or Changes(), publish, lambda: float(next(ticks))).rerun(
                original
            )
        finally:
            await asked.close()

    return asyncio.run(ask()), published


def call(city, more=()):
    return [*more, {"call": "weather", "arguments": {"city": city}}]


def test_the_experiment_is_a_recording_of_its_own_and_has_no_effects(tmp_path):
    replies = [
        {"when": {"user": "weather"}, "say": call("Oslo", [{"text": "Let me see."}])},
        {"when": {"result_of": "weather"}, "say": [{"text": "Rain."}]},
    ]
    answer, published = rerun(tmp_path, replies, moment(({"city": "Oslo"}, "rain")))
    assert {context_id for context_id, _ in published} == {answer.context_id} != {"old"}
    opening = published[0][1]
    assert isinstance(opening, LLMContextFrame)
    assert (opening.react, opening.forked_from, opening.metadata["experiment"]["kind"]) == (
        False,
        ORIGIN,
        "rerun",
    )
    folding = Folding(Conversation.new(answer.context_id))
    for _, frame in published:
        before = folding.state
        step = folding.step(frame)
        assert step.outcome == "applied", frame
        assert react(before, frame, step.state) == ()
    roles = [message["role"] for message in folding.conversation().messages]
    assert roles == ["system", "user", "assistant", "assistant", "tool", "assistant"]
    assert folding.state.calls.open == {}
    assert (answer.text, answer.requests) == ("Let me see.\nRain.", 2)
    assert answer.calls == (AnswerCall("weather", {"city": "Oslo"}, "recorded"),)


def test_every_frame_has_a_cause_and_they_lead_to_the_fork_by_way_of_the_calls(tmp_path):
    replies = [
        {"when": {"user": "weather"}, "say": [*call("Oslo"), *call("Bergen")]},
        {"when": {"result_of": "weather"}, "say": [{"text": "Rain."}]},
    ]
    causes: dict[str, str | None] = {}
    _, published = rerun(tmp_path, replies, moment(({"city": "Oslo"}, "rain")), causes=causes)
    types = {frame.id: frame.type for _, frame in published}
    assert len(types) == len(published)

    def way(frame_id):
        return [types[frame_id], *way(causes[frame_id])] if causes[frame_id] else [types[frame_id]]

    last = published[-1][1]
    assert way(last.id) == [
        "LLMFullResponseEndFrame",
        "FunctionCallResultFrame",
        "FunctionCallInProgressFrame",
        "FunctionCallsStartedFrame",
        "LLMContextFrame",
    ]
    assert {way(frame_id)[-1] for frame_id in types} == {"LLMContextFrame"}


@pytest.mark.regression("fault 234")
@pytest.mark.parametrize("depth", [300, 600, 900, 2_000])
def test_arguments_in_text_may_be_nested_however_deeply(tmp_path, depth):
    arguments = '{"a":' * depth + "1" + "}" * depth
    replies = [
        {"when": {"user": "weather"}, "say": [{"call": "weather", "arguments": arguments}]},
        {"when": {"result_of": "weather"}, "say": [{"text": "Rain."}]},
    ]
    answer, _ = rerun(tmp_path, replies, moment((arguments, "rain")))
    assert answer.calls == (AnswerCall("weather", arguments, "recorded"),)
    assert compare(answer, answer).same


def test_each_recorded_result_is_given_once_in_order_and_other_calls_are_refused(tmp_path):
    cities = ["Oslo", "Bergen", "Oslo", "Oslo"]
    replies = [
        {
            "when": {"user": "weather"},
            "say": [{"call": "weather", "arguments": {"at": 1.0, "city": c}} for c in cities],
        },
        {"when": {"result_of": "weather"}, "say": [{"text": "So it is."}]},
    ]
    # Written otherwise, and as text: equal all the same.
    original = moment(({"city": "Oslo", "at": 1}, "first"), ('{"at":1,"city":"Oslo"}', {"second": True}))
    answer, published = rerun(tmp_path, replies, original)
    results = [frame.result for _, frame in published if isinstance(frame, FunctionCallResultFrame)]
    assert results == ["first", "not available in a rerun", {"second": True}, "not available in a rerun"]
    assert [one.answered for one in answer.calls] == [
        "recorded",
        "not available",
        "recorded",
        "not available",
    ]


@pytest.mark.parametrize(
    ("said", "same_text", "same_calls"),
    [
        (call("Oslo"), True, True),
        (call("Oslo", [{"text": "Hm."}]), False, True),
        (call("Bergen"), True, False),
        ([{"text": "It rains."}], True, False),
    ],
)
def test_an_answer_is_the_same_if_its_words_and_calls_are(tmp_path, said, same_text, same_calls):
    replies = [
        {"when": {"user": "weather"}, "say": said},
        {"when": {"result_of": "weather"}, "say": [{"text": "It rains."}]},
    ]
    before = ModelAnswer(
        text="It  rains.\n", calls=(AnswerCall("weather", '{"city": "Oslo"}'),), run_id="run"
    )
    original = moment(({"city": "Oslo"}, "rain"), answer=before)
    answer, _ = rerun(tmp_path, replies, original)
    one = compared(original, [answer], None)
    [(_, comparison)] = one.reruns
    assert (comparison.same_text, comparison.same_calls) == (same_text, same_calls)
    assert one.same is (same_text and same_calls)


def test_the_model_and_the_system_instruction_are_those_that_were_asked_for(tmp_path):
    recorded = ModelAnswer(provider="another", model="theirs")
    original = moment(settings={"model": "theirs", "temperature": 0.5}, answer=recorded)
    plain, published = rerun(tmp_path, [], original)
    # A model of another provider is not asked for; its other settings hold.
    assert (plain.model, published[0][1].context.settings) == ("scripted", {"temperature": 0.5})
    changed, published = rerun(tmp_path, [], original, Changes(model="mine", system="Sing."))
    assert changed.model == "mine"
    assert published[0][1].metadata["experiment"]["system_instruction"] == "Sing."
    requests = {one.request_sha256 for _, one in published if one.type == "LLMFullResponseStartFrame"}
    _, unchanged = rerun(tmp_path, [], original, Changes(model="mine"))
    assert requests.isdisjoint(
        one.request_sha256 for _, one in unchanged if one.type == "LLMFullResponseStartFrame"
    )


def test_time_is_that_of_the_requests_and_tokens_are_added(tmp_path):
    usage = {"input_tokens": 10, "output_tokens": 2}
    replies = [
        {"when": {"user": "weather"}, "say": call("Oslo"), "usage": usage},
        {"when": {"result_of": "weather"}, "say": [{"text": "Rain."}], "usage": usage},
    ]
    answer, _ = rerun(tmp_path, replies, moment(({"city": "Oslo"}, "rain")))
    # The clock ticks when it is looked at: a request without text takes one, one with text two.
    assert (answer.seconds, answer.first_text_seconds) == (3.0, 2.0)
    assert answer.tokens == UsedTokens(20, 4)


def test_a_provider_that_fails_is_an_answer_with_an_error(tmp_path):
    replies = [{"say": [{"fail": "refused", "message": "No."}]}]
    answer, published = rerun(tmp_path, replies, moment(answer=ModelAnswer(text="Yes.")))
    assert answer.error == "No."
    assert isinstance(published[-1][1], ErrorFrame)
    one = compared(moment(answer=ModelAnswer(text="Yes.")), [answer], None)
    found = Summary()
    found.add(one)
    assert (one.same, found.failed, found.same, found.text_differs) == (False, 1, 0, 0)


def test_a_model_that_calls_for_ever_is_stopped(tmp_path):
    replies = [
        {"when": {"user": "weather"}, "say": call("Oslo")},
        {"when": {"result_of": "weather"}, "say": call("Oslo")},
    ]
    answer, _ = rerun(tmp_path, replies, moment())
    assert (answer.requests, len(answer.calls)) == (MAX_REQUESTS, MAX_REQUESTS)
    assert "still called functions" in answer.error
