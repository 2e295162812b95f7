"""The conformance player returns the core's result of a scenario, and the shared samples agree with it."""

import io
import json
import re
import shlex
import subprocess
import sys

import pytest

from frameledger import conformance
from frameledger.conformance import play

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "look"}}
RUN = {"type": "LLMRunFrame"}


def given(scenarios, monkeypatch):
    """Put them on standard input, in a locale without UTF-8."""
    written = io.BytesIO(json.dumps(scenarios, ensure_ascii=False).encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(written, encoding="latin-1"))


def said(*frames, **scenario):
    return play({"name": "one", "frames": list(frames), **scenario})


def test_every_strict_shared_sample_passes(shared):
    folder = shared / "conformance"
    player = shlex.join([sys.executable, "-m", "frameledger.conformance"])
    done = subprocess.run(
        [sys.executable, str(folder / "compare.py"), "--why", "--cmd-all", player],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    scores = {kind: int(count) for count, kind in re.findall(r"^ *(\d+)  (\w+: .*)$", done.stdout, re.M)}
    samples = [json.loads(path.read_text(encoding="utf-8")) for path in (folder / "corpus").glob("*.json")]
    strict = sum(count for kind, count in scores.items() if kind.startswith("strict:"))
    assert strict == sum(sample["strict"] for sample in samples)
    assert sum(scores.values()) == len(samples) > 0


def test_the_player_reads_a_list_of_scenarios_and_answers_by_name(monkeypatch, capsys):
    scenarios = [
        {"name": "empty", "frames": []},
        {"name": "asks", "frames": [RUN], "initial": {"messages": [USER]}, "config": {}},
    ]
    given(scenarios, monkeypatch)
    conformance.main()
    assert json.loads(capsys.readouterr().out) == {
        "empty": {"messages": [], "tools": None, "tool_choice": None, "runs_after": []},
        "asks": {"messages": [USER], "tools": None, "tool_choice": None, "runs_after": [0]},
    }


@pytest.mark.parametrize("name", ["one", "über"])
def test_one_scenario_alone_gives_its_outcome(name, monkeypatch, capsys):
    asks = {"name": name, "frames": [RUN], "initial": {"messages": [{"role": "user", "content": name}]}}
    given(asks, monkeypatch)
    conformance.main()
    assert json.loads(capsys.readouterr().out) == play(asks)


@pytest.mark.regression("fault 91")
def test_a_scenario_that_cannot_be_played_takes_no_other_outcome_with_it(monkeypatch, capsys):
    asks = {"name": "asks", "frames": [RUN]}
    broken = [
        {"name": "no frames"},
        {"frames": []},
        "no scenario",
        {"name": ["no text"], "frames": []},
        {"name": "no frame", "frames": [7]},
        {"name": "no messages", "frames": [], "initial": {"messages": 7}},
    ]
    given([*broken, asks], monkeypatch)
    conformance.main()
    written = capsys.readouterr()
    assert json.loads(written.out) == {"asks": play(asks)}
    assert len(written.err.splitlines()) == len(broken)
    assert "scenario 'no frames' has no outcome: KeyError('frames')" in written.err


@pytest.mark.regression("fault 91")
def test_the_context_of_a_context_frame_is_no_label():
    opens = {"type": "LLMContextFrame", "context": {"messages": [USER]}, "run_llm": True}
    opened = {"messages": [USER], "tools": None, "tool_choice": None, "runs_after": [1]}
    assert said({"type": "TranscriptionFrame", "text": "before"}, opens, RUN) == opened | {
        "runs_after": [0, 1, 2]
    }
    labelled = said(opens, {"type": "TranscriptionFrame", "text": "hi", "context": "a"})
    assert labelled == {"contexts": {"a": opened}}


def test_a_run_that_is_asked_for_while_one_is_open_counts_too():
    assert said(RUN, RUN, {"type": "LLMSetToolsFrame", "tools": [TOOL]}, RUN)["runs_after"] == [0, 1, 3]


def test_a_frame_that_cannot_be_decoded_changes_nothing_and_keeps_its_index():
    broken = [{"type": "LLMTextFrame"}, {"no": "type"}, {"type": "TextFrame", "text": 7}, {"type": 3}]
    assert said(*broken, RUN)["runs_after"] == [4]


def test_a_type_that_nobody_knows_changes_nothing():
    assert said({"type": "VendorMoodFrame", "mood": 1}, RUN) == said(RUN) | {"runs_after": [1]}


def test_silence_is_no_frame_and_keeps_its_index():
    assert said({"type": "Elapse", "seconds": 30}, RUN, {"type": "Elapse", "seconds": 1})["runs_after"] == [1]


def test_what_speaks_to_the_player_is_no_part_of_a_frame():
    spoken = {"type": "TranscriptionFrame", "text": "hi", "at": "assistant", "queued": True}
    assert said(spoken) == {"messages": [USER], "tools": None, "tool_choice": None, "runs_after": [0]}


def test_frames_that_are_equal_and_have_no_id_are_two_frames():
    append = {"type": "LLMMessagesAppendFrame", "messages": [USER]}
    assert said(append, append)["messages"] == [USER, USER]


def test_labelled_frames_are_conversations_of_their_own_with_the_indexes_of_the_whole_list():
    outcome = said(
        {"type": "TranscriptionFrame", "text": "one", "context": "a"},
        {"type": "TranscriptionFrame", "text": "two", "context": "b"},
        {"type": "LLMFullResponseStartFrame", "context": "b"},
        {"type": "LLMTextFrame", "text": "for b", "context": "b"},
        {"type": "LLMFullResponseEndFrame", "context": "a"},
        {"type": "LLMFullResponseEndFrame", "context": "b"},
        {"type": "LLMRunFrame", "context": "a"},
        initial={"messages": [USER]},
    )
    one, two = {"role": "user", "content": "one"}, {"role": "user", "content": "two"}
    answer = {"role": "assistant", "content": "for b"}
    assert outcome == {
        "contexts": {
            "a": {"messages": [USER, one], "tools": None, "tool_choice": None, "runs_after": [0, 6]},
            "b": {"messages": [USER, two, answer], "tools": None, "tool_choice": None, "runs_after": [1]},
        }
    }


def test_the_initial_context_announces_nothing_and_asks_for_nothing():
    initial = {"messages": [USER], "tools": [TOOL], "tool_choice": "auto"}
    outcome = said(initial=initial, config={"add_tool_change_messages": True})
    assert outcome == {**initial, "runs_after": []}


def test_messages_come_after_those_of_the_initial_context():
    append = {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": "more"}]}
    assert [message["content"] for message in said(append, initial={"messages": [USER]})["messages"]] == [
        "hi",
        "more",
    ]


@pytest.mark.parametrize(
    ("config", "announced"), [({"add_tool_change_messages": True}, 1), ({}, 0), (None, 0)]
)
def test_a_setting_of_the_config_is_on_before_the_first_frame(config, announced):
    outcome = said({"type": "LLMSetToolsFrame", "tools": [TOOL]}, config=config)
    assert len(outcome["messages"]) == announced
    assert outcome["tools"] == [TOOL]


def test_no_tools_is_null_however_it_was_said():
    assert said({"type": "LLMSetToolsFrame", "tools": None}, initial={"tools": [TOOL]})["tools"] is None
    assert said({"type": "LLMSetToolsFrame", "tools": []}, initial={"tools": [TOOL]})["tools"] is None
