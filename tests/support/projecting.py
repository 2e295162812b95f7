"""A projector in this process, with topics of its own."""

import asyncio
from contextlib import asynccontextmanager

import psycopg
import pytest
from tests.bounds import ON_SERVERS
from tests.support.topic_prefixes import topic_prefix

from frameledger_services.event_log import broker
from frameledger_services.event_log.topics import topic_specs
from frameledger_services.projector import service
from frameledger_services.settings import Settings
from frameledger_services.store.progress_channel import CHANNEL


@pytest.fixture(name="settings")
def settings_of_its_own(kafka, database):
    """Topics and a database for this test only."""
    return Settings(
        kafka_bootstrap_servers=kafka.bootstrap_servers,
        database_url=database,
        topic_prefix=topic_prefix(),
        topic_partitions=4,
    )


async def make_topics(settings):
    async with broker.connect(settings) as brokers:
        await brokers.create_missing(topic_specs(settings))


@asynccontextmanager
async def projecting(settings):
    stopping = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(service.serve(settings, stopping))
        yield running
        stopping.set()


async def until_projected(settings, places):
    """Wait until the records at these places are projected."""
    ends: dict[int, int] = {}
    for place in places:
        ends[place.partition] = max(ends.get(place.partition, 0), place.offset + 1)
    async with (
        asyncio.timeout(ON_SERVERS),
        await psycopg.AsyncConnection.connect(
            settings.database_url.get_secret_value(), autocommit=True
        ) as seen,
    ):
        await seen.execute(f"LISTEN {CHANNEL}")
        while True:
            cursor = await seen.execute("SELECT partition, next_offset FROM projections")
            reached: dict[int, int] = dict(await cursor.fetchall())
            if all(reached.get(partition, 0) >= end for partition, end in ends.items()):
                return
            async for _ in seen.notifies(timeout=1.0, stop_after=1):
                pass
