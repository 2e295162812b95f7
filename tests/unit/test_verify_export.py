"""`frameledger verify` of a file that `export` wrote: without any server."""

import json
import os
import tracemalloc
from pathlib import Path

import pytest
from typer.testing import CliRunner

from frameledger.chain import first_link
from frameledger_services.cli import application
from frameledger_services.transfer.lines import MAX_LINE

EXPORTED = Path(__file__).resolve().parents[2] / "infra" / "examples" / "barge-in.jsonl"


def verify(*words):
    return CliRunner().invoke(application(), ["verify", *map(str, words)])


def test_an_exported_file_verifies_and_names_its_heads():
    head = json.loads(EXPORTED.read_bytes().splitlines()[0])
    result = verify(EXPORTED)
    assert result.exit_code == 0, result.output
    assert "Verified 1 conversation: 22 frames." in result.output
    assert head["chain"] in result.output
    told = json.loads(verify(EXPORTED, "--json").stdout)
    assert told["conversations"] == [{name: head[name] for name in ("context_id", "version", "chain")}]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [(b"harbour", b"harbor ", 2), (b'"version":7', b'"version":8', 8)],
    ids=["a word", "a version"],
)
def test_a_changed_byte_is_found_in_its_line(old, new, line, tmp_path):
    changed = tmp_path / "changed.jsonl"
    changed.write_bytes(EXPORTED.read_bytes().replace(old, new, 1))
    result = verify(changed)
    assert result.exit_code == 1
    assert f"line {line}:" in result.output


def test_a_file_that_ends_early_is_refused(tmp_path):
    short = tmp_path / "short.jsonl"
    short.write_bytes(b"".join(EXPORTED.read_bytes().splitlines(keepends=True)[:-1]))
    assert verify(short).exit_code == 1


@pytest.mark.regression("fault 235")
def test_of_a_line_that_is_too_long_no_more_is_read_than_shows_that(tmp_path):
    endless = tmp_path / "endless.jsonl"
    endless.write_bytes(EXPORTED.read_bytes().splitlines(keepends=True)[0])
    # What is behind the header takes no room on the disk.
    os.truncate(endless, 5 * MAX_LINE)
    tracemalloc.start()
    try:
        result = verify(endless)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.exit_code == 1
    assert "line 2: it is longer than any line of an export" in result.output
    assert peak < 4 * MAX_LINE


@pytest.mark.regression("journey 59")
def test_a_file_that_has_a_conversation_twice_is_refused(tmp_path):
    twice = tmp_path / "twice.jsonl"
    twice.write_bytes(EXPORTED.read_bytes() * 2)
    result = verify(twice)
    assert result.exit_code == 1
    assert "line 24: 'barge-in' occurs twice in this file" in result.output


def test_an_exported_file_names_no_root():
    result = verify(EXPORTED, "--root", first_link("ctx-1").hex())
    assert result.exit_code == 2
    assert "has no root" in result.output
