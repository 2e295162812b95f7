"""The supervisor's client of the fork server: it requests processes and waits for them like for any other."""

import asyncio
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from frameledger_services.embedded import fork_server
from frameledger_services.embedded.program import Program

ANSWERS_WITHIN = 60.0
"""Timeout in seconds. The first answer waits for the imports."""


class _GoneError(Exception):
    """The fork server does not answer."""


class ForkServer:
    """A running fork server. Methods block and are thread-safe."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self._pid = pid
        self._link = link
        self._one_at_a_time = threading.Lock()
        self._is_there = True
        self._has_forked = False

    def fork(self, program: Program) -> int | None:
        """Fork a process for a program that may be forked. Returns its pid, or None if the fork server does not answer.
        Raises `OSError` if the fork fails."""
        request = {
            "argv": program.argv,
            "directory": str(program.directory),
            "log": str(program.log),
            "environment": dict(program.environment),
        }
        self._has_forked = True
        try:
            answer = self._ask({"fork": request})
        except _GoneError:
            return None
        if "error" in answer:
            raise OSError(answer["errno"], answer["error"])
        return int(answer["pid"])

    def reap(self, pid: int) -> int:
        """Returns the exit code of a program that has ended, negative for a signal."""
        try:
            return int(self._ask({"reap": pid})["status"])
        except _GoneError:
            # The fork server is gone; the kernel sent this signal to its children when it ended.
            return -signal.SIGTERM

    def close(self) -> None:
        """End the fork server and the processes that it forked."""
        if self._has_forked:
            with suppress(_GoneError):
                self._ask({"end": True})
        if self._is_there:
            self._end()
        self._link.close()

    def _end(self) -> None:
        """Kill the fork server after a timeout, so that it does not fork a program that was started in another way."""
        self._is_there = False
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def _ask(self, what: dict[str, Any]) -> dict[str, Any]:
        with self._one_at_a_time:
            if not self._is_there:
                raise _GoneError
            try:
                self._link.send(json.dumps(what).encode())
                message = self._link.recv(fork_server.MAX_MESSAGE_BYTES)
                if not message:
                    raise ConnectionError
            except OSError as error:
                self._end()
                raise _GoneError from error
        answer: dict[str, Any] = json.loads(message)
        return answer


@contextmanager
def forking(modules: Sequence[str]) -> Iterator[ForkServer | None]:
    """Yields a fork server that imports these modules, or None where forking is not possible.

    Enter it before anything is started that a fork must not continue: an event loop, a thread, a trace. In each forked
    process, `BecomeCommand` is raised instead of entering the block.
    """
    if not fork_server.can_fork():
        yield None
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    this = os.getpid()
    fork_server.flush()
    pid = os.fork()
    if pid == 0:
        ours.close()
        fork_server.serve(theirs, this, modules)
    theirs.close()
    ours.settimeout(ANSWERS_WITHIN)
    server = ForkServer(pid, ours)
    try:
        yield server
    finally:
        server.close()


class Forked:
    """A forked process with the interface of `asyncio.subprocess.Process` that the supervisor uses."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid
        self.returncode: int | None = None
        self._ending = asyncio.get_running_loop().create_task(self._end())

    async def wait(self) -> int:
        """Wait for the process to end. Returns its exit code."""
        return await asyncio.shield(self._ending)

    def send_signal(self, number: int) -> None:
        # Its pid is not reused until it is reaped.
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def _end(self) -> int:
        await _end_of(self.pid)
        self.returncode = await asyncio.to_thread(self._server.reap, self.pid)
        return self.returncode


async def start(server: ForkServer, program: Program) -> Forked | None:
    """Fork a program like `ForkServer.fork`. Call it in the event loop that waits for the process."""
    pid = await asyncio.to_thread(server.fork, program)
    return None if pid is None else Forked(server, pid)


async def _end_of(pid: int) -> None:
    """Wait for a process to end. It need not be a child of this one."""
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(file, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(file)
        os.close(file)
