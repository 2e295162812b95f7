"""The frames as models: names, shapes, what is refused, and their JSON in both directions."""

import inspect
import json
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, get_args

import pytest
from pydantic import ValidationError
from tests.unit.frame_examples import EXAMPLES

from frameledger import frames
from frameledger.decode_error import DecodeError
from frameledger.decoding import decode
from frameledger.frames import (
    FRAME_TYPES,
    ContextSnapshot,
    ControlFrame,
    DataFrame,
    ErrorFrame,
    Frame,
    FunctionCallFromLLM,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallResultProperties,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMContextAssistantTimestampFrame,
    LLMContextFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMRunFrame,
    LLMTextFrame,
    LLMThoughtStartFrame,
    LLMThoughtTextFrame,
    OfRun,
    Speaker,
    SystemFrame,
    TextFrame,
    TranscriptionFrame,
    UninterruptibleFrame,
    UnknownFrame,
    Waiting,
    encode_frame,
    frame_from_object,
    parse_frame,
    types_said_by,
)


def wire(frame: Frame) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(encode_frame(frame))
    return written


# Round trips


def test_the_examples_show_every_type() -> None:
    assert [type(frame) for frame in EXAMPLES] == list(FRAME_TYPES.values())


@pytest.mark.parametrize("frame", EXAMPLES, ids=lambda frame: frame.type)
def test_a_frame_reads_back_as_it_was_written(frame: Frame) -> None:
    assert parse_frame(encode_frame(frame)) == frame
    assert frame_from_object(wire(frame)) == frame


@pytest.mark.parametrize("frame", EXAMPLES, ids=lambda frame: frame.type)
def test_unknown_fields_are_kept_wherever_they_are_even_with_names_of_ours(frame: Frame) -> None:
    extra = {"later": [1, {"a": None}], "name": "n", "copy": 1, "model_extra": {}, "id_fields": 2, "self": 3}
    original = {**wire(frame), **extra}
    parsed = parse_frame(json.dumps(original))
    assert parsed.model_extra == extra
    assert wire(parsed) == original


def test_unknown_fields_inside_the_values_of_a_frame_are_kept() -> None:
    text = (
        b'{"type":"FunctionCallInProgressFrame","function_name":"f","tool_call_id":"c","arguments":{},'
        b'"cancel_on_interruption":false,"waiting":{"for":"x","room":7}}'
    )
    assert encode_frame(parse_frame(text)) == text


def test_an_unknown_frame_reads_back_with_everything_it_had() -> None:
    original = {"type": "HologramFrame", "id": "h", "v": 3, "metadata": [1], "pts": "soon", "beams": {"a": 1}}
    frame = UnknownFrame(**original)
    assert (frame.type, frame.id, frame.v) == ("HologramFrame", "h", 3)
    assert wire(frame) == original
    assert UnknownFrame(**wire(frame)) == frame


@pytest.mark.parametrize(
    "fields",
    [{"type": ""}, {"type": 5}, {"type": "a\x00"}, {"type": "X", "v": 0}, {"type": "X", "v": True}]
    + [{"type": "X", "id": 5}, {"type": "X", "id": ""}],
    ids=str,
)
def test_an_unknown_frame_still_needs_a_name_a_version_and_a_proper_id(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        UnknownFrame(**fields)


# What is written


def test_type_comes_first_then_the_id_and_defaults_are_left_out() -> None:
    frame = LLMTextFrame(text="é", id="t1", run_id="r", metadata={})
    assert encode_frame(frame).decode() == '{"type":"LLMTextFrame","id":"t1","run_id":"r","text":"é"}'


def test_a_start_of_a_call_always_says_whether_an_interruption_cancels_it() -> None:
    frame = FunctionCallInProgressFrame(function_name="f", tool_call_id="c", arguments={})
    assert wire(frame)["cancel_on_interruption"] is False


def test_a_required_field_is_written_even_if_null() -> None:
    assert wire(FunctionCallResultFrame(function_name="f", tool_call_id="c", result=None))["result"] is None


def test_a_lone_surrogate_is_written_as_its_escape() -> None:
    frame = frame_from_object({"type": "LLMTextFrame", "text": "ü\ud83d"})
    assert encode_frame(frame) == b'{"type":"LLMTextFrame","text":"\\u00fc\\ud83d"}'
    assert frame_from_object(json.loads(encode_frame(frame))) == frame


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), {"a": [float("nan")]}], ids=str)
def test_a_number_that_json_does_not_have_is_refused_with_the_name_of_the_frame(value: Any) -> None:
    frame = FunctionCallResultFrame(id="r7", function_name="f", tool_call_id="c", result=value)
    with pytest.raises(ValueError, match="FunctionCallResultFrame#r7"):
        encode_frame(frame)


def test_a_python_object_or_a_cycle_is_refused_with_the_name_of_the_frame() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    for result in (object(), {1, 2}, b"bytes", cycle, {"a": lambda: None}):
        frame = FunctionCallResultFrame(function_name="f", tool_call_id="c", result=result)
        with pytest.raises(ValueError, match="FunctionCallResultFrame cannot be written as JSON"):
            encode_frame(frame)


def test_what_lives_in_memory_only_never_reaches_the_wire() -> None:
    async def updated() -> None: ...

    properties = FunctionCallResultProperties(run_llm=True, on_context_updated=updated)
    call = FunctionCallFromLLM(function_name="f", tool_call_id="c", arguments={}, context=object())
    assert properties.on_context_updated is updated
    assert call.context is not None
    frame = FunctionCallResultFrame(function_name="f", tool_call_id="c", result=1, properties=properties)
    assert wire(frame)["properties"] == {"run_llm": True}
    assert wire(FunctionCallsStartedFrame(function_calls=[call]))["function_calls"] == [
        {"function_name": "f", "tool_call_id": "c", "arguments": {}}
    ]


@pytest.mark.parametrize("parse", [lambda obj: parse_frame(json.dumps(obj)), frame_from_object])
def test_what_lives_in_memory_only_is_not_read_from_the_wire(parse: Any) -> None:
    result = parse(
        {
            "type": "FunctionCallResultFrame",
            "function_name": "f",
            "tool_call_id": "c",
            "result": 1,
            "properties": {"on_context_updated": "os.system"},
        }
    )
    started = parse(
        {
            "type": "FunctionCallsStartedFrame",
            "function_calls": [
                {"function_name": "f", "tool_call_id": "c", "arguments": 1, "context": {"a": 1}}
            ],
        }
    )
    assert result.properties.on_context_updated is None
    assert started.function_calls[0].context is None


# What is refused


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"NoSuchFrame"}',
        '{"id":"x"}',
        '{"type":"LLMRunFrame","v":2}',
        '{"type":"LLMRunFrame","v":true}',
        '{"type":"LLMRunFrame","v":1.0}',
        '{"type":"LLMRunFrame","v":null}',
        '{"type":"LLMRunFrame","id":""}',
        '{"type":"LLMRunFrame","id":5}',
        '{"type":"LLMRunFrame","id":"%s"}' % ("x" * 256),
        '{"type":"LLMRunFrame","pts":1.5}',
        '{"type":"LLMRunFrame","pts":1%s}' % ("0" * 40),
        '{"type":"LLMRunFrame","metadata":null}',
        '{"type":"LLMTextFrame"}',
        '{"type":"LLMTextFrame","text":null}',
        '{"type":"LLMTextFrame","text":5}',
        '{"type":"LLMTextFrame","text":"a","append_to_context":"true"}',
        '{"type":"LLMTextFrame","text":"a","append_to_context":1}',
        '{"type":"LLMTextFrame","text":"a","attempt":0}',
        '{"type":"LLMTextFrame","text":"a","attempt":true}',
        '{"type":"LLMTextFrame","text":"a","run_id":""}',
        '{"type":"LLMMessagesAppendFrame"}',
        '{"type":"LLMMessagesAppendFrame","messages":null}',
        '{"type":"LLMMessagesAppendFrame","messages":{"role":"user"}}',
        '{"type":"LLMMessagesAppendFrame","messages":["hello"]}',
        '{"type":"LLMMessagesAppendFrame","messages":[[["role","user"]]]}',
        '{"type":"LLMSetToolsFrame"}',
        '{"type":"LLMSetToolChoiceFrame","tool_choice":null}',
        '{"type":"LLMUpdateSettingsFrame","settings":[]}',
        '{"type":"LLMContextFrame"}',
        '{"type":"LLMContextFrame","context":null}',
        '{"type":"LLMContextFrame","context":{"messages":5}}',
        '{"type":"LLMFullResponseEndFrame","finish_reason":"bored"}',
        '{"type":"LLMFullResponseEndFrame","usage":{"input_tokens":-1}}',
        '{"type":"LLMThoughtStartFrame","append_to_context":true}',
        '{"type":"FunctionCallsStartedFrame","function_calls":[{"function_name":"f","tool_call_id":"c"}]}',
        '{"type":"FunctionCallsStartedFrame","function_calls":[{"function_name":"f","tool_call_id":"%s",'
        '"arguments":{}}]}' % ("ü" * 128),
        '{"type":"FunctionCallInProgressFrame","function_name":"f","tool_call_id":"c"}',
        '{"type":"FunctionCallInProgressFrame","function_name":"f","tool_call_id":"c","arguments":1,'
        '"timeout_secs":0}',
        '{"type":"FunctionCallInProgressFrame","function_name":"f","tool_call_id":"c","arguments":1,'
        '"timeout_secs":1e999}',
        '{"type":"FunctionCallInProgressFrame","function_name":"f","tool_call_id":"c","arguments":1,"waiting":{}}',
        '{"type":"FunctionCallResultFrame","function_name":"f","tool_call_id":"c"}',
        '{"type":"FunctionCallCancelFrame","function_name":"f"}',
    ],
    ids=lambda text: text if len(text) < 80 else text[:70] + "...",
)
def test_a_malformed_frame_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        parse_frame(text)


def test_a_constructor_takes_the_tag_of_no_other_frame() -> None:
    with pytest.raises(ValidationError):
        LLMTextFrame(type="TextFrame", text="a")


def test_a_frame_cannot_be_changed_but_copied_with_a_change() -> None:
    frame = LLMTextFrame(text="a")
    with pytest.raises(ValidationError):
        frame.skip_tts = True  # type: ignore[misc]  # the checker knows it too
    assert frame.model_copy(update={"skip_tts": True}) == LLMTextFrame(text="a", skip_tts=True)


def test_a_thought_that_is_kept_names_its_llm() -> None:
    with pytest.raises(ValidationError, match="must name its llm"):
        LLMThoughtStartFrame(append_to_context=True)
    assert LLMThoughtStartFrame().llm is None


# In memory


def test_constructors_take_lists_and_mappings_and_do_not_share_them() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    frame = LLMMessagesAppendFrame(messages=messages)
    messages.append({"role": "user", "content": "more"})
    assert frame.messages == ({"role": "user", "content": "Hi"},)
    mapped = LLMMessagesUpdateFrame(messages=(MappingProxyType({"role": "user"}),))
    assert mapped.messages == ({"role": "user"},)
    arguments = MappingProxyType({"city": "Lyon"})
    call = FunctionCallInProgressFrame(function_name="f", tool_call_id="c", arguments=arguments)
    assert wire(call)["arguments"] == {"city": "Lyon"}


class HasWireForm:
    def to_wire(self) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": "Hi"}], "tools": None, "tool_choice": "auto"}


def test_a_context_frame_takes_whatever_has_a_wire_form() -> None:
    frame = LLMContextFrame(context=HasWireForm())
    assert frame.context == ContextSnapshot(messages=[{"role": "user", "content": "Hi"}], tool_choice="auto")


def test_a_part_of_a_context_that_is_null_is_the_same_as_an_absent_one() -> None:
    nulls = parse_frame(
        '{"type":"LLMContextFrame","context":{"messages":null,"tools":null,"settings":null,"tool_choice":null}}'
    )
    assert nulls == LLMContextFrame(context=ContextSnapshot())
    assert nulls == parse_frame('{"type":"LLMContextFrame","context":{}}')


def test_waiting_is_for_in_python_and_on_the_wire() -> None:
    assert Waiting(for_="x") == Waiting.model_validate_json('{"for":"x"}')


def test_a_name_is_type_and_id_for_people() -> None:
    assert LLMRunFrame(id="r1").name == "LLMRunFrame#r1"
    assert LLMRunFrame().name == "LLMRunFrame"
    assert "name" not in wire(LLMRunFrame(id="r1"))


def test_defaults_of_the_frames_that_carry_words_say_whether_spaces_are_inside() -> None:
    inside = {
        frame_type.__name__
        for frame_type in FRAME_TYPES.values()
        if (field := frame_type.model_fields.get("includes_inter_frame_spaces")) and field.default
    }
    assert inside == {"LLMTextFrame", "VisionTextFrame", "LLMThoughtTextFrame"}


# Classes


@pytest.mark.parametrize(
    ("child", "parents"),
    [
        ("LLMMessagesAppendFrame", {DataFrame}),
        ("LLMMessagesUpdateFrame", {DataFrame}),
        ("LLMSetToolsFrame", {DataFrame}),
        ("LLMSetToolChoiceFrame", {DataFrame}),
        ("LLMUpdateSettingsFrame", {ControlFrame}),
        ("LLMEnablePromptCachingFrame", {DataFrame}),
        ("LLMConfigureOutputFrame", {DataFrame}),
        ("LLMRunFrame", {DataFrame}),
        ("LLMContextFrame", set()),
        ("LLMFullResponseStartFrame", {ControlFrame}),
        ("LLMFullResponseEndFrame", {ControlFrame}),
        ("LLMThoughtStartFrame", {ControlFrame}),
        ("LLMThoughtTextFrame", {DataFrame}),
        ("LLMThoughtEndFrame", {ControlFrame}),
        ("LLMContextAssistantTimestampFrame", {DataFrame}),
        ("FunctionCallsStartedFrame", {SystemFrame}),
        ("FunctionCallInProgressFrame", {ControlFrame, UninterruptibleFrame}),
        ("FunctionCallResultFrame", {DataFrame, UninterruptibleFrame}),
        ("FunctionCallCancelFrame", {SystemFrame}),
        ("InterruptionFrame", {SystemFrame}),
        ("VisionFullResponseStartFrame", {ControlFrame, FRAME_TYPES["LLMFullResponseStartFrame"]}),
        ("VisionFullResponseEndFrame", {ControlFrame, FRAME_TYPES["LLMFullResponseEndFrame"]}),
        ("VisionTextFrame", {DataFrame, TextFrame, LLMTextFrame}),
        ("TranscriptionFrame", {DataFrame, TextFrame}),
        ("InterimTranscriptionFrame", {DataFrame, TextFrame}),
    ],
)
def test_isinstance_answers_by_the_classes_of_the_vocabulary(child: str, parents: set[type]) -> None:
    asked = {DataFrame, ControlFrame, SystemFrame, UninterruptibleFrame, TextFrame, LLMTextFrame} | parents
    assert {parent for parent in asked if issubclass(FRAME_TYPES[child], parent)} == parents


def test_a_thought_is_no_text_and_a_transcription_no_token() -> None:
    assert not isinstance(LLMThoughtTextFrame(text="a"), TextFrame)
    assert isinstance(TranscriptionFrame(text="a"), TextFrame)
    assert not isinstance(TranscriptionFrame(text="a"), LLMTextFrame)


def test_frames_of_a_response_have_a_run_and_an_attempt() -> None:
    for frame_type in FRAME_TYPES.values():
        if frame_type.__module__ == "frameledger.frames.response":
            assert issubclass(frame_type, OfRun)


def test_every_class_of_a_frame_is_listed_in_its_module() -> None:
    def below(parent: type[Frame]) -> Iterator[type[Frame]]:
        for child in parent.__subclasses__():
            yield child
            yield from below(child)

    of_ours = {
        frame_type
        for frame_type in below(Frame)
        if frame_type.__module__ in {listed.__module__ for listed in FRAME_TYPES.values()}
        and "type" in inspect.get_annotations(frame_type)
    }
    assert of_ours == set(FRAME_TYPES.values())
    assert set(FRAME_TYPES) <= set(frames.__all__)


def test_every_frame_says_whose_activity_it_shows() -> None:
    assert {frame_type.said_by for frame_type in FRAME_TYPES.values()} == {None, *get_args(Speaker)}
    of_nobody = {
        name for name, kind in FRAME_TYPES.items() if issubclass(kind, OfRun) and kind.said_by is None
    }
    assert of_nobody == {"ErrorFrame"}, "of what an inference publishes nothing else may count as silence"
    assert types_said_by("user")[:5] == (
        "UserStartedSpeakingFrame",
        "UserStoppedSpeakingFrame",
        "TranscriptionFrame",
        "InterimTranscriptionFrame",
        "TranslationFrame",
    )
    assert types_said_by("voice")[:2] == ("BotStartedSpeakingFrame", "BotStoppedSpeakingFrame")


@pytest.mark.parametrize("frame_type", [*FRAME_TYPES.values(), FunctionCallFromLLM, UnknownFrame])
def test_id_fields_lists_every_field_that_holds_an_id(frame_type: type[Frame]) -> None:
    ids = {"id", "run_id", "tool_call_id", "group_id", "worker", "mirror"}
    of_any_shape = {name for name, field in frame_type.model_fields.items() if field.annotation is Any}
    assert set(frame_type.id_fields) == ids & frame_type.model_fields.keys() - of_any_shape


@pytest.mark.parametrize("frame_type", FRAME_TYPES.values(), ids=lambda frame_type: frame_type.__name__)
def test_a_frame_says_that_it_carries_json_if_an_object_of_any_depth_fits_in_it(
    frame_type: type[Frame],
) -> None:
    fields = frame_type.model_json_schema()
    free = [name for name, field in fields["properties"].items() if name != "metadata" and not _closed(field)]
    # A token's frame has `usage` once in an answer, and its own names tell the decoder to look.
    assert frame_type.carries_json == bool(free) or (
        issubclass(frame_type, LLMTextFrame) and free == ["usage"]
    )


@pytest.mark.parametrize("inside", ['{"deep":%s}', '{"input_tokens":1,"a":%s}', '{"a":1,"a":%s}'])
def test_what_is_too_deep_in_the_usage_of_a_token_is_refused(inside: str) -> None:
    deep = "[" * 5000 + "]" * 5000
    with pytest.raises(DecodeError):
        decode(b'{"type":"LLMTextFrame","text":"a","usage":' + (inside % deep).encode() + b"}")
    with pytest.raises(DecodeError):
        decode(b'{"type":"LLMTextFrame","text":"a","usage":{"a":1e999}}')


def _closed(field: dict[str, Any]) -> bool:
    kinds = {option.get("type", "anything") for option in field.get("anyOf", [field])}
    return kinds <= {"string", "integer", "number", "boolean", "null"}


# Old names


@pytest.mark.parametrize(
    ("old", "fields", "replacement"),
    [
        ("LLMMessagesFrame", {"messages": []}, LLMMessagesUpdateFrame(messages=[], run_llm=True)),
        (
            "OpenAILLMContextFrame",
            {"context": HasWireForm()},
            LLMContextFrame(context=HasWireForm(), run_llm=True),
        ),
        (
            "OpenAILLMContextAssistantTimestampFrame",
            {"timestamp": "t"},
            LLMContextAssistantTimestampFrame(timestamp="t"),
        ),
        ("StartInterruptionFrame", {}, InterruptionFrame()),
    ],
)
def test_an_old_name_warns_and_makes_its_replacement(old: str, fields: Any, replacement: Frame) -> None:
    with pytest.warns(DeprecationWarning, match=old):
        constructor = getattr(frames, old)
    assert constructor(**fields) == replacement


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="LLMTypoFrame"):
        getattr(frames, "LLMTypoFrame")  # noqa: B009  # the checker knows it too


def test_every_public_name_is_exported() -> None:
    defined = {
        name
        for name, value in vars(frames).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name not in {"TYPE_CHECKING", "Any"}
    }
    assert defined == set(frames.__all__)


# The vocabulary's own examples


def test_the_examples_of_a_result_make_the_frames_they_show() -> None:
    async def my_callback() -> None: ...

    fields = {
        "function_name": "get_weather",
        "tool_call_id": "call_123",
        "arguments": {"city": "San Francisco"},
        "result": {"temperature": 72, "condition": "sunny"},
    }
    assert FunctionCallResultFrame(**fields).run_llm is None
    assert FunctionCallResultFrame(**fields, run_llm=True).run_llm is True
    properties = FunctionCallResultProperties(run_llm=True, on_context_updated=my_callback)
    assert FunctionCallResultFrame(**fields, properties=properties).properties is properties
    assert (
        FunctionCallResultFrame(**{**fields, "arguments": '{"location": "SF"}'}).arguments
        == '{"location": "SF"}'
    )


def test_an_error_needs_nothing_but_its_type() -> None:
    assert parse_frame('{"type":"ErrorFrame"}') == ErrorFrame(message="", fatal=False)
