"""From publish to SQL on a real Kafka and a real PostgreSQL: every published frame is stored once."""

import asyncio
import itertools
import json

import psycopg
import pytest
from aiokafka.errors import GroupAuthorizationFailedError, GroupCoordinatorNotAvailableError
from tests.bounds import ON_SERVERS
from tests.support import no_coordinator
from tests.support.batches import HISTORIES, folded, rows_of, value_of
from tests.support.pipeline import die
from tests.support.polling import look_again
from tests.support.projecting import (  # noqa: F401  # a fixture
    make_topics,
    projecting,
    settings_of_its_own,
    until_projected,
)

from frameledger.record import Outgoing
from frameledger_services.event_log.consumer import consumer
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.projector import crashes, service
from frameledger_services.projector.log_check import LogChangedError
from frameledger_services.store import partition_progress


def histories_in_turn():
    lines = [[(path.stem, line) for line in path.read_bytes().splitlines()] for path in HISTORIES]
    return [one for turn in itertools.zip_longest(*lines) for one in turn if one is not None]


@pytest.mark.long
def test_every_history_that_is_published_reads_back_as_it_folds(settings):
    async def run():
        await make_topics(settings)
        records = [Outgoing(key.encode(), value, ()) for key, value in histories_in_turn()]
        async with Producer(settings) as producer, projecting(settings):
            places = await producer.publish(TopicNames(settings.topic_prefix).frames, records)
            await until_projected(settings, places)

    asyncio.run(run())
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        for path in HISTORIES:
            contexts, _ = folded(path)
            stored = value_of(connection, "SELECT context_at(%s)", path.stem)
            assert stored == contexts[-1], path.stem


@pytest.mark.regression("fault 133")
def test_a_projector_that_is_stopped_while_it_starts_ends_in_order(settings):
    async def run():
        await make_topics(settings)
        stopping = asyncio.Event()
        asyncio.get_running_loop().call_soon(stopping.set)
        async with asyncio.timeout(ON_SERVERS):
            await service.serve(settings, stopping)

    asyncio.run(run())


def test_a_projector_that_starts_again_goes_on_where_it_stopped(settings):
    async def run():
        await make_topics(settings)
        topic = TopicNames(settings.topic_prefix).frames
        records = [Outgoing(key.encode(), value, ()) for key, value in histories_in_turn()]
        async with Producer(settings) as producer:
            for some in (records[:100], records[100:101], records[101:]):
                places = await producer.publish(topic, some)
                async with projecting(settings):
                    await until_projected(settings, places)

    asyncio.run(run())
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        assert {json.loads(row)["context_id"] for row in rows_of(connection, "contexts")} == {
            path.stem for path in HISTORIES
        }
        for path in HISTORIES:
            contexts, _ = folded(path)
            stored = value_of(connection, "SELECT context_at(%s)", path.stem)
            assert stored == contexts[-1], path.stem
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,)


@pytest.mark.regression("journey 29")
def test_a_projector_without_frames_to_store_notices_that_its_sessions_were_ended(settings):
    address = settings.database_url.get_secret_value()
    topic = TopicNames(settings.topic_prefix).frames

    async def until_all_is_owned(connection):
        while True:
            reach = await partition_progress.progress(connection, topic)
            if len(reach) == settings.topic_partitions and all(one.is_owned for one in reach):
                return
            await look_again()

    async def run():
        await make_topics(settings)
        async with (
            projecting(settings),
            await psycopg.AsyncConnection.connect(address, autocommit=True) as seen,
            asyncio.timeout(ON_SERVERS),
        ):
            await until_all_is_owned(seen)
            await seen.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            await until_all_is_owned(seen)

    asyncio.run(run())


def test_a_record_over_which_projectors_die_again_and_again_is_parked(settings):
    """Each of them took over the partition and died at the record; the next owner parks it."""
    key = b"deadly"

    async def run():
        await make_topics(settings)
        topic = TopicNames(settings.topic_prefix).frames
        async with Producer(settings) as producer:
            values = [b'{"type":"LLMRunFrame","id":"%d"}' % number for number in range(3)]
            places = await producer.publish(topic, [Outgoing(key, value, ()) for value in values])
            address = settings.database_url.get_secret_value()
            for attempt in ["batch"] * crashes.ISOLATED_AFTER + ["record"] * crashes.PARKED_AFTER:
                await asyncio.to_thread(die, address, topic, places[0].partition, attempt)
            async with projecting(settings):
                await until_projected(settings, places)

    asyncio.run(run())
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        outcomes = connection.execute("SELECT outcome FROM frames ORDER BY version").fetchall()
        assert outcomes == [("parked",)] * 3
        assert "projectors crashed" in value_of(connection, "SELECT parked_error FROM contexts")


def test_a_log_that_is_not_the_one_that_was_projected_stops_the_projector_and_is_named(settings):
    async def run():
        await make_topics(settings)
        topic = TopicNames(settings.topic_prefix).frames
        async with Producer(settings) as producer:
            places = await producer.publish(topic, [Outgoing(b"ctx", b'{"type":"LLMRunFrame"}', ())])
            async with projecting(settings):
                await until_projected(settings, places)
        address = settings.database_url.get_secret_value()
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
            await connection.execute("UPDATE projections SET last_hash = '' WHERE last_hash IS NOT NULL")
        async with asyncio.timeout(ON_SERVERS):
            await service.serve(settings, asyncio.Event())

    with pytest.raises(LogChangedError, match="another record"):
        asyncio.run(run())


@pytest.mark.regression("fault 72")
def test_a_client_that_could_not_join_the_group_is_closed_before_the_next_one_begins(settings, monkeypatch):
    asked = no_coordinator.refuse(monkeypatch, GroupAuthorizationFailedError)
    clients = []

    def made(*arguments, **options):
        clients.append(consumer(*arguments, **options))
        return clients[-1]

    monkeypatch.setattr(service, "consumer", made)

    async def run():
        await make_topics(settings)
        async with asyncio.timeout(ON_SERVERS), projecting(settings) as running:
            await asked.get()
            await asked.get()
            first = clients[0]
            assert first is not clients[1]
            assert first._coordinator._coordination_task.done()
            assert first._client._sync_task is None
            assert not any(one.connected() for one in first._client._conns.values())
            running.cancel()

    asyncio.run(run())


@pytest.mark.regression("fault 71")
def test_a_projector_that_cannot_join_its_group_stops_when_it_is_told_to(settings, monkeypatch):
    asked = no_coordinator.refuse(monkeypatch, GroupCoordinatorNotAvailableError)

    async def run():
        await make_topics(settings)
        async with asyncio.timeout(ON_SERVERS), projecting(settings):
            await asked.get()

    asyncio.run(run())
