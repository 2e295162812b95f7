"""The function service in a process that dies or freezes at a given point, with tools whose effects can be counted.

An effect is a row in a SQLite file, so it outlives the process and needs neither Kafka nor Postgres.

A point is each failpoint of the service, `in the handler` (nothing done yet), `effect` (the row is written), and
`send TYPE` and `sent TYPE` (before a frame of that type is given to Kafka, and once Kafka has acknowledged it, which
the service does not know yet). These last four are not in the code under test: what it calls is wrapped here.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bounds import ON_SERVERS, scaled
from tests.support.killable_worker import quick_to_notice
from tests.support.polling import POLL_SECONDS, pause
from tests.support.processes import CONTEXT, Process, preload, reaching
from tests.support.tcp_proxy import redirected

from frameledger_services import process
from frameledger_services.claims import unclaimed
from frameledger_services.event_log.sender import Sender
from frameledger_services.functions import FunctionRegistry, FunctionService, NotRunningError
from frameledger_services.settings import Settings
from frameledger_services.work import effect_consumer, session

preload(__name__)

DOOMED = {"work_lease_secs": scaled(2.5), "work_heartbeat_secs": 0.1}
"""For processes that die: the lease is short, but long enough to reach the point at which they die."""

HEIRS = DOOMED | {"work_drain_secs": scaled(5.0)}
"""For processes that survive, in tests where they may lose their work on a busy machine."""

LASTING = HEIRS | {"work_lease_secs": scaled(20.0)}
"""For processes that survive and keep their work on a busy machine. With `databases.without_takeover_delay` they soon
consider others dead."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan for a process: at `point` it sends itself `signal`, once."""

    point: str | None = None
    signal: signal.Signals = signal.SIGKILL

    holds: bool = False
    """Whether handlers wait after their effect until the test releases them."""

    timeout_secs: float = 60.0
    """The timeout of a call."""

    deaf: bool = False
    """Whether it receives no cancellations."""

    broker: tuple[int, int] | None = None
    """Connections to the first of these ports go to the second one."""


class Effects:
    """The effects of the tools by call: the attempt and the idempotency key of each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._open()) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE IF NOT EXISTS effects (call TEXT, attempt INTEGER, key TEXT)")

    def add(self, call: str, attempt: int, key: str) -> None:
        with closing(self._open()) as connection:
            connection.execute("INSERT INTO effects VALUES (?, ?, ?)", (call, attempt, key))

    def of(self, call: str) -> list[tuple[int, str]]:
        with closing(self._open()) as connection:
            return connection.execute(
                "SELECT attempt, key FROM effects WHERE call = ? ORDER BY rowid", (call,)
            ).fetchall()

    def until(self, *calls: str) -> None:
        """Wait until each of these calls has had its effect."""
        until = time.monotonic() + ON_SERVERS
        while missing := [call for call in calls if not self.of(call)]:
            assert time.monotonic() < until, f"these had no effect: {missing}"
            pause()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=ON_SERVERS, isolation_level=None)
        connection.execute("PRAGMA synchronous=OFF")
        return connection


class Tools(Process):
    """The process. It sends `alive`, `stopped` by a handler, and the name of its point when it reaches it."""

    def __init__(
        self, settings: Settings, tools: Mapping[str, bool], effects: Path, service: str, plan: Plan
    ) -> None:
        self._released = CONTEXT.Event()
        super().__init__(_serve, settings, dict(tools), effects, service, plan, self._released)

    def alive(self) -> None:
        """Wait until the group has assigned partitions to it."""
        assert self.hear() == "alive"

    def release(self) -> None:
        """Let all handlers return, including later ones."""
        self._released.set()


def tools(
    settings: Settings, names: Mapping[str, bool], effects: Path, service: str, plan: Plan | None = None
) -> Tools:
    """Returns a process that serves functions of these names, each safe to retry or not."""
    return Tools(settings, names, effects, service, plan or Plan())


def _serve(
    settings: Settings,
    names: Mapping[str, bool],
    path: Path,
    service: str,
    plan: Plan,
    released: Any,
    said: Any,
) -> None:
    effects, reach = Effects(path), _reaching(plan, said.send)
    _wrap(plan, reach)

    async def handle(params: Any) -> None:
        reach("in the handler")
        effects.add(params.tool_call_id, params.call_attempt, params.idempotency_key)
        reach("effect")
        try:
            while plan.holds and not released.is_set():
                await asyncio.to_thread(released.wait, POLL_SECONDS)
        except asyncio.CancelledError:
            said.send("stopped")
            raise
        await params.result_callback({"attempt": params.call_attempt})

    async def failpoint(step: str) -> None:
        reach(step)

    async def serve(stopping: asyncio.Event) -> None:
        registry = FunctionRegistry()
        for name, safe in names.items():
            registry.register_function(name, handle, safe_to_retry=safe)
        functions = FunctionService(
            settings,
            registry,
            service=service,
            function_call_timeout_secs=plan.timeout_secs,
            stop_secs=scaled(1.0),
            failpoint=failpoint,
        )
        async with asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(_tell_alive(functions, said))
            await functions.run(stopping)
            telling.cancel()

    with redirected(plan.broker):
        process.run_service(serve)


async def _tell_alive(functions: FunctionService, said: Any) -> None:
    with suppress(NotRunningError):
        await functions.worker_id()
        said.send("alive")


def _reaching(plan: Plan, say: Callable[[str], None]) -> Callable[[str], None]:
    """Let a worker claim only what it reads from the topic until it reaches its point. On a busy machine an effect may
    take seconds to arrive: its call would be claimed as unclaimed work, and would run before the point is reached."""
    reach = reaching(plan.point, plan.signal, say)
    if plan.point is None:
        return reach
    usual = unclaimed.AFTER_SECONDS
    vars(unclaimed)["AFTER_SECONDS"] = 2 * ON_SERVERS

    def reach_and_claim_the_unclaimed(step: str) -> None:
        reach(step)
        if step == plan.point:
            vars(unclaimed)["AFTER_SECONDS"] = usual

    return reach_and_claim_the_unclaimed


def _wrap(plan: Plan, reach: Callable[[str], None]) -> None:
    send = Sender.send

    async def send_and_tell(self: Any, topic: str, partition: int, record: Any, answered: Any) -> Any:
        kind = json.loads(record.value)["type"]
        reach(f"send {kind}")
        future = await send(self, topic, partition, record, answered)
        future.add_done_callback(lambda _: reach(f"sent {kind}"))
        return future

    async def hear_nothing(*_: Any) -> None:
        await asyncio.Event().wait()

    setattr(Sender, "send", send_and_tell)  # noqa: B010  # mypy knows that it is a method
    vars(effect_consumer)["consumer"] = quick_to_notice
    if plan.deaf:
        vars(session)["follow"] = hear_nothing
