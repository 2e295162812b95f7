"""What `frameledger up` runs: the embedded servers, then the setup commands, then the services."""

import asyncio
import http
import http.client
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex

from frameledger_services import data_directory, exception_groups, logs
from frameledger_services.embedded import class_archive, java, kafka, ports, postgres
from frameledger_services.embedded.directory import claimed
from frameledger_services.embedded.forked import ForkServer
from frameledger_services.embedded.leftovers import end_leftovers
from frameledger_services.embedded.program import EmbeddedError, Program
from frameledger_services.embedded.record import (
    Phase,
    Process,
    Record,
    remove_record,
    start_time,
    write_record,
)
from frameledger_services.embedded.supervisor import Supervisor
from frameledger_services.settings import PREFIX, Settings
from frameledger_services.settings_masking import masked
from frameledger_services.settings_sources import running_file

READY_SECONDS = 2.0
"""Timeout of `/readyz` in seconds; it is requested again."""

WRITE_AGAIN = 1.0
"""Seconds until a failed write of the record is retried."""

LEAVE_SECONDS = 15.0
"""What a service needs to stop after it has drained: to settle its work, and to leave its group and the database."""

_log = logs.get_logger("up")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of our command line that `up` runs in its own process."""

    name: str
    arguments: tuple[str, ...]
    preferred_port: int | None = None
    """Its HTTP port: that of the setting `NAME_port`, else this one, else a free one. It is ready when it accepts
    connections."""

    metrics_port: int | None = None
    """Port of its `/metrics`, or else a free one. It is ready when its `/readyz` there reports so."""

    before_kafka: bool = False
    """Whether it needs only the database: then it runs while Kafka starts."""


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
    passed to `on_change`. Raises `EmbeddedError` if the start fails; the record then has the reason.
    """
    directory = settings.data_dir.resolve()
    with claimed(directory):
        await asyncio.to_thread(end_leftovers, directory)
        stack = _Stack(settings, directory, on_change)
        try:
            async with asyncio.TaskGroup() as tasks:
                await stack.run(Supervisor(tasks, stack.changed, fork_server), setup, services)
        except ExceptionGroup as group:
            expected, bugs = group.split(EmbeddedError)
            if expected is None or bugs is not None:
                raise
            # The others failed because of the first, or say the same.
            error = exception_groups.first(expected)
            assert isinstance(error, EmbeddedError)
            stack.failed(error)
            raise error from None
        except asyncio.CancelledError:
            # A clean stop.
            remove_record(directory)
            raise


def stop_secs(settings: Settings) -> float:
    """Returns how long a service may take to stop: one that is killed before leaves its work to the next start."""
    return (
        max(settings.work_drain_secs + settings.work_grace_secs, settings.gateway_drain_secs) + LEAVE_SECONDS
    )


class _Stack:
    """One execution of `up`: its phase, and the steps of its start."""

    def __init__(self, settings: Settings, directory: Path, on_change: Callable[[Record], None]) -> None:
        self._settings = settings
        self._directory = directory
        self._on_change = on_change
        self._record = Record(pid=os.getpid(), started=start_time(os.getpid()), phase=Phase.STARTING)
        self._ended = threading.Event()
        self._environment: dict[str, str] = {}
        self._archive: tuple[Program, Path, Path] | None = None
        """Arguments for creating the broker's class archive, if it should be created now."""

        self._unwritten: OSError | None = None
        """The error of the last write of the record; None if it succeeded."""

    async def run(
        self, supervisor: Supervisor, setup: Sequence[Command], services: Sequence[Command]
    ) -> None:
        supervisor.announce("postgres", "kafka", *(command.name for command in (*setup, *services)))
        try:
            # Kafka takes by far the longest to start: what does not need it runs meanwhile.
            async with asyncio.TaskGroup() as starting:
                starting.create_task(self._start(supervisor, self._kafka))
                await self._start(supervisor, self._postgres)
                for command in setup:
                    if command.before_kafka:
                        await supervisor.run_once(self._program(command))
            self._write_addresses()
            for command in setup:
                if not command.before_kafka:
                    await supervisor.run_once(self._program(command))
            await supervisor.keep(*(self._program(command) for command in services))
            self._say(phase=Phase.READY)
            # Until the task is cancelled, or a program fails.
            async with asyncio.TaskGroup() as beside:
                if self._archive is not None:
                    beside.create_task(_tried(self._archive))
                while True:
                    await asyncio.sleep(WRITE_AGAIN)
                    if self._unwritten is not None:
                        self._say()
        finally:
            self._ended.set()
            running_file(self._directory).unlink(missing_ok=True)
            data_directory.forget(self._directory)
            self._say(phase=Phase.STOPPING)
            await supervisor.stop_all()

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
        port = self._port("postgres", self._settings.postgres_port, postgres.PREFERRED_PORT)
        supervisor.say("postgres", "making its files")
        server = await asyncio.to_thread(postgres.prepare, self._directory, port)
        self._environment["database_url"] = server.dsn
        return server.program

    async def _kafka(self, supervisor: Supervisor) -> Program | None:
        settings = self._settings
        if settings.kafka_bootstrap_servers is not None:
            supervisor.show_external("kafka", settings.kafka_bootstrap_servers)
            return None
        port = self._port("kafka", settings.kafka_port, kafka.PREFERRED_PORT)
        loop = asyncio.get_running_loop()

        def say(word: str) -> None:
            if self._ended.is_set():
                raise EmbeddedError("The start was broken off.", "Start again: what was fetched is kept.")
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
            loop.call_soon_threadsafe(supervisor.say, "kafka", "making its files")
            return kafka.prepare(self._directory, port, software=software, learns=True)

        supervisor.say("kafka", "looking at its jars")
        server = await asyncio.to_thread(prepare)
        self._archive = server.archive
        self._environment["kafka_bootstrap_servers"] = server.bootstrap_servers
        if settings.topic_partitions is None:
            self._environment["topic_partitions"] = str(kafka.PARTITIONS)
        return server.program

    def _port(self, name: str, wanted: int | None, preferred: int) -> int:
        """Returns the configured port, or the previous one, so that clients configured with it keep working."""
        file = self._directory / "run" / f"{name}.port"
        if wanted is None:
            with suppress(OSError, ValueError):
                preferred = int(file.read_text(encoding="ascii"))
        setting = f"{PREFIX}{name.upper()}_PORT"
        port = ports.choose(wanted or preferred, explicit=wanted is not None, setting=setting)
        file.write_text(str(port), encoding="ascii")
        return port

    def _write_addresses(self) -> None:
        """Write the addresses with which commands in this folder find the servers without a setting."""
        file = running_file(self._directory)
        unfinished = file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self._environment), encoding="utf-8")
        unfinished.replace(file)
        data_directory.remember(self._directory)

    def _program(self, command: Command) -> Program:
        # A service has one process at a time, so a new one can take its predecessor's place in a consumer group.
        ours = {
            "projector_instance_id": self._settings.projector_instance_id or self._name(),
            "data_dir": str(self._directory),
            "metrics_host": ports.HOST,
        }
        address = None
        waited_for: list[Callable[[], bool]] = []
        listening: list[Callable[[], bool]] = []
        if command.preferred_port is not None:
            wanted = getattr(self._settings, f"{command.name}_port")
            port = self._port(command.name, wanted, command.preferred_port)
            ours[f"{command.name}_port"] = str(port)
            address = f"http://{ports.HOST}:{port}"
            listening.append(partial(ports.answers, port))
        metrics = None
        if command.metrics_port is not None:
            port = self._port(f"{command.name}_metrics", None, command.metrics_port)
            ours["metrics_port"] = str(port)
            metrics = f"http://{ports.HOST}:{port}/metrics"
            listening.append(partial(ports.answers, port))
            waited_for.append(partial(_reports_ready, port))
        return Program(
            name=command.name,
            argv=(sys.executable, "-m", "frameledger_services", *command.arguments),
            directory=Path.cwd(),
            log=self._directory / "logs" / f"{command.name}.log",
            environment={
                f"{PREFIX}{name.upper()}": value for name, value in (self._environment | ours).items()
            },
            address=address,
            metrics=metrics,
            # A service without an address is ready when it runs.
            is_ready=partial(_all, (*listening, *waited_for)),
            is_back=partial(_all, listening),
            may_be_forked=True,
            stop_within=stop_secs(self._settings),
        )

    def _name(self) -> str:
        """Returns a unique name for this directory in characters that Kafka accepts. It is generated once and stored,
        because machines may share a host name and a Kafka."""
        file = self._directory / "run" / "name"
        with suppress(OSError, ValueError):
            if name := file.read_text(encoding="ascii").strip():
                return name
        name = f"up-{token_hex(8)}"
        file.write_text(name, encoding="ascii")
        return name

    def _say(self, **changes: object) -> None:
        """Write the record and call `on_change`. A failed write, for example on a full disk, is logged and retried, so
        that it does not end the supervisor and its programs."""
        self._record = self._record.model_copy(update=changes)
        try:
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


def _all(questions: Sequence[Callable[[], bool]]) -> bool:
    return all(question() for question in questions)


def _reports_ready(port: int) -> bool:
    """Returns whether a service is ready, according to its `/readyz` at this port."""
    connection = http.client.HTTPConnection(ports.HOST, port, timeout=READY_SECONDS)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
