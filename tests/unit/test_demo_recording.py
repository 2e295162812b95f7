"""The recording of `make demo`: its content, and the consistency of script, functions and people."""

import json
import re
from collections import Counter

from frameledger.frames import FRAME_TYPES
from frameledger_services.demo import recording, tools
from frameledger_services.demo.recording import Stage, When
from frameledger_services.demo.talk import Talk
from frameledger_services.providers import script

OF_SERVICES = {
    "LLMFullResponseStartFrame",
    "LLMTextFrame",
    "LLMFullResponseEndFrame",
    "LLMThoughtStartFrame",
    "LLMThoughtTextFrame",
    "LLMThoughtEndFrame",
    "FunctionCallsStartedFrame",
    "FunctionCallInProgressFrame",
    "FunctionCallResultFrame",
    "ErrorFrame",
}
"""What the inference and the function service publish; and what the demo's voice does."""

OF_THE_VOICE = {"BotStartedSpeakingFrame", "BotStoppedSpeakingFrame"}
STAGE = Stage("owl", {one["function"]["name"]: one for one in tools.registry.schemas()})


class Answering:
    """A conversation in which there is an answer, and every call."""

    run, attempt = "0f1a6f2c-91a5-5c0e-8d5b-6f1c2b7a4d93", 1

    def call(self, function_name):
        return f"call of {function_name}"

    def heard(self, words):
        return f"{words} words"


def frames(conversation):
    return [recording.frame_of(line, STAGE, conversation) for line in recording.lines()]


def test_every_frame_there_is_comes_from_somebody_and_one_that_nobody_knows():
    types = {line.frame["type"] for line in recording.lines()}
    assert types - FRAME_TYPES.keys() == {"VendorTunnelAheadFrame"}
    assert types & (OF_SERVICES | OF_THE_VOICE) == set()
    # An erasure leaves nothing to prove of a conversation: it has one of its own.
    erased = {line.frame["type"] for line in recording.lines(recording.FORGOTTEN)}
    assert FRAME_TYPES.keys() - types - erased == OF_SERVICES | OF_THE_VOICE


def test_what_people_do_takes_less_than_ten_seconds():
    assert 5 <= sum(line.after for line in recording.lines()) <= 10


def test_a_line_is_filled_in_and_has_a_new_id_each_time_but_for_the_one_that_comes_twice():
    first, second = ({frame.id for frame in frames(Answering())} for _ in range(2))
    assert len(first) == len(recording.lines()) - 1
    assert len(first & second) == 1
    assert "$" not in {key for frame in frames(Answering()) for key in keys(frame.model_dump(mode="json"))}


def test_what_needs_an_answer_or_a_call_is_left_out_where_there_is_none():
    left_out = Counter(
        line.frame["type"]
        for line, frame in zip(recording.lines(), frames(Talk("demo-a")), strict=True)
        if frame is None
    )
    assert left_out == {
        "LLMContextAssistantTimestampFrame": 1,
        "FunctionCallCancelFrame": 1,
        "LLMAssistantPushAggregationFrame": 1,
    }


def test_every_function_that_is_named_is_one_of_the_demos():
    text = recording.CONVERSATION.read_text(encoding="utf-8")
    named = {name for line in recording.lines() for name in [line.when.reported] if name is not None}
    named |= set(re.findall(r'"\$": "call", "of": "(\w+)"', text))
    named |= {
        name for found in re.findall(r'"\$": "tools", "of": (\[.*?\])', text) for name in json.loads(found)
    }
    assert named == set(tools.registry.serves())


def test_the_script_calls_functions_with_arguments_that_they_take_and_answers_what_is_said():
    said = [json.dumps(line.frame) for line in recording.lines()]
    for reply in script.read(recording.SCRIPT).replies:
        if reply.when.user not in (None, "^$"):
            assert any(re.search(reply.when.user, text, re.IGNORECASE) for text in said), reply.when.user
        if reply.when.result_of is not None:
            assert tools.registry.has_function(reply.when.result_of)
        for call in (step for step in reply.say if isinstance(step, script.Call)):
            item = tools.registry.lookup(call.call)
            assert item is not None
            item.checker.check(call.arguments)


def test_who_waits_waits_no_longer_when_nothing_will_happen():
    talk = Talk("demo-a")
    for when in (When(quiet=True), When(words=3), When(reported="hold_ferry")):
        assert talk.ready(when)
    assert not talk.met(When(words=3))
    assert not talk.met(When(reported="hold_ferry"))


def test_the_model_of_the_conversation_is_the_demos_own():
    settings = [frame for frame in frames(Answering()) if frame.type == "LLMUpdateSettingsFrame"]
    assert settings[0].settings == {"model": "owl"}


def keys(value):
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    for one in value if isinstance(value, list) else []:
        yield from keys(one)
