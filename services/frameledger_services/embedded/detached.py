"""A command of ours that goes on after the one which began it: a copy of it where that can be, or started anew."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from frameledger_services.embedded import fork_server


class Detached:
    """A process of its own session, as its parent sees it."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self.pid = process.pid

    def ended(self) -> int | None:
        """Returns its exit code, below zero for a signal; None while it runs."""
        return self._within(0)

    def stop(self, within: float) -> None:
        """Ask it to stop, if it runs, and wait for that, so many seconds at most."""
        if self.ended() is None:
            self._process.terminate()
            self._within(within)

    def _within(self, seconds: float) -> int | None:
        try:
            return int(self._process.wait(seconds))
        except psutil.TimeoutExpired:
            return None


def detached(words: Sequence[str], log: Path) -> Detached:
    """Run `frameledger` with these words in a session of its own, its output in `log`, which is begun anew.

    A copy of this process has imported already what the command needs; it leaves all that this one was doing, by
    `BecomeCommand`. Where no copy can be made, the command is started.
    """
    argv = [sys.executable, "-m", "frameledger_services", *words]
    log.write_bytes(b"")
    if not fork_server.can_fork():
        with log.open("ab") as file:
            started = psutil.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        return Detached(started)
    directory = str(Path.cwd())
    fork_server.flush()
    pid = os.fork()
    if pid == 0:
        fork_server.become(argv, directory, str(log), {})
    return Detached(psutil.Process(pid))
