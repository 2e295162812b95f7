"""`up` on a full disk: unwritten state is kept in memory, and its processes recover when there is space again."""

import asyncio
import errno
import os
import signal

import pytest
from pydantic import SecretStr
from tests.bounds import ON_SERVERS

from frameledger_services.cli.doctor import servers
from frameledger_services.embedded import command_programs, stack
from frameledger_services.embedded import supervisor as supervision
from frameledger_services.embedded.record import Phase, State, read_record
from frameledger_services.settings import Settings

pytestmark = pytest.mark.regression("journey 14")
NOBODY = "127.0.0.1:1"


class Told:
    """Receives the changes that `up` reports. Raises like a log on the full disk if `disk_is_full`."""

    def __init__(self):
        self.disk_is_full = False
        self.record = None
        self._changed = asyncio.Event()

    def __call__(self, record):
        self.record = record
        self._changed.set()
        if self.disk_is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def until(self, condition):
        while self.record is None or not condition():
            self._changed.clear()
            await self._changed.wait()


def test_the_supervisor_survives_and_writes_down_what_happened_when_there_is_room(tmp_path, monkeypatch):
    monkeypatch.setattr(supervision, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(stack, "LOOK_EVERY", 0.05)
    settings = Settings(
        data_dir=tmp_path,
        kafka_bootstrap_servers=NOBODY,
        database_url=SecretStr(f"postgresql://nobody@{NOBODY}/nothing"),
    )
    # The temporary file of the record: a folder in its place lets the write fail.
    unfinished = tmp_path / "run" / "processes.unfinished"

    def service():
        return told.record.processes[-1]

    async def life():
        command = command_programs.Command("timekeeper", ("run", "timekeeper"))
        running = asyncio.create_task(stack.up(settings, services=[command], on_change=told))
        await told.until(lambda: told.record.phase is Phase.READY)
        unfinished.mkdir()
        told.disk_is_full = True
        os.kill(service().pid, signal.SIGKILL)
        await told.until(lambda: service().restarts == 1 and service().state is State.RUNNING)
        assert read_record(tmp_path).processes[-1].restarts == 0
        unfinished.rmdir()
        await told.until(lambda: read_record(tmp_path) == told.record)
        assert read_record(tmp_path).processes[-1].restarts == 1
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()

    async def in_time():
        async with asyncio.timeout(ON_SERVERS):
            await life()

    told = Told()
    asyncio.run(in_time())


@pytest.mark.parametrize(("bound", "state"), [(None, "ok"), ("LOW_SPACE", "warn"), ("MIN_SPACE", "fail")])
def test_doctor_looks_at_the_disk(tmp_path, monkeypatch, bound, state):
    if bound is not None:
        monkeypatch.setattr(servers, "LOW_SPACE", 2**80)
    if bound == "MIN_SPACE":
        monkeypatch.setattr(servers, "MIN_SPACE", 2**80)
    [finding] = servers.disk(Settings(data_dir=tmp_path))
    assert (finding.check, finding.state, bool(finding.remedy)) == ("disk", state, state != "ok")
    assert str(tmp_path) in finding.found


def test_doctor_says_nothing_of_a_disk_where_no_up_ever_ran(tmp_path):
    assert list(servers.disk(Settings(data_dir=tmp_path / "nothing"))) == []
