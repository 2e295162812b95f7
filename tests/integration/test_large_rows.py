"""Rows that may be as large as a record are fetched in small pages."""

import asyncio

import psycopg
import pytest
from psycopg import AsyncServerCursor
from tests.support.rows import write

from frameledger.record import MAX_VALUE_BYTES
from frameledger_services.store import lost_frames, stored_rows, tables, transfer
from frameledger_services.store.lost_frames import LostRange

MAX_BYTES = 256 << 20


async def of_an_export(connection):
    return [rows async for rows in transfer.table_rows(connection, tables.frames, "c")]


async def of_a_verification(connection):
    rows = stored_rows.rows(connection, "c")
    try:
        return await rows.begun.upto(1)
    finally:
        await rows.close()


async def of_a_recovery(connection):
    return [row async for row in lost_frames.lost_frames(connection, [LostRange(0, 1, 0)])]


@pytest.mark.regression("fault 164")
@pytest.mark.parametrize("read", [of_an_export, of_a_verification, of_a_recovery])
def test_large_rows_are_fetched_few_at_a_time(database, read):
    fetched = []

    class Noting(AsyncServerCursor):
        async def fetchmany(self, size=0):
            fetched.append(size)
            return await super().fetchmany(size)

        def __aiter__(self):
            fetched.append(self.itersize)
            return super().__aiter__()

    with psycopg.connect(database) as filling:
        write(
            filling, "c", [b'{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"Hi"}]}']
        )

    async def run():
        async with await psycopg.AsyncConnection.connect(database) as connection:
            connection.server_cursor_factory = Noting
            return await read(connection)

    assert asyncio.run(run())
    assert max(fetched) * MAX_VALUE_BYTES <= MAX_BYTES
