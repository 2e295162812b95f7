"""A harness for tests of the timekeeper: conversations on the real projector, and sweeps of a timekeeper."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psycopg
from tests.bounds import ON_SERVERS
from tests.support.batches import PARTITIONS, Log, Projecting

from frameledger import derived
from frameledger.frames import Frame, encode_frame
from frameledger.ids import ContextId, Version
from frameledger_services import claims
from frameledger_services.timekeeper.limits import TimeLimits
from frameledger_services.timekeeper.settling import Settlement
from frameledger_services.timekeeper.sweep import Sweeper, sweep

OFF = TimeLimits(
    run_unclaimed=None,
    run_silent=None,
    call=None,
    call_grace=0.0,
    call_unserved=None,
    call_unstarted=None,
    interrupted_call=None,
    lost_call=None,
    waiting_calls=False,
    client_call=None,
    user_silent=None,
    final_words=None,
    bot_silent=None,
    keep_claims_days=None,
    keep_workers_days=None,
)
"""No rule is enabled; each test enables the one that it tests."""

PAST, FAR = 1e-9, 1e9
"""A limit that everything exceeds, and one that nothing exceeds."""

EVERYWHERE = range(PARTITIONS)
LEASE = 60.0


def limits(**on: Any) -> TimeLimits:
    return replace(OFF, **on)


class TimekeeperHarness:
    """A projector, and timekeepers that share a connection."""

    def __init__(self, projecting: Projecting, connection: Any) -> None:
        self.projecting = projecting
        self.connection = connection
        self.log = Log()
        self._known: set[str] = set()

    async def say(self, context_id: str, *frames: Any) -> int:
        """Publish and fold frames, given one by one or in lists. Returns the version after the last."""
        for frame in _flat(frames):
            self.log.add(context_id, encode_frame(frame))
        await self.project()
        return int(await self.value("SELECT version FROM contexts WHERE context_id = %s", context_id))

    async def project(self) -> None:
        """Fold the records on the log that are not folded yet."""
        records = [
            record
            for record in self.log.records
            if record.offset >= self.projecting.owned[record.partition].next_offset
        ]
        await self.projecting.store(records)

    async def sweep(
        self, on: TimeLimits, *, who: str = "keeper", may_judge: bool = True, current: Any = EVERYWHERE
    ) -> list[Settlement]:
        """Returns what a timekeeper of this name would publish now."""
        await self.lives(who, kind="timekeeper")
        return await sweep(self.connection, on, Sweeper(who, "timekeeper", may_judge), current)

    def publish(self, found: list[Settlement]) -> None:
        for one in found:
            cause = ("fl_causation_id", str(one.causation_id).encode())
            self.log.add(one.context_id, encode_frame(one.frame), headers=(cause,))

    async def settle(self, on: TimeLimits, **options: Any) -> list[tuple[str, Any]]:
        """Publish and fold the frames of one sweep. Returns the rule of each frame, with its reason or else its
        outcome."""
        found = await self.sweep(on, **options)
        self.publish(found)
        await self.project()
        return [(one.rule, await self.became(one)) for one in found]

    async def became(self, settlement: Settlement) -> Any:
        return await self.value(
            "SELECT coalesce(reason, outcome) FROM frames WHERE context_id = %s AND frame_id = %s::uuid",
            settlement.context_id,
            settlement.frame.id,
        )

    async def lives(
        self, worker_id: str, *, kind: Any = "functions", serves: Any = (), **fields: Any
    ) -> None:
        """Register a worker of this name if there is none, and record a heartbeat."""
        if worker_id not in self._known:
            self._known.add(worker_id)
            offer = claims.Registration(
                worker_id, "service", kind, "host", 1, LEASE, 10, tuple(serves), **fields
            )
            await claims.register(self.connection, offer)
        await self.execute(
            "UPDATE workers SET heartbeat_at = clock_timestamp() WHERE worker_id = %s", worker_id
        )

    async def dies(self, worker_id: str) -> None:
        """Make the last heartbeat of a worker older than its lease."""
        await self.execute(
            "UPDATE workers SET heartbeat_at = clock_timestamp() - make_interval(secs => lease_secs + 1) "
            "WHERE worker_id = %s",
            worker_id,
        )

    async def an_hour_passes(self, context_id: str) -> None:
        """Make the frames of this context an hour older, which the trigger on `frames` would refuse."""
        await self.execute("ALTER TABLE frames DISABLE TRIGGER keep_frames")
        await self.execute(
            "UPDATE frames SET recorded_at = recorded_at - interval '1 hour' WHERE context_id = %s",
            context_id,
        )
        await self.execute("ALTER TABLE frames ENABLE TRIGGER keep_frames")

    async def claimed_run(self, context_id: str, asked: int, worker_id: str) -> None:
        """Let a worker claim the run that this frame requested and opened."""
        run = derived.run_id(ContextId(context_id), Version(asked))
        await self.execute(
            "INSERT INTO claims (effect_id, kind, context_id, version, run_id, service, worker_id) "
            "VALUES (%s, 'run', %s, %s, %s, 'service', %s)",
            derived.effect_id("run_inference", ContextId(context_id), Version(asked), run),
            *(context_id, asked, run, worker_id),
        )

    async def claimed_call(self, context_id: str, call: str, worker_id: str, *, attempt: int = 1) -> None:
        """Let a worker claim the newest call of this id."""
        row = await self.row(
            "SELECT dispatched_version, requested_version, ordinal FROM tool_calls "
            "WHERE context_id = %s AND tool_call_id = %s ORDER BY requested_version DESC",
            *(context_id, call),
        )
        await self.execute(
            "INSERT INTO claims (effect_id, kind, context_id, version, requested_version, ordinal, tool_call_id, "
            "service, worker_id, attempt) VALUES (%s, 'call', %s, %s, %s, %s, %s, 'service', %s, %s) "
            "ON CONFLICT (effect_id) DO UPDATE SET worker_id = excluded.worker_id, attempt = excluded.attempt",
            derived.effect_id("call_function", ContextId(context_id), Version(row[0]), call),
            *(context_id, *row, call, worker_id, attempt),
        )

    async def execute(self, statement: str, *parameters: Any) -> None:
        await self.connection.execute(statement, parameters)

    async def row(self, query: str, *parameters: Any) -> Any:
        cursor = await self.connection.execute(query, parameters)
        return await cursor.fetchone()

    async def value(self, query: str, *parameters: Any) -> Any:
        row = await self.row(query, *parameters)
        return None if row is None else row[0]

    async def run(self, context_id: str, asked: int) -> Any:
        """Returns the status and the error code of the run that this frame requested."""
        return await self.row(
            "SELECT status, error_code FROM runs WHERE context_id = %s AND requested_version = %s",
            *(context_id, asked),
        )

    async def call(self, context_id: str, call: str) -> Any:
        """Returns the status and the result of the newest call of this id."""
        return await self.row(
            "SELECT status, result FROM tool_calls WHERE context_id = %s AND tool_call_id = %s "
            "ORDER BY requested_version DESC, ordinal DESC",
            *(context_id, call),
        )

    async def open_run(self, context_id: str) -> Any:
        """Returns the version that opened the open run."""
        return await self.value(
            "SELECT opened_version FROM runs WHERE context_id = %s AND status = 'open'", context_id
        )

    async def texts(self, context_id: str) -> list[str]:
        """Returns the contents of the context's messages; for a message with calls, the ids of the calls."""
        context = await self.value("SELECT context_at(%s)", context_id)
        return [
            "calls " + " ".join(call["id"] for call in message["tool_calls"])
            if "tool_calls" in message
            else message["content"]
            for message in context["messages"]
        ]


@asynccontextmanager
async def harness(address: str):
    async with (
        Projecting(address) as projecting,
        await psycopg.AsyncConnection.connect(address, autocommit=True) as connection,
    ):
        yield TimekeeperHarness(projecting, connection)


def with_harness(address: str, test: Any) -> None:
    """Run a test with a harness of its own."""

    async def play() -> None:
        async with asyncio.timeout(ON_SERVERS), harness(address) as made:
            await test(made)

    asyncio.run(play())


def _flat(frames: Any) -> Any:
    for frame in frames:
        if isinstance(frame, Frame):
            yield frame
        else:
            yield from _flat(frame)
