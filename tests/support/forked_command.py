"""A `frameledger` command in a forked process: it behaves like a started command, and has already imported what it
needs. `test_gateway_guarded.py` and `test_embedded_up.py` test that commands also start on their own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import IO

from tests.support.processes import Process, preload

from frameledger_services.__main__ import main

for module in (
    "frameledger_services.cli.chat.command",
    "frameledger_services.cli.ops",
    "frameledger_services.cli.run",
    "frameledger_services.functions.service",
    "frameledger_services.gateway.service",
):
    preload(module)

STANDARD_STREAMS = ("stdin", "stdout", "stderr")


class Command(Process):
    """Run `frameledger` with these arguments, in this environment."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        super().__init__(_run, tuple(words), dict(environment))
        self.errors: IO[bytes] = os.fdopen(os.dup(self._heard.fileno()), "rb")
        """Returns what the command writes to standard error."""

    def kill(self) -> None:
        super().kill()
        self.errors.close()


class CommandInTerminal(Process):
    """`frameledger` in a terminal of its own, from which it receives Ctrl-C."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], terminal: str) -> None:
        """`terminal` is the path of the terminal's device."""
        super().__init__(_run_in, terminal, tuple(words), dict(environment))


def _run(words: Sequence[str], environment: Mapping[str, str], errors: Connection) -> None:
    os.dup2(errors.fileno(), 2)
    # The existing stream treats this as a file.
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    become(words, environment)


def _run_in(terminal: str, words: Sequence[str], environment: Mapping[str, str], _: Connection) -> None:
    os.setsid()
    # The first terminal that the leader of a session opens controls it.
    opened = os.open(terminal, os.O_RDWR)
    for number, name in enumerate(STANDARD_STREAMS):
        os.dup2(opened, number)
        setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", closefd=False))
    become(words, environment)


def become(words: Sequence[str], environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    # As an interpreter does that is started with it.
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv[1:] = words
    main()
