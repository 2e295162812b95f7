"""The checks of the producer before it contacts a broker."""

import asyncio
import random

import pytest
from aiokafka.errors import NotLeaderForPartitionError
from aiokafka.partitioner import DefaultPartitioner
from tests.support.turns import turns

from frameledger.partition import partition_for
from frameledger.record import Outgoing
from frameledger_services.event_log.broker import Broker
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.sender import Sender
from frameledger_services.event_log.topics import TopicDescription
from frameledger_services.settings import Settings

RECORD = Outgoing(b"key", b"value", ())


def test_keys_go_where_aiokafka_puts_them():
    draw, theirs = random.Random(7), DefaultPartitioner()
    keys = [draw.randbytes(length) for length in range(256)]
    for partitions in (1, 8, 12, 64):
        everything = list(range(partitions))
        assert [partition_for(key, partitions) for key in keys] == [
            theirs(key, everything, everything) for key in keys
        ]


class FailingSender:
    """A sender whose broker refuses what it is sent for now."""

    client = None

    def __init__(self):
        self.is_stopped = False

    async def send(self, topic, partition, record, answered):
        failed = asyncio.get_running_loop().create_future()
        failed.set_exception(NotLeaderForPartitionError())
        answered()
        return failed

    async def stop(self):
        self.is_stopped = True


@pytest.mark.regression("fault 328")
def test_a_sender_that_failed_is_stopped_also_if_its_publisher_is_cancelled_while_another_topic_is_looked_for(
    monkeypatch,
):
    """Otherwise what it has queued would be sent at some later time."""

    async def run():
        found = asyncio.Event()
        sender = FailingSender()

        async def started(*_):
            return sender

        async def find(_, topic):
            await found.wait()

        monkeypatch.setattr(Sender, "start", started)
        monkeypatch.setattr(Broker, "find", find)
        known = TopicDescription("known", 1, 1, None)
        async with Producer(Settings(), topics=[known]) as publisher:
            publisher.begin("known")
            await turns()
            looking = asyncio.create_task(publisher.publish("another", [RECORD]))
            await turns()
            publishing = asyncio.create_task(publisher.publish("known", [RECORD]))
            await turns()
            publishing.cancel()
            await asyncio.wait([publishing])
            looking.cancel()
            await asyncio.wait([looking])
            await turns()
            assert sender.is_stopped

    asyncio.run(run())
