"""`make test`: runs mypy and the bridges, which have environments of their own, concurrently with the tests. With
`--long`, which is `make test-long`, also the tests that are marked as long, with four times the examples of each law.

While tests wait for servers, a core is idle. mypy without its cache needs one core for most of a minute, the bridges
the network and then one core for three minutes, which sequential runs would add to the total time. Style is checked
before all of them, in a second.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from tests import bounds, bytecode
from tests.bounds import BENCH

ROOT = Path(__file__).resolve().parents[1]
PYTHON = (sys.executable, "-m")
TYPES = (*PYTHON, "mypy")
# More than the cores, because tests wait for servers. But each process collects all tests and has a database server of
# its own: on two cores a fourth one took 5 to 8 % more processor time, and the tests took as long.
PROCESSES = str(max(3, min(os.cpu_count() or 1, 8)))
QUICK = "not long"
"""The marker expression of `make test`. The long tests execute no SQL statement that the others do not."""

# Whole files are distributed, the slowest first: see `costs.py`.
ALL_TESTS = (*PYTHON, "pytest", "-n", PROCESSES, "--dist", "loadfile", "--no-loadscope-reorder")
TESTS = (*ALL_TESTS, "-m", QUICK)
ALL_BRIDGES = (*PYTHON, "tests.bridges", "--if-installable")
BRIDGES = (*ALL_BRIDGES, "--quick")
INTERRUPTED = {2, 128 + signal.SIGINT, -signal.SIGINT}
"""Exit codes of pytest after Ctrl-C, also before it has started."""

HANGS = 124


class Background:
    """A program in the background, whose output is printed when it has ended."""

    def __init__(self, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
        self._process, self._said = process, said

    def ended(self) -> int:
        """Wait for its end and print its output. Returns its exit code, or `HANGS` if it does not end."""
        try:
            code = self._process.wait(2 * BENCH)
        except subprocess.TimeoutExpired:
            code = HANGS
            print(f"This does not end: {self._process.args!r}. Its output:", flush=True)
        self._said.seek(0)
        sys.stdout.write(self._said.read().decode(errors="replace"))
        sys.stdout.flush()
        return code


@contextmanager
def background(command: tuple[str, ...]) -> Iterator[Background]:
    """Run a program during the block. It is killed at the end if it still runs."""
    with TemporaryFile() as said:
        # In a session of its own, with all that it starts.
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
        try:
            yield Background(process, said)
        finally:
            # The id of a process that has ended may belong to another one.
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def run_all(
    types: tuple[str, ...] = TYPES,
    tests: tuple[str, ...] = TESTS,
    bridges: tuple[str, ...] = BRIDGES,
) -> int:
    """Run all three and print their output: that of the tests immediately, that of the others at the end. Returns the
    exit code of the first that failed, in the order tests, types, bridges. Returns at once if the tests were
    interrupted."""
    with background(types) as typed, background(bridges) as bridged:
        failed = run(tests, os.environ)
        if failed in INTERRUPTED:
            return failed
        codes = (failed, typed.ended(), bridged.ended())
    return next((code for code in codes if code), 0)


def run(command: tuple[str, ...], environment: Mapping[str, str]) -> int:
    """Run a program and return its exit code. Only the program handles Ctrl-C, because it has to stop its servers."""
    # A measured factor is removed: it was measured while nothing ran, and each program measures it under load.
    kept = {name: value for name, value in environment.items() if name != bounds.VARIABLE or bounds.IS_GIVEN}
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run(command, cwd=ROOT, env=kept, check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)


def ended_by(number: int, _: object) -> None:
    """Exit by an exception, so that all blocks clean up."""
    sys.exit(128 + number)


if __name__ == "__main__":
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, ended_by)
    # `conftest.py` calls it too, but by then pytest has rewritten all of hypothesis in each process.
    bytecode.keep()
    parser = argparse.ArgumentParser(prog="python -m tests.whole", description=__doc__)
    parser.add_argument("--long", action="store_true", help="run the long tests too")
    if parser.parse_args().long:
        sys.exit(run_all(tests=(*ALL_TESTS, "--hypothesis-profile=release"), bridges=ALL_BRIDGES))
    sys.exit(run_all())
