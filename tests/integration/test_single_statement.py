"""The statement that writes a small batch: what it writes does not depend on how many rows there are, and it is fenced
whoever comes first."""

import asyncio
from datetime import UTC, datetime

import psycopg
import pytest
from psycopg import AsyncConnection
from tests.bounds import ON_SERVERS

from frameledger_services.store import binary_copy, checkpoints, projections, single_statement, tables
from frameledger_services.store.batch import Insert, Update, insert_of
from frameledger_services.store.projections import Progress

TOPIC = "llm.frames"
NOW = datetime(2026, 3, 4, 4, 53, 20, 123456, tzinfo=UTC)
TEXTS = ('{"a" : 1.0}', '[ "\\u0000", "\\\\x41" ]', '"\N{SNOWMAN}"')
"""JSON whose text would change if it were parsed and written again."""

COLUMNS = ("context_id", "name", "valid_from", "value")


class Projector:
    """A connection that owns two partitions."""

    def __init__(self, address):
        self._address = address

    async def __aenter__(self):
        self.connection = await AsyncConnection.connect(self._address, autocommit=True)
        binary_copy.prepare(self.connection)
        self._cursor = single_statement.cursor_of(self.connection)
        self._owned = [await projections.assign(self.connection, TOPIC, number, "it") for number in (0, 1)]
        return self

    async def __aexit__(self, *_):
        await self.connection.close()

    def progress(self, count, begin=0):
        return [
            Progress(one.partition, one.epoch, begin, begin + 1, None, 7, b"\x00\\x41", NOW)
            for one in reversed(self._owned[:count])
        ]

    async def store(self, *writes, count=1, begin=0):
        return await single_statement.store(self._cursor, TOPIC, self.progress(count, begin), (), writes)


def values(numbers):
    return Insert(
        tables.context_settings, COLUMNS, [("ctx", "tools", n, TEXTS[n - 1].encode()) for n in numbers]
    )


def call(ordinal, **columns):
    return {"context_id": "ctx", "requested_version": 1, "ordinal": ordinal, **columns}


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("at_once", [False, True], ids=["a row at a time", "all rows at once"])
def test_json_stays_as_it_is_and_the_partitions_move(database, at_once, partitions):
    async def write():
        async with Projector(database) as projector:
            for begin, numbers in enumerate([(1, 2, 3)] if at_once else [(1,), (2,), (3,)]):
                moved = await projector.store(values(numbers), count=partitions, begin=begin)
                assert moved == set(range(partitions))

    asyncio.run(write())
    with psycopg.connect(database) as connection:
        kept = connection.execute("SELECT value::text FROM context_settings ORDER BY valid_from").fetchall()
        assert tuple(text for (text,) in kept) == TEXTS
        rows = connection.execute(
            "SELECT next_offset, last_offset, last_hash, last_logged_at FROM projections ORDER BY partition"
        ).fetchall()
    assert rows[:partitions] == [(1 if at_once else 3, 7, b"\x00\\x41", NOW)] * partitions


@pytest.mark.parametrize("at_once", [False, True], ids=["a row at a time", "all rows at once"])
def test_a_change_changes_what_it_names_and_counts_what_is_counted(database, at_once):
    def calls(rows):
        return Update(tables.tool_calls, ("context_id", "requested_version", "ordinal"), rows)

    changes = [
        call(0, progress_count=2, status="running", started_at=NOW),
        call(1, function_name="other", synchronous=None),
    ]

    async def write():
        async with Projector(database) as projector:
            new = {
                "requested_at": NOW,
                "tool_call_id": "it",
                "function_name": "f",
                "status": "announced",
                "arguments": b"{}",
            }
            rows = [call(ordinal, **new, progress_count=1, synchronous=True) for ordinal in (0, 1)]
            await projector.store(insert_of(tables.tool_calls, rows))
            for begin, rows in enumerate([changes] if at_once else [[one] for one in changes], 1):
                await projector.store(calls(rows), begin=begin)

    asyncio.run(write())
    with psycopg.connect(database) as connection:
        assert connection.execute(
            "SELECT progress_count, status, started_at, function_name, synchronous, tool_call_id "
            "FROM tool_calls ORDER BY ordinal"
        ).fetchall() == [
            (3, "running", NOW, "f", True, "it"),
            (1, "announced", None, "other", None, "it"),
        ]


def test_what_each_row_changes_is_changed_whether_another_changes_more_or_less(database):
    def runs(rows):
        return Update(tables.runs, ("context_id", "run_id"), rows, usual=frozenset({"status", "worker"}))

    def a_run(ordinal, **columns):
        return {"context_id": "ctx", "run_id": f"run-{ordinal}", **columns}

    async def write():
        async with Projector(database) as projector:
            new = {"requested_version": 1, "requested_at": NOW, "trigger": "it", "status": "open"}
            await projector.store(
                insert_of(tables.runs, [a_run(number, **new, model="m") for number in (0, 1)])
            )
            plain = [a_run(number, status="ended", worker=None) for number in (0, 1)]
            await projector.store(runs(plain), begin=1)
            more = [a_run(0, status="failed", worker="w"), a_run(1, status="failed", worker="w", model=None)]
            await projector.store(runs(more), begin=2)
            less = [a_run(0, worker="other"), a_run(1, status="dropped", worker=None, model="n")]
            await projector.store(runs(less), begin=3)

    asyncio.run(write())
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT status, worker, model FROM runs ORDER BY run_id").fetchall() == [
            ("failed", "other", "m"),
            ("dropped", None, "n"),
        ]


@pytest.mark.parametrize("count", [1, 2])
def test_text_with_nul_is_refused_by_the_database_and_nothing_is_done(database, count):
    """Only an error of the database parks a conversation; an error of the driver would recur forever."""

    async def write():
        async with Projector(database) as projector:
            rows = [("ctx", f"a\x00{number}", 1, b"1") for number in range(count)]
            with pytest.raises(psycopg.Error) as refused:
                await projector.store(Insert(tables.context_settings, COLUMNS, rows))
            assert refused.value.sqlstate[:2] == "22"
            assert await projector.store(values([1])) == {0}

    asyncio.run(write())


@pytest.mark.parametrize("count", [1, 2])
def test_who_loses_a_partition_while_it_waits_for_it_writes_nothing(database, count):
    async def write():
        async with (
            Projector(database) as projector,
            await AsyncConnection.connect(database, autocommit=True) as other,
        ):
            async with other.transaction():
                await projections.assign(other, TOPIC, 0, "other")
                storing = asyncio.create_task(projector.store(values([1]), count=count))
                await waits(other, projector.connection.info.backend_pid)
            assert await storing == set(range(1, count))
            assert await checkpoints.still_owned(other, TOPIC, projector.progress(2)) == {1}
            rows = await (await other.execute("SELECT FROM context_settings")).fetchall()
            assert rows == []

    asyncio.run(write())


async def waits(connection, pid):
    """Wait until this session waits for a lock."""
    async with asyncio.timeout(ON_SERVERS):
        while True:
            cursor = await connection.execute("SELECT FROM pg_locks WHERE pid = %s AND NOT granted", (pid,))
            if await cursor.fetchone() is not None:
                return
