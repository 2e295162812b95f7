"""A child process of a test: its messages, signals to it, and its end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import psutil
from tests.bounds import ON_SERVERS
from tests.support.polling import pause

CONTEXT = multiprocessing.get_context("forkserver")
"""Children are forked from an idle process that has imported the modules of `preload`, so they start at once."""

_preloaded: list[str] = []


def preload(module: str) -> None:
    """Let the fork server import a module. For modules whose functions run in processes."""
    _preloaded.append(module)
    CONTEXT.set_forkserver_preload([*_preloaded, "tests.support.frozen_imports"])


def children_with(parent: psutil.Process, argument: str) -> list[psutil.Process]:
    """Returns the children of a process that were started with this argument. A child that has ended has no arguments:
    it may be a zombie until its parent reaps it."""
    found = []
    for child in parent.children():
        with suppress(psutil.NoSuchProcess):
            if argument in child.cmdline():
                found.append(child)
    return found


class Process:
    """A child process, which is killed at the end of its `with` block."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        """Run `target` with these arguments, followed by a connection on which it sends messages."""
        self._name = target.__module__.removeprefix("tests.support.")
        self._heard, said = CONTEXT.Pipe(duplex=False)
        self._process = CONTEXT.Process(target=target, args=(*arguments, said))
        self._process.start()
        said.close()
        self.pid: int = self._process.pid or 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def hear(self) -> Any:
        """Wait for the next message."""
        assert self._heard.poll(ON_SERVERS), f"the process of {self._name} says nothing"
        return self._heard.recv()

    def frozen(self) -> None:
        """Wait until it has sent itself SIGSTOP."""
        process, until = psutil.Process(self.pid), time.monotonic() + ON_SERVERS
        while (status := process.status()) != psutil.STATUS_STOPPED:
            assert time.monotonic() < until, f"the process of {self._name} is {status}"
            pause()

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def ended(self, *what: object) -> int:
        """Wait for its end. Returns its exit code, which is negative for a signal. `what` is part of the error message
        if it does not end."""
        self._process.join(ON_SERVERS)
        assert self._process.exitcode is not None, (f"the process of {self._name} does not end", *what)
        return self._process.exitcode

    def stop(self) -> int:
        """Stop it by SIGTERM, as `frameledger down` does. Returns its exit code."""
        if self.is_alive():
            self.send(signal.SIGTERM)
        return self.ended()

    def kill(self) -> None:
        """Kill it in any state, and wait for its end."""
        self._process.kill()
        self._process.join()


def reaching(
    point: str | None, number: signal.Signals, say: Callable[[str], None] = lambda _: None
) -> Callable[[str], None]:
    """Returns a function that a process calls with the name of each point: at `point` it reports that, and sends itself
    the signal, once."""
    left = [point]

    def reach(name: str) -> None:
        if left == [name]:
            left.clear()
            say(name)
            os.kill(os.getpid(), number)

    return reach
