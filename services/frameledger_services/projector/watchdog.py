"""The end of what computes for ever: the process dies of it, since nothing else in the process can run by then.

That is a life that ended at an offset like any other: after some, the records there are folded one by one, and the one
that ends lives is parked (see `service`).
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 30.0
"""What decoding and folding a batch may take; it takes a second if the batch is as large as batches get."""


@contextmanager
def deadline() -> Iterator[None]:
    """A block that computes and waits for nothing. SIGALRM ends the process if it takes longer than `SECONDS`."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
