"""The projector in its own process, which kills or freezes itself at a chosen point or on the test's request.

A point is each step that the projector names, each statement before it is sent, each COPY once it has begun, a whole
batch's one statement once it is sent, and each record before it is given to Kafka. The code under test knows nothing of
this: the connection, the consumer and the producer are wrapped here.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer
from psycopg import AsyncConnection, AsyncCursor, AsyncRawCursor
from tests.support import releases
from tests.support.polling import POLL_SECONDS
from tests.support.processes import CONTEXT, Process, preload

from frameledger import record as record_module
from frameledger.evolve import evolve
from frameledger_services import database, logs
from frameledger_services.event_log import feed
from frameledger_services.event_log.consumer import consumer
from frameledger_services.projector import (
    batch_fold,
    commits,
    decoded,
    group_member,
    instance_id,
    service,
    watchdog,
)
from frameledger_services.settings import Settings
from frameledger_services.store import single_statement

preload(__name__)

AT_ONCE = "everything at once"
"""The point of the statement that writes a whole batch."""

STATEMENT_PER_TABLE = 0
SINGLE_STATEMENT = 1_000_000
"""Values of `Plan.small` with which every batch is written by a statement per table, or by a single statement."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan for an armed projector: at `point` it sends itself `signal`, once."""

    point: str | None = None
    signal: signal.Signals = signal.SIGKILL
    group: str | None = None
    """A consumer group other than that of the settings, so that no other projector takes its partitions."""

    session_ms: int = 1_000
    """The session timeout, after which the group reassigns the partitions of a silent process."""

    frozen_ms: int | None = None
    """The pause after which the process itself takes over its partitions again; by default the session timeout."""

    member: str | None = None
    """The name of a static group member, so that no rebalance waits for a killed process."""

    tell: bool = False
    """Report the name of every point instead of sending a signal."""

    deadly: str | None = None
    """Folding a frame with this text kills the process, like a bug of ours or of a library."""

    hanging: bool = False
    """Folding a frame with this text never ends, with a watchdog of a fraction of a second."""

    decoding: bool = False
    """Decoding a record with this text kills the process."""

    small: int | None = None
    """The maximum number of records of a batch that is written in one statement, if not the default."""

    is_newer: bool = False
    """Whether the process runs the release with a newer fold (`releases`)."""

    logging: str | None = None
    """Report the name of this event when the projector first logs it as an error."""

    then: str | None = None
    """SQL that is executed on the projector's connection at the point, before the signal."""


class Projector(Process):
    """A projector's process. It reports the name of each point that it reaches."""

    def __init__(self, settings: Settings, plan: Plan) -> None:
        self._armed = CONTEXT.Event()
        self._may_be_stopped = CONTEXT.Event()
        super().__init__(_project, settings, plan, self._armed, self._may_be_stopped)

    def arm(self) -> None:
        """Count points from the next batch on."""
        self._armed.set()

    def points(self) -> list[str]:
        """Returns the points that it has reported so far, each once."""
        found: dict[str, None] = {}
        while self._heard.poll(0):
            found[self._heard.recv()] = None
        return list(found)

    def stop(self) -> int:
        # Before it has installed its handler, the signal would kill it.
        while self.is_alive() and not self._may_be_stopped.wait(POLL_SECONDS):
            pass
        return super().stop()


def projector(settings: Settings, plan: Plan | None = None) -> Projector:
    """Returns a projector's process, to be used as a context manager."""
    return Projector(settings, plan or Plan())


def finish(pipeline: Any, plan: Plan | None = None) -> None:
    """Let another projector publish the outbox rows that killed projectors left, including those of takeovers while
    they were idle, and stop it normally. No other projector may follow; `pipeline.check` may."""
    with projector(pipeline.settings, plan) as last:
        pipeline.until_idle(last)
        assert last.stop() == 0


class _Points:
    """Counts the points and carries out the plan at one of them."""

    def __init__(self, plan: Plan, armed: Any, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._armed = armed
        self.say = say
        self._counting = False
        self.connection: Any = None

    async def failpoint(self, step: str) -> None:
        if step == "before load" and self._armed.is_set():
            self._counting = True
        await self.reach(step)

    async def reach(self, name: str) -> None:
        if self._is_at(name) and self._plan.then is not None:
            await AsyncConnection.execute(self.connection, self._plan.then)
        self.reach_at_once(name)

    def _is_at(self, name: str) -> bool:
        return self._counting and not self._plan.tell and self._plan.point == name

    def reach_at_once(self, name: str) -> None:
        if not self._counting:
            return
        if self._plan.tell:
            self.say(name)
        elif self._plan.point == name:
            self._counting = False
            self._armed.clear()
            self.say(name)
            os.kill(os.getpid(), self._plan.signal)


def _project(settings: Settings, plan: Plan, armed: Any, may_be_stopped: Any, said: Any) -> None:
    points = _Points(plan, armed, said.send)
    _wrap(points, plan)

    async def life() -> None:
        stopping = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
        may_be_stopped.set()
        named = settings.model_copy(update={"projector_instance_id": plan.member})
        await service.serve(named, stopping, points.failpoint)

    asyncio.run(life())


def _wrap(points: _Points, plan: Plan) -> None:
    """Replace parts of the projector in this process by those of this module."""
    _wrap_statements(points)
    _wrap_broker(points, plan)
    _wrap_fold(plan)
    if plan.logging is not None:
        vars(group_member)["_log"] = _Log(plan.logging, points.say)
    if plan.is_newer:
        releases.become_newer()
    if plan.hanging:
        vars(watchdog)["SECONDS"] = 0.2
    if plan.small is not None:
        vars(commits)["SMALL_RECORDS"] = plan.small


def _wrap_statements(points: _Points) -> None:
    """Makes each statement and COPY a point."""

    class Cursor(AsyncCursor[Any]):
        async def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            await points.reach(_named(query, self.connection))
            return await super().execute(query, *args, **options)

        @asynccontextmanager
        async def copy(self, statement: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
            await points.reach("before " + _named(statement, self.connection))
            async with super().copy(statement, *args, **options) as copy:
                # The server has begun and waits for rows.
                await points.reach("in the middle of " + _named(statement, self.connection))
                yield copy

    class RawCursor(AsyncRawCursor[Any]):
        sent = False

        async def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            self.sent = False
            await points.reach(f"before {AT_ONCE}" if b"write0" in query else "WITH moved")
            return await super().execute(query, *args, **options)

        def _send_query_prepared(self, *args: Any, **options: Any) -> None:
            super()._send_query_prepared(*args, **options)
            self.sent = True

        def _execute_gen(self, query: Any, *args: Any, **options: Any) -> Any:
            """Reports what psycopg's generator waits for, and passes the result on to it."""
            waiting = super()._execute_gen(query, *args, **options)
            came = None
            while True:
                try:
                    awaited = waiting.send(came)
                except StopIteration as end:
                    return end.value
                if self.sent and b"write0" in query:
                    points.reach_at_once(f"after sending {AT_ONCE}")
                came = yield awaited

    class Connection(database.GuardedConnection):
        @classmethod
        async def connect(cls, *args: Any, **options: Any) -> Any:
            connection = await super().connect(*args, **options)
            connection.cursor_factory = Cursor
            if points.connection is None:
                points.connection = connection
            return connection

    vars(single_statement)["AsyncRawCursor"] = RawCursor
    vars(database)["GuardedConnection"] = Connection


def _wrap_broker(points: _Points, plan: Plan) -> None:
    """Makes each sent record a point, and sets the timeouts of the plan."""
    sent = AIOKafkaProducer.send

    async def send(self: Any, topic: str, *args: Any, **options: Any) -> Any:
        await points.reach(f"send to {topic}")
        return await sent(self, topic, *args, **options)

    def grouped(settings: Settings, *, group: str, **options: Any) -> Any:
        options |= {"session_timeout_ms": plan.session_ms, "heartbeat_interval_ms": 100}
        return consumer(settings, group=plan.group or group, **options)

    AIOKafkaProducer.send = send
    vars(service)["consumer"] = grouped
    vars(instance_id)["WAIT_SECONDS"] = plan.session_ms / 1000
    vars(feed)["FROZEN_SECONDS"] = (plan.session_ms if plan.frozen_ms is None else plan.frozen_ms) / 1000


def _wrap_fold(plan: Plan) -> None:
    """Makes folding or decoding a frame with the plan's text kill the process, or never end."""
    if plan.deadly is None:
        return
    deadly = plan.deadly

    def evolve_or_die(state: Any, frame: Any, *others: Any) -> Any:
        if getattr(frame, "text", None) == deadly:
            while plan.hanging:
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return evolve(state, frame, *others)

    def read_or_die(record: Any) -> Any:
        if deadly.encode() in (record.value or b""):
            os.kill(os.getpid(), signal.SIGKILL)
        return record_module.read(record)

    vars(batch_fold)["evolve"] = evolve_or_die
    if plan.decoding:
        vars(decoded)["read"] = read_or_die


class _Log:
    """The log of a projector; reports the first occurrence of one event."""

    def __init__(self, event: str, say: Callable[[str], None]) -> None:
        self._event: str | None = event
        self._say = say
        self._log = logs.get_logger("projector")

    def warning(self, event: str, **fields: Any) -> None:
        self._log.warning(event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        self._log.error(event, **fields)
        if event == self._event:
            self._event = None
            self._say(event)


def _named(statement: Any, connection: Any) -> str:
    """Returns the kind of a statement and its table: all updates of one table are one point."""
    text = re.sub(r"\s+", " ", statement if isinstance(statement, str) else statement.as_string(connection))
    words = text.strip().replace('"', "").split(" ")
    return " ".join(words[:3] if words[0] == "DELETE" else words[:2]) + (
        f" {text.split(' FROM ')[1].split(' ')[0]}" if words[0] == "SELECT" and " FROM " in text else ""
    )


STEPS = (
    "before load",
    "after load",
    "before lock",
    "after lock",
    "before commit",
    "after commit",
    "before send",
    "after send",
    "after removal",
    "before announcing",
    "announced",
)
"""Returns the points of a batch that is written statement by statement."""

OWNER = "SELECT owner_pid FROM projections WHERE epoch > 0 LIMIT 1"
