"""The supervisor's side of the fork server: it is asked for a process, which is then waited for as for any other."""

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
"""Seconds, of which the first answer waits for the imports."""


class _GoneError(Exception):
    """It does not answer, and nothing can be forked any more."""


class ForkServer:
    """A fork server that runs. Its calls block; they may come from several threads."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self._pid = pid
        self._link = link
        self._one_at_a_time = threading.Lock()
        self._is_there = True
        self._has_forked = False

    def fork(self, program: Program) -> int | None:
        """Start a program, which may be forked. Returns its pid, None if nobody is there to fork it. Raises `OSError`
        if the machine does not let it."""
        asked = {
            "argv": program.argv,
            "directory": str(program.directory),
            "log": str(program.log),
            "environment": dict(program.environment),
        }
        self._has_forked = True
        try:
            answer = self._ask({"fork": asked})
        except _GoneError:
            return None
        if "error" in answer:
            raise OSError(answer["errno"], answer["error"])
        return int(answer["pid"])

    def reap(self, pid: int) -> int:
        """Returns the exit code of a program that has ended, below zero for a signal."""
        try:
            return int(self._ask({"reap": pid})["status"])
        except _GoneError:
            # Nobody was there to be told. The kernel sent it this when the fork server died.
            return -signal.SIGTERM

    def close(self) -> None:
        """End it, and whatever of it still runs."""
        if self._has_forked:
            with suppress(_GoneError):
                self._ask({"end": True})
        if self._is_there:
            self._end()
        self._link.close()

    def _end(self) -> None:
        """One that answers too late must not do any more what it was asked for, which another way has done since."""
        self._is_there = False
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def _ask(self, what: dict[str, Any]) -> dict[str, Any]:
        with self._one_at_a_time:
            if not self._is_there:
                raise _GoneError
            try:
                self._link.send(json.dumps(what).encode())
                said = self._link.recv(fork_server.MOST)
                if not said:
                    raise ConnectionError
            except OSError as error:
                self._end()
                raise _GoneError from error
        answer: dict[str, Any] = json.loads(said)
        return answer


@contextmanager
def forking(modules: Sequence[str]) -> Iterator[ForkServer | None]:
    """A fork server for as long as the block lasts, which has imported these modules; None where there can be none.

    To be entered before anything has begun that a copy of this process must not go on with: an event loop, a thread, a
    trace. In each program that is forked the block is not entered: `BecomeCommand` is raised instead.
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
    """A process that was forked for us, with what the supervisor uses of `asyncio.subprocess.Process`."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid
        self.returncode: int | None = None
        self._ending = asyncio.get_running_loop().create_task(self._end())

    async def wait(self) -> int:
        """Returns the exit code when it has ended."""
        return await asyncio.shield(self._ending)

    def send_signal(self, number: int) -> None:
        # Its number is its own until it is reaped.
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def _end(self) -> int:
        await _end_of(self.pid)
        self.returncode = await asyncio.to_thread(self._server.reap, self.pid)
        return self.returncode


async def start(server: ForkServer, program: Program) -> Forked | None:
    """Have a program forked, as `ForkServer.fork`. Only from the event loop in which the process is waited for."""
    pid = await asyncio.to_thread(server.fork, program)
    return None if pid is None else Forked(server, pid)


async def _end_of(pid: int) -> None:
    """Returns when a process, which need be no child of ours, has ended."""
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
