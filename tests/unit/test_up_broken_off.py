"""An `up` that is interrupted while it starts, or starts after an earlier one was killed."""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest
from tests.bounds import IN_PROCESS
from tests.support.turns import turns
from typer.testing import CliRunner

from frameledger_services.cli import application
from frameledger_services.cli.demo import command as demo_command
from frameledger_services.cli.up import command, down
from frameledger_services.embedded import (
    detached,
    fork_server,
    java,
    kafka,
    postgres,
    record,
    stack,
    supervisor,
)
from frameledger_services.embedded.directory import is_claimed
from frameledger_services.embedded.program import EmbeddedError, Program
from frameledger_services.embedded.record import Phase, Record, State, read_record, write_record
from frameledger_services.embedded.supervisor import Supervisor
from frameledger_services.settings import Settings


class LongStep:
    """A step of the start that takes a while in its thread, and cannot be cancelled there."""

    def __init__(self):
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self, *_, **__):
        self.begun.set()
        assert self.may_end.wait(IN_PROCESS)


async def locked_while_it_goes_on(settings, step):
    """Break an `up` off during the step. Returns whether its directory was locked then."""
    up = asyncio.create_task(stack.up(settings))
    assert await asyncio.to_thread(step.begun.wait, IN_PROCESS)
    up.cancel()
    await turns()
    is_locked = is_claimed(settings.directory)
    step.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await up
    # What the thread has left to the loop.
    await asyncio.get_running_loop().shutdown_default_executor()
    await turns()
    return is_locked


SERVERS = {"kafka_bootstrap_servers": "127.0.0.1:1", "database_url": "dbname=external"}


@pytest.mark.regression("fault 323")
@pytest.mark.parametrize(
    ("module", "slow", "given"),
    [(postgres, "prepare", "kafka_bootstrap_servers"), (java, "installed", "database_url")],
)
def test_an_up_that_is_broken_off_locks_its_directory_until_nothing_of_it_is_made_and_leaves_no_record(
    module, slow, given, tmp_path, monkeypatch
):
    step = LongStep()
    monkeypatch.setattr(module, slow, step)
    monkeypatch.setattr(kafka, "prepare", lambda *_, **__: None)
    settings = Settings(data_dir=tmp_path, kafka_home=tmp_path, **{given: SERVERS[given]})
    assert asyncio.run(locked_while_it_goes_on(settings, step))
    assert read_record(tmp_path) is None
    assert not is_claimed(tmp_path)


@pytest.mark.regression("fault 323")
def test_leftovers_are_ended_before_an_up_can_be_broken_off(tmp_path, monkeypatch):
    threads = []
    monkeypatch.setattr(stack, "end_leftovers", lambda _: threads.append(threading.get_ident()))

    async def begin():
        up = asyncio.create_task(stack.up(Settings(data_dir=tmp_path, **SERVERS)))
        await turns()
        up.cancel()
        await asyncio.wait([up])

    asyncio.run(begin())
    assert threads == [threading.get_ident()]


class Child:
    """An `up` in the background that fails, with the pid of an earlier one."""

    pid = 7

    def __init__(self, directory):
        self._directory = directory
        self._looked = 0

    def ended(self):
        self._looked += 1
        if self._looked > 1:
            write_record(self._directory, Record(pid=7, started=2.0, phase=Phase.FAILED, problem="No Java."))

    def stop(self, within):
        pass


@pytest.mark.regression("fault 324")
def test_an_up_in_the_background_is_not_taken_for_the_killed_one_that_had_its_pid(
    tmp_path, monkeypatch, capsys
):
    """In a container that is started again, pids repeat."""
    (tmp_path / "run").mkdir()
    (tmp_path / "logs").mkdir()
    write_record(tmp_path, Record(pid=7, started=1.0, phase=Phase.READY))
    monkeypatch.setattr(detached, "detached", lambda words, log: Child(tmp_path))
    with pytest.raises(EmbeddedError, match="No Java"):
        command._start_detached(Settings(data_dir=tmp_path))
    assert "Everything is running" not in capsys.readouterr().out


@pytest.mark.regression("fault 273")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
@pytest.mark.parametrize("words", [["up"], ["demo"]], ids=" ".join)
def test_only_ctrl_c_ends_with_the_exit_code_of_interrupted_commands(
    tmp_path, monkeypatch, words, number, code
):
    async def goes_on(*_, **__):
        os.kill(os.getpid(), number)
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(fork_server, "can_fork", lambda: False)
    monkeypatch.setattr(stack, "up", goes_on)
    monkeypatch.setattr(demo_command, "perform", goes_on)
    result = CliRunner().invoke(application(), [*words, "--data-dir", str(tmp_path)])
    assert result.exit_code == code
    assert "Stopped before" in result.stderr


@pytest.mark.regression("fault 273")
def test_ctrl_c_while_an_up_in_the_background_starts_is_told_by_the_exit_code(tmp_path, monkeypatch):
    stopped = []

    class Interrupted:
        pid = 7

        def ended(self):
            raise KeyboardInterrupt

        def stop(self, within):
            stopped.append(within)

    monkeypatch.setattr(detached, "detached", lambda words, log: Interrupted())
    result = CliRunner().invoke(application(), ["up", "--detach", "--data-dir", str(tmp_path)])
    assert (result.exit_code, len(stopped)) == (130, 1)
    assert "Stopped before" in result.stderr


class EndsAtItsDeadline:
    """A process that ends just when it has been waited for long enough. A fake of asyncio's, which knows none then."""

    returncode: int | None = None

    def __init__(self):
        self.pid = os.getpid()
        self.signals = []

    def send_signal(self, number):
        self.signals.append(number)

    async def wait(self):
        if self.returncode is None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self.returncode = 0 if self.signals else None
        return self.returncode

    def kill(self):
        raise ProcessLookupError


@pytest.mark.regression("fault 325")
def test_a_program_that_ends_just_when_it_is_to_be_killed_keeps_no_other_one_running(tmp_path, monkeypatch):
    processes = []

    async def executed(*_):
        processes.append(EndsAtItsDeadline())
        return processes[-1]

    async def start_and_stop():
        async with asyncio.TaskGroup() as tasks:
            programs = Supervisor(tasks, lambda _: None)
            for name in ("server", "service"):
                one = Program(name, argv=("x",), directory=tmp_path, log=tmp_path / name, stop_within=0)
                await programs.keep(one)
            await programs.stop_all()
            return [process.state for process in programs.processes]

    monkeypatch.setattr(supervisor, "_executed", executed)
    assert asyncio.run(start_and_stop()) == [State.STOPPED, State.STOPPED]
    assert [len(process.signals) for process in processes] == [1, 1]


@pytest.mark.regression("fault 326")
def test_an_up_that_ends_by_itself_just_as_it_is_stopped_is_stopped(tmp_path, monkeypatch):
    with subprocess.Popen((sys.executable, "-c", "")) as up:
        found = [psutil.Process(up.pid)]
    (tmp_path / "run").mkdir()
    write_record(tmp_path, Record(pid=up.pid, started=1.0, phase=Phase.READY))
    monkeypatch.setattr(record, "find_process", lambda _: found.pop() if found else None)
    down._stop_supervisor(tmp_path, 0)
    assert found == []
