"""A file that a command writes is complete under its name, or the previous one stays."""

import errno
import fcntl
import json
import os
import signal
from pathlib import Path

import pytest
import typer
from tests.support.processes import Process

from frameledger_services.cli.rerun import report
from frameledger_services.cli.terminal.whole_file import whole_file
from frameledger_services.forks.summary import Summary


def test_a_file_has_its_name_when_it_is_whole(tmp_path):
    path = tmp_path / "heads.jsonl"
    path.write_bytes(b"old")
    with whole_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError(), typer.Exit(1), TimeoutError(), KeyboardInterrupt()])
def test_an_error_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "heads.jsonl"
    path.write_bytes(b"old")
    with pytest.raises(type(error)), whole_file(path):
        raise error
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_that_cannot_be_written_ends_the_command(tmp_path, capsys):
    (tmp_path / "file").touch()
    with pytest.raises(typer.Exit), whole_file(tmp_path / "file" / "heads.jsonl"):
        pass
    assert "cannot be written: Not a directory." in capsys.readouterr().err


@pytest.mark.regression("journey 34")
@pytest.mark.parametrize("name", ["", "/", "there"])
def test_a_folder_is_no_file_to_write_and_that_is_said_before_the_work(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    Path("there").mkdir()
    with pytest.raises(typer.Exit), whole_file(Path(name)):
        pytest.fail("the block ran")
    assert "cannot be written: it is a folder" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["there"]


@pytest.mark.regression("journey 36")
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["pipe", "link"])
def test_a_pipe_or_a_device_is_written_and_not_replaced(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with whole_file(tmp_path / name) as file:
            file.write(b"heads")
        assert os.read(reader, 100) == b"heads"
    finally:
        os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link", "pipe"]


@pytest.mark.regression("journey 36")
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_report_of_reruns_goes_into_a_pipe_and_not_into_its_place(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with report.writing(tmp_path / "pipe") as written:
            written.end(Summary())
        assert json.loads(os.read(reader, 10_000))["runs"] == []
    finally:
        os.close(reader)
    assert [one.name for one in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.regression("journey 36")
def test_a_report_of_reruns_is_not_written_to_a_folder(tmp_path, capsys):
    with pytest.raises(typer.Exit), report.writing(tmp_path):
        pytest.fail("the block ran")
    assert "it is a folder" in capsys.readouterr().err


@pytest.mark.regression("journey 36")
def test_a_link_goes_on_to_lead_to_the_file_that_is_written(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "heads.jsonl").symlink_to(Path("data") / "heads.jsonl")
    for content in (b"old", b"new"):
        with whole_file(tmp_path / "heads.jsonl") as file:
            file.write(content)
    assert (tmp_path / "heads.jsonl").is_symlink()
    assert [(one.name, one.read_bytes()) for one in (tmp_path / "data").iterdir()] == [
        ("heads.jsonl", b"new")
    ]


@pytest.mark.regression("fault 236")
def test_a_link_goes_on_to_lead_to_the_report_of_reruns_that_is_written(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "report.json").symlink_to(Path("data") / "report.json")
    for _ in ("new", "written again"):
        with report.writing(tmp_path / "report.json") as written:
            written.end(Summary())
        assert json.loads((tmp_path / "data" / "report.json").read_text())["runs"] == []
    assert (tmp_path / "report.json").is_symlink()
    assert [one.name for one in (tmp_path / "data").iterdir()] == ["report.json"]


@pytest.mark.regression("fault 263")
def test_a_report_that_two_commands_write_at_once_is_whole_after_each(tmp_path):
    path = tmp_path / "report.json"
    first, second = report.writing(path), report.writing(path)
    with second as longer:
        longer.add({"version": 1})
        with first as shorter:
            shorter.end(Summary())
        assert json.loads(path.read_text())["runs"] == []
        longer.end(Summary())
    assert json.loads(path.read_text())["runs"] == [{"version": 1}]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.regression("fault 291")
def test_a_report_of_reruns_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append((path.exists(), os.fstat(file).st_size)))
    with report.writing(path) as written:
        written.end(Summary())
    assert synced == [(False, path.stat().st_size)]


@pytest.mark.regression("fault 238")
def test_a_file_that_two_commands_write_at_once_is_whole_after_each(tmp_path):
    path = tmp_path / "heads.jsonl"
    first, second = whole_file(path), whole_file(path)
    with second as longer:
        with first as shorter:
            shorter.write(b"shorter")
            longer.write(b"longer, and still being written")
        assert path.read_bytes() == b"shorter"
    assert path.read_bytes() == b"longer, and still being written"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.regression("fault 342")
def test_what_a_killed_command_left_of_a_file_is_deleted_by_the_next_that_writes_it(tmp_path):
    path = tmp_path / "heads.jsonl"
    with Process(_begin_and_die, path) as process:
        assert process.ended() == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    others = [tmp_path / name for name in ("all.jsonl.0123abcd.partial", "heads.jsonl.mine.partial")]
    for other in others:
        other.touch()
    with whole_file(path):
        assert not left.exists()
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])


def _begin_and_die(path, _):
    with whole_file(path):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.regression("fault 342")
def test_a_file_that_is_deleted_before_it_is_locked_is_created_again(tmp_path, monkeypatch):
    """Another command has taken it for what a killed one left."""
    lock, deleted = fcntl.flock, list[Path]()

    def late(file, operation):
        if not deleted:
            deleted.extend(tmp_path.iterdir())
            deleted[0].unlink()
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with whole_file(tmp_path / "heads.jsonl") as file:
        file.write(b"heads")
    assert deleted
    assert (tmp_path / "heads.jsonl").read_bytes() == b"heads"


@pytest.mark.regression("fault 342")
def test_a_file_system_without_locks_is_written_and_nothing_is_deleted(tmp_path, monkeypatch):
    left = tmp_path / "heads.jsonl.0123abcd.partial"
    left.touch()

    def refused(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with whole_file(tmp_path / "heads.jsonl") as file:
        file.write(b"heads")
    assert left.exists()
    assert (tmp_path / "heads.jsonl").read_bytes() == b"heads"


def test_without_a_path_it_is_standard_output(capsysbinary):
    with whole_file(None) as file:
        file.write(b"heads")
    assert capsysbinary.readouterr().out == b"heads"
