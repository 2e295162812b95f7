"""Offsets without records, as transactions leave them: no record is missed, no aborted one is read, and no gap is
reported."""

import asyncio

import psycopg
from aiokafka import AIOKafkaProducer
from tests.support.batches import value_of
from tests.support.killable import projector
from tests.support.pipeline import own_pipeline  # noqa: F401  # a fixture

from frameledger.partition import partition_for

KEY = b"ctx"
COMMITTED, ABORTED = "committed", "aborted"


def transactions(pipeline, *ends):
    """Publish a transaction of two frames for each of `ends`; the frames contain that word."""

    async def run():
        producer = AIOKafkaProducer(
            bootstrap_servers=pipeline.settings.kafka_bootstrap_servers,
            transactional_id=f"{pipeline.settings.topic_prefix}publisher",
        )
        await producer.start()
        try:
            for end in ends:
                await producer.begin_transaction()
                for _ in range(2):
                    value = b'{"type":"LLMRunFrame","metadata":{"end":"%s"}}' % end.encode()
                    await producer.send_and_wait(
                        pipeline.names.frames, value, key=KEY, partition=partition_for(KEY, 4)
                    )
                await (producer.commit_transaction() if end == COMMITTED else producer.abort_transaction())
        finally:
            await producer.stop()

    asyncio.run(run())


def test_committed_frames_are_stored_and_aborted_ones_are_not_and_the_end_is_behind_the_last_marker(pipeline):
    with projector(pipeline.settings) as running:
        transactions(pipeline, COMMITTED, ABORTED, COMMITTED, ABORTED)
        pipeline.until_idle(running)
        transactions(pipeline, ABORTED)
        pipeline.until_idle(running)
        transactions(pipeline, COMMITTED)
        pipeline.until_idle(running)
        assert running.stop() == 0
    folded = pipeline.check(every=1)
    assert len(folded.frames) == 6
    with psycopg.connect(pipeline.address) as connection:
        ends = connection.execute(
            "SELECT payload -> 'metadata' ->> 'end', count(*)::int FROM frames GROUP BY 1"
        ).fetchall()
        assert ends == [(COMMITTED, 6)]
        # Eighteen offsets: six transactions of two records and a marker.
        where = connection.execute("SELECT max(next_offset), max(end_offset) FROM projections").fetchone()
        assert where == (18, 18)
        assert connection.execute("SELECT count(*)::int FROM lag WHERE gap <> 0").fetchone() == (0,)


def test_a_projector_that_starts_behind_a_marker_goes_on_there(pipeline):
    for ends in ((COMMITTED, ABORTED), (ABORTED,), (COMMITTED,)):
        transactions(pipeline, *ends)
        with projector(pipeline.settings) as running:
            pipeline.until_idle(running)
            assert running.stop() == 0
    assert len(pipeline.check(every=1).frames) == 4


def test_what_is_committed_waits_for_an_open_transaction_before_it_and_is_stored_when_that_ends(pipeline):
    async def run(running):
        options = {"bootstrap_servers": pipeline.settings.kafka_bootstrap_servers}
        hanging = AIOKafkaProducer(**options, transactional_id=f"{pipeline.settings.topic_prefix}hanging")
        plain = AIOKafkaProducer(**options)
        await hanging.start()
        await plain.start()
        try:
            home = partition_for(KEY, 4)
            place = {"key": KEY, "partition": home}
            await plain.send_and_wait(pipeline.names.frames, b'{"type":"LLMRunFrame","id":"1"}', **place)
            await hanging.begin_transaction()
            await hanging.send_and_wait(pipeline.names.frames, b'{"type":"LLMRunFrame","id":"2"}', **place)
            await plain.send_and_wait(pipeline.names.frames, b'{"type":"LLMRunFrame","id":"3"}', **place)
            other = 0 if home else 1
            await plain.send_and_wait(pipeline.names.frames, b"elsewhere", key=b"k", partition=other)
            stored = "SELECT EXISTS (SELECT FROM rejected_frames) AND EXISTS (SELECT FROM frames)"
            await asyncio.to_thread(pipeline.until, stored)
            with psycopg.connect(pipeline.address) as connection:
                assert value_of(connection, "SELECT count(*) FROM frames") == 1
            await hanging.commit_transaction()
        finally:
            await hanging.stop()
            await plain.stop()
        await asyncio.to_thread(pipeline.until_idle, running)

    with projector(pipeline.settings) as running:
        asyncio.run(run(running))
        assert running.stop() == 0
    assert [version for _, version, *_ in pipeline.check(every=1).frames] == [1, 2, 3]
