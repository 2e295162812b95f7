"""Every frame can be encoded, and decodes to the same frame."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.arbitrary import FIELD_VALUES, HIGH_HALF, LOW_HALF

from frameledger.frames import (
    FRAME_TYPES,
    Frame,
    FunctionCallFromLLM,
    LLMMessageRewriteFrame,
    LLMThoughtTextFrame,
    TextFrame,
    UnknownFrame,
    encode_frame,
)
from frameledger.record import decode

IDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=60)
TEXTS = st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
ANY_JSON = ("arguments", "result", "signature", "user_turn_strategies")
FREE = {
    **dict.fromkeys(ANY_JSON, JSON),
    "metadata": OBJECTS,
    "settings": OBJECTS,
    "messages": st.lists(OBJECTS, max_size=3),
    "tools": st.lists(OBJECTS, max_size=3),
    "id": IDS,
    "tool_call_id": IDS,
    "function_calls": st.lists(
        st.builds(FunctionCallFromLLM, function_name=TEXTS, tool_call_id=IDS, arguments=JSON), max_size=3
    ),
}


def values_of(frame_type: type[Frame], name: str) -> st.SearchStrategy:
    if (frame_type, name) == (LLMMessageRewriteFrame, "message"):
        return OBJECTS | st.none()
    values = st.sampled_from(FIELD_VALUES[name]) if name in FIELD_VALUES else st.nothing()
    if name in FREE:
        return values | FREE[name]
    if name == "text":
        halves = st.sampled_from([HIGH_HALF, LOW_HALF]) if issubclass(frame_type, STREAMED) else st.nothing()
        return values.filter(str.isascii) | TEXTS | halves
    return values


STREAMED = (TextFrame, LLMThoughtTextFrame)  # whose text may be cut inside a character


def frames_of(frame_type: type[Frame]) -> st.SearchStrategy[Frame]:
    fields = {name: field for name, field in frame_type.model_fields.items() if name != "type"}
    required = {name for name, field in fields.items() if field.is_required() or name == "llm"}
    return st.fixed_dictionaries(
        {name: values_of(frame_type, name) for name in fields if name in required},
        optional={name: values_of(frame_type, name) for name in fields if name not in required}
        | {"a_field_of_tomorrow": JSON},
    ).map(lambda given: frame_type(**given))


@pytest.mark.parametrize("frame_type", FRAME_TYPES.values(), ids=FRAME_TYPES)
def test_a_frame_is_read_as_it_was_written(frame_type):
    # Half of the usual number for each type: there are many of them, and most fields come in several.
    @settings(max_examples=settings().max_examples // 2)
    @given(frames_of(frame_type))
    def holds(frame):
        written = encode_frame(frame)
        read = decode(written)
        assert read == frame
        assert type(read) is frame_type
        assert encode_frame(read) == written

    holds()


@given(st.sampled_from(["FrameOfTomorrow", "ü" * 127]), IDS, st.integers(1, 2**63 - 1), OBJECTS)
def test_a_frame_that_nobody_knows_is_read_as_it_was_written(name, frame_id, version, extra):
    frame = UnknownFrame(**{**extra, "type": name, "id": frame_id, "v": version})
    assert decode(encode_frame(frame)) == frame
