"""Standard input (terminal, pipe or file), read by a thread for an event loop."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeVar

PIECE = 65_536

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Returns what `work` returns, which may wait for input. Unlike `asyncio.to_thread` it does not keep a command that
    is interrupted from ending."""
    done: futures.Future[T] = futures.Future()
    # From now on the thread may set its result, also if nobody waits for it any more.
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    # A daemon thread, because a blocking read cannot be stopped.
    threading.Thread(target=run, name="typed", daemon=True).start()
    return await asyncio.wrap_future(done)


def read_available() -> bytes:
    """Waits for input, and returns what there is; nothing at its end. It reads the descriptor, because at exit the
    interpreter locks `sys.stdin`, which a thread that still reads would hold."""
    try:
        file = sys.stdin.fileno()
    except io.UnsupportedOperation:
        # Text that this process was given in place of its input.
        buffer: Any = sys.stdin.buffer
        available: bytes = buffer.read1(PIECE)
        return available
    return os.read(file, PIECE)


def read_lines(file: int, tell: Callable[[str | None], None]) -> None:
    """Start reading: call `tell` in the running loop for each line of this file descriptor, and with None at its end.

    Returns at once. A terminal delivers a line when the user finishes it.
    """
    loop = asyncio.get_running_loop()

    def deliver(line: str | None) -> bool:
        try:
            loop.call_soon_threadsafe(tell, line)
        except RuntimeError:
            # The loop is closed.
            return False
        return True

    def read() -> None:
        rest = b""
        while piece := _read(file):
            *lines, rest = (rest + piece).split(b"\n")
            if not all(deliver(line.decode(errors="replace")) for line in lines):
                return
        if not rest or deliver(rest.decode(errors="replace")):
            deliver(None)

    # A daemon thread, because a blocking read cannot be stopped. It reads the descriptor, because the interpreter locks
    # `sys.stdin` at exit.
    threading.Thread(target=read, name="typed", daemon=True).start()


def _read(file: int) -> bytes:
    try:
        return os.read(file, PIECE)
    except OSError:
        # The terminal was closed.
        return b""
