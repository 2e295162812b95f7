"""A data directory that is deleted or moved while `up` runs in it: nothing goes on without it, and what is at its path
by then is left alone."""

import asyncio
import shutil
import time
from pathlib import Path

import pytest
from pydantic import SecretStr
from tests.bounds import ON_SERVERS, PROGRAM
from tests.integration.test_embedded_full_disk import NOBODY, Told
from tests.integration.test_embedded_up import Folder, working
from tests.support.polling import pause

from frameledger_services.embedded import command_programs, directory, java, kafka, ports, postgres, stack
from frameledger_services.embedded.program import EmbeddedError
from frameledger_services.embedded.record import Phase, find_process
from frameledger_services.settings import Settings

pytestmark = pytest.mark.regression("journey 74")


def deleted(data):
    shutil.rmtree(data)


def moved(data):
    data.rename(data.with_name("moved"))


def taken_by_another(data):
    moved(data)
    with directory.claimed(data):
        (data / "run" / "processes.json").write_text("of another", encoding="ascii")
        (data / "run" / "running.json").write_text("of another", encoding="ascii")


@pytest.mark.parametrize("lose", [deleted, moved, taken_by_another])
def test_the_supervisor_stops_its_programs_and_touches_nothing_at_its_path(tmp_path, monkeypatch, lose):
    monkeypatch.setattr(stack, "LOOK_EVERY", 0.05)
    data, told = tmp_path / "data", Told()
    settings = Settings(
        data_dir=data,
        kafka_bootstrap_servers=NOBODY,
        database_url=SecretStr(f"postgresql://nobody@{NOBODY}/nothing"),
    )

    async def life():
        command = command_programs.Command("timekeeper", ("run", "timekeeper"))
        running = asyncio.create_task(stack.up(settings, services=[command], on_change=told))
        await told.until(lambda: told.record.phase is Phase.READY)
        service = told.record.processes[-1]
        lose(data)
        left = files_below(data)
        with pytest.raises(EmbeddedError, match="was deleted or moved"):
            await asyncio.wait_for(running, ON_SERVERS)
        assert told.record.phase is Phase.FAILED
        assert find_process(service) is None
        assert files_below(data) == left

    asyncio.run(life())


def files_below(data):
    return {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}


def test_a_directory_is_held_until_another_is_at_its_path(tmp_path):
    data = tmp_path / "data"
    with directory.claimed(data) as claim:
        assert claim.is_held()
        claim.require()
        moved(data)
        assert not claim.is_held()
        with directory.claimed(data) as another:
            assert (claim.is_held(), another.is_held()) == (False, True)


@pytest.mark.long
def test_everything_that_up_started_in_the_background_ends_and_it_starts_again(tmp_path):
    with working(tmp_path) as folder:
        assert folder.run("up", "--detach").returncode == 0
        data = tmp_path / ".frameledger"
        shutil.rmtree(data, ignore_errors=True)
        (data / "run" / "lock").unlink(missing_ok=True)
        deadline = time.monotonic() + PROGRAM
        while left := folder.living():
            assert time.monotonic() < deadline, left
            pause()
        # Remove what the broker wrote before the deletion was noticed; the next start would refuse it.
        shutil.rmtree(data, ignore_errors=True)
        again = folder.run("up", "--detach")
        assert again.returncode == 0, again.stderr


def test_in_the_foreground_it_ends_with_one_sentence(tmp_path):
    folder = Folder(
        tmp_path,
        FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS=NOBODY,
        FRAMELEDGER_DATABASE_URL=f"postgresql://nobody@{NOBODY}/nothing",
    )
    with folder.start("up") as up:
        deadline = time.monotonic() + PROGRAM
        while not (tmp_path / ".frameledger" / "run" / "processes.json").exists():
            assert time.monotonic() < deadline
            pause()
        shutil.rmtree(tmp_path / ".frameledger", ignore_errors=True)
        said, _ = up.communicate(timeout=PROGRAM)
    assert (up.returncode, folder.living()) == (1, [])
    assert "Traceback" not in said
    assert "was deleted or moved" in said


def test_an_incomplete_cluster_is_an_error_with_its_remedy(tmp_path):
    (tmp_path / "postgres" / "base").mkdir(parents=True)
    with pytest.raises(EmbeddedError, match="the file PG_VERSION is missing") as caught:
        postgres.prepare(tmp_path, ports.choose(0))
    assert "Delete that folder" in caught.value.remedy


def test_an_incomplete_folder_of_a_broker_is_an_error_with_its_remedy(tmp_path):
    (tmp_path / "kafka" / "data").mkdir(parents=True)
    software = java.Software(Path("/no/java"), (), "4.1.0")
    with pytest.raises(EmbeddedError, match="the file VERSION is missing") as caught:
        kafka.prepare(tmp_path, ports.choose(0), software=software)
    assert "backup" in caught.value.remedy
