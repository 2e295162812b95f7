"""Lines of standard input (terminal, pipe or file), read by a thread for an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

PIECE = 65_536


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
