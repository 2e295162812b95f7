"""An empty database that projects the topic from its beginning: erased conversations stay erased, and cause no
effects."""

import asyncio

import psycopg
import pytest
from pydantic import SecretStr
from tests.support import erasing
from tests.support.projecting import make_topics, projecting, settings_of_its_own, until_projected  # noqa: F401  # a fixture

from frameledger.frames import LLMMessagesAppendFrame
from frameledger.record import LogPosition
from frameledger_services.client import Client
from frameledger_services.event_log import reader
from frameledger_services.event_log.topics import TopicNames


def say(text):
    return LLMMessagesAppendFrame(messages=[{"role": "user", "content": text}], run_llm=True)


async def asked_for(settings, context_id):
    """The effects by which inferences of a conversation were asked for; each may be on the topic more than once."""
    topic = TopicNames(settings.topic_prefix).inference
    records = [
        record
        for partition in range(settings.topic_partitions)
        for record in await reader.records_from(settings, LogPosition(topic, partition, 0))
    ]
    return [dict(one.headers)["ce_id"] for one in records if one.key == context_id.encode()]


@pytest.mark.regression("journey 7")
def test_a_rebuild_from_kafka_does_not_bring_it_back_and_asks_nobody(
    settings, make_database, migrated_template
):
    empty = make_database(template=migrated_template)
    anew = settings.model_copy(update={"database_url": SecretStr(empty)})

    async def run():
        await make_topics(settings)
        async with projecting(settings), Client(settings) as client:
            await client.publish("ctx", say("a secret"), wait=True)
            receipt = await client.erase("ctx", why="asked", requested_by="desk")
            late = await client.publish("other", say("hello"), wait=True)
            asked = await asked_for(settings, "ctx")
        async with projecting(anew), Client(anew) as client:
            await until_projected(anew, [*late, receipt])
            again = await client.receipt("ctx", str(receipt.frame_id))
            assert await client.newest_version("ctx") == 0
        return receipt, again, asked, await asked_for(settings, "ctx")

    receipt, again, before, after = asyncio.run(run())
    assert (receipt.version, receipt.frame_count, receipt.requested_by) == (2, 1, "desk")
    assert again is not None
    assert (again.chain, again.places, again.frame_count) == (receipt.chain, receipt.places, 1)
    assert len(set(before)) == 1
    assert after == before
    with psycopg.connect(empty) as connection:
        assert erasing.found_in_tables(connection, "a secret") == []
        assert connection.execute("SELECT context_id FROM contexts").fetchall() == [("other",)]
        assert connection.execute("SELECT context_id FROM runs").fetchall() == [("other",)]
