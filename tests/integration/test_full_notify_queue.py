"""PostgreSQL's notification queue is full because a listener does not read it: the projector continues."""

import asyncio
from contextlib import suppress

import psycopg
import pytest
from tests.bounds import ON_SERVERS
from tests.support.batches import TOPIC

from frameledger_services.embedded import ports, postgres
from frameledger_services.embedded.running import start, stop, wait_until_ready
from frameledger_services.projector.notifier import Notifier
from frameledger_services.store.progress_channel import CHANNEL


@pytest.fixture
def small_queue(tmp_path):
    """Yields the address of a PostgreSQL with the smallest possible queue: half a megabyte."""
    server = postgres.prepare(
        tmp_path, ports.choose(0), settings={"fsync": "off", "max_notify_queue_pages": "64"}
    )
    process = start(server.program)
    try:
        wait_until_ready(server.program, process)
        yield server.dsn
    finally:
        stop(server.program, process)


@pytest.mark.regression("fault 17g")
def test_a_full_queue_of_notifications_stops_nobody_who_announces(small_queue):
    async def nothing(_):
        pass

    async def fill(connection):
        with suppress(psycopg.errors.ProgramLimitExceeded):
            while True:
                await connection.execute("SELECT pg_notify('filling', repeat(md5(random()::text), 240))")

    async def usage(connection):
        cursor = await connection.execute("SELECT pg_notification_queue_usage()")
        return (await cursor.fetchone())[0]

    async def run():
        connect = psycopg.AsyncConnection.connect
        async with (
            await connect(small_queue, autocommit=True) as announcing,
            await connect(small_queue, autocommit=True) as filling,
            await connect(small_queue, autocommit=True) as deaf,
            await connect(small_queue, autocommit=True) as listening,
        ):
            await deaf.execute(f"LISTEN {CHANNEL}")
            async with deaf.transaction():
                await deaf.execute("SELECT 1")
                await fill(filling)
                notifier = Notifier(announcing, TOPIC, nothing)
                running = asyncio.create_task(notifier.run())
                notifier.notify({0: 1}, ())
                await notifier.until_drained()
                assert not running.done()
            await listening.execute(f"LISTEN {CHANNEL}")
            # The listener reads its notifications, so that the queue is emptied.
            while await usage(filling) > 0.5:
                await deaf.execute("SELECT 1")
            notifier.notify({0: 2}, ())
            async for told in listening.notifies(timeout=ON_SERVERS, stop_after=1):
                assert told.payload == f"{TOPIC} 0:2 #"
                break
            else:
                raise AssertionError("nothing was announced any more")
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(run())
