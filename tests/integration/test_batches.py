"""The projector's batches on a real database: whatever the cut, the tables say what the fold says, each frame once."""

import asyncio
import itertools
import json
from pathlib import Path

import psycopg
import pytest

from frameledger.fold import Conversation, Folding
from frameledger.partition import partition_for
from frameledger.record import DecodeError, Record, decode
from frameledger_services.projector.batches import Batches, FencedError, Owned, Topics
from frameledger_services.projector.cache import HeadCache
from frameledger_services.store import copying, projections

HISTORIES = sorted((Path(__file__).parents[1] / "histories").glob("*.jsonl"))
PARTITIONS = 4
TOPIC = "llm.frames"
FOLDED = ("frames", "messages", "eras", "context_settings", "contexts", "runs", "tool_calls")
TOPICS = Topics(
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
    """Records as they would lie on the partitions of a topic."""

    def __init__(self):
        self.records = []
        self._offsets = dict.fromkeys(range(PARTITIONS), 0)

    def add(self, key, value, *, partition=None, headers=()):
        key = key.encode() if isinstance(key, str) else key
        partition = partition_for(key or b"", PARTITIONS) if partition is None else partition
        offset = self._offsets[partition]
        self._offsets[partition] = offset + 1
        time = 1_770_000_000_000 + 10 * len(self.records)
        self.records.append(Record(TOPIC, partition, offset, key, value, headers, time))


class Projecting:
    """A projector without Kafka: it owns all partitions and is handed their records."""

    def __init__(self, address, *, cache_bytes=1 << 20, owner="test"):
        self.address = address
        self.cache = HeadCache(cache_bytes)
        self.owner = owner
        self.outbox = []

    async def __aenter__(self):
        self.connection = await psycopg.AsyncConnection.connect(self.address, autocommit=True)
        copying.prepare(self.connection)
        self.owned = {}
        for partition in range(PARTITIONS):
            taken = await projections.assign(self.connection, TOPIC, partition, self.owner)
            self.owned[partition] = Owned(partition, taken.epoch, taken.next_offset)
        self.batches = Batches(self.connection, TOPICS, self.cache)
        return self

    async def __aexit__(self, *_):
        await self.connection.close()

    async def store(self, records):
        positions = {record.partition: record.offset + 1 for record in records}
        self.outbox += await self.batches.store(records, self.owned, positions)


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
    """All histories on one log, a frame of each in turn."""
    log = Log()
    lines = [[(path.stem, line) for line in path.read_bytes().splitlines()] for path in HISTORIES]
    for turn in itertools.zip_longest(*lines):
        for one in turn:
            if one is not None:
                log.add(*one)
    return log.records


def folded(path):
    """The contexts of a history after 0, 1, 2 ... frames, and the steps."""
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


@pytest.mark.parametrize(
    ("sizes", "cache_bytes"), [((1, 7, 64, 3), 1 << 20), ((1000,), 1 << 20), ((5,), 1)], ids=str
)
def test_every_history_reads_back_at_every_version_as_it_folds(database, sizes, cache_bytes):
    project(database, histories_interleaved(), sizes=sizes, cache_bytes=cache_bytes)
    with psycopg.connect(database) as connection:
        for path in HISTORIES:
            contexts, steps = folded(path)
            for version, context in enumerate(contexts):
                stored = value_of(connection, "SELECT context_at(%s, %s)", path.stem, version)
                assert stored == context, (path.stem, version)
            outcomes = connection.execute(
                "SELECT outcome, reason FROM frames WHERE context_id = %s ORDER BY version", (path.stem,)
            ).fetchall()
            assert outcomes == [(step.outcome, step.reason) for step in steps]
            intact = connection.execute("SELECT intact FROM verify_chain(%s)", (path.stem,)).fetchone()
            assert intact == (True,)


def test_cutting_the_log_otherwise_gives_the_same_rows(make_database, migrated_template):
    tables = []
    for sizes in ((1,), (13, 2), (5000,)):
        address = make_database(template=migrated_template)
        project(address, histories_interleaved(), sizes=sizes)
        tables.append(dump(address))
    assert tables[0] == tables[1] == tables[2]


def test_a_frame_that_comes_again_is_counted_and_one_with_a_used_id_is_set_aside(database):
    log = Log()
    for value in (
        b'{"type":"LLMRunFrame","id":"a"}',
        b'{"type":"LLMRunFrame","id":"a"}',
        b'{"type":"LLMRunFrame","id":"a","pts":1}',
        b'{"type":"LLMRunFrame"}',
        b'{"type":"LLMRunFrame"}',
    ):
        log.add("ctx", value)
    for size in (1, 5):
        # The second projector has none of these heads in memory, and is handed everything once more.
        project(database, [again(record, 10 * size) for record in log.records], sizes=(size,))
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT version, duplicate_count FROM contexts").fetchall() == [(5, 3)]
        assert connection.execute("SELECT code FROM rejected_frames").fetchall() == [("id_reused",)] * 2


def test_records_of_a_foreign_partition_are_forwarded_and_what_is_no_frame_is_a_dead_letter(database):
    log = Log()
    home = partition_for(b"ctx", PARTITIONS)
    log.add("ctx", b'{"type":"LLMRunFrame"}', partition=(home + 1) % PARTITIONS)
    log.add("ctx", b"no frame")
    outbox = project(database, log.records)
    assert [(row.kind, row.to_topic, row.key) for row in outbox] == [
        ("forward", TOPIC, b"ctx"),
        ("dead_letter", "llm.frames.dlq", b"ctx"),
    ]
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM frames").fetchone() == (0,)
        assert connection.execute("SELECT code, value FROM rejected_frames").fetchall() == [
            ("not_json", b"no frame")
        ]


def test_who_lost_a_partition_is_fenced_and_stores_nothing(database):
    log = Log()
    log.add("ctx", b'{"type":"LLMRunFrame"}')

    async def run():
        async with (
            Projecting(database, owner="first") as first,
            Projecting(database, owner="second") as second,
        ):
            with pytest.raises(FencedError):
                await first.store(log.records)
            await second.store(log.records)

    asyncio.run(run())
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM frames").fetchone() == (1,)


def test_a_conversation_that_the_database_refuses_is_parked_and_the_others_go_on(database, monkeypatch):
    log = Log()
    for number in range(6):
        log.add("bad" if number % 2 else "good", b'{"type":"LLMRunFrame","id":"%d"}' % number)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("ALTER TABLE runs ADD CONSTRAINT refused CHECK (context_id <> 'bad') NOT VALID")
        project(database, log.records, sizes=(6,))
        assert connection.execute(
            "SELECT context_id, outcome, count(*)::int FROM frames GROUP BY 1, 2 ORDER BY 1"
        ).fetchall() == [("bad", "parked", 3), ("good", "applied", 3)]
        assert value_of(connection, "SELECT since FROM parked") == 1


def again(record, by):
    """The same record later on its partition."""
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
    """Every row of the tables that are folded, without the database's clock and what depends on the cut."""
    with psycopg.connect(address) as connection:
        return {table: rows_of(connection, table) for table in FOLDED}


def value_of(connection, query, *parameters):
    """The one value of a query's one row."""
    row = connection.execute(query, parameters).fetchone()
    assert row is not None, query
    return row[0]


def rows_of(connection, table):
    rows = [
        json.loads(text) for (text,) in connection.execute(f"SELECT row_to_json(t)::text FROM {table} AS t")
    ]
    for row in rows:
        for name in ("recorded_at", "state", "state_version"):
            row.pop(name, None)
    return sorted(map(json.dumps, rows))
