"""`make test`: the tests, and beside them types and the bridges, which have environments of their own. With `--long`,
which is `make test-long`, also the tests that are marked as long, and four times the examples of each law.

The tests leave a core idle whenever they wait for servers. mypy without its cache takes one core for most of a minute,
the bridges a network and then one core for three minutes: run one after another, all that would be added to the total
time. Style is checked before any of it: that takes a second.
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
# More than two cores, because tests wait for servers. Each collects all tests and has a database server of its own: on
# two cores a fourth took 5 to 8 % more processor time, and the tests were over no sooner.
PROCESSES = str(max(3, min(os.cpu_count() or 1, 8)))
QUICK = "not long"
"""The marker expression of `make test`. The long tests execute no SQL statement that the others do not."""

# Whole files are handed out, those first that take longest: see `costs.py`.
ALL_TESTS = (*PYTHON, "pytest", "-n", PROCESSES, "--dist", "loadfile", "--no-loadscope-reorder")
TESTS = (*ALL_TESTS, "-m", QUICK)
ALL_BRIDGES = (*PYTHON, "tests.bridges", "--if-installable")
BRIDGES = (*ALL_BRIDGES, "--quick")
INTERRUPTED = {2, 128 + signal.SIGINT, -signal.SIGINT}
"""What pytest ends with after Ctrl-C, also if it had not begun yet."""

HANGS = 124


class Beside:
    """A program that runs beside others, and says what it says once it is asked for."""

    def __init__(self, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
        self._process, self._said = process, said

    def ended(self) -> int:
        """Wait for its end and print what it said; its exit code, or `HANGS` if it does not end."""
        try:
            code = self._process.wait(2 * BENCH)
        except subprocess.TimeoutExpired:
            code = HANGS
            print(f"This does not end: {self._process.args!r}. What it said:", flush=True)
        self._said.seek(0)
        sys.stdout.write(self._said.read().decode(errors="replace"))
        sys.stdout.flush()
        return code


@contextmanager
def beside(command: tuple[str, ...]) -> Iterator[Beside]:
    """Starts a program that is gone when the block ends, whatever ends it."""
    with TemporaryFile() as said:
        # In a session of its own, with all that it starts.
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
        try:
            yield Beside(process, said)
        finally:
            # One that has ended may have given its id to another.
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def tried(
    types: tuple[str, ...] = TYPES,
    tests: tuple[str, ...] = TESTS,
    bridges: tuple[str, ...] = BRIDGES,
) -> int:
    """Run all of it and print what each found: the tests meanwhile, the others after them. Returns the exit code of the
    first that failed, in the order tests, types, bridges; at once if the tests were interrupted."""
    with beside(types) as typed, beside(bridges) as bridged:
        failed = run(tests, os.environ)
        if failed in INTERRUPTED:
            return failed
        codes = (failed, typed.ended(), bridged.ended())
    return next((code for code in codes if code), 0)


def run(command: tuple[str, ...], environment: Mapping[str, str]) -> int:
    """The exit code of a program. Ctrl-C meanwhile is for it alone: the tests stop their servers then."""
    # Unless it is given it was measured before anything ran. Each finds out for itself, with what runs beside it.
    kept = {name: value for name, value in environment.items() if name != bounds.VARIABLE or bounds.IS_GIVEN}
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run(command, cwd=ROOT, env=kept, check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)


def ended_by(number: int, _: object) -> None:
    """Ends this process in order, so that nothing of it is left."""
    sys.exit(128 + number)


if __name__ == "__main__":
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, ended_by)
    # The tests say it too, but by then pytest has rewritten all of hypothesis, in each of its processes.
    bytecode.keep()
    parser = argparse.ArgumentParser(prog="python -m tests.whole", description=__doc__)
    parser.add_argument("--long", action="store_true", help="run the long tests too")
    if parser.parse_args().long:
        sys.exit(tried(tests=(*ALL_TESTS, "--hypothesis-profile=release"), bridges=ALL_BRIDGES))
    sys.exit(tried())
