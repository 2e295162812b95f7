"""A COPY that is cancelled, as by Ctrl-C."""

import asyncio
import logging

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from tests.bounds import ON_SERVERS
from tests.support.polling import pause

from frameledger_services.store import binary_copy, tables


def wait_for_a_copy_without_rows(address):
    with psycopg.connect(address, autocommit=True) as connection:
        while not connection.execute(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' "
            "AND query LIKE 'COPY%' AND wait_event = 'ClientRead'"
        ).fetchone():
            pause()


@pytest.mark.regression("fault 260")
def test_a_copy_that_is_cancelled_before_its_first_row_ends_without_a_warning(database, caplog):
    caplog.set_level(logging.WARNING, "psycopg")

    async def copy(connection, begun):
        async with connection, connection.transaction():
            begun.set()
            rows = [("ctx", 1, 0)]
            await binary_copy.copy_in(connection, tables.eras, ("context_id", "valid_from", "era"), rows)

    async def run():
        async with asyncio.timeout(ON_SERVERS):
            connection = await AsyncConnection.connect(database, autocommit=True)
            begun = asyncio.Event()
            task = asyncio.create_task(copy(connection, begun))
            await begun.wait()
            while connection.info.transaction_status != TransactionStatus.ACTIVE:
                await asyncio.wait({task}, timeout=0)
            # The server waits for rows then, and this process has not read its message that says so.
            wait_for_a_copy_without_rows(database)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    assert caplog.messages == []
