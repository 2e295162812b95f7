"""How long the tests wait before they fail: every bound of the suite, with its reason.

A bound only ends a test that hangs. Tests wait for progress, and no test depends on its speed. All bounds are scaled
by one factor, measured once when the run starts: how much slower this machine is now, with its current load, than the
machine on which they were chosen. `TEST_SLOWNESS` sets the factor instead; the processes that tests start inherit it.
"""

from __future__ import annotations

import json
import os
from statistics import median
from time import perf_counter

REFERENCE_SECONDS = 0.06
"""Seconds that `_work` took on the machine on which the bounds were chosen, while it was idle: two cores, as in CI."""

FASTEST, SLOWEST = 1.0, 20.0
"""The limits of the factor: a fast machine waits no less, and a hang also ends on the slowest machine."""

VARIABLE = "TEST_SLOWNESS"
IS_GIVEN = VARIABLE in os.environ
"""The factor was set by a person, or by the process that started this one."""


def slowness() -> float:
    """The factor. The first process of a run that needs it measures it and passes it to the processes that it
    starts."""
    given = os.environ.get(VARIABLE)
    if given is None:
        times = [_seconds() for _ in range(5)]
        given = os.environ[VARIABLE] = f"{min(max(median(times) / REFERENCE_SECONDS, FASTEST), SLOWEST):.2f}"
    return float(given)


def scaled(seconds: float) -> float:
    """A time limit *of the product* that a test shortens, such as a lease or a function's deadline: on a slow machine
    the concurrent work is slower by the same factor."""
    return seconds * slowness()


def _seconds() -> float:
    began = perf_counter()
    _work()
    return perf_counter() - began


def _work() -> None:
    value = {"numbers": [1, 2, 3] * 50, "text": "x" * 200}
    for _ in range(2_000):
        json.loads(json.dumps(value))


IN_PROCESS = scaled(30.0)
"""Tasks and threads of one process, and sockets between them. They take milliseconds."""

ONE_ANSWER = scaled(10.0)
"""One request to a running server. It is repeated on a new connection until `ON_SERVERS` is over."""

ON_SERVERS = scaled(90.0)
"""An operation on a real broker and a real database, including other processes. It takes milliseconds to seconds; the
longest are a rebalance of a consumer group (3 s) and a session that has to time out (6 to 10 s)."""

PROGRAM = scaled(300.0)
"""A program that starts servers or many processes of its own, installs a package, or measures a bench."""

BENCH = scaled(600.0)
"""A bench with its baselines, as short as possible."""
