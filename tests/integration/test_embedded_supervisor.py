"""Supervision of processes that only run, die, or refuse to stop."""

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager

import psutil
import pytest
from tests.bounds import ON_SERVERS
from tests.support.polling import look_again, pause

from frameledger_services.embedded import program as programs
from frameledger_services.embedded import supervisor as supervision
from frameledger_services.embedded.program import EmbeddedError, Program, cause
from frameledger_services.embedded.record import Process, State
from frameledger_services.embedded.supervisor import Supervisor

LIVES = "import signal; signal.pause()"
DIES = "import sys; print('no schema'); sys.exit(3)"
DOES_NOT_STOP = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
)

SAYS_MUCH_WHEN_IT_IS_STOPPED = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit('bye\\n' * 20)); "
    "print('the cause', flush=True); signal.pause()"
)


@pytest.fixture
def program(tmp_path):
    def make(name, code=LIVES, **options):
        argv = (sys.executable, "-c", code)
        return Program(name=name, argv=argv, directory=tmp_path, log=tmp_path / f"{name}.log", **options)

    return make


def test_a_program_that_dies_is_started_again_with_a_word(program, monkeypatch):
    monkeypatch.setattr(supervision, "FIRST_PAUSE", 0.01)

    async def scenario():
        async with supervised() as (supervisor, seen):
            await supervisor.keep(program("service"))
            first = supervisor.processes[0].pid
            os.kill(first, signal.SIGKILL)
            await seen(lambda service: service.state is State.RUNNING and service.pid != first)
            return seen.words, supervisor.processes[0].restarts

    words, restarts = asyncio.run(scenario())
    assert "ended with signal 9; restarting in 0.0 s" in words
    assert restarts == 1


def test_the_pause_doubles_while_it_keeps_dying_and_its_last_words_are_shown(program, monkeypatch, tmp_path):
    monkeypatch.setattr(supervision, "FIRST_PAUSE", 0.1)
    good = tmp_path / "good"
    good.touch()
    code = f"import os, signal, sys; os.path.exists({str(good)!r}) or sys.exit('no schema'); signal.pause()"

    async def scenario():
        async with supervised() as (supervisor, seen):
            await supervisor.keep(program("service", code))
            # Killed first: the process may not have looked for the file yet, and would end otherwise without it.
            os.kill(supervisor.processes[0].pid, signal.SIGKILL)
            good.unlink()
            await seen(lambda service: service.restarts == 3)
            return seen.words

    words = asyncio.run(scenario())
    assert "ended with signal 9; restarting in 0.1 s" in words
    assert "ended with exit code 1; restarting in 0.2 s (no schema)" in words
    assert "ended with exit code 1; restarting in 0.4 s (no schema)" in words


@pytest.mark.regression("journey 14")
def test_the_line_that_says_why_is_shown_though_others_follow_it_and_none_of_an_earlier_life(
    program, monkeypatch, tmp_path
):
    monkeypatch.setattr(supervision, "FIRST_PAUSE", 0.01)
    (tmp_path / "service.log").write_text("PANIC: of an earlier life\n")
    good = tmp_path / "good"
    good.touch()
    code = (
        f"import os, signal, sys\nif os.path.exists({str(good)!r}): signal.pause()\n"
        "print('FATAL: could not write: No space left on device\\n"
        "FATAL:  the database system is shutting down\\nLOG: database system is shut down'); sys.exit(1)"
    )

    async def scenario():
        async with supervised() as (supervisor, seen):
            await supervisor.keep(program("service", code))
            os.kill(supervisor.processes[0].pid, signal.SIGKILL)
            await seen(lambda service: service.restarts == 1)
            await seen(lambda service: service.state is State.RUNNING)
            good.unlink()
            os.kill(supervisor.processes[0].pid, signal.SIGKILL)
            await seen(lambda service: service.restarts == 3)
            return seen.words

    words = asyncio.run(scenario())
    assert "ended with signal 9; restarting in 0.0 s" in words
    assert any(word.endswith("(FATAL: could not write: No space left on device)") for word in words)
    assert not any("earlier life" in word for word in words)


BROKER_ON_A_FULL_DISK = """\
2026-11-30T01:10:01.417 ERROR ProcessTerminatingFaultHandler Encountered fatal fault: caught exception
java.lang.InternalError: a fault occurred in an unsafe memory access operation
\tat java.base/jdk.internal.misc.Unsafe.getLongUnaligned(Unknown Source)
\tat org.apache.kafka.raft.internals.KafkaRaftLog.createLog(KafkaRaftLog.java:712)
\t... 12 more
\tat kafka.Kafka.main(Kafka.scala)
"""


@pytest.mark.regression("fault 315")
@pytest.mark.parametrize(
    ("logged", "shown"),
    [
        (
            BROKER_ON_A_FULL_DISK,
            "The disk is probably full: java.lang.InternalError: a fault occurred in an unsafe memory access operation",
        ),
        (
            "java.lang.IllegalStateException: no quorum\n\tat kafka.Kafka.main(Kafka.scala)\n\t... 2 more\n",
            "java.lang.IllegalStateException: no quorum",
        ),
        ("\tat kafka.Kafka.main(Kafka.scala)\n", ""),
    ],
)
def test_a_broker_that_ends_with_an_exception_is_shown_with_it_and_not_with_where_it_was_raised(
    logged, shown, tmp_path
):
    log = tmp_path / "kafka.log"
    log.write_text(logged, "utf-8")
    assert cause(log) == shown


@pytest.mark.regression("journey 14")
def test_one_that_is_started_again_is_not_ended_because_what_it_needs_is_away(program, monkeypatch, tmp_path):
    monkeypatch.setattr(supervision, "FIRST_PAUSE", 0.01)
    needed, listens = tmp_path / "needed", tmp_path / "listens"
    needed.touch()
    listens.touch()

    async def scenario():
        async with supervised() as (supervisor, seen):
            service = program("service", is_ready=needed.exists, is_back=listens.exists)
            await supervisor.keep(service)
            first = supervisor.processes[0].pid
            needed.unlink()
            listens.unlink()
            os.kill(first, signal.SIGKILL)
            await seen(lambda service: service.state is State.STARTING and service.pid != first)
            listens.touch()
            await seen(lambda service: service.state is State.RUNNING and service.pid != first)
            return supervisor.processes[0].restarts

    assert asyncio.run(scenario()) == 1


def test_a_program_that_the_machine_does_not_let_start_is_started_when_it_does(
    program, monkeypatch, tmp_path
):
    """Its log cannot be opened, as on a full disk."""
    monkeypatch.setattr(supervision, "FIRST_PAUSE", 0.01)
    log = tmp_path / "service.log"

    async def scenario():
        async with supervised() as (supervisor, seen):
            await supervisor.keep(program("service"))
            first = supervisor.processes[0].pid
            log.unlink()
            log.mkdir()
            os.kill(first, signal.SIGKILL)
            await seen(lambda service: service.restarts == 3)
            log.rmdir()
            await seen(lambda service: service.state is State.RUNNING and service.pid != first)
            return seen.words

    words = asyncio.run(scenario())
    assert any("cannot be started; restarting in" in word and "service.log" in word for word in words)


@pytest.mark.regression("fault 183")
@pytest.mark.parametrize("is_step", [False, True])
def test_a_program_that_the_machine_never_let_start_is_an_error(program, tmp_path, is_step):
    (tmp_path / "service.log").mkdir()

    async def scenario():
        async with supervised() as (supervisor, _):
            await (supervisor.run_once if is_step else supervisor.keep)(program("service"))

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(scenario())
    assert raised.group_contains(EmbeddedError, match="service cannot be started")


@pytest.mark.parametrize(
    ("code", "is_ready", "ready_within", "problem"),
    [
        (DIES, False, 20.0, "ended with exit code 3 before it was ready:\n  no schema"),
        (LIVES, False, 0.05, "is not ready after 0 s"),
    ],
)
def test_a_first_start_that_fails_is_an_error_and_leaves_nothing(
    program, code, is_ready, ready_within, problem
):
    started: list[int] = []

    async def scenario():
        async with supervised() as (supervisor, seen):
            seen.also(lambda processes: started.extend(process.pid for process in processes if process.pid))
            bad = program("bad", code, is_ready=lambda: is_ready, ready_within=ready_within)
            await supervisor.keep(program("good"), bad)

    with pytest.RaisesGroup(pytest.RaisesExc(EmbeddedError, match=f"bad {problem}")):
        asyncio.run(scenario())
    assert len(set(started)) == 2
    assert [pid for pid in started if psutil.pid_exists(pid)] == []


@pytest.mark.regression("journey 104")
def test_a_first_start_that_fails_is_told_with_what_was_logged_before_it_was_stopped(program, tmp_path):
    def is_ready():
        while "the cause" not in (tmp_path / "bad.log").read_text("ascii"):
            pause()
        return False

    async def scenario():
        async with supervised() as (supervisor, _):
            bad = program("bad", SAYS_MUCH_WHEN_IT_IS_STOPPED, is_ready=is_ready, ready_within=0.0)
            await supervisor.keep(bad)

    with pytest.RaisesGroup(pytest.RaisesExc(EmbeddedError, match="not ready after 0 s:\n  the cause\n")):
        asyncio.run(scenario())


def test_what_was_announced_last_is_stopped_first(program):
    stopped: list[str] = []

    async def scenario():
        async with supervised() as (supervisor, seen):
            seen.also(
                lambda processes: stopped.extend(
                    process.name for process in processes if process.state is State.STOPPED
                )
            )
            supervisor.announce("server", "service")
            await supervisor.keep(program("server"))
            await supervisor.keep(program("service"))

    asyncio.run(scenario())
    assert list(dict.fromkeys(stopped)) == ["service", "server"]


def test_what_does_not_stop_in_time_is_killed(program, tmp_path):
    deaf = program(
        "deaf",
        DOES_NOT_STOP,
        stop_within=0.1,
        is_ready=lambda: (tmp_path / "deaf.log").read_text("ascii") == "up\n",
    )

    async def scenario():
        async with supervised() as (supervisor, _):
            await supervisor.keep(deaf)
            return supervisor.processes[0].pid

    assert not psutil.pid_exists(asyncio.run(scenario()))


def test_a_step_that_fails_is_an_error_with_its_words_and_one_that_succeeds_is_done(program):
    async def scenario():
        async with supervised() as (supervisor, _):
            await supervisor.run_once(program("migrate", "pass"))
            done = supervisor.processes[0].state
            with pytest.raises(EmbeddedError, match="topics ended with exit code 3:\n  no schema"):
                await supervisor.run_once(program("topics", DIES))
            return done

    assert asyncio.run(scenario()) is State.DONE


@pytest.mark.regression("journey 119")
@pytest.mark.parametrize("is_step", [True, False])
def test_a_start_that_fails_is_told_without_what_earlier_starts_logged(program, tmp_path, is_step):
    (tmp_path / "bad.log").write_text("FATAL: No space left on device\n", "ascii")

    async def scenario():
        async with supervised() as (supervisor, _):
            bad = program("bad", DIES, is_ready=lambda: False)
            await (supervisor.run_once if is_step else supervisor.keep)(bad)

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(scenario())
    [error] = raised.value.exceptions
    assert error.problem.endswith(":\n  no schema\n")
    # The remedy is not that of an error of the earlier process either.
    assert error.remedy == f"Its full output is in {tmp_path / 'bad.log'}."


def test_a_step_that_hangs_is_an_error_and_is_ended(program):
    async def scenario():
        async with supervised() as (supervisor, _):
            with pytest.raises(EmbeddedError, match="took longer than 0 s"):
                await supervisor.run_once(program("migrate", ready_within=0.1))
            return supervisor.processes[0].state

    assert asyncio.run(scenario()) is State.STOPPED


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_a_program_ends_with_the_process_that_started_it(program, tmp_path):
    orphan = program("orphan")
    # A parent that starts it as we do and is then killed.
    parent = (
        "import os, subprocess, sys\n"
        f"child = subprocess.Popen([*{orphan.command()!r}[:4], f'--die-with={{os.getpid()}}', '--', "
        f"*{list(orphan.argv)!r}], stdout=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = psutil.Popen([sys.executable, "-c", parent], stdin=-1, stdout=-1)
    child = psutil.Process(int(process.stdout.readline()))
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs([child], timeout=ON_SERVERS)
    assert alive == []


WRITES = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
for number in range(1_000_000):
    print(number, "x" * 90, flush=True)
    if number % 100 == 99:
        signal.sigwait([signal.SIGUSR1])
    if number == 299:
        sys.exit("no schema")
"""
"""A program that writes ten thousand bytes at each signal, and fails at the third."""


@pytest.mark.regression("journey 75")
def test_a_log_that_becomes_large_is_copied_and_emptied_while_its_program_writes(program, monkeypatch):
    monkeypatch.setattr(supervision, "FIRST_PAUSE", 60.0)
    monkeypatch.setattr(programs, "LARGEST_LOG", 15_000)

    async def scenario():
        async with supervised() as (supervisor, seen):
            service = program("service", WRITES)

            async def written(line):
                async with asyncio.timeout(ON_SERVERS):
                    while f"{line} " not in service.log.read_text(encoding="ascii"):
                        await look_again()

            await supervisor.keep(service)
            await written(99)
            await supervisor.bound_logs()
            assert not programs.rotated(service.log).exists()
            os.kill(supervisor.processes[0].pid, signal.SIGUSR1)
            await written(199)
            await supervisor.bound_logs()
            assert service.log.read_bytes() == b""
            os.kill(supervisor.processes[0].pid, signal.SIGUSR1)
            await written(299)
            os.kill(supervisor.processes[0].pid, signal.SIGUSR1)
            await seen(lambda one: one.state is State.BACKING_OFF)
            return seen.words[-1], [numbers_in(path) for path in (programs.rotated(service.log), service.log)]

    word, numbers = asyncio.run(scenario())
    assert numbers == [list(range(200)), list(range(200, 300))]
    # The cause is found after the point where it began to write, although the log was emptied.
    assert "(no schema)" in word


def numbers_in(path):
    lines = path.read_text(encoding="ascii").splitlines()
    return [int(line.split()[0]) for line in lines if line != "no schema"]


class Seen:
    """The states that a supervisor reported, and a way to wait for one."""

    def __init__(self):
        self.words = []
        self._now: tuple[Process, ...] = ()
        self._changed = asyncio.Condition()
        self._listeners = []
        self._tasks = set()

    def __call__(self, wanted):
        return self._until(wanted)

    def also(self, listener):
        self._listeners.append(listener)

    def told(self, processes):
        self._now = processes
        self.words += [process.word for process in processes]
        for listener in self._listeners:
            listener(processes)
        task = asyncio.get_running_loop().create_task(self._notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self):
        async with self._changed:
            self._changed.notify_all()

    async def _until(self, wanted):
        async with asyncio.timeout(ON_SERVERS), self._changed:
            await self._changed.wait_for(lambda: any(wanted(process) for process in self._now))


@asynccontextmanager
async def supervised():
    seen = Seen()
    async with asyncio.TaskGroup() as tasks:
        supervisor = Supervisor(tasks, seen.told)
        try:
            yield supervisor, seen
        finally:
            await supervisor.stop_all()
