"""The progress of the projector, observed from outside at each batch that it announces."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process

from psycopg import AsyncConnection

from frameledger_services import access
from frameledger_services.bench.road.processes import BenchError
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store.progress_channel import CHANNEL

POLL_SECONDS = 1.0


async def until_projected(settings: Settings, records: int, process: Process, *, within: float) -> int:
    """Wait until this number of records of the topic is in the tables. Returns the number in the tables, which may be
    higher because batches are stored as a whole. Raises `BenchError` if the process ends before, or after `within`
    seconds."""
    address = access.database_address(settings, application_name="frameledger-bench")
    try:
        async with (
            asyncio.timeout(within),
            await AsyncConnection.connect(address, autocommit=True) as connection,
        ):
            await connection.execute(f"LISTEN {CHANNEL}")
            while (reached := await _projected(connection)) < records:
                if process.returncode is not None:
                    raise BenchError(f"The projector ended with exit code {process.returncode}.")
                async for _ in connection.notifies(timeout=POLL_SECONDS, stop_after=1):
                    pass
            return reached
    except TimeoutError:
        raise BenchError(f"The projector did not come to the end within {within:.0f} s.") from None


async def _projected(connection: Connection) -> int:
    cursor = await connection.execute("SELECT coalesce(sum(next_offset), 0)::bigint FROM projections")
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])
