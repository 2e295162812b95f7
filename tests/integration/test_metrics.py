"""The metrics of the services with the real pipeline."""

import asyncio

import psycopg

from frameledger_services.store import work_to_do


def test_what_there_is_to_do_is_counted(database):
    async def count():
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            await connection.execute(
                'INSERT INTO outbox (topic, partition, "offset", ordinal, recorded_at, kind, to_topic, headers)'
                " VALUES ('t', 0, 0, 0, clock_timestamp() - interval '1 hour', 'effect', 'e', '[]'),"
                " ('t', 0, 1, 0, clock_timestamp(), 'forward', 't', '[]')"
            )
            return await work_to_do.count(connection)

    found = asyncio.run(count())
    assert found.outbox_rows == {"effect": 1, "forward": 1, "dead_letter": 0}
    assert found.outbox_oldest_seconds >= 3_600
    assert (found.contexts_parked, found.calls_waiting, found.calls_ambiguous, found.runs_open) == (
        0,
        0,
        0,
        0,
    )
