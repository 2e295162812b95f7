"""Which data directory is used, and the errors if there is none."""

import os
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.data_directories import running_in
from typer.testing import CliRunner

from frameledger_services import access, data_directory
from frameledger_services.cli import application
from frameledger_services.cli.terminal import output
from frameledger_services.embedded.directory import working_directory
from frameledger_services.functions import app_module
from frameledger_services.functions.app_module import ModuleError
from frameledger_services.settings import Settings, SettingsError
from frameledger_services.settings_sources import load, running_file

pytestmark = pytest.mark.regression("journey 11")


def made(folder):
    """A data directory in this folder."""
    run = folder / ".frameledger" / "run"
    run.mkdir(parents=True)
    return run.parent


@contextmanager
def held(directory):
    """As by an `up` that runs in it, of which other folders are told."""
    with running_in(directory):
        data_directory.remember(directory)
        yield


@pytest.fixture(autouse=True)
def state_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_the_data_directory_is_looked_for_upwards_as_git_looks_for_its_own(tmp_path, monkeypatch):
    directory = made(tmp_path)
    addresses = {"kafka_bootstrap_servers": "127.0.0.1:1", "database_url": "dbname=embedded"}
    examples = tmp_path / "infra" / "examples"
    examples.mkdir(parents=True)

    monkeypatch.chdir(examples)
    with running_in(directory, addresses):
        loaded = load({})
    assert loaded.settings.kafka_bootstrap_servers == "127.0.0.1:1"
    assert loaded.settings.data_dir == directory
    assert loaded.sources["data_dir"] == f"found in {tmp_path}"
    # Also for what starts, stops and shows a stack.
    assert load({}, look_for_running=False).settings.data_dir == directory

    made(examples)
    assert load({}).settings.data_dir == Path(".frameledger")
    elsewhere = str(tmp_path / "elsewhere")
    assert load({"FRAMELEDGER_DATA_DIR": elsewhere}).settings.data_dir == Path(elsewhere)


def test_a_folder_of_that_name_that_is_no_data_directory_or_somebody_elses_is_passed_over(
    tmp_path, monkeypatch
):
    directory = made(tmp_path)
    below = tmp_path / "below"
    (below / ".frameledger").mkdir(parents=True)
    assert data_directory.nearest(below) == directory
    monkeypatch.setattr(os, "getuid", lambda: directory.stat().st_uid + 1)
    assert data_directory.nearest(below) is None


def test_who_finds_no_broker_is_told_where_one_runs(tmp_path, monkeypatch):
    directory, quiet = made(tmp_path / "project"), made(tmp_path / "quiet")
    data_directory.remember(quiet)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with held(directory), pytest.raises(SettingsError) as caught:
        access.kafka_options(load({}).settings)
    assert f"One is running in {directory.parent}: to use it, set FRAMELEDGER_DATA_DIR={directory}" in str(
        caught.value
    )
    assert str(quiet) not in str(caught.value)
    with pytest.raises(SettingsError) as caught:
        access.database_address(load({}).settings)
    assert "One runs" not in str(caught.value)


@pytest.mark.regression("fault 327")
def test_another_command_that_removes_the_note_of_a_killed_up_hides_no_other_up(tmp_path):
    """Notes are read while other commands remove and write them."""
    directory = made(tmp_path)
    with held(directory):
        [note] = data_directory._notes().iterdir()
        # In the list, and gone when it is read.
        note.with_name("0").symlink_to("removed")
        assert data_directory.running() == [directory]
        # A note is empty for a moment before it is written.
        half_written = note.with_name("1")
        half_written.touch()
        assert data_directory.running() == [directory]
        assert half_written.exists()


DELETED = (
    "The data directory .frameledger is relative to the working directory, which was deleted. Change to another "
    "folder, or set FRAMELEDGER_DATA_DIR to an absolute path."
)


@pytest.fixture
def deleted(tmp_path, monkeypatch):
    """A working directory that was deleted."""
    folder = tmp_path / "deleted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()


@pytest.mark.regression("journey 71")
@pytest.mark.parametrize("command", ["up", "down", "status", "logs", "top", "doctor", "demo"])
@pytest.mark.usefixtures("deleted")
def test_a_command_in_a_deleted_directory_says_so(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(output, "WIDTH_OF_A_FILE", 300)
    result = CliRunner().invoke(application(), [command])
    assert (result.exit_code, type(result.exception)) == (1, SystemExit)
    assert DELETED in result.output


@pytest.mark.regression("journey 71")
@pytest.mark.usefixtures("deleted")
def test_a_data_directory_with_a_whole_path_needs_no_working_directory(tmp_path):
    result = CliRunner().invoke(application(), ["down", "--data-dir", str(tmp_path / "none")])
    assert result.output == f"Nothing is running: the folder {tmp_path / 'none'} does not exist.\n"
    assert working_directory(tmp_path) == tmp_path


@pytest.mark.regression("journey 71")
@pytest.mark.usefixtures("deleted")
def test_functions_in_a_deleted_directory_can_still_be_those_of_an_installed_module():
    with pytest.raises(ModuleError, match="nor in the working directory, which was deleted"):
        app_module.load("no_such_tools")


@pytest.mark.regression("journey 70")
@pytest.mark.skipif(sys.platform == "darwin", reason="every name of a file there is UTF-8")
def test_a_data_directory_whose_path_is_not_utf8_is_refused_before_anything_is_made(tmp_path):
    folder = tmp_path / os.fsdecode(b"b\xe4d")
    result = CliRunner().invoke(application(), ["up"], env={"FRAMELEDGER_DATA_DIR": str(folder)})
    assert result.exit_code == 1
    assert "is not UTF-8.\nUse another data directory" in result.output
    assert not folder.exists()


# Red without the second finding on Python 3.13 and newer.
@pytest.mark.regression("journey 71", "journey 113")
def test_a_data_directory_that_links_to_itself_has_no_path(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(SettingsError, match="is a link that leads back to itself"):
        _ = Settings(data_dir=tmp_path / "loop").directory


def test_what_was_stopped_is_forgotten_and_what_was_killed_too(tmp_path):
    stopped, killed, runs = (made(tmp_path / name) for name in ("stopped", "killed", "runs"))
    with held(stopped), held(runs):
        with held(killed):
            assert set(data_directory.running()) == {stopped, killed, runs}
        data_directory.forget(stopped)
        data_directory.forget(stopped)
        assert data_directory.running() == [runs]
    assert data_directory.running() == []


@pytest.mark.regression("journey 90")
def test_the_addresses_that_a_killed_up_left_are_those_of_nobody(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    addresses = {"kafka_bootstrap_servers": "127.0.0.1:1", "database_url": "dbname=embedded"}
    with running_in(tmp_path / ".frameledger", addresses):
        assert load({}).settings.kafka_bootstrap_servers == "127.0.0.1:1"
    assert running_file(tmp_path / ".frameledger").exists()
    loaded = load({})
    assert (loaded.settings.kafka_bootstrap_servers, loaded.settings.database_url) == (None, None)
    assert loaded.sources["kafka_bootstrap_servers"] == "default"
    with pytest.raises(SettingsError, match="frameledger up"):
        access.kafka_options(loaded.settings)


def test_nothing_is_said_where_nothing_can_be_noted(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    data_directory.remember(made(tmp_path))
    assert data_directory.running() == []
