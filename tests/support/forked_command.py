"""A `frameledger` command in a process that is forked: it does what one does that was started, and has imported what it
needs. That the gateway starts on its own is shown by `test_gateway_guarded.py`.
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
    "frameledger_services.cli.run",
    "frameledger_services.cli.ops",
    "frameledger_services.gateway.service",
):
    preload(module)


class Command(Process):
    """`frameledger` with these words, in this environment."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        super().__init__(_run, tuple(words), dict(environment))
        self.errors: IO[bytes] = os.fdopen(os.dup(self._heard.fileno()), "rb")
        """What it writes to standard error."""


def _run(words: Sequence[str], environment: Mapping[str, str], errors: Connection) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(errors.fileno(), 2)
    # The stream that was there takes this for a file.
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    sys.argv[1:] = words
    main()
