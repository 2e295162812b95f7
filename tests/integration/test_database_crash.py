"""The database crashes: every effect was published from durable rows, and lost rows are folded again to the same
rows."""

import asyncio
import json
import os
import signal
import threading
import time
from contextlib import contextmanager, suppress

import psycopg
import pytest
from tests.bounds import ON_SERVERS, ONE_ANSWER
from tests.support import batches
from tests.support.batches import TOPIC, Log, Projecting, histories_interleaved, value_of
from tests.support.polling import pause

from frameledger_services import failpoints
from frameledger_services.embedded import ports, postgres
from frameledger_services.embedded.running import start, stop, wait_until_ready
from frameledger_services.projector.relay import Relay
from frameledger_services.store import migration, progress_channel

TABLES = {
    "frames": "context_id, version, frame_id, outcome, payload::text, chain",
    "messages": "context_id, era, position, valid_from, valid_to, message::text",
    "contexts": "context_id, version, chain",
    "runs": "context_id, run_id, status",
    "tool_calls": "context_id, requested_version, ordinal, status",
    "outbox": 'topic, partition, "offset", ordinal, value',
    "projections": "partition, next_offset, last_hash",
}

WRITERS = ("walwriter", "background writer", "checkpointer")
"""Processes of PostgreSQL that write to disk in the background what no commit waits for."""


class Crashing:
    """A PostgreSQL of its own that writes nothing to disk unless a commit asks it to."""

    def __init__(self, directory):
        # No fsync: a process that is killed loses what is in its memory, and not what it gave to the kernel. Nor does
        # anybody commit beside the test, which would bring to disk what nobody waits for.
        settings = {"fsync": "off", "io_method": "sync", "autovacuum": "off"}
        self.server = postgres.prepare(directory, ports.choose(0), settings=settings)
        self._process = start(self.server.program)
        self._stopped: list[int] = []

    @property
    def address(self):
        return self.server.dsn

    def ready(self):
        wait_until_ready(self.server.program, self._process)
        migration.migrate(self.address)
        self._stop_those_who_bring_to_disk_what_nobody_waits_for()

    def crash(self):
        """Kill all processes, which loses what they have in memory, and start again."""
        self._signal(signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._stopped = []
        self._process = start(self.server.program)
        wait_until_ready(self.server.program, self._process)
        self._stop_those_who_bring_to_disk_what_nobody_waits_for()

    def crash_one_process(self, pid):
        """Kill the process of one session: the postmaster lives on, ends all others and recovers."""
        began = self._began()
        # The writers have to be able to end.
        self._signal(signal.SIGCONT)
        self._stopped = []
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + ON_SERVERS
        while self._began() in (None, began):
            assert time.monotonic() < until
            pause()

    def _began(self):
        """Returns when PostgreSQL started last; None while it does not answer."""
        with suppress(psycopg.OperationalError), psycopg.connect(self.address) as connection:
            return value_of(connection, "SELECT stats_reset FROM pg_stat_bgwriter")

    def stop(self):
        self._signal(signal.SIGCONT)
        stop(self.server.program, self._process)

    def _stop_those_who_bring_to_disk_what_nobody_waits_for(self):
        with psycopg.connect(self.address, autocommit=True) as connection:
            while True:
                query = "SELECT array_agg(pid) FROM pg_stat_activity WHERE backend_type = ANY (%s)"
                writers = value_of(connection, query, list(WRITERS)) or []
                if len(writers) < len(WRITERS):
                    pause()
                    continue  # it has just begun
                self._stopped = writers
                self._signal(signal.SIGSTOP)
                # A writer that was stopped in the middle of something may hold a lock that others need, also this
                # query. A wait for such a lock cannot be cancelled, so the writers are resumed if there is no answer.
                query = (
                    "SELECT bool_and(wait_event_type = 'Activity') FROM pg_stat_activity WHERE pid = ANY (%s)"
                )
                went_on = threading.Event()
                waking = threading.Timer(ONE_ANSWER, self._go_on, [went_on])
                waking.start()
                try:
                    are_idle = value_of(connection, query, writers)
                finally:
                    waking.cancel()
                    waking.join()
                if are_idle and not went_on.is_set():
                    return
                self._signal(signal.SIGCONT)

    def _go_on(self, went_on):
        went_on.set()
        self._signal(signal.SIGCONT)

    def _signal(self, number):
        for child in self._stopped:
            os.kill(child, number)


@contextmanager
def crashing(directory):
    made = Crashing(directory)
    try:
        made.ready()
        yield made
    finally:
        made.stop()


@pytest.fixture
def server(tmp_path):
    with crashing(tmp_path) as made:
        yield made


STARTS = """
    (SELECT json_agg((context_id, requested_version, ordinal, started_version, worker, attempt, claim)
                     ORDER BY context_id, requested_version, ordinal)::text
     FROM tool_calls WHERE started_at IS NOT NULL)
"""


def rows(address):
    with psycopg.connect(address) as connection:
        return {
            table: connection.execute(f"SELECT {columns} FROM {table} ORDER BY {columns}").fetchall()
            for table, columns in TABLES.items()
        }


def said(*words):
    log = Log()
    for word in words:
        frame = {"type": "TranscriptionFrame", "user_id": "u", "timestamp": "", "text": word}
        log.add("ctx", json.dumps(frame).encode())
    return log.records


def project(address, records):
    """Start a projector that stores, one by one, those of these records that are not stored yet."""

    async def run():
        async with Projecting(address) as projecting:
            for record in records:
                if record.offset >= projecting.owned[record.partition].next_offset:
                    await projecting.store([record])

    asyncio.run(run())


def test_what_was_not_on_disk_is_gone_as_a_whole_and_what_was_announced_is_not(server):
    """The frames that are gone are folded again, to the same rows."""
    records = said("One.", "Two.", "Three.")
    partition = records[0].partition

    async def run():
        async with (
            Projecting(server.address) as projecting,
            await psycopg.AsyncConnection.connect(server.address, autocommit=True) as announcing,
        ):
            await projecting.store(records[:1])
            asked = list(projecting.outbox)
            await projecting.store(records[1:2])
            await progress_channel.notify_progress(announcing, TOPIC, {partition: 2})
            await projecting.store(records[2:])
            # The second and the third request nothing, so their commits did not wait for the disk.
            assert projecting.outbox == asked != []

    asyncio.run(run())
    seen = rows(server.address)
    assert [row[1] for row in seen["frames"]] == [1, 2, 3]

    server.crash()

    left = rows(server.address)
    assert [row[1] for row in left["frames"]] == [1, 2]
    assert [row[1] for row in left["contexts"]] == [2]
    assert {row[:2] for row in left["projections"] if row[1]} == {(partition, 2)}
    project(server.address, records)
    assert rows(server.address) == seen


@pytest.mark.long
def test_what_anybody_acts_upon_is_on_disk_when_it_is_committed_or_published(server):
    """The start of a call, and effects: because of these a worker starts what must not start twice."""
    starts, effects = {True: 0, False: 0}, {True: 0, False: 0}

    async def run():
        async with (
            Projecting(server.address) as projecting,
            await psycopg.AsyncConnection.connect(server.address, autocommit=True) as looking,
            await psycopg.AsyncConnection.connect(server.address, autocommit=True) as relaying,
        ):

            async def is_on_disk():
                rest = await one(
                    looking, "pg_wal_lsn_diff(pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn())"
                )
                # At the end of a page the next record begins after a header, which does not exist yet.
                return rest < 100

            async def send(rows):
                assert await is_on_disk(), rows
                return []

            relay = Relay(relaying, send, failpoints.none)
            running = asyncio.create_task(relay.run())
            calls = None
            for record in histories_interleaved():
                published = len(projecting.outbox)
                await projecting.store([record])
                was_on_disk = await is_on_disk()
                before, calls = calls, await one(looking, STARTS)
                assert was_on_disk or calls == before, record
                starts[was_on_disk] += calls != before
                if rows := projecting.outbox[published:]:
                    effects[was_on_disk] += 1
                    relay.enqueue(rows)
                    await relay.until_drained()
            running.cancel()
            await asyncio.wait([running])

    async def one(connection, what):
        return (await (await connection.execute(f"SELECT {what}")).fetchone())[0]

    asyncio.run(run())
    assert starts[True] > 50, starts
    # Otherwise the relay would not have had to wait.
    assert effects[False] > 100, effects


@pytest.mark.long
def test_the_rows_are_the_same_however_often_the_database_dies(server, database):
    records = histories_interleaved()
    batches.project(database, records)
    for end in (40, 90, 91, 150, len(records)):
        project(server.address, records[:end])
        server.crash()
    project(server.address, records)
    assert rows(server.address) == rows(database)
