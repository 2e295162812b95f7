"""Liveness and readiness of a process: the results of `/livez` and `/readyz`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

Check = Callable[[], Awaitable[str]]
"""Returns `OK`, or a sentence with the problem, without addresses: the endpoints have no authentication."""

OK = "ok"
AWAY = "It does not answer."
REFUSED = "It rejects the request; `frameledger doctor` shows why."

TICK_SECONDS = 0.5
LIVE_SECONDS = 5.0
"""An event loop that did not run for this time is not live."""

CHECK_SECONDS = 5.0
"""Timeout of a check."""

KEPT_SECONDS = 2.0
"""Results are cached for this time, so frequent requests are cheap."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """The results of the checks by name."""

    checks: Mapping[str, str]

    @property
    def is_ready(self) -> bool:
        """Whether all checks succeed."""
        return all(result == OK for result in self.checks.values())


class Health:
    """The health of one event loop. Methods are called from other threads unless they say otherwise."""

    def __init__(self, checks: Mapping[str, Check], stopping: asyncio.Event | None = None) -> None:
        self._checks = checks
        self._stopping = stopping
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticked = time.monotonic()
        self._asking = threading.Lock()
        self._found: tuple[float, Readiness] | None = None

    @asynccontextmanager
    async def ticking(self) -> AsyncIterator[None]:
        """Record within the block that the event loop is running."""
        self._loop = asyncio.get_running_loop()
        ticking = asyncio.create_task(self._tick(), name="health")
        try:
            yield
        finally:
            ticking.cancel()
            await asyncio.wait([ticking])
            self._loop = None

    def seconds_since_tick(self) -> float:
        """Returns the time since the event loop last ran."""
        return time.monotonic() - self._ticked

    @property
    def is_live(self) -> bool:
        """Whether the event loop ran within `LIVE_SECONDS`."""
        return self.seconds_since_tick() < LIVE_SECONDS

    def readiness(self) -> Readiness:
        """Returns the results of the checks. Blocks for up to `CHECK_SECONDS`; never call it in the loop's own
        thread."""
        with self._asking:
            if self._found is not None and time.monotonic() - self._found[0] < KEPT_SECONDS:
                return self._found[1]
            current = self._ask()
            self._found = time.monotonic(), current
            return current

    def by_check(self) -> dict[tuple[str, ...], float]:
        """Returns 1 for each check that succeeds and 0 for each that fails: the metric `frameledger_ready`. Blocks."""
        return {(name,): float(result == OK) for name, result in self.readiness().checks.items()}

    def _ask(self) -> Readiness:
        loop = self._loop
        if loop is None or not self.is_live:
            return Readiness({"loop": "It does not run."})
        answer = asyncio.run_coroutine_threadsafe(self.check(), loop)
        try:
            return answer.result(CHECK_SECONDS + TICK_SECONDS)
        except (TimeoutError, asyncio.CancelledError, RuntimeError):
            answer.cancel()
            return Readiness({"loop": "It does not run."})

    async def check(self) -> Readiness:
        """Runs the checks and returns their results. Call it in the loop's own thread."""
        results = await asyncio.gather(*(_within(check) for check in self._checks.values()))
        checks = {"loop": OK, **dict(zip(self._checks, results, strict=True))}
        if self._stopping is not None:
            checks["draining"] = "yes" if self._stopping.is_set() else OK
        return Readiness(checks)

    async def _tick(self) -> None:
        while True:
            self._ticked = time.monotonic()
            await asyncio.sleep(TICK_SECONDS)


async def _within(check: Check) -> str:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await check()
    except TimeoutError:
        return AWAY
