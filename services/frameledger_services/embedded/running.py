"""A program that runs during a block and is stopped at its end."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from frameledger_services.embedded.program import Program, failed, open_log

POLL = 0.02


@contextmanager
def running(program: Program) -> Iterator[subprocess.Popen[bytes]]:
    """Start the program, wait until it is ready, and stop it when the block ends.

    Blocks up to `ready_within` seconds. Raises `EmbeddedError` if it ends before it is ready or is not ready in time.
    """
    process = start(program)
    try:
        wait_until_ready(program, process)
        yield process
    finally:
        stop(program, process)


def start(program: Program) -> subprocess.Popen[bytes]:
    """Start the program and return at once. It runs in its own session, so Ctrl-C in the terminal does not reach it."""
    program.sweep()
    with open_log(program.log) as log:
        return subprocess.Popen(
            program.command(),
            cwd=program.directory,
            env={**os.environ, **program.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def wait_until_ready(program: Program, process: subprocess.Popen[bytes]) -> None:
    """Wait until the program is ready. Raises `EmbeddedError` if it ends or times out."""
    deadline = time.monotonic() + program.ready_within
    while not program.is_ready():
        if process.poll() is not None:
            what = f"ended with exit code {process.returncode} before it was ready"
            raise failed(program.name, what, program.log)
        if time.monotonic() > deadline:
            raise failed(program.name, f"is not ready after {program.ready_within:.0f} s", program.log)
        time.sleep(POLL)


def stop(program: Program, process: subprocess.Popen[bytes]) -> None:
    """Stop the program, and kill it after a timeout. Its processes have ended when this returns."""
    if process.poll() is None:
        process.send_signal(program.stop_signal)
        try:
            process.wait(program.stop_within)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(program.stop_within)
    program.sweep()
