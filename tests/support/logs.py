"""Topics for tests: each test has its own, by a unique prefix."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from tests.bounds import ON_SERVERS
from tests.support.run_broker import Broker
from tests.support.topic_prefixes import topic_prefix

from frameledger.record import Record
from frameledger_services.event_log import broker
from frameledger_services.event_log.consumer import consumer, to_record
from frameledger_services.event_log.topics import TopicNames, topic_specs
from frameledger_services.settings import Settings

PARTITIONS = 4


@pytest.fixture
def log_settings(kafka: Broker) -> Settings:
    """Settings for the broker under test, with a unique topic prefix. No topic exists yet."""
    return Settings(
        kafka_bootstrap_servers=kafka.bootstrap_servers,
        topic_prefix=topic_prefix(),
        topic_partitions=PARTITIONS,
    )


@pytest.fixture
def log(log_settings: Settings) -> Settings:
    """The same settings, once all topics are created."""
    asyncio.run(make(log_settings))
    return log_settings


def frames_topic(settings: Settings) -> str:
    return TopicNames(settings.topic_prefix).frames


async def make(settings: Settings) -> None:
    """Create all topics."""
    async with broker.connect(settings) as connection:
        await connection.create_missing(topic_specs(settings))


@asynccontextmanager
async def reading(settings: Settings, topic: str, **options: Any) -> AsyncIterator[Any]:
    """Yields a started consumer at the beginning of all partitions of a topic."""
    reader = consumer(settings, **options)
    await reader.start()
    try:
        async with broker.connect(settings) as connection:
            found = (await connection.describe([topic]))[topic]
        partitions = [TopicPartition(topic, number) for number in range(found.partitions)]
        reader.assign(partitions)
        for partition in partitions:
            reader.seek(partition, 0)
        yield reader
    finally:
        await reader.stop()


async def read(reader: Any, how_many: int, *, within: float = ON_SERVERS) -> list[Record]:
    """Returns this many records. Those of one partition are in order."""
    records: list[Record] = []
    async with asyncio.timeout(within):
        while len(records) < how_many:
            received = await reader.getmany(timeout_ms=200)
            records += [to_record(one) for of_one in received.values() for one in of_one]
    return records


class BadName(str):
    """A header name that is not UTF-8."""

    def encode(self, *_: object) -> bytes:
        return b"\xff\xfe"


async def send_raw(
    settings: Settings, topic: str, partition: int, records: Sequence[tuple[bytes, bytes, list[Any]]]
) -> None:
    """Append records to a partition as one batch, without the checks of a producer."""
    builder = _DefaultRecordBatchBuilderPy(2, 0, False, -1, -1, -1, 1 << 20)
    for number, (key, value, headers) in enumerate(records):
        builder.append(number, 0, key, value, headers)
    producer = AIOKafkaProducer(bootstrap_servers=settings.kafka_bootstrap_servers)
    await producer.start()
    try:
        await producer.partitions_for(topic)
        leader = producer.client.cluster.leader_for_partition(TopicPartition(topic, partition))
        request = ProduceRequest(
            required_acks=-1,
            timeout=10_000,
            topics=[(topic, [(partition, bytes(builder.build()))])],
            transactional_id=None,
        )
        # Error 6: the broker is not the leader yet.
        while code := (await producer.client.send(leader, request)).topics[0][1][0][1]:
            assert code == 6
    finally:
        await producer.stop()
