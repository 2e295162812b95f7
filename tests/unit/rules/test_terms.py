"""The parts of a request besides messages: settings, tools, and the messages about tools (RA5)."""

import json

import pytest
from tests.unit.rules.dsl import (
    append,
    ask,
    context,
    end,
    finish,
    hear,
    play,
    settings,
    speak,
    start,
    stop,
    tokens,
    tools,
)

from frameledger.evolve.changes import SettingChanged
from frameledger.frames import (
    LLMConfigureOutputFrame,
    LLMContextAssistantTimestampFrame,
    LLMEnablePromptCachingFrame,
    LLMServiceMetadataFrame,
    LLMSetToolChoiceFrame,
    LLMSetToolsFrame,
    LLMUpdateSettingsFrame,
    StartFrame,
)


@pytest.mark.rule("RA5.settings")
@pytest.mark.parametrize(
    ("updates", "left"),
    [
        ([{"a": 1}, {"b": 2}], {"a": 1, "b": 2}),
        ([{"a": 1}, {"a": 2}], {"a": 2}),
        ([{"a": 1, "b": 2}, {"a": None}], {"b": 2}),
        ([{"a": None}], {}),
        ([{"a": 1}, {"a": None}, {"a": 3}], {"a": 3}),
        ([{"a": {"x": 1, "y": 2}}, {"a": {"z": None}}], {"a": {"z": None}}),
        ([{"a": 1}, {}], {"a": 1}),
        ([{"a": 0, "b": False, "c": "", "d": []}], {"a": 0, "b": False, "c": "", "d": []}),
    ],
)
def test_settings_are_merged_by_key_and_null_removes_one(updates, left):
    played = play([LLMUpdateSettingsFrame(settings=values) for values in updates])
    assert (played.context.settings, played.asked) == (left, [])
    assert played.outcomes == ["applied"] * len(updates)


@pytest.mark.rule("RA5.settings")
@pytest.mark.parametrize("setting", [settings, lambda n: context(settings={"n": n})])
@pytest.mark.parametrize(("before", "after"), [(1, True), (0, False), (1, 1.0), (True, 1), ([0], [False])])
def test_a_value_that_python_holds_for_equal_is_another_value_in_json(before, after, setting):
    played = play(setting(n=before), setting(n=after))
    assert json.dumps(played.context.settings) == json.dumps({"n": after})
    assert any(isinstance(change, SettingChanged) for change in played.changes)


@pytest.mark.rule("RA5.settings")
def test_a_tool_whose_schema_differs_only_in_a_boolean_is_another_tool():
    played = play(
        [LLMSetToolsFrame(tools=[{"function": {"name": "f", "strict": strict}}]) for strict in (1, True)]
    )
    assert json.dumps(played.context.to_wire()["tools"]) == '[{"function": {"name": "f", "strict": true}}]'


@pytest.mark.rule("RA5.settings")
@pytest.mark.parametrize(
    ("frames", "name", "value"),
    [
        ([LLMSetToolsFrame(tools=[{"n": 1}]), LLMSetToolsFrame(tools=[{"n": 2}])], "tools", ({"n": 2},)),
        ([LLMSetToolsFrame(tools=[{"n": 1}]), LLMSetToolsFrame(tools=[])], "tools", ()),
        ([LLMSetToolsFrame(tools=[{"n": 1}]), LLMSetToolsFrame(tools=None)], "tools", ()),
        ([LLMSetToolChoiceFrame(tool_choice="auto")], "tool_choice", "auto"),
        ([LLMSetToolChoiceFrame(tool_choice={"any": 1})], "tool_choice", {"any": 1}),
        ([LLMEnablePromptCachingFrame(enable=True)], "prompt_caching", True),
        ([LLMEnablePromptCachingFrame(enable=b) for b in (True, False)], "prompt_caching", False),
        ([LLMConfigureOutputFrame(skip_tts=True)], "skip_tts", True),
        ([LLMConfigureOutputFrame(skip_tts=b) for b in (True, False)], "skip_tts", False),
    ],
)
def test_the_other_terms_are_replaced_and_ask_for_nothing(frames, name, value):
    played = play(frames)
    assert getattr(played.state.terms, name) == value
    assert played.changes == (SettingChanged(name, value),)
    assert (played.messages, played.asked, set(played.outcomes)) == ([], [], {"applied"})


@pytest.mark.rule("RA5.settings")
def test_a_tool_choice_stays_when_the_tools_are_replaced():
    played = play([LLMSetToolChoiceFrame(tool_choice="auto"), tools("f")])
    assert played.state.terms.tool_choice == "auto"
    assert [change.name for change in played.changes] == ["tools"]


@pytest.mark.rule("RA5.settings")
def test_a_change_of_terms_disturbs_nothing_that_is_open():
    played = play(ask(), start(1), tokens("a", run=1), settings(t=1), tools("f"), tokens("b", run=1), end(1))
    assert (played.texts, played.opened) == (["assistant: ab"], [1])


@pytest.mark.rule("RA5.settings")
@pytest.mark.parametrize("ending", [settings(a=1), tools("f"), LLMEnablePromptCachingFrame(enable=True)])
def test_a_change_of_terms_is_folded_after_the_end_and_does_not_open_the_context_again(ending):
    played = play(finish(), ending, hear("x"))
    assert (played.outcomes, played.asked) == (["applied"] * 3, [])
    assert isinstance(played.steps[1].changes[0], SettingChanged)


@pytest.mark.rule("RA5.settings")
@pytest.mark.parametrize(
    "frame",
    [
        StartFrame(),
        LLMServiceMetadataFrame(is_realtime_service=True),
        LLMContextAssistantTimestampFrame(timestamp="2026-01-01T00:00:00Z"),
    ],
)
def test_inert_frames_are_recorded_only(frame):
    played = play(append("x"), speak(), frame, hear("hi"), stop())
    assert (played.steps[2].changes, played.steps[2].outcome) == ((), "applied")
    assert played.texts == ["user: x", "user: hi"]


# Messages about tools.

SPEAKING = settings(add_tool_change_messages=True)


@pytest.mark.rule("RA5.tools")
def test_a_change_of_tools_is_said_in_one_developer_message_if_the_context_wants_it():
    played = play(SPEAKING, tools("stay", "go"), tools("stay", "come"))
    assert [message["role"] for message in played.messages] == ["developer", "developer"]
    said = played.messages[1]["content"]
    assert "come" in said
    assert "go" in said
    assert "stay" not in said
    assert (played.asked, played.context.tools[1]["function"]["name"]) == ([], "come")


@pytest.mark.rule("RA5.tools")
@pytest.mark.parametrize("value", [False, None, 0, ""])
def test_a_change_of_tools_is_silent_by_default_and_when_turned_off(value):
    assert play(tools("f"), tools("g")).messages == []
    assert play(SPEAKING, settings(add_tool_change_messages=value), tools("f")).messages == []


@pytest.mark.rule("RA5.tools")
@pytest.mark.parametrize(
    "now",
    [tools("f", "g"), tools("g", "f"), LLMSetToolsFrame(tools=[{"function": {"name": n}} for n in "fg"])],
)
def test_tools_are_compared_by_name_and_no_difference_is_no_message(now):
    played = play(tools("f", "g"), SPEAKING, now)
    assert (played.messages, played.became) == ([], "applied")
    assert len(played.context.tools) == 2


@pytest.mark.rule("RA5.tools")
def test_all_tools_may_come_and_all_may_go():
    assert "`f`" in play(SPEAKING, tools("f")).messages[0]["content"]
    gone = play(tools("f"), SPEAKING, LLMSetToolsFrame(tools=None))
    assert (len(gone.messages), "`f`" in gone.messages[0]["content"]) == (1, True)
    assert play(SPEAKING, LLMSetToolsFrame(tools=None)).messages == []


@pytest.mark.rule("RA5.tools")
def test_only_the_tools_frame_speaks_of_tools():
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    on = {"add_tool_change_messages": True}
    assert play(SPEAKING, context("x", tools=[tool], settings=on)).texts == ["user: x"]
    opened = play(context("x", settings=on), tools("f"))
    assert [message["role"] for message in opened.messages] == ["user", "developer"]
    assert opened.context.settings == on


@pytest.mark.rule("RA5.tools")
def test_a_context_frame_without_settings_turns_the_messages_off():
    assert play(SPEAKING, context(), tools("f")).messages == []


@pytest.mark.rule("RA5.tools", "R2.4")
def test_a_tool_message_stands_before_the_response_that_is_streaming():
    played = play(SPEAKING, start(), tokens("hi"), tools("f"), end())
    assert [message["role"] for message in played.messages] == ["developer", "assistant"]
