"""A command in the background that outlives its parent: forked where possible, otherwise newly started."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from frameledger_services.embedded import fork_server
from frameledger_services.embedded.directory import working_directory


class Detached:
    """A process in its own session, from its parent's view."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self.pid = process.pid

    def ended(self) -> int | None:
        """Returns the exit code, negative for a signal, or None while the process runs."""
        return self._within(0)

    def stop(self, within: float) -> None:
        """Stop the process if it runs, and wait for its end, up to `within` seconds."""
        if self.ended() is None:
            self._process.terminate()
            self._within(within)

    def _within(self, seconds: float) -> int | None:
        try:
            return int(self._process.wait(seconds))
        except psutil.TimeoutExpired:
            return None


def detached(words: Sequence[str], log: Path) -> Detached:
    """Run `frameledger` with these arguments in a new session, with its output in `log`, which is truncated.

    A fork of this process has already imported what the command needs, and leaves this process's work by
    `BecomeCommand`. Where forking is not possible, the command is started.
    """
    argv = [sys.executable, "-m", "frameledger_services", *words]
    log.write_bytes(b"")
    if not fork_server.can_fork():
        with log.open("ab") as file:
            started = psutil.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        return Detached(started)
    directory = str(working_directory(log.parent))
    fork_server.flush()
    pid = os.fork()
    if pid == 0:
        fork_server.become(argv, directory, str(log), {})
    return Detached(psutil.Process(pid))
