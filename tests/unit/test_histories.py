"""Recorded histories fold to their recorded contexts, however they are folded."""

import json
from dataclasses import replace

import pytest
from tests.histories import record

from frameledger import derived, stored
from frameledger.fold import Conversation, Folding, fold
from frameledger.frames import FRAME_TYPES, encode_frame
from frameledger.ids import ContextId, Version
from frameledger.record import decode
from frameledger_services.demo import recording

NAMES = record.names()


def frames(name):
    return [decode(value) for value in record.values(name)]


def test_there_are_histories_and_each_says_what_is_expected_of_it():
    assert len(NAMES) >= 14
    assert (
        sorted(path.name.removesuffix(".expected.json") for path in record.HISTORIES.glob("*.expected.json"))
        == NAMES
    )


def test_each_history_is_listed_in_the_readme():
    page = (record.HISTORIES / "README.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_history_refolds_to_what_was_recorded(name):
    assert record.outcome(name) == record.expected(name)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_written_frame_by_frame_is_the_history_at_the_end(name):
    rows: dict = {}
    expected = record.expected(name)
    for wrote in (one for frame in expected["frames"] for one in frame.get("wrote", [])):
        if "era" in wrote:
            rows = {}
        else:
            rows[wrote["at"]] = wrote["message"]
    assert [rows[at] for at in sorted(rows) if rows[at] is not None] == expected["messages"]


@pytest.mark.parametrize("name", NAMES)
def test_a_history_folds_the_same_when_its_state_is_stored_after_every_frame(name):
    told = frames(name)
    whole = fold(told, Conversation.new(name))
    conversation = Conversation.new(name)
    for frame in told:
        conversation = fold([frame], conversation)
        state = stored.load(stored.dump(conversation.state))
        conversation = replace(conversation, state=state)
    assert conversation == whole


@pytest.mark.parametrize("name", NAMES)
def test_a_history_folds_the_same_when_its_frames_are_written_anew(name):
    again = [decode(encode_frame(frame)) for frame in frames(name)]
    assert fold(again, Conversation.new(name)) == fold(frames(name), Conversation.new(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_history_delivered_twice_changes_nothing_the_second_time(name):
    told = [frame for frame in frames(name) if frame.id is not None]
    folding = Folding(fold(told, Conversation.new(name)))
    before = folding.conversation()
    assert [folding.step(frame) for frame in told] == [None] * len(told)
    assert folding.conversation() == before


@pytest.mark.parametrize("name", NAMES)
def test_the_run_ids_of_a_history_are_those_that_the_fold_derives(name):
    lines = [json.loads(value) for value in record.values(name)]
    named = {line["run_id"] for line in lines if line.get("run_id")}
    derivable = {derived.run_id(ContextId(name), Version(version)) for version in range(1, len(lines) + 1)}
    assert named <= derivable


def test_every_type_of_frame_and_every_outcome_of_the_fold_is_somewhere_in_a_history():
    told = {frame.type for name in NAMES for frame in frames(name)}
    # The demo is a recorded conversation too, and is folded and compared in each run of it.
    told |= {line.frame["type"] for line in (*recording.lines(), *recording.lines(recording.FORGOTTEN))}
    assert set(FRAME_TYPES) - told == set()
    became = {frame["outcome"] for name in NAMES for frame in record.expected(name)["frames"]}
    assert became == {"applied", "ignored", "unknown", "repetition"}


def test_recording_a_history_never_overwrites_one(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(record, "HISTORIES", tmp_path)
    (tmp_path / "short.jsonl").write_bytes(b'{"type":"LLMRunFrame"}\n')
    assert record.main(["short"]) == 0
    recorded = (tmp_path / "short.expected.json").read_bytes()
    assert record.expected("short") == record.outcome("short")
    assert record.expected("short")["frames"][0]["asked"] is True
    (tmp_path / "short.jsonl").write_bytes(b'{"type":"EndFrame"}\n')
    assert record.main(["short"]) == 1
    assert "never edited" in capsys.readouterr().err
    assert (tmp_path / "short.expected.json").read_bytes() == recorded


def test_recording_says_what_it_needs(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(record, "HISTORIES", tmp_path)
    assert (record.main([]), record.main(["nowhere"])) == (2, 1)
    assert "nowhere.jsonl" in capsys.readouterr().err
