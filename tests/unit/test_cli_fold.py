"""`frameledger fold` shows the outcome of each frame of a file, and the resulting context."""

import json
import os
import subprocess
import sys
from itertools import islice

import pytest
from typer.testing import CliRunner

from frameledger.fold import Conversation, Folding, fold
from frameledger.frames import (
    BotStartedSpeakingFrame,
    ContextSnapshot,
    EndFrame,
    FunctionCallCancelFrame,
    FunctionCallFromLLM,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMConfigureOutputFrame,
    LLMContextFrame,
    LLMEnablePromptCachingFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMRunFrame,
    LLMSetToolChoiceFrame,
    LLMSetToolsFrame,
    LLMTextFrame,
    LLMThoughtStartFrame,
    LLMThoughtTextFrame,
    LLMUpdateSettingsFrame,
    TranscriptionFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
    Waiting,
    encode_frame,
)
from frameledger.record import MAX_VALUE_BYTES
from frameledger_services.bench.talk import talking
from frameledger_services.cli import application
from frameledger_services.cli.terminal import render_context
from frameledger_services.cli.terminal.output import WIDTH_OF_A_FILE

HI = LLMMessagesAppendFrame(id="f1", messages=[{"role": "user", "content": "Hi"}], run_llm=True)
HO = LLMMessagesAppendFrame(id="f2", messages=[{"role": "user", "content": "Ho"}])
NO_FRAME = b'{"type":"LLMTextFrame"}'
KEYS = [
    *("context_id", "version", "messages", "tools", "tool_choice", "settings", "prompt_caching", "skip_tts"),
    *("recording", "ended", "limits", "mirror", "open", "frames"),
]


@pytest.fixture
def folded(tmp_path):
    """Fold lines (frames or bytes) from a file `talk.jsonl` with these options; the result of the command."""

    def run(lines, *options):
        file = tmp_path / "talk.jsonl"
        file.write_bytes(b"".join(line_of(line) + b"\n" for line in lines))
        return CliRunner().invoke(application(), ["fold", str(file), *options])

    return run


def line_of(line):
    return line if isinstance(line, bytes) else encode_frame(line)


def whole(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def outcomes(result):
    return [(line["line"], line["version"], line["outcome"]) for line in whole(result)["frames"]]


def some_talk(frames):
    return list(islice(talking(Folding(Conversation.new("talk"))), frames))


# What is folded


def test_the_context_is_what_the_frames_fold_to(folded):
    frames = some_talk(65)
    conversation = fold(frames, Conversation.new("talk"))
    shown = whole(folded(frames, "--json"))
    assert (shown["context_id"], shown["version"]) == ("talk", 65)
    assert shown["messages"] == list(conversation.messages)
    assert {line["outcome"] for line in shown["frames"]} == {"applied"}


def test_each_line_has_its_outcome_reason_version_and_whether_it_asked(folded):
    late = LLMTextFrame(id="f3", text="late", run_id="r0")
    lines = whole(folded([HI, HI, late, b'{"type":"NewFrame"}', NO_FRAME], "--json"))["frames"]
    assert [
        (one["line"], one["version"], one["id"], one["type"], one["outcome"], one["reason"], one["asked"])
        for one in lines
    ] == [
        (1, 1, "f1", "LLMMessagesAppendFrame", "applied", None, True),
        (2, None, "f1", "LLMMessagesAppendFrame", "duplicate", None, False),
        (3, 2, "f3", "LLMTextFrame", "ignored", "run_over", False),
        (4, 3, None, "NewFrame", "unknown", None, False),
        (5, None, None, None, "rejected", "invalid_field", False),
    ]
    assert "LLMTextFrame.text" in lines[4]["detail"]


def test_changes_are_told_with_all_their_fields(folded):
    [line] = whole(folded([HO], "--json"))["frames"]
    message = {"role": "user", "content": "Ho"}
    assert line["changes"] == [
        {"change": "MessageAppended", "position": 1, "message": message, "run_id": None}
    ]


def test_a_call_that_waits_says_for_whom(folded):
    waiting = START.model_copy(update={"waiting": Waiting(for_="approval", deadline="tomorrow")})
    [line] = whole(folded([waiting], "--json"))["frames"]
    assert line["changes"][-1] == {
        "change": "CallWaiting",
        "key": {"requested_version": 1, "ordinal": 0},
        "tool_call_id": "c1",
        "for": "approval",
        "deadline": "tomorrow",
    }


def test_ambiguous_calls_are_told_until_they_are_resolved(folded):
    one = {"tool_call_id": "c1", "requested_version": 1, "ordinal": 0}
    assert whole(folded([START, AMBIGUOUS], "--json"))["open"]["ambiguous_calls"] == [one]
    assert whole(folded([START, AMBIGUOUS, RESOLVED], "--json"))["open"]["ambiguous_calls"] == []


def test_at_counts_frames_and_repeated_ones_but_no_other_lines(folded):
    lines = [HI, NO_FRAME, HI, b"", HO]
    assert outcomes(folded(lines, "--json", "--at", "1")) == [(1, 1, "applied")]
    assert outcomes(folded(lines, "--json", "--at", "2")) == [
        (1, 1, "applied"),
        (2, None, "rejected"),
        (3, None, "duplicate"),
    ]
    assert outcomes(folded(lines, "--json", "--at", "3"))[-1] == (5, 2, "applied")
    assert outcomes(folded(lines, "--json", "--at", "99")) == outcomes(folded(lines, "--json"))


def test_at_zero_is_the_context_before_its_first_frame(folded):
    shown = whole(folded([HI], "--json", "--at", "0"))
    assert (shown["version"], shown["messages"], shown["frames"]) == (0, [], [])


def test_the_files_name_is_the_contexts_key_unless_one_is_given(folded):
    frames = some_talk(40)
    other = whole(folded(frames, "--json", "--context", "other"))
    assert other["context_id"] == "other"
    assert {line["reason"] for line in other["frames"]} > {"run_over"}
    assert whole(folded(frames, "--json", "--context", "talk")) == whole(folded(frames, "--json"))


def test_frames_of_another_contexts_runs_bring_a_hint_and_late_ones_of_its_own_do_not(folded):
    frames = some_talk(40)
    assert "--context" in folded(frames, "--context", "other").output
    late = LLMTextFrame(id="late", text="late", run_id=frames[3].run_id)
    result = folded([*frames, late])
    assert "run_over" in result.output
    assert "--context" not in result.output


def test_standard_input_is_read_for_a_dash():
    result = CliRunner().invoke(application(), ["fold", "-", "--json"], input=encode_frame(HI))
    assert (whole(result)["context_id"], whole(result)["version"]) == ("stdin", 1)


def test_lines_may_end_as_on_windows_and_may_be_empty(folded):
    assert outcomes(folded([line_of(HI) + b"\r", b"", b"  ", HO], "--json")) == [
        (1, 1, "applied"),
        (4, 2, "applied"),
    ]


def test_a_line_too_long_to_be_a_frame_is_one_rejected_line(folded):
    long = b'{"type":"TextFrame","text":"' + b"x" * 2 * MAX_VALUE_BYTES + b'"}'
    lines = whole(folded([long, HI], "--json"))["frames"]
    assert [(one["line"], one["outcome"], one["reason"]) for one in lines] == [
        (1, "rejected", "too_large"),
        (2, "applied", None),
    ]


def test_json_always_has_the_same_keys_and_is_ascii(folded):
    full = folded([TranscriptionFrame(text="日本 \U0001f600")], "--json")
    assert full.output.isascii()
    assert list(whole(full)) == list(whole(folded([], "--json"))) == KEYS
    assert whole(full)["messages"] == [{"role": "user", "content": "日本 \U0001f600"}]


# The page


def test_the_page_shows_outcomes_reasons_changes_and_messages(folded):
    late = LLMTextFrame(id="f3", text="late", run_id="r0")
    words = words_of(folded([HI, HI, late, NO_FRAME]))
    assert "1 1 LLMMessagesAppendFrame applied message 1 (user), run asked for, run opened" in words
    assert "2 LLMMessagesAppendFrame duplicate duplicate id" in words
    assert "3 2 LLMTextFrame ignored run_over" in words
    assert "4 rejected invalid_field: LLMTextFrame.text: Field required" in words
    assert "talk at version 2: 1 message 1 user Hi" in words
    assert "One line is not a valid frame" in words


def test_a_file_without_a_single_frame_says_what_was_expected(folded):
    words = words_of(folded([b"[1,", b"]"]))
    assert "No line is a valid frame. The file must have one frame as JSON per line." in words


@pytest.mark.regression("journey 83")
def test_an_exported_file_is_no_file_of_frames(folded):
    header = b'{"frameledger":"conversation","format":1,"context_id":"ctx-1","version":1}'
    line = b'{"version":1,"type":"UserStartedSpeakingFrame","payload":"{}"}'
    result = folded([header, line])
    assert result.exit_code == 1
    assert "is an export" in result.stderr
    assert "payload" in result.stderr


def test_an_empty_file_is_an_empty_context(folded):
    assert words_of(folded([])) == "talk at version 0: 0 messages"


CALL = FunctionCallFromLLM(function_name="look_up", tool_call_id="c1", arguments={})
START = FunctionCallInProgressFrame(
    function_name="look_up", tool_call_id="c1", arguments={}, cancel_on_interruption=True
)
RESULT = FunctionCallResultFrame(
    function_name="look_up", tool_call_id="c1", arguments={}, result=1, properties={"is_final": True}
)
AMBIGUOUS = RESULT.model_copy(update={"settled_as": "ambiguous"})
RESOLVED = RESULT.model_copy(update={"settled_as": "resolved"})


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([UserStartedSpeakingFrame()], "open turn the user speaks"),
        (
            [UserStartedSpeakingFrame(), TranscriptionFrame(text="Well")],
            "open turn the user speaks: Well",
        ),
        (
            [UserStartedSpeakingFrame(), UserStoppedSpeakingFrame()],
            "open turn the user stopped, transcriptions may follow",
        ),
        ([LLMRunFrame()], "requested at version 1, no attempt yet"),
        ([LLMRunFrame(), LLMFullResponseStartFrame()], "requested at version 1, answered without its run id"),
        ([LLMRunFrame(), LLMRunFrame()], "requested at version 2"),
        (some_talk(6), "requested at version 3, attempt 1 open response the model answers: One moment,"),
        ([LLMFullResponseStartFrame()], "open response the model answers"),
        (
            [LLMThoughtStartFrame(append_to_context=True, llm="x"), LLMThoughtTextFrame(text="hm")],
            "open thought the model thinks: hm",
        ),
        ([FunctionCallsStartedFrame(function_calls=[CALL])], "open call c1 = look_up: announced"),
        ([START], "open call c1 = look_up: running, synchronous"),
        (
            [START, START.model_copy(update={"waiting": Waiting(for_="approval")})],
            "running, synchronous, waits for a person",
        ),
        ([START, InterruptionFrame()], "c1 to be cancelled"),
        ([START, AMBIGUOUS], "c1 ambiguous"),
        ([START, AMBIGUOUS], "ambiguous call c1, requested at version 1: resolve it"),
        ([START, AMBIGUOUS, RESOLVED], "c1 resolved"),
        ([START, UserStartedSpeakingFrame(), RESULT], "owed run starts when the user's turn ends"),
        (
            [START, BotStartedSpeakingFrame(), RESULT],
            "owed run starts when the bot stops bot speaking since version 2",
        ),
        ([START, RESULT], "c1 done"),
        ([START, FunctionCallCancelFrame(function_name="look_up", tool_call_id="c1")], "c1 cancelled"),
        (
            [LLMContextFrame(context=ContextSnapshot(), react=False)],
            "recording its runs and calls are not executed",
        ),
        ([EndFrame()], "ended starts no runs or calls until it is reopened"),
        (
            [LLMSetToolsFrame(tools=[{"type": "function", "function": {"name": "look_up"}}])],
            "tools look_up",
        ),
        ([LLMSetToolChoiceFrame(tool_choice="required")], "tool choice required"),
        ([LLMUpdateSettingsFrame(settings={"seed": 1})], 'settings {"seed": 1}'),
        ([LLMEnablePromptCachingFrame(enable=True)], "prompt caching true"),
        ([LLMConfigureOutputFrame(skip_tts=True)], "skip tts true"),
        ([HO, LLMMessagesUpdateFrame(messages=[])], "new history talk at version 2: 0 messages"),
    ],
)
def test_what_was_set_and_what_is_still_open_is_named(folded, frames, words):
    assert words in words_of(folded(frames))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "user", "content": [{"type": "text", "text": "Look"}]}, "1 user Look"),
        (
            {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}]},
            "1 assistant c1 = f({})",
        ),
        ({"role": "tool", "tool_call_id": "c1", "content": "1"}, "1 tool c1: 1"),
        ({"llm": "x", "message": {"type": "thought", "text": "hm"}}, "1 x thought: hm"),
        ({"llm": "x", "message": {"n": 1}}, '1 x {"n": 1}'),
        ({}, "1 null"),
        ({"role": ["a"], "content": {"b": 1}, "tool_calls": 5}, '1 ["a"] {"b": 1}'),
        ({"role": "assistant", "tool_calls": [None]}, "1 assistant null"),
        ({"llm": None, "message": None}, "1 null null"),
    ],
)
def test_messages_of_any_shape_are_readable(folded, message, words):
    assert words in words_of(folded([LLMMessagesAppendFrame(messages=[message])]))


def test_embedded_media_is_left_out_of_the_page_and_whole_in_json(folded):
    url = f"data:image/png;base64,{'QUJD' * 100}"
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    frames = [LLMMessagesAppendFrame(messages=[image])]
    assert "[image/png, 300 bytes, left out]" in folded(frames).output
    assert whole(folded(frames, "--json"))["messages"] == [image]


def test_text_cannot_control_the_terminal(folded):
    hostile = "a\x1b[2Jb\x07c\u202ed"
    frames = [
        LLMMessagesAppendFrame(messages=[{"role": hostile, "content": hostile}]),
        b'{"type":"\\u001b[2J"}',
    ]
    result = folded(frames, "--context", "x\x1b[2J")
    assert result.exit_code == 0
    assert not {"\x1b", "\x07", "\u202e"} & set(result.output)


def test_markup_in_texts_is_text(folded):
    text = "[red]stop[/red] :smile: [/]"
    assert text in folded([TranscriptionFrame(text=text)]).output


def test_of_a_long_text_the_beginning_is_shown(folded):
    words = words_of(folded([TranscriptionFrame(text="x" * 1_000 + "END")]))
    assert "(403 characters more)" in words
    assert "END" not in words


def test_of_a_long_file_the_last_lines_and_messages_are_shown_unless_all_are_wanted(folded):
    frames = [TranscriptionFrame(text=f"word-{n}") for n in range(render_context.LONG + 1)]
    left_out = render_context.LONG + 1 - render_context.LAST
    short = folded(frames).output
    assert f"... {left_out} lines before these (--all shows them)" in short
    assert f"... {left_out} messages before these (--all shows them)" in short
    assert short.count("TranscriptionFrame") == render_context.LAST
    assert short.count("word-") == render_context.LAST
    every = folded(frames, "--all").output
    assert every.count("TranscriptionFrame") == every.count("word-") == render_context.LONG + 1
    assert "before these" not in every
    assert folded(frames[:-1]).output.count("word-") == render_context.LONG


def test_a_file_gets_no_colours_and_a_constant_width(folded, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    result = folded([HI, NO_FRAME, TranscriptionFrame(text="so " * 100)])
    assert "\x1b" not in result.output
    assert 80 < max(map(len, result.output.splitlines())) <= WIDTH_OF_A_FILE


def test_an_encoding_without_the_characters_shows_escapes():
    command = [sys.executable, "-m", "frameledger_services", "fold", "-"]
    done = subprocess.run(
        command,
        input=encode_frame(TranscriptionFrame(text="wie spät, 日本?")),
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=True,
    )
    assert b"wie sp\\xe4t, \\u65e5\\u672c?" in done.stdout


# Saying no


def test_a_file_that_cannot_be_read_ends_with_1_and_says_what_to_do(tmp_path):
    for path in (tmp_path / "nowhere.jsonl", tmp_path):
        result = CliRunner().invoke(application(), ["fold", str(path)])
        assert (result.exit_code, result.stdout) == (1, "")
        assert str(path) in result.stderr
        assert "one frame as JSON on each line" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [[], ["-", "--at", "-1"], ["-", "--at", "x"], ["-", "--context", ""], ["-", "--context", "ä" * 128]],
)
def test_a_wrong_call_ends_with_2(arguments):
    assert CliRunner().invoke(application(), ["fold", *arguments]).exit_code == 2


def words_of(result):
    """What a page says, without its layout."""
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())
