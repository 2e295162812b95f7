"""What `frameledger up` runs: the embedded servers, then the setup commands, then the services."""

import asyncio
import json
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from frameledger_services import data_directory, exception_groups, logs
from frameledger_services.embedded import class_archive, java, kafka, postgres
from frameledger_services.embedded.command_programs import Command, CommandPrograms
from frameledger_services.embedded.directory import Claim, claimed
from frameledger_services.embedded.forked import ForkServer
from frameledger_services.embedded.leftovers import end_leftovers
from frameledger_services.embedded.program import EmbeddedError, Program, empty_large_log, own_log
from frameledger_services.embedded.record import (
    Phase,
    Process,
    Record,
    birth_of,
    remove_record,
    start_time,
    write_record,
)
from frameledger_services.embedded.supervisor import Supervisor
from frameledger_services.settings import Settings
from frameledger_services.settings_masking import masked
from frameledger_services.settings_sources import running_file

LOOK_EVERY = 1.0
"""Seconds between two checks of the data directory and its logs."""

T = TypeVar("T")

_log = logs.get_logger("up")


async def up(
    settings: Settings,
    *,
    setup: Sequence[Command] = (),
    services: Sequence[Command] = (),
    on_change: Callable[[Record], None] = lambda _: None,
    fork_server: ForkServer | None = None,
) -> None:
    """Run everything until this task is cancelled, and then stop everything; no process is left when it returns.

    `setup` runs once, in order, when the servers that it needs are ready; `services` are kept running from then on.
    Both are forked from `fork_server`, if there is one. Every change is written to the data directory's record and
    passed to `on_change`. Raises `EmbeddedError` if the start fails; the record then has the reason. Raises it too,
    after stopping everything, if the data directory is deleted or moved.
    """
    directory = settings.directory
    with claimed(directory) as claim:
        # Not in a thread, which would continue without the lock after a cancellation.
        end_leftovers(directory)
        stack = _Stack(settings, claim, on_change)
        try:
            async with asyncio.TaskGroup() as tasks:
                await stack.run(Supervisor(tasks, stack.changed, fork_server, claim), setup, services)
        except ExceptionGroup as group:
            # Whatever fails without the directory fails because of that.
            error = _expected(group) if claim.is_held() else claim.lost()
            stack.failed(error)
            raise error from None
        except asyncio.CancelledError:
            # A clean stop.
            if claim.is_held():
                remove_record(directory)
            raise


def _expected(group: ExceptionGroup[Exception]) -> EmbeddedError:
    """Returns the error to report of a group. Raises the group if it has a bug."""
    expected, bugs = group.split(EmbeddedError)
    if expected is None or bugs is not None:
        raise group
    # The others are consequences of the first error, or the same.
    error = exception_groups.first(expected)
    assert isinstance(error, EmbeddedError)
    return error


class _Stack:
    """One execution of `up`: its phase, and the steps of its start."""

    def __init__(self, settings: Settings, claim: Claim, on_change: Callable[[Record], None]) -> None:
        self._settings = settings
        self._claim = claim
        self._directory = claim.directory
        self._on_change = on_change
        pid = os.getpid()
        self._record = Record(pid=pid, started=start_time(pid), born=birth_of(pid), phase=Phase.STARTING)
        self._ended = threading.Event()
        self._making: list[asyncio.Task[object]] = []
        """The work in threads, which cannot be cancelled."""

        self._environment: dict[str, str] = {}
        self._programs = CommandPrograms(settings, claim.directory, self._environment)
        self._archive: tuple[Program, Path, Path] | None = None
        """Arguments for creating the broker's class archive, if it should be created now."""

        self._unwritten: OSError | None = None
        """The error of the last write of the record; None if it succeeded."""

    async def run(
        self, supervisor: Supervisor, setup: Sequence[Command], services: Sequence[Command]
    ) -> None:
        supervisor.announce("postgres", "kafka", *(command.name for command in (*setup, *services)))
        try:
            # Until the task is cancelled, or a program fails.
            async with asyncio.TaskGroup() as beside:
                beside.create_task(self._look_after(supervisor))
                await self._start_all(supervisor, setup, services)
                if self._archive is not None:
                    beside.create_task(_tried(self._archive))
        finally:
            self._ended.set()
            if self._claim.is_held():
                running_file(self._directory).unlink(missing_ok=True)
                data_directory.forget(self._directory)
            self._say(phase=Phase.STOPPING)
            await supervisor.stop_all()
            # They write into the directory, which is locked until this returns.
            await asyncio.gather(*self._making, return_exceptions=True)

    async def _start_all(
        self, supervisor: Supervisor, setup: Sequence[Command], services: Sequence[Command]
    ) -> None:
        # Kafka takes by far the longest to start: what does not need it runs meanwhile.
        async with asyncio.TaskGroup() as starting:
            starting.create_task(self._start(supervisor, self._kafka))
            await self._start(supervisor, self._postgres)
            for command in setup:
                if command.before_kafka:
                    await supervisor.run_once(self._programs.program(command))
        self._write_addresses()
        for command in setup:
            if not command.before_kafka:
                await supervisor.run_once(self._programs.program(command))
        await supervisor.keep(*(self._programs.program(command) for command in services))
        self._say(phase=Phase.READY)

    async def _look_after(self, supervisor: Supervisor) -> None:
        """Check the data directory and its logs until this task is cancelled. Raises `EmbeddedError` once it is
        lost."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self._claim.require()
            if self._unwritten is not None:
                self._say()
            await supervisor.bound_logs()
            # Our own, if we run in the background.
            with suppress(OSError):
                await asyncio.to_thread(empty_large_log, own_log(self._directory))

    def changed(self, processes: Sequence[Process]) -> None:
        self._say(processes=tuple(processes))

    def failed(self, error: EmbeddedError) -> None:
        self._say(phase=Phase.FAILED, problem=error.problem, remedy=error.remedy)

    async def _start(
        self, supervisor: Supervisor, prepare: Callable[[Supervisor], Awaitable[Program | None]]
    ) -> None:
        """Start a server unless it is external. It is ready when this returns."""
        program = await prepare(supervisor)
        if program is not None:
            await supervisor.keep(program)

    async def _postgres(self, supervisor: Supervisor) -> Program | None:
        if self._settings.database_url is not None:
            address = masked("database_url", self._settings.database_url) or ""
            supervisor.show_external("postgres", address)
            return None
        port = self._programs.port("postgres", self._settings.postgres_port, postgres.PREFERRED_PORT)
        supervisor.say("postgres", "creating its files")
        server = await self._made(partial(postgres.prepare, self._directory, port))
        self._environment["database_url"] = server.dsn
        return server.program

    async def _kafka(self, supervisor: Supervisor) -> Program | None:
        settings = self._settings
        if settings.kafka_bootstrap_servers is not None:
            supervisor.show_external("kafka", settings.kafka_bootstrap_servers)
            return None
        port = self._programs.port("kafka", settings.kafka_port, kafka.PREFERRED_PORT)
        loop = asyncio.get_running_loop()

        def say(word: str) -> None:
            if self._ended.is_set():
                raise EmbeddedError("The start was interrupted.", "Start again: finished downloads are kept.")
            loop.call_soon_threadsafe(supervisor.say, "kafka", f"fetching {word}")

        def prepare() -> kafka.KafkaServer:
            if settings.kafka_home is not None:
                software = java.installed(settings.kafka_home, java=settings.java)
            else:
                software = java.packaged(
                    java=settings.java,
                    cache=settings.cache_dir,
                    repository=settings.maven_repository,
                    say=say,
                )
            loop.call_soon_threadsafe(supervisor.say, "kafka", "creating its files")
            return kafka.prepare(self._directory, port, software=software, is_reused=True)

        supervisor.say("kafka", "checking its jars")
        server = await self._made(prepare)
        self._archive = server.archive
        self._environment["kafka_bootstrap_servers"] = server.bootstrap_servers
        if settings.topic_partitions is None:
            self._environment["topic_partitions"] = str(kafka.PARTITIONS)
        return server.program

    async def _made(self, make: Callable[[], T]) -> T:
        """Returns the result of `make`, called in a thread whose end `run` waits for."""
        making = asyncio.create_task(asyncio.to_thread(make))
        self._making.append(making)
        return await asyncio.shield(making)

    def _write_addresses(self) -> None:
        """Write the addresses with which commands in this folder find the servers without a setting."""
        file = running_file(self._directory)
        unfinished = file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self._environment), encoding="utf-8")
        unfinished.replace(file)
        data_directory.remember(self._directory)

    def _say(self, **changes: object) -> None:
        """Write the record and call `on_change`. A failed write, for example on a full disk, is logged and retried, so
        that it does not end the supervisor and its programs."""
        self._record = self._record.model_copy(update=changes)
        try:
            if self._claim.is_held():
                write_record(self._directory, self._record)
            self._unwritten = None
        except OSError as error:
            if self._unwritten is None:
                # A log handler that cannot write either raises nothing.
                _log.error("up.record_not_written", path=str(self._directory), reason=str(error))
            self._unwritten = error
        # Its output may go to a log on the same disk.
        with suppress(OSError):
            self._on_change(self._record)


async def _tried(archive: tuple[Program, Path, Path]) -> None:
    """Create the archive. Errors of the operating system are ignored, because everything works without it."""
    with suppress(OSError):
        await class_archive.make(*archive)
