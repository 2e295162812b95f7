"""The servers of the demo, either those of a running `frameledger up` or its own, and its inference and function
services, which are always its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from frameledger_services.database_types import Connection
from frameledger_services.embedded import command_programs, stack
from frameledger_services.embedded.directory import is_claimed, working_directory
from frameledger_services.embedded.forked import ForkServer
from frameledger_services.embedded.program import EmbeddedError, Program, failed
from frameledger_services.embedded.record import Phase, Process, Record, read_record
from frameledger_services.embedded.supervisor import Supervisor
from frameledger_services.settings import PREFIX, Settings
from frameledger_services.settings_sources import read_running

WORKERS_WITHIN = 60.0
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Servers:
    """Running servers and services. `ours`: whether they stop when the demo ends."""

    settings: Settings
    record: Record
    ours: bool


@asynccontextmanager
async def servers(
    settings: Settings,
    *,
    setup: Sequence[command_programs.Command],
    services: Sequence[command_programs.Command],
    on_change: Callable[[Sequence[Process]], None],
    fork_server: ForkServer | None,
) -> AsyncIterator[Servers]:
    """Yields running servers and these services, which stop at the end of the block. Uses an `up` that is already
    running, and does not stop it.

    `settings` are those without the addresses of a running `up`; those in `Servers` have them. Raises `EmbeddedError`,
    alone or in a group.
    """
    directory = settings.directory
    if is_claimed(directory):
        record = read_record(directory)
        if record is None or record.phase is not Phase.READY:
            raise EmbeddedError(
                f"`frameledger up` is just starting or stopping in {directory}.",
                "Try again when `frameledger status` shows that all or none of its processes run.",
            )
        yield Servers(_with_addresses(settings), record, ours=False)
        return

    ready: asyncio.Future[Record] = asyncio.get_running_loop().create_future()

    def changed(record: Record) -> None:
        on_change(record.processes)
        if record.phase is Phase.READY and not ready.done():
            ready.set_result(record)

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(
            stack.up(settings, setup=setup, services=services, on_change=changed, fork_server=fork_server),
            name="up",
        )
        record = await ready
        try:
            yield Servers(_with_addresses(settings), record, ours=True)
        finally:
            running.cancel()


@asynccontextmanager
async def answering(
    used: Servers,
    commands: Mapping[str, Sequence[str]],
    connection: Connection,
    on_change: Callable[[Sequence[Process]], None],
    fork_server: ForkServer | None,
) -> AsyncIterator[Callable[[str], int]]:
    """Run workers during the block, each in its own process, from the commands by service name. They are registered
    when the block starts. Yields a function that kills the worker of a service with SIGKILL and returns its pid; the
    worker is restarted.

    Raises `EmbeddedError`, alone or in a group.
    """
    directory = used.settings.directory
    environment = {f"{PREFIX}{name.upper()}": value for name, value in read_running(directory).items()}
    # The demo does not use the provider configured for `up`.
    environment |= {f"{PREFIX}DATA_DIR": str(directory), f"{PREFIX}INFERENCE_PROVIDER": ""}
    logs = directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    programs = {
        service: Program(
            name=f"demo-{words[1]}",
            argv=(sys.executable, "-m", "frameledger_services", *words),
            directory=working_directory(directory),
            log=logs / f"demo-{words[1]}.log",
            environment=environment,
            may_be_forked=True,
        )
        for service, words in commands.items()
    }

    def kill(service: str) -> int:
        [pid] = [one.pid for one in supervisor.processes if one.name == programs[service].name]
        assert pid is not None, "it runs, so it has one"
        os.kill(pid, signal.SIGKILL)
        return pid

    async with asyncio.TaskGroup() as tasks:
        supervisor = Supervisor(tasks, on_change, fork_server)
        try:
            await supervisor.keep(*programs.values())
            await _until_they_registered(connection, programs)
            yield kill
        finally:
            await supervisor.stop_all()


async def _until_they_registered(connection: Connection, programs: Mapping[str, Program]) -> None:
    missing = set(programs)
    try:
        async with asyncio.timeout(WORKERS_WITHIN):
            while missing:
                registered = await (await connection.execute("SELECT service FROM live_workers()")).fetchall()
                missing = set(programs) - {service for (service,) in registered}
                if missing:
                    await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        program = programs[min(missing)]
        raise failed(program.name, f"did not register within {WORKERS_WITHIN:.0f} s", program.log) from None


def _with_addresses(settings: Settings) -> Settings:
    addresses = {
        name: value
        for name, value in read_running(settings.data_dir).items()
        if getattr(settings, name, "") is None
    }
    return Settings.model_validate({**settings.model_dump(), **addresses})
