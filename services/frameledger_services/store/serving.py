"""Live workers, and the functions that they serve. One statement each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import class_row

from frameledger_services.database_types import Connection


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker that is alive."""

    worker_id: str
    service: str
    kind: str
    host: str
    pid: int
    started_at: datetime
    heartbeat_at: datetime
    lease_secs: float
    slots: int
    busy: int
    """Number of jobs that it has claimed and not finished."""

    serves: list[str]
    serves_all: bool


@dataclass(frozen=True, slots=True)
class OfferedFunction:
    """A function that live workers of a service serve by name, with its options."""

    function_name: str
    service: str
    workers: int
    options: dict[str, Any]


async def workers(connection: Connection) -> list[LiveWorker]:
    """Returns the live workers, by service."""
    async with connection.cursor(row_factory=class_row(LiveWorker)) as cursor:
        await cursor.execute(
            """
            SELECT worker.worker_id, worker.service, worker.kind, worker.host, worker.pid, worker.started_at,
                worker.heartbeat_at, worker.lease_secs, worker.slots, worker.serves, worker.serves_all, busy.busy
            FROM live_workers() AS worker
            CROSS JOIN LATERAL (
                SELECT count(*)::integer AS busy FROM claims
                WHERE claims.worker_id = worker.worker_id AND claims.finished_at IS NULL
            ) AS busy
            ORDER BY worker.service, worker.started_at, worker.worker_id
            """
        )
        return await cursor.fetchall()


async def functions(connection: Connection) -> list[OfferedFunction]:
    """Returns the functions on offer, by name."""
    async with connection.cursor(row_factory=class_row(OfferedFunction)) as cursor:
        await cursor.execute(
            """
            SELECT function_name, service, count(*)::integer AS workers, (array_agg(options))[1] AS options
            FROM offered_functions()
            GROUP BY function_name, service, options::text
            ORDER BY function_name, service
            """
        )
        return await cursor.fetchall()


async def live_inference_workers(connection: Connection) -> int:
    """Returns the number of live inference workers."""
    cursor = await connection.execute("SELECT count(*) FROM live_workers() WHERE kind = 'inference'")
    [(alive,)] = await cursor.fetchall()
    return int(alive)
