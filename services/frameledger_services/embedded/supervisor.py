"""Keeps programs running: starts them, waits until they are ready, restarts those that end, and stops them in order.

A program that ends is restarted after a pause that doubles from half a second to half a minute; after a minute of
running it is half a second again. A start that fails, for example on a full disk, is retried in the same way. Only the
failure of a first start is an error: nothing depends on the program yet, and the user sees the message.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from frameledger_services.embedded import forked
from frameledger_services.embedded.directory import Claim
from frameledger_services.embedded.program import (
    EmbeddedError,
    Program,
    cause,
    empty_large_log,
    failed,
    open_log,
)
from frameledger_services.embedded.record import Process, State, birth_of, start_time

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
CALM_AFTER = 60.0
POLL = 0.05


class Started(Protocol):
    """A started or forked process."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...

    def send_signal(self, number: int, /) -> None: ...

    def kill(self) -> None: ...


class Supervisor:
    """Runs programs. Calls `on_change` with the state of all programs at every change; it must not block.

    Its tasks belong to one task group. After the group is cancelled, the caller must call `stop_all`; no program is
    running when that returns. Programs that may be forked are forked from `fork_server`, if there is one. Once `claim`
    is lost, nothing is started or swept any more: the files at the same path are those of others.
    """

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        on_change: Callable[[Sequence[Process]], None],
        fork_server: forked.ForkServer | None = None,
        claim: Claim | None = None,
    ) -> None:
        self._tasks = tasks
        self._claim = claim
        self._on_change = on_change
        self._fork_server = fork_server
        self._processes: dict[str, Process] = {}
        self._running: dict[str, tuple[Program, Started]] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._log_began: dict[str, int] = {}
        """Offset in its log at which the current process of each program starts."""

    @property
    def processes(self) -> tuple[Process, ...]:
        """The state of all programs, in the order in which they were announced."""
        return tuple(self._processes.values())

    def announce(self, *names: str) -> None:
        """Show programs that will be started later."""
        for name in names:
            self._set(name)

    def say(self, name: str, word: str) -> None:
        """Show the current step for a program that is not running yet."""
        self._set(name, state=State.STARTING, word=word)

    def show_external(self, name: str, address: str) -> None:
        """Show an external server."""
        self._set(name, state=State.EXTERNAL, address=address)

    async def run_once(self, program: Program) -> None:
        """Run a program until it ends. Raises `EmbeddedError` if it fails or takes longer than `ready_within`."""
        try:
            process = await self._start(program)
        except OSError as error:
            raise _cannot_start(program, error) from error
        try:
            async with asyncio.timeout(program.ready_within):
                code = await process.wait()
        except TimeoutError:
            failure = self._failed(program, f"took longer than {program.ready_within:.0f} s")
            await self._stop(program, process)
            raise failure from None
        self._running.pop(program.name, None)
        if code != 0:
            self._set(program.name, state=State.STOPPED, pid=None)
            raise self._failed(program, f"ended with exit code {code}")
        self._set(program.name, state=State.DONE, pid=None)

    async def keep(self, *programs: Program) -> None:
        """Start programs concurrently, return when all are ready, and keep them running from then on.

        Raises `EmbeddedError` if one does not become ready.
        """
        started = [asyncio.Event() for _ in programs]
        self._keepers += [
            self._tasks.create_task(self._keep(program, ready))
            for program, ready in zip(programs, started, strict=True)
        ]
        for ready in started:
            await ready.wait()

    async def bound_logs(self) -> None:
        """Rotate the logs of running programs that have become large. One that cannot be, such as on a full disk, is
        tried again by the next call."""
        for program, _ in list(self._running.values()):
            with suppress(OSError):
                if await asyncio.to_thread(empty_large_log, program.log):
                    # From now on all of its content is from the current process.
                    self._log_began[program.name] = 0

    async def stop_all(self) -> None:
        """Stop all programs in reverse order of announcement. None is running when this returns."""
        if self._claim is not None and not self._claim.is_held():
            # At once, also before the services that use it: another `up` may begin at the same path any moment.
            for program, process in self._running.values():
                if program.opens_by_path and process.returncode is None:
                    process.kill()
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for name in reversed(self._processes):
            if name in self._running:
                await self._stop(*self._running[name])

    async def _keep(self, program: Program, ready: asyncio.Event) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                what, detail = await self._life(program, ready)
            except OSError as error:
                if not ready.is_set():
                    raise _cannot_start(program, error) from error
                what, detail = "cannot be started", str(error)
            if time.monotonic() - began > CALM_AFTER:
                pause = FIRST_PAUSE
            word = f"{what}; restarting in {pause:.1f} s" + (f" ({detail})" if detail else "")
            restarts = self._processes[program.name].restarts + 1
            self._set(program.name, state=State.BACKING_OFF, pid=None, word=word, restarts=restarts)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _life(self, program: Program, ready: asyncio.Event) -> tuple[str, str]:
        """Run a program from start to end. Returns how it ended, and the cause that its log gives, if any. None of its
        processes is left. Raises `EmbeddedError` if its first start fails."""
        process = await self._start(program)
        is_ready = program.is_back if program.is_back and ready.is_set() else program.is_ready
        what = await self._until_ready(program, process, is_ready)
        if what is None:
            self._set(program.name, state=State.RUNNING, word=program.note)
            ready.set()
            what = f"ended with {_end_description(await process.wait())}"
        if not ready.is_set():
            # Before it is stopped: what it logs then is not the cause.
            failure = self._failed(program, what)
            await self._stop(program, process)
            raise failure
        await self._end(program, process)
        # A killed process logs no cause.
        died = (process.returncode or 0) > 0
        return what, cause(program.log, self._log_began[program.name]) if died else ""

    async def _start(self, program: Program) -> Started:
        if self._claim is not None:
            self._claim.require()
        await asyncio.to_thread(program.sweep)
        with open_log(program.log) as log:
            self._log_began[program.name] = log.tell()
            process = await self._forked(program) or await _executed(program, log)
        self._running[program.name] = program, process
        self._set(
            program.name,
            state=State.STARTING,
            word="",
            pid=process.pid,
            started=start_time(process.pid),
            born=birth_of(process.pid),
            address=program.address,
            metrics=program.metrics,
            own_directory=program.directory if program.owns_directory else None,
            executable=Path(program.argv[0]).name if program.owns_directory else "",
        )
        return process

    async def _forked(self, program: Program) -> Started | None:
        """Returns a forked process of the program, or None if it must be started."""
        if not program.may_be_forked or self._fork_server is None:
            return None
        return await forked.start(self._fork_server, program)

    async def _until_ready(
        self, program: Program, process: Started, is_ready: Callable[[], bool]
    ) -> str | None:
        """Returns None when the program is ready, otherwise the problem."""
        deadline = time.monotonic() + program.ready_within
        while not await asyncio.to_thread(is_ready):
            if process.returncode is not None:
                return f"ended with {_end_description(process.returncode)} before it was ready"
            if time.monotonic() > deadline:
                return f"is not ready after {program.ready_within:.0f} s"
            await asyncio.sleep(POLL)
        return None

    async def _stop(self, program: Program, process: Started) -> None:
        if process.returncode is None:
            self._set(program.name, state=State.STOPPING, word="")
        await self._end(program, process)
        self._set(program.name, state=State.STOPPED, pid=None)

    async def _end(self, program: Program, process: Started) -> None:
        """Stop the process, and kill it after a timeout. It has ended when this returns."""
        if process.returncode is None:
            process.send_signal(program.stop_signal)
            try:
                async with asyncio.timeout(program.stop_within):
                    await process.wait()
            except TimeoutError:
                # It may have ended just now, and asyncio would raise then.
                if process.returncode is None:
                    process.kill()
                await process.wait()
        self._running.pop(program.name, None)
        if self._claim is None or self._claim.is_held():
            await asyncio.to_thread(program.sweep)

    def _failed(self, program: Program, what: str) -> EmbeddedError:
        return failed(program.name, what, program.log, self._log_began[program.name])

    def _set(self, name: str, **changes: object) -> None:
        before = self._processes.get(name) or Process(name=name)
        self._processes[name] = before.model_copy(update=changes)
        self._on_change(self.processes)


async def _executed(program: Program, log: BinaryIO) -> Started:
    return await asyncio.create_subprocess_exec(
        *program.command(),
        cwd=program.directory,
        env={**os.environ, **program.environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        # Ctrl-C in the terminal must not reach it.
        start_new_session=True,
    )


def _cannot_start(program: Program, error: OSError) -> EmbeddedError:
    return EmbeddedError(
        f"{program.name} cannot be started: {error}.", "Check permissions and resources, then try again."
    )


def _end_description(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
