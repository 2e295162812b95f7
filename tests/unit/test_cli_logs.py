"""`frameledger logs`: the printed lines of files that grow, are rotated or are truncated."""

import json
from unittest import mock

import pytest
from typer.testing import CliRunner

from frameledger_services.cli import application
from frameledger_services.cli.up import logs
from frameledger_services.cli.up.logs import LogFile
from frameledger_services.embedded import program

FIRST = b"one\ntwo\nthree\n"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "logs"
    made.mkdir()
    (made / "kafka.log").write_bytes(FIRST)
    (made / "projector.log").write_bytes(b"began\n\x1b[2Jclear\tit\n")
    return made


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("FRAMELEDGER_DATA_DIR", str(tmp_path))
    return lambda *words: CliRunner().invoke(application(), ["logs", *words])


def test_it_prints_the_last_lines_of_each_process_or_of_those_that_are_named(folder, run):
    found = [json.loads(line) for line in run("-n", "2", "--json").stdout.splitlines()]
    assert [(one["process"], one["line"]) for one in found] == [
        ("kafka", "two"),
        ("kafka", "three"),
        ("projector", "began"),
        ("projector", "\x1b[2Jclear\tit"),
    ]
    page = run("projector").stdout
    assert "kafka" not in page
    assert "\x1b" not in page
    assert page.splitlines()[0].split() == ["projector", "began"]


def test_a_process_that_has_no_log_is_an_error_that_names_those_that_have(folder, run):
    result = run("projecter")
    assert result.exit_code == 1
    assert "kafka, projector" in result.stderr


@pytest.mark.parametrize("words", [[], ["projector"]])
def test_where_nothing_ever_ran_it_says_how_to_start_it(run, words):
    result = run(*words)
    assert result.exit_code == 1
    assert "frameledger up" in result.stderr


def test_only_the_end_of_a_long_log_is_read(folder, monkeypatch):
    monkeypatch.setattr(logs, "READ", 10)
    file = LogFile(folder / "kafka.log")
    assert file.last(20) == ["three"]
    assert file.more() == []


def test_lines_that_are_written_later_come_once_they_are_whole(folder):
    path = folder / "kafka.log"
    file = LogFile(path)
    assert file.last(1) == ["three"]
    with path.open("ab", buffering=0) as growing:
        growing.write(b"fo")
        assert file.more() == []
        growing.write(b"ur\nfive\n")
    assert file.more() == ["four", "five"]


@pytest.mark.parametrize("how", ["set aside", "truncated", "removed"])
def test_a_log_that_begins_anew_is_read_from_its_start(folder, how):
    path = folder / "kafka.log"
    file = LogFile(path)
    file.last(0)
    if how == "set aside":
        path.rename(path.with_suffix(".log.1"))
    elif how == "removed":
        path.unlink()
        assert file.more() == []
    path.write_bytes(b"anew\n")
    assert file.more() == ["anew"]


@pytest.mark.regression("journey 75")
@pytest.mark.parametrize("how", ["set aside", "copied and emptied"])
@pytest.mark.parametrize("grown", [b"", b"x" * 1_000 + b"\n"], ids=["shorter", "longer than before"])
def test_no_line_is_missed_when_a_log_is_rotated_while_it_is_followed(folder, how, grown):
    path = folder / "kafka.log"
    file = LogFile(path)
    assert file.last(1) == ["three"]
    with path.open("ab", buffering=0) as growing:
        growing.write(b"four\nfi")
        assert file.more() == ["four"]
        growing.write(b"ve\nsix\n")
        if how == "set aside":
            path.rename(program.rotated(path))
            path.write_bytes(b"")
        else:
            with mock.patch.object(program, "LARGEST_LOG", 1):
                assert program.empty_large_log(path)
    with path.open("ab", buffering=0) as growing:
        growing.write(b"seven\n" + grown)
    assert file.more() == ["five", "six", "seven", *grown.decode().split()]
    assert file.more() == []


@pytest.mark.regression("fault 275")
@pytest.mark.parametrize(("options", "code"), [([], 130), (["--follow"], 0)], ids=["a part", "--follow"])
def test_ctrl_c_before_everything_is_printed_is_no_success(folder, run, monkeypatch, options, code):
    monkeypatch.setattr(LogFile, "last", mock.Mock(side_effect=KeyboardInterrupt))
    assert run(*options).exit_code == code
