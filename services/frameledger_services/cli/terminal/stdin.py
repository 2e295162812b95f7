"""Standard input line by line, read in a thread beside an event loop: a terminal, a pipe, or a file."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

PIECE = 65_536


def read_lines(file: int, tell: Callable[[str | None], None]) -> None:
    """From now on tell each line that comes from this file descriptor, and None at its end, in the running loop.

    Returns at once. A terminal edits its lines itself, and hands one over when it is finished.
    """
    loop = asyncio.get_running_loop()

    def told(line: str | None) -> bool:
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
            if not all(told(line.decode(errors="replace")) for line in lines):
                return
        if not rest or told(rest.decode(errors="replace")):
            told(None)

    # A daemon, because nothing can end a read; and of the descriptor, since the interpreter, when it ends, wants to
    # lock `sys.stdin`.
    threading.Thread(target=read, name="typed", daemon=True).start()


def _read(file: int) -> bytes:
    try:
        return os.read(file, PIECE)
    except OSError:
        # The terminal is gone.
        return b""
