"""The projector without Kafka: records of a topic, a projector that stores them, and the resulting tables."""

import asyncio
import itertools
import json
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from tests.support.databases import made

from frameledger.fold import Conversation, Folding
from frameledger.partition import partition_for
from frameledger.record import DecodeError, Record, decode
from frameledger_services.projector import commits
from frameledger_services.projector.batches import Batches
from frameledger_services.projector.commits import Commits
from frameledger_services.projector.head_cache import HeadCache
from frameledger_services.projector.ownership import OwnedPartition, ProjectorTopics
from frameledger_services.store import binary_copy, held_effects, projections

HISTORIES = sorted((Path(__file__).parents[1] / "histories").glob("*.jsonl"))

LATER = (
    "answered-elsewhere",
    "client-functions",
    "coalesced-inputs",
    "heard-in-parts",
    "kept-elsewhere",
    "kept-of-an-attempt",
    "limits",
    "no-room",
    "one-call-two-hands",
    "rewritten",
    "second-inputs",
)
"""Histories that were added later. They come after the others, whose times pages show. Add a new history here."""

PARTITIONS = 4

TOPIC = "llm.frames"

FOLDED = ("frames", "messages", "eras", "context_settings", "contexts", "runs", "tool_calls")

TOPICS = ProjectorTopics(
    frames=TOPIC,
    dead_letters="llm.frames.dlq",
    effects={
        "run_inference": "llm.inference",
        "call_function": "llm.function-calls",
        "cancel": "llm.cancellations",
    },
    partitions=PARTITIONS,
)


class Log:
    """Records as on the partitions of a topic."""

    def __init__(self, topic=TOPIC):
        self.topic = topic
        self.records = []
        self._offsets = dict.fromkeys(range(PARTITIONS), 0)

    def add(self, key, value, *, partition=None, headers=()):
        key = key.encode() if isinstance(key, str) else key
        partition = partition_for(key or b"", PARTITIONS) if partition is None else partition
        offset = self._offsets[partition]
        self._offsets[partition] = offset + 1
        time = 1_770_000_000_000 + 10 * len(self.records)
        self.records.append(Record(self.topic, partition, offset, key, value, headers, time))


class Projecting:
    """A projector without Kafka: it owns all partitions and gets their records as arguments."""

    def __init__(self, address, *, cache_bytes=1 << 20, owner="test", rebuild_frames=0, topic=TOPIC):
        self.address = address
        self.topics = replace(TOPICS, frames=topic)
        self.rebuild_frames = rebuild_frames
        self.cache = HeadCache(cache_bytes)
        self.owner = owner
        self.outbox = []

    async def __aenter__(self):
        self.connection = await psycopg.AsyncConnection.connect(self.address, autocommit=True)
        binary_copy.prepare(self.connection)
        self.owned = {}
        for partition in range(PARTITIONS):
            taken = await projections.assign(self.connection, self.topics.frames, partition, self.owner)
            await held_effects.hold(self.connection, self.topics.frames, partition, taken.epoch, None)
            self.owned[partition] = OwnedPartition(partition, taken.epoch, taken.next_offset)
        self.batches = Batches(
            Commits(self.connection, self.topics, self.cache, rebuild_frames=self.rebuild_frames)
        )
        return self

    async def __aexit__(self, *_):
        if not self.connection.closed:
            # So that readers trust the tables although the projector has stopped. Asynchronous like the commit of a
            # batch, because this must not flush anything to disk.
            async with self.connection.transaction():
                await self.connection.execute("SET LOCAL synchronous_commit = off")
                await self.connection.execute(
                    "UPDATE projections SET owner_pid = NULL WHERE owner = %s", (self.owner,)
                )
        await self.connection.close()

    async def store(self, records):
        positions = {record.partition: record.offset + 1 for record in records}
        self.outbox += await self.batches.store([(one, None) for one in records], self.owned, positions)


def project(address, records, *, sizes=(1, 7, 64, 3), cache_bytes=1 << 20):
    async def run():
        async with Projecting(address, cache_bytes=cache_bytes) as projecting:
            rest, every_size = list(records), itertools.cycle(sizes)
            while rest:
                size = next(every_size)
                batch, rest = rest[:size], rest[size:]
                await projecting.store(batch)
            return projecting.outbox

    return asyncio.run(run())


def histories_interleaved():
    """Returns all histories on one log, interleaved frame by frame, followed by the later ones in the same way."""
    log = Log()
    for some in (False, True):
        lines = [
            [(path.stem, line) for line in path.read_bytes().splitlines()]
            for path in HISTORIES
            if (path.stem in LATER) == some
        ]
        for turn in itertools.zip_longest(*lines):
            for one in turn:
                if one is not None:
                    log.add(*one)
    return log.records


@pytest.fixture(params=[0, 64], ids=["each by itself", "all at once"])
def both_writers(monkeypatch, request):
    """Runs a test twice: with batches written by a statement per table, and with small batches written by one
    statement."""
    monkeypatch.setattr(commits, "SMALL_RECORDS", request.param)


@pytest.fixture(scope="module", name="filled")
def database_of_histories(database_server, migrated_template):
    """The address of a database with all histories. The tests of a module only read it."""
    with made(database_server, template=migrated_template) as (_, address):
        project(address, histories_interleaved(), sizes=(500,))
        yield address


def folded(path):
    """Returns the contexts of a history after 0, 1, 2 ... frames, and the steps."""
    folding = Folding(Conversation.new(path.stem))
    contexts, steps = [folding.conversation().context.to_wire()], []
    for line in path.read_bytes().splitlines():
        try:
            step = folding.step(decode(line))
        except DecodeError:
            continue
        if step is not None:
            contexts.append(folding.conversation().context.to_wire())
            steps.append(step)
    return contexts, steps


def again(record, by):
    """Returns the same record at a later offset of its partition."""
    return Record(
        record.topic,
        record.partition,
        record.offset + by,
        record.key,
        record.value,
        record.headers,
        record.timestamp_ms,
    )


def dump(address):
    """Returns every row of the folded tables, without the database's clock, columns that depend on the batches, and the
    number of rebuilds."""
    with psycopg.connect(address) as connection:
        return {table: rows_of(connection, table) for table in FOLDED}


def same(dumped, expected):
    """Assert that both databases have the same tables with the same rows, table by table."""
    assert dumped.keys() == expected.keys()
    for table, rows in expected.items():
        assert dumped[table] == rows, table


def value_of(connection, query, *parameters):
    """Returns the only value of a query's only row."""
    row = connection.execute(query, parameters).fetchone()
    assert row is not None, query
    return row[0]


def rows_of(connection, table):
    rows = [
        json.loads(text) for (text,) in connection.execute(f"SELECT row_to_json(t)::text FROM {table} AS t")
    ]
    for row in rows:
        for name in ("recorded_at", "state", "state_version", "rebuilt"):
            row.pop(name, None)
    return sorted(map(json.dumps, rows))
