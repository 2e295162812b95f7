"""The parts of the Pipecat bridge that do not need Pipecat: values, the comparison, the buffer and repairs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameledger.fold import Conversation, fold
from frameledger.frames import (
    AnyFrame,
    EndFrame,
    FunctionCallCancelFrame,
    FunctionCallFromLLM,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallResultProperties,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMUpdateSettingsFrame,
    TextFrame,
    TranscriptionFrame,
)
from frameledger.tools import FunctionSchema, ToolsSchema
from frameledger_services import call_words
from frameledger_services.omitted_media import MEDIA, has_omitted_media
from frameledger_services.pipecat.capture import FIELDS
from frameledger_services.pipecat.captured_frame import TranslationState
from frameledger_services.pipecat.mirror import Appended, Mirror, Positions, Replaced, Rewritten
from frameledger_services.pipecat.outgoing import Encoder
from frameledger_services.pipecat.pending import GAP, Pending, Waiting
from frameledger_services.pipecat.repairs import repairs
from frameledger_services.pipecat.terms import Terms
from frameledger_services.pipecat.translate import translate
from frameledger_services.pipecat.values import from_json, request_settings, to_json, tools_to_json


@dataclass
class Specific:
    """Has the attributes of Pipecat's `LLMSpecificMessage`."""

    llm: str
    message: Any


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "$bytes", "$plain"]), inner, max_size=3)
    ),
    max_leaves=4,
)
contents = st.sampled_from(["a", "b", 1, 1.0, True, None, ["a", {"n": 1}], {"$bytes": "x"}, b"\x00"])
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "tool"]), "content": contents}
) | st.builds(Specific, st.just("llm"), contents)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(same(one[k], other[k]) for k in one)
        )
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@given(values.filter(lambda value: "inf" not in repr(value)))
def test_a_value_comes_back_as_it_was(value):
    assert same(from_json(to_json(value)), value)


@given(st.lists(messages, max_size=14), st.lists(messages, max_size=14), st.data())
def test_the_changes_make_the_one_list_the_other(old, new, data):
    kept = data.draw(st.lists(st.sampled_from(old), unique_by=id) if old else st.just([]))
    new = data.draw(st.sampled_from([new, old + new, kept, old[: len(old) // 2] + new, old]))
    mirror, positions = Mirror(old, known=True), Positions()
    positions.begin([to_json(one) for one in old])
    for change in mirror.changes(new):
        positions.apply(change)
    assert same(positions.messages, [to_json(one) for one in new])
    assert sorted(set(positions.positions)) == positions.positions
    assert mirror.changes(new) == ()


@pytest.mark.parametrize(("old", "new"), [(1, True), (1, 1.0), (0, False), (None, 0), ((1,), (2,)), ("1", 1)])
def test_values_that_python_calls_equal_differ_if_their_json_does(old, new):
    mirror = Mirror([{"n": old}], known=True)
    (change,) = mirror.changes([{"n": new}])
    assert isinstance(change, Rewritten)


def test_a_change_in_place_is_a_rewrite_and_what_is_behind_is_appended():
    live = [{"role": "user", "content": "a"}, {"role": "tool", "content": "IN_PROGRESS"}]
    mirror = Mirror(live, known=True)
    live[1]["content"] = "done"
    live.append({"role": "assistant", "content": "b"})
    assert mirror.changes(live) == (
        Rewritten(1, {"role": "tool", "content": "done"}),
        Appended(({"role": "assistant", "content": "b"},)),
    )
    del live[0]
    assert mirror.changes(live) == (Rewritten(0, None),)
    assert isinstance(mirror.changes([{"n": n} for n in range(20)])[0], Replaced | Rewritten)


def test_an_unknown_list_is_said_whole():
    assert Mirror().changes([]) == (Replaced(()),)


@pytest.mark.regression("bridge 20")
@pytest.mark.parametrize("known", [False, True], ids=["the whole list", "its changes"])
def test_a_message_that_another_thread_appends_during_the_comparison_is_said_once(known):
    live: list[Any] = []

    class Appending(dict):
        """A message; when it is read to be published, another one is appended."""

        def items(self):
            if len(live) == 1:
                live.append({"role": "user", "content": "more"})
            return super().items()

    mirror = Mirror(known=known)
    live.append(Appending(role="user", content="hi"))
    told = [*mirror.changes(live), *mirror.changes(live), *mirror.changes(live)]
    said = [message["content"] for change in told for message in change.messages]
    assert said == ["hi", "more"]


@dataclass
class InterimTranscriptionFrame:
    """Named as Pipecat's."""

    text: str
    user_id: str
    timestamp: str
    language: str | None
    includes_inter_frame_spaces: bool


class Read(dict):
    """A message that counts how often a value of it was read to copy it."""

    count = 0

    def __getitem__(self, name):
        Read.count += 1
        return super().__getitem__(name)


def test_a_new_message_or_a_changed_one_costs_no_copy_of_the_others():
    live: list[Any] = [Read(role="user", content=str(number)) for number in range(100)]
    mirror = Mirror(live, known=True)
    copied, Read.count = Read.count, 0
    assert copied == 200
    live.append({"role": "user", "content": "new"})
    assert mirror.changes(live) == (Appended(({"role": "user", "content": "new"},)),)
    live[3] = {"role": "user", "content": "changed"}
    assert mirror.changes(live) == (Rewritten(3, {"role": "user", "content": "changed"}),)
    del live[4]
    assert mirror.changes(live) == (Rewritten(4, None),)
    assert mirror.changes(live) == ()
    assert Read.count == 0


@pytest.mark.regression("bridge 41")
def test_custom_tools_name_their_provider_as_a_tools_schema_writes_them():
    class Adapter(Enum):
        OPENAI = "openai"

    search = {"type": "web_search"}
    schema = ToolsSchema(
        standard_tools=[FunctionSchema("f", "F.", {}, [])], custom_tools={Adapter.OPENAI.value: [search]}
    )
    given = SimpleNamespace(standard_tools=schema.standard_tools, custom_tools={Adapter.OPENAI: [search]})
    assert tools_to_json(given)[1:] == [{"llm": "openai", "tool": search}] == [*schema.to_wire()][1:]
    assert to_json({Adapter.OPENAI: 1}) == {"openai": 1}


@pytest.mark.regression("bridge 40")
def test_tools_that_are_offered_beside_those_of_the_context_are_recorded_until_they_are_not():
    def tool(name):
        return {"type": "function", "function": {"name": name}}

    terms, schema = Terms(), SimpleNamespace(standard_tools=[tool("write")], custom_tools=None)

    def recorded():
        return [names(one["tools"]) for one in terms.changes(schema, None)]

    def names(tools):
        return [one["function"]["name"] for one in tools]

    assert recorded() == [["write"]]
    terms.offer([tool("cancel_write")])
    assert recorded() == [["write", "cancel_write"]]
    terms.offer([tool("cancel_write")])
    assert recorded() == []
    terms.offer([])
    assert recorded() == [["write"]]


def test_long_media_become_a_hash_and_bytes_stay():
    shown = to_json({"url": "data:image/png;base64," + "A" * 100, "raw": b"\x00"}, media_limit=50)
    assert shown["url"][MEDIA]["characters"] == 122
    assert shown["url"][MEDIA]["type"] == "image/png"
    assert has_omitted_media([shown])
    assert shown["raw"] == {"$bytes": "AA=="}


def test_what_is_no_longer_said_to_a_provider_is_taken_back():
    said = request_settings({"model": "m", "extra": {"user": "7"}})
    assert (said["model"], said["extra"], said["temperature"]) == ("m", {"user": "7"}, None)
    taken_back = request_settings({"model": "m", "extra": {}})
    assert taken_back == request_settings({"model": "m"})
    conversation = fold([update(said), update(taken_back)], Conversation.new("s"))
    assert conversation.context.settings == {"model": "m"}


def update(settings):
    return LLMUpdateSettingsFrame(settings=settings)


def test_what_json_has_no_form_for_is_named_and_nothing_raises():
    class Broken:
        def __repr__(self):
            raise ValueError

    deep: list = []
    deep.append(deep)
    assert to_json(Broken()) == "<Broken>"
    assert to_json(float("inf")) == "Infinity"
    assert to_json(deep)


def waiting(kind, size=10, ns=1):
    return Waiting(kind, ns, size, kind)


def pending(**limits):
    return Pending(
        lambda counts, first, last: Waiting(GAP, first, 5, (counts, first, last)),
        lambda: [waiting("LLMMessagesUpdateFrame")],
        **limits,
    )


def test_beyond_the_bound_tokens_go_first_and_one_gap_tells_of_them():
    one = pending(max_frames=10)
    one.add([waiting("InterruptionFrame"), *(waiting("LLMTextFrame", ns=n) for n in range(2, 20))])
    assert [left.kind for left in one.take(100)] == [GAP, "InterruptionFrame"]
    assert one.dropped == {"LLMTextFrame": 18}
    assert one.bytes == len(one) == 0


@pytest.mark.regression("bridge 39")
@pytest.mark.parametrize(
    "kind",
    ["LLMUpdateSettingsFrame", "LLMConfigureOutputFrame", "LLMEnablePromptCachingFrame", "CancelFrame"],
)
def test_beyond_the_bound_what_nobody_says_again_is_kept(kind):
    one = pending(max_frames=10)
    one.add([waiting(kind)])
    for _ in range(30):
        one.add([waiting("TextFrame")])
    assert one.dropped["TextFrame"] > 0
    assert [left.kind for left in one.take(100) if left.kind not in ("TextFrame", GAP)] == [kind]


def test_messages_that_wait_become_the_whole_history():
    one = pending(max_frames=10)
    for _ in range(30):
        one.add([waiting("LLMMessagesAppendFrame"), waiting("LLMTextFrame")])
    taken = [left.kind for left in one.take(100)]
    assert taken.count(GAP) == 1
    assert "LLMMessagesUpdateFrame" in taken
    assert len(taken) <= 11


def test_a_question_stays_behind_the_messages_that_it_is_asked_with():
    one = pending(max_frames=10)
    one.add([waiting("LLMMirrorFrame"), *(waiting("LLMMessagesAppendFrame") for _ in range(4))])
    one.add([waiting("LLMRunFrame"), *(waiting("LLMMessagesAppendFrame") for _ in range(6))])
    kinds = ["LLMMirrorFrame", "LLMMessagesUpdateFrame", "LLMRunFrame"]
    assert [left.kind for left in one.take(100)] == kinds


@pytest.mark.regression("bridge 19")
def test_a_history_beyond_the_bound_is_not_made_again_for_each_frame():
    made = []

    def history():
        made.append(1)
        return [waiting("LLMMessagesUpdateFrame", size=1000)]

    one = Pending(lambda counts, first, last: waiting(GAP), history, max_frames=10_000, max_bytes=700)
    one.add([waiting("LLMMessagesAppendFrame", size=1000)])
    for _ in range(1000):
        one.add([waiting("InterruptionFrame"), waiting("LLMTextFrame")])
        assert one.bytes <= 1500
    assert len(made) < 100
    assert [left.kind for left in one.take(10_000)].count("LLMMessagesUpdateFrame") == 1


@pytest.mark.regression("bridge 19")
def test_a_history_beyond_the_bound_alone_drops_no_turns_and_calls():
    one = Pending(
        lambda counts, first, last: waiting(GAP),
        lambda: [waiting("LLMMessagesUpdateFrame", size=1000)],
        max_frames=10_000,
        max_bytes=700,
    )
    one.add([waiting("LLMMessagesUpdateFrame", size=1000)])
    one.add([waiting("InterruptionFrame"), waiting("LLMRunFrame")])
    assert one.dropped == {}
    assert len(one) == 3


@given(
    st.lists(
        st.sampled_from(
            ["LLMTextFrame", "InterruptionFrame", "LLMMessagesAppendFrame", "pipecat/MetricsFrame"]
        ),
        max_size=80,
    )
)
def test_however_much_is_added_no_more_than_the_bound_waits(kinds):
    one = pending(max_frames=8, max_bytes=70)
    for kind in kinds:
        one.add([waiting(kind)])
        assert len(one) <= 8
        assert one.bytes <= 70


QUESTION = {"role": "user", "content": "When?"}
CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "order", "arguments": "{}"}}],
}


def test_words_that_were_heard_become_a_message_where_they_were_said():
    frames: list[Any] = [
        LLMFullResponseStartFrame(),
        *(TextFrame(text=word) for word in ("At", "nine", "o'clock")),
    ]
    frames += [InterruptionFrame(), TranscriptionFrame(text="Thanks,"), TranscriptionFrame(text="bye.")]
    assert repairs([QUESTION], frames) == [
        Appended(
            (
                {"role": "assistant", "content": "At nine o'clock"},
                {"role": "user", "content": "Thanks, bye."},
            )
        )
    ]


def test_what_is_in_a_message_is_not_said_again():
    said = [QUESTION, {"role": "assistant", "content": "At nine."}]
    frames = [
        TranscriptionFrame(text="When?"),
        LLMMessagesAppendFrame(messages=said[:1]),
        TextFrame(text="At"),
        TextFrame(text="nine."),
        LLMMessagesAppendFrame(messages=said[1:]),
    ]
    assert repairs(said, frames) == []
    assert repairs(said, [TextFrame(text="Hm."), EndFrame()]) == []


def test_a_call_that_had_begun_is_ambiguous_whatever_is_known_of_it():
    running = {"role": "tool", "tool_call_id": "c1", "content": "IN_PROGRESS"}
    in_background = {
        **running,
        "content": '{"type": "async_tool", "status": "running", "tool_call_id": "c1"}',
    }
    finished = {"role": "developer", "content": in_background["content"].replace("running", "finished")}
    words = call_words.ambiguous("order")
    for one in (running, in_background):
        assert repairs([QUESTION, CALL, one], []) == [Rewritten(2, {**one, "content": words})]
        assert repairs([QUESTION, CALL, one], [], ambiguous=False) == []
    assert repairs([QUESTION, CALL, in_background, finished], []) == []
    announced = FunctionCallFromLLM(function_name="order", tool_call_id="c1", arguments="{}")
    (added,) = repairs([QUESTION], [FunctionCallsStartedFrame(function_calls=[announced])])
    assert added == Appended((CALL, {"role": "tool", "content": words, "tool_call_id": "c1"}))


def ended(result: Any, **fields: Any) -> FunctionCallResultFrame:
    return FunctionCallResultFrame(function_name="order", tool_call_id="c1", result=result, **fields)


BEGUN = FunctionCallInProgressFrame(function_name="order", tool_call_id="c1", arguments="{}")
CANCELLED = FunctionCallCancelFrame(function_name="order", tool_call_id="c1")
NOT_FINAL = ended({"step": 1}, properties=FunctionCallResultProperties(is_final=False))


@pytest.mark.parametrize(
    ("frames", "content"),
    [
        ([BEGUN, ended({"tea": "\u00fc"})], '{"tea": "\u00fc"}'),
        ([BEGUN, ended(None)], "COMPLETED"),
        ([BEGUN, CANCELLED], "CANCELLED"),
        ([BEGUN, EndFrame(), ended(7)], "7"),
        ([BEGUN, NOT_FINAL], call_words.ambiguous("order")),
        # Another call with the same id.
        ([BEGUN, ended(7), BEGUN], call_words.ambiguous("order")),
    ],
    ids=["a result", "none", "cancelled", "after the end", "not the last result", "of the call before"],
)
def test_a_call_whose_end_is_on_the_log_has_it_in_the_messages(frames, content):
    running = {"role": "tool", "tool_call_id": "c1", "content": "IN_PROGRESS"}
    told = Rewritten(2, {**running, "content": content})
    assert repairs([QUESTION, CALL, running], frames) == [told]
    assert repairs([QUESTION, CALL, {**running, "content": "1"}], frames) == []
    unsaid = Appended((CALL, {"role": "tool", "content": content, "tool_call_id": "c1"}))
    says_nothing = content == "CANCELLED" or any(isinstance(one, EndFrame) for one in frames)
    assert repairs([QUESTION], frames) == ([] if says_nothing else [unsaid])


def test_a_call_that_an_application_took_out_of_the_messages_stays_out():
    running = {"role": "tool", "tool_call_id": "c1", "content": "IN_PROGRESS"}
    frames: list[AnyFrame] = [BEGUN, LLMMessagesAppendFrame(messages=[CALL, running]), ended(7)]
    assert repairs([QUESTION], [*frames, LLMMessagesUpdateFrame(messages=[QUESTION])]) == []


@pytest.mark.regression("bridge 14")
def test_interim_words_are_recorded_after_the_clock_was_set_back():
    state, hour = TranslationState(), 3_600 * 10**9

    def recorded(ns: int) -> int:
        return len(translate(InterimTranscriptionFrame("at", "user", "", None, False), "user", ns, state))

    assert [recorded(2 * hour), recorded(2 * hour + 1), recorded(hour), recorded(hour + 1)] == [1, 0, 1, 0]


def test_the_id_of_a_frame_names_its_session_and_its_item():
    encoder = Encoder(UUID("6f1c2b7e-93d4-4a58-b0e6-5c7d8e9fa0b1"))
    item = (3, 10**18, FIELDS, [{"type": "StartFrame"}, {"type": "EndFrame"}], None)
    frames = [*encoder.encode(item), encoder.gap({}, 0, 0), encoder.gap({}, 0, 0)]
    ids = [one.frame.frame.id for one in frames]
    assert ids == [
        "6f1c2b7e-93d4-8a58-b0e6-000000030000",
        "6f1c2b7e-93d4-8a58-b0e6-000000030001",
        "6f1c2b7e-93d4-8a58-b0e6-f00000010000",
        "6f1c2b7e-93d4-8a58-b0e6-f00000020000",
    ]
    assert {UUID(id_).version for id_ in ids} == {8}
